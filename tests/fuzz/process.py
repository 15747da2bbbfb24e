"""The server that is fuzzed: a process of its own, watched from outside."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.servers.processes import memory_bytes

MEMORY_BYTES_MAX: Final = 400 * 1024 * 1024
"""The bound on the server's memory after any number of cases.

The server begins at about 60 MB.
"""

_START_S: Final = 180.0
_STOP_S: Final = 30.0
_SETTINGS: Final = (
    "retry_first_ms=200",
    "check_back_first_ms=200",
    "request_timeout_ms=1000",
    "rocketmq_port=0",
)


class Fuzzed:
    """A running server: its ports, its log, its memory."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log
        self._read = 0
        self.http_port = self.grpc_port = 0
        self.rocketmq_address = ""

    @property
    def url(self) -> str:
        """Return the URL of the HTTP port."""
        return f"http://127.0.0.1:{self.http_port}"

    def until_ready(self) -> None:
        """Read the ports from the ready line."""
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], _START_S)
        line = self.process.stdout.readline().decode() if readable else ""
        assert "ready" in line, f"the server did not start: {line}{self._log.read_text()}"
        self.http_port, self.grpc_port = (
            int(line.split(f"{one}://127.0.0.1:")[1].split()[0]) for one in ("http", "grpc")
        )
        self.rocketmq_address = line.split("rocketmq://")[1].split()[0]

    def faults(self) -> list[str]:
        """Return the faults in the log since the last look.

        Faults are errors, and anything with a trace. A contrary decision does not count: some cases do send an abort
        after a submit.
        """
        lines = self._log.read_text(errors="replace").splitlines()
        fresh, self._read = lines[self._read :], len(lines)
        return [line[:4000] for line in fresh if "Traceback" in line or _is_fault(line)]

    def check(self) -> None:
        """Check that it lives, answers, has logged no fault, and is within its bound."""
        assert self.process.poll() is None, f"the server ended with {self.process.returncode}: {self.faults()}"
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=60)
        try:
            connection.request("GET", "/api/ping")
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b'{"msg":"pong"}')
        finally:
            connection.close()
        faults = self.faults()
        assert not faults, "\n".join(faults)
        held = self.memory_bytes()
        assert held < MEMORY_BYTES_MAX, f"{held:,} bytes are held"

    def memory_bytes(self) -> int:
        """Return its memory now."""
        return memory_bytes(self.process.pid)


def _is_fault(line: str) -> bool:
    with contextlib.suppress(ValueError):
        said = json.loads(line)
        if isinstance(said, dict) and said.get("level") in {"error", "critical"}:
            return not str(said.get("event", "")).startswith("incident: ")
    return False


@contextlib.contextmanager
def fuzzed() -> Iterator[Fuzzed]:
    """Run a server on free ports, with its store in a directory of its own.

    It is stopped at the end.
    """
    with tempfile.TemporaryDirectory(prefix="twophase-fuzz-") as name:
        folder = Path(name)
        log = folder / "log"
        settings = [part for setting in _SETTINGS for part in ("--set", setting)]
        command = [
            sys.executable,
            "-m",
            "twophase",
            "server",
            "--port",
            "0",
            "--grpc-port",
            "0",
            "--log-level",
            "error",
        ]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TWOPHASE_")}
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [*command, *settings], stdout=subprocess.PIPE, stderr=errors, cwd=folder, env=inherited
            )
        server = Fuzzed(process, log)
        try:
            server.until_ready()
            yield server
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()
