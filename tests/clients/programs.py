"""The start of the banks: services for a block, producers that end or are killed.

A program reports to a test by one line of JSON on its standard output; other output of its client's library is ignored.
Each holds the other end of a pipe of the test's, so none outlives the tests.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from tests.clients.orders import Addresses, Holds, Order, Told

PATIENCE_S = 40.0
ROOT = Path(__file__).parents[2]
PYTHON_BANKS = {"dtmcli": "tests.clients.dtmcli_bank", "sdk": "tests.clients.sdk_bank"}

S = TypeVar("S", bound=msgspec.Struct)


class Program(msgspec.Struct, frozen=True):
    """One client's bank, with its databases."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]

    @classmethod
    def python(cls, name: str, environment: Mapping[str, str]) -> Program:
        """Return a bank in Python."""
        return cls(name, (sys.executable, "-m", PYTHON_BANKS[name]), environment)

    def start(self, *arguments: str, also: Mapping[str, str] | None = None) -> _Started:
        """Start it, without waiting."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TWOPHASE_")}
        return _Started(
            self.name,
            subprocess.Popen(
                [*self.command, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=ROOT,
                env={**inherited, **self.environment, **(also or {})},
            ),
        )

    @contextlib.contextmanager
    def serving(self, also: Mapping[str, str] | None = None) -> Iterator[Addresses]:
        """Run it, answering check-backs and branches, for the block's time.

        `also`: variables of its environment.
        """
        started = self.start("serve", also=also)
        try:
            yield started.hear(Addresses)
        finally:
            started.kill()

    def transfer(self, order: Order) -> Told:
        """Make one transfer, to its end."""
        started = self.start("transfer", msgspec.json.encode(order).decode())
        try:
            return started.hear(Told)
        finally:
            started.kill()

    def kill_where_it_holds(self, order: Order) -> None:
        """Kill (SIGKILL) the process of one transfer at the hold of its order."""
        started = self.start("transfer", msgspec.json.encode(order).decode())
        try:
            held = started.hear(Holds)
            assert f"hold {held.holds}" == order.ending
        finally:
            code = started.kill()
        assert code == -signal.SIGKILL

    def dies_at(self, failpoint: str, order: Order) -> None:
        """Make one transfer by twophase's own client, which kills itself at a failpoint.

        It does so by SIGKILL.
        """
        started = self.start("transfer", msgspec.json.encode(order).decode(), also={"TWOPHASE_FAILPOINT": failpoint})
        assert started.end() == -signal.SIGKILL


class _Started:
    """A running program, and its output."""

    def __init__(self, name: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._name = name
        self._process = process
        self._errors: list[bytes] = []
        self._out = process.stdout
        self._reader = threading.Thread(target=self._keep, args=(process.stderr,), daemon=True)
        self._reader.start()

    def hear(self, kind: type[S]) -> S:
        """Return the first line of this kind.

        Raises:
            AssertionError: no such line came in time, or the program ended; with the end of its log.
        """
        impatient = threading.Timer(PATIENCE_S, self._process.kill)
        impatient.start()
        try:
            for line in self._out:
                with contextlib.suppress(msgspec.DecodeError):
                    return msgspec.json.decode(line, type=kind)
        finally:
            impatient.cancel()
        code = self.end()
        raise AssertionError(f"{self._name} did not say {kind.__name__} (exit code {code}):\n{self._log()}")

    def kill(self) -> int:
        """Kill it by SIGKILL, and return its exit code."""
        self._process.kill()
        return self.end()

    def end(self) -> int:
        """Wait for its end, and return its exit code, negative for a signal."""
        code = self._process.wait(PATIENCE_S)
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        return code

    def _keep(self, errors: IO[bytes]) -> None:
        for line in errors:
            self._errors.append(line)
            del self._errors[:-40]

    def _log(self) -> str:
        return b"".join(self._errors).decode(errors="replace")
