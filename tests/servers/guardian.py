"""The process between a test run and a database server: whatever happens to the run, the server ends with it.

`python guardian.py WATCHED_PID DIRECTORY USER COMMAND…` starts COMMAND in the background, as USER when that is not
empty, prints the guardian's pid and returns. The guardian stops the server at once and removes DIRECTORY when it
receives SIGTERM or when the process WATCHED_PID has ended, even by SIGKILL. When the guardian itself is killed, the
kernel kills the server. It imports nothing but the standard library and runs as a script, not as a module.
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
from pathlib import Path
from types import FrameType

LOG_NAME = "server.log"
_PR_SET_PDEATHSIG = 1
_STOP_SECONDS = 10


class _Watched:
    """A process that is not our child, whose end we must notice."""

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


def _guard(watched_pid: int, directory: Path, user: str, command: list[str]) -> None:
    stopping = False

    def stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    with (directory.parent / f"{directory.name}.{LOG_NAME}").open("ab") as log:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=directory,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
            user=user or None,
            group=directory.stat().st_gid if user else None,
            extra_groups=[] if user else None,
            # The guardian has one thread, so running code between fork and exec is safe here.
            preexec_fn=_die_with_guardian,  # noqa: PLW1509
        )
    watched = _Watched(watched_pid)
    while not stopping and server.poll() is None and not watched.ended(wait_ms=250):
        pass
    # SIGQUIT: PostgreSQL's immediate shutdown. MariaDB does not need a clean end either: the data is thrown away.
    server.send_signal(signal.SIGQUIT if "postgres" in command[0] else signal.SIGKILL)
    try:
        server.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    shutil.rmtree(directory, ignore_errors=True)
    if watched.ended(wait_ms=0):
        # Nobody is left to read the logs: the last guardian of the run takes everything away.
        shutil.rmtree(directory.parent, ignore_errors=True)


def _detach() -> None:
    os.setsid()  # a Ctrl-C at the terminal is meant for the run, which then ends; we notice that
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
