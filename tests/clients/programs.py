"""Starting the banks: services that live as long as a block, producers that end or are killed where they hold.

What a program says to a test is one line of JSON on its standard output; whatever else its client's library prints
there is passed over. Each holds the other end of a pipe of ours, so none outlives the tests.
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

from tests.clients.wish import Addresses, Holds, Told, Wish

PATIENCE_S = 40.0
ROOT = Path(__file__).parents[2]
PYTHON_BANKS = {"dtmcli": "tests.clients.dtmcli_bank", "sdk": "tests.clients.sdk_bank"}

S = TypeVar("S", bound=msgspec.Struct)


class Program(msgspec.Struct, frozen=True):
    """One client's bank, and the databases it is given."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]

    @classmethod
    def python(cls, name: str, environment: Mapping[str, str]) -> Program:
        """A bank in Python."""
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
    def serving(self) -> Iterator[Addresses]:
        """It answers check-backs and branches for the block's time."""
        started = self.start("serve")
        try:
            yield started.hear(Addresses)
        finally:
            started.kill()

    def transfer(self, wish: Wish) -> Told:
        """One transfer, to its end."""
        started = self.start("transfer", msgspec.json.encode(wish).decode())
        try:
            return started.hear(Told)
        finally:
            started.kill()

    def kill_where_it_holds(self, wish: Wish) -> None:
        """One transfer, whose process is killed (SIGKILL) where the wish lets it hold."""
        started = self.start("transfer", msgspec.json.encode(wish).decode())
        try:
            held = started.hear(Holds)
            assert f"hold {held.holds}" == wish.ending
        finally:
            code = started.kill()
        assert code == -signal.SIGKILL

    def dies_at(self, failpoint: str, wish: Wish) -> None:
        """One transfer by twophase's own client, which kills itself (SIGKILL) at one of its failpoints."""
        started = self.start("transfer", msgspec.json.encode(wish).decode(), also={"TWOPHASE_FAILPOINT": failpoint})
        assert started.end() == -signal.SIGKILL


class _Started:
    """A running program, and what it says."""

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
        """The first line of this kind.

        Raises:
            AssertionError: the program ended, or said nothing of the kind in time; with the end of its log.
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
        """SIGKILL, and its exit code."""
        self._process.kill()
        return self.end()

    def end(self) -> int:
        """Wait for its end; its exit code, negative for a signal."""
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
