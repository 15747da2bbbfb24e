"""The process between a test run and a database server.

Whatever happens to the run, the server ends with it.

`python guardian.py WATCHED_PID DIRECTORY USER COMMAND…` starts COMMAND in the background, as USER when that is not
empty, prints the guardian's pid and returns. The guardian stops the server at once and removes DIRECTORY when it
receives SIGTERM or when the process WATCHED_PID has ended, even by SIGKILL. When the guardian itself is killed, the
kernel kills the server. It imports nothing but the standard library and runs as a script, not as a module.

A test that needs an outage asks for one: on SIGUSR1 the guardian kills the server and all its processes (SIGKILL, as
when the machine goes down), on SIGHUP it shuts the server down as an operator would, on SIGUSR2 it starts it again, on
the same data and the same port.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

LOG_NAME = "server.log"
_PR_SET_PDEATHSIG = 1
_STOP_SECONDS = 30


class _Watched:
    """A process that is not the guardian's child, whose end it must notice."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._poll = select.poll()
        self._gone = False
        try:
            self._poll.register(os.pidfd_open(pid), select.POLLIN)
            self._by_pidfd = True
        except ProcessLookupError:
            self._gone = True
        except OSError:  # some containers forbid pidfd_open
            self._by_pidfd = False

    def ended(self, wait_ms: int) -> bool:
        """Wait at most `wait_ms` for the end of the process; True when it has ended."""
        if self._gone:
            return True
        try:
            events = self._poll.poll(wait_ms)
        except InterruptedError:
            return False
        if self._by_pidfd:
            return bool(events)
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return True
        return False


def _die_with_guardian() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class _Server:
    """The process that is guarded; it may be down because a test wants it so."""

    def __init__(self, directory: Path, user: str, command: list[str]) -> None:
        self._directory = directory
        self._user = user
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._down_on_purpose = False
        self.start()

    @property
    def ended(self) -> bool:
        """Return True when it has ended without a request."""
        return self._process is not None and self._process.poll() is not None and not self._down_on_purpose

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        directory = self._directory
        with (directory.parent / f"{directory.name}.{LOG_NAME}").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
                user=self._user or None,
                group=directory.stat().st_gid if self._user else None,
                extra_groups=[] if self._user else None,
                # The guardian has one thread, so running code between fork and exec is safe here.
                preexec_fn=_die_with_guardian,  # noqa: PLW1509
            )
        self._down_on_purpose = False

    def crash(self) -> None:
        """End all its processes at once, as when the machine loses its power."""
        self._down_on_purpose = True
        assert self._process is not None
        # A stopped process makes no further child, which would be left over: the next start would find it alive.
        self._process.send_signal(signal.SIGSTOP)
        _until_stopped(self._process.pid)
        children = _children(self._process.pid)
        self._process.kill()
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        _until_gone(children)

    def shut_down(self) -> None:
        """Shut it down as its operator would, with a note to every client.

        (PostgreSQL: SIGINT is the fast shutdown.)
        """
        self._down_on_purpose = True
        self._end(signal.SIGINT if "postgres" in self._command[0] else signal.SIGTERM)

    def stop(self) -> None:
        """End it fast and for good; its data is deleted."""
        # SIGQUIT: PostgreSQL's immediate shutdown. MariaDB does not need a clean end either.
        self._end(signal.SIGQUIT if "postgres" in self._command[0] else signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _until_stopped(pid: int) -> None:
    deadline = time.monotonic() + _STOP_SECONDS
    while time.monotonic() < deadline and _state(pid) not in {"T", "Z", ""}:
        time.sleep(0.001)


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _until_gone(pids: list[int]) -> None:
    """Wait for killed processes.

    While one still holds the shared memory, PostgreSQL does not start again.
    """
    deadline = time.monotonic() + _STOP_SECONDS
    while time.monotonic() < deadline and any(_runs(pid) for pid in pids):
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    return _state(pid) not in {"Z", ""}


def _state(pid: int) -> str:
    """Return the state as the kernel writes it; empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _guard(watched_pid: int, directory: Path, user: str, command: list[str]) -> None:
    wishes: list[int] = []

    def wish(number: int, _frame: FrameType | None) -> None:
        wishes.append(number)

    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        signal.signal(number, wish)
    server = _Server(directory, user, command)
    does = {signal.SIGUSR1: server.crash, signal.SIGUSR2: server.start, signal.SIGHUP: server.shut_down}
    watched = _Watched(watched_pid)
    while signal.SIGTERM not in wishes and not server.ended and not watched.ended(wait_ms=100):
        while wishes and wishes[0] in does:
            does[signal.Signals(wishes.pop(0))]()
    server.stop()
    shutil.rmtree(directory, ignore_errors=True)
    if watched.ended(wait_ms=0):
        # No reader of the logs is left: the last guardian of the run removes everything.
        shutil.rmtree(directory.parent, ignore_errors=True)


def _detach() -> None:
    os.setsid()  # a Ctrl-C at the terminal is meant for the run, which then ends; the guardian notices that
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)


def main(arguments: list[str]) -> None:
    """Start the guardian and print its pid."""
    watched_pid, directory, user, *command = arguments
    guardian_pid = os.fork()
    if guardian_pid:
        print(guardian_pid)
        return
    _detach()
    with contextlib.suppress(KeyboardInterrupt):
        _guard(int(watched_pid), Path(directory), user, command)


if __name__ == "__main__":
    main(sys.argv[1:])
