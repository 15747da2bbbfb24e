"""Programs around the official clients, driven over pipes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.clients.rocketmq.languages import Command

ROOT: Final = Path(__file__).parents[3]
PATIENCE_S: Final = 60.0
_ERRORS: Final = "errors.txt"
"""The program's standard error, in its home."""
_LINE_BYTES_MAX: Final = 16 * 1024 * 1024
_LOG_CHARS_MAX: Final = 8_000


class Failed(Exception):
    """A command that a client refused; `code` is RocketMQ's, -1 for none."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class Program:
    """A running program; its clients have names."""

    def __init__(self, process: Process, home: Path) -> None:
        self.process = process
        self.events: list[dict[str, Any]] = []
        self._home = home
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = itertools.count()
        self._news = asyncio.Condition()
        self._reading = asyncio.ensure_future(self._read())

    async def do(self, what: str, **fields: Any) -> dict[str, Any]:
        """Carry out a command; raises Failed."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode({"number": number, "do": what, **fields}) + b"\n")
        await self.process.stdin.drain()
        async with asyncio.timeout(2 * PATIENCE_S):
            found = await answer
        if "error" in found:
            why = found["error"] if found["code"] >= 0 else f"{found['error']}\n{self._client_log()}"
            raise Failed(why, found["code"])
        done: dict[str, Any] = found["done"]
        return done

    def heard(self, event: str, name: str) -> list[dict[str, Any]]:
        """Return what a client has reported."""
        return [one for one in self.events if one["event"] == event and one["name"] == name]

    async def until(self, event: str, name: str, count: int) -> list[dict[str, Any]]:
        """Wait until a client has reported that many times."""
        async with asyncio.timeout(2 * PATIENCE_S), self._news:
            await self._news.wait_for(lambda: len(self.heard(event, name)) >= count or self.process.returncode)
        found = self.heard(event, name)
        assert len(found) >= count, self._errors_text()
        return found

    def _errors_text(self) -> str:
        return (self._home / _ERRORS).read_text(errors="replace")[-_LOG_CHARS_MAX:]

    def _client_log(self) -> str:
        """Return the end of what the client wrote.

        An error in its own clean-up hides the first one.
        """
        files = sorted(self._home.rglob("*.log"), key=lambda file: file.stat().st_mtime)
        return "\n".join(file.read_text(errors="replace")[-_LOG_CHARS_MAX:] for file in files[-3:])

    async def kill(self) -> None:
        """End the program at once, as a crash does."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            if not line.startswith(b"{"):
                continue
            said = msgspec.json.decode(line)
            if "number" in said:
                self._answers.pop(said["number"]).set_result(said)
                continue
            async with self._news:
                self.events.append(said)
                self._news.notify_all()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(Failed(f"the program ended: {self._errors_text()}", -1))
        async with self._news:
            self._news.notify_all()


@contextlib.asynccontextmanager
async def program(
    command: Command, endpoints: str, folder: Path, key: str = "", secret: str = ""
) -> AsyncIterator[Program]:
    """Run a program for the block's time.

    Arguments:
        folder: its home, where clients write their logs.
        key, secret: its credentials.
    """
    environment = {name: value.replace("{home}", str(folder)) for name, value in command.environment}
    with (folder / _ERRORS).open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            *(word.replace("{home}", str(folder)) for word in command.words),
            endpoints,
            key,
            secret,
            stdin=PIPE,
            stdout=PIPE,
            stderr=file,
            cwd=ROOT,
            env={**os.environ, **environment, "HOME": str(folder)},
            limit=_LINE_BYTES_MAX,
        )
    one = Program(process, folder)
    try:
        await one.until("ready", "", 1)
        yield one
    finally:
        await one.kill()
