"""Real processes that can be killed.

They are started, ready, killed by SIGKILL, and started again on the same port.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def keep_port() -> int:
    """Keep a port on loopback for a process that this one starts.

    The process may end and start again there until this one ends. The port is bound, and not listened on: so no other
    process gets it while that process is down, and the process, whose server sets SO_REUSEADDR as servers do, may
    listen there all the same.
    """
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        port: int = kept.getsockname()[1]
        kept.detach()
        return port


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Service:
    """One process of the example.

    Its own port survives restarts; its errors go to a file.
    """

    def __init__(self, name: str, command: Sequence[str], environment: dict[str, str], folder: Path, port: int) -> None:
        self.name = name
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._command = list(command)
        self._environment = environment
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def run_through(self, launcher: Sequence[str]) -> None:
        """Let `launcher` run the module.

        `[python, -m, module, …]` becomes `[*launcher, module, …]`.
        """
        assert self._command[1] == "-m", "services are started as modules"
        self._command = [*launcher, *self._command[2:]]

    def start(self, failpoint: str | None = None, timeout_s: float = 30.0) -> None:
        """Start, and return when the process says that it is ready.

        Raises:
            RuntimeError: it ended or did not get ready in time; the message holds the end of its log.
        """
        self.launch(failpoint)
        self.wait_ready(timeout_s)

    def launch(self, failpoint: str | None = None) -> None:
        """Start, and do not wait. It dies with the thread that launched it."""
        assert self._process is None, f"{self.name} runs already"
        environment = {**os.environ, **self._environment, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        environment.pop("TWOPHASE_FAILPOINT", None)
        if failpoint is not None:
            environment["TWOPHASE_FAILPOINT"] = failpoint
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 -- one prctl, and nothing survives its test
            )

    def wait_ready(self, timeout_s: float = 30.0) -> None:
        """Return when the launched process says that it is ready; raises as `start` does."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                if not selector.select(timeout=0.2):
                    continue
                line = process.stdout.readline()
                if b"http://" in line:
                    return
                if not line:
                    break
        code = process.poll()
        self.kill()
        raise RuntimeError(f"{self.name} did not get ready (exit code {code}):\n{self.log_end()}")

    def log_end(self) -> str:
        """Return the last lines of its error output."""
        return "\n".join(self.log_lines()[-20:])

    def log_lines(self) -> list[str]:
        """Return its error output, all starts together."""
        return self._log.read_text(errors="replace").splitlines() if self._log.exists() else []

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Send SIGKILL, and reap. Nothing happens when the process does not run."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Send SIGTERM, then SIGKILL after ten seconds."""
        self._end(signal.SIGTERM)

    def _end(self, signal_number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal_number)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def wait_killed(self, timeout_s: float) -> bool:
        """Wait for the process' own death by SIGKILL.

        True when it came within `timeout_s`; the process is reaped then.
        """
        process = self._process
        assert process is not None
        try:
            code = process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return False
        self._process = None
        if process.stdout is not None:
            process.stdout.close()
        return code == -signal.SIGKILL


def start_those_down(services: Sequence[Service]) -> None:
    """Start, side by side, every service that does not run.

    Returns when all are ready; raises as `Service.start` does.
    """
    down = [service for service in services if not service.alive]
    for service in down:
        service.kill()
        service.launch()
    for service in down:
        service.wait_ready()


def coordinator(folder: Path, *, settings: dict[str, str] | None = None, module: str = "twophase") -> Service:
    """A coordinator on SQLite in `folder`."""
    port = keep_port()
    command = [
        sys.executable,
        "-m",
        module,
        "server",
        "--store",
        f"sqlite:///{folder / 'coordinator.db'}",
        "--host",
        "127.0.0.1",
        "--http-port",
        str(port),
    ]
    return Service("coordinator", command, settings or {}, folder, port)


def bank(name: str, module: str, folder: Path, environment: dict[str, str]) -> Service:
    """A bank's service; `module` is what to serve, as MODULE:APP."""
    port = keep_port()
    own = {**environment, "OWN_URL": f"http://127.0.0.1:{port}"}
    return Service(name, [sys.executable, "-m", "examples.banks.serve", module, str(port)], own, folder, port)
