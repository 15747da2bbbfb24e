"""Producers that never give up.

They prepare, then submit or abort, and repeat each request until it is answered with success. `Traffic.told` keeps the
answers; `ledger.violations` compares it with the database and the branch calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from tests.support.fake_coordinator import Client, Response, post
from tests.support.server_process import ServerProcess

_ANSWER_S = 30.0
_PAUSE_S = 0.02
ABORTS_EVERY = 5


class Told:
    """A producer's knowledge of its message."""

    def __init__(self) -> None:
        self.prepared = False
        self.submitted = False
        self.aborted = False


class Traffic:
    """Several producers at one server, each with one request under way."""

    def __init__(self, server: ServerProcess, branch: str, name: str = "m") -> None:
        self._server = server
        self._branch = branch
        self._name = name
        self._numbers = itertools.count()
        self._stopping = asyncio.Event()
        self._progress = asyncio.Condition()
        self.told: dict[str, Told] = {}
        self.refused: Counter[str] = Counter()
        """Codes of the 503 answers."""
        self.reasons: dict[str, str] = {}
        """The text of the last answer of each code."""
        self.unexpected: list[str] = []
        self.slowest_s = 0.0
        self.completed = 0
        """Messages whose every request was answered with success."""

    @contextlib.asynccontextmanager
    async def running(self, producers: int = 8) -> AsyncIterator[Traffic]:
        """Send until the block ends; then every producer completes its last message."""
        async with asyncio.TaskGroup() as group:
            for _ in range(producers):
                group.create_task(self._produce())
            try:
                yield self
            finally:
                self._stopping.set()

    async def until_completed(self, more: int) -> None:
        """Wait until `more` further messages went through."""
        wanted = self.completed + more
        async with asyncio.timeout(60), self._progress:
            await self._progress.wait_for(lambda: self.completed >= wanted)

    async def until_refused(self, code: str) -> None:
        """Wait until a request is answered with this code."""
        async with asyncio.timeout(60), self._progress:
            await self._progress.wait_for(lambda: self.refused[code] > 0)

    async def _produce(self) -> None:
        client = await self._server.connect()
        try:
            while not self._stopping.is_set():
                await self._message(client, next(self._numbers))
                self.completed += 1
                await self._tell()
        finally:
            client.close()

    async def _message(self, client: Client, number: int) -> None:
        gid = f"{self._name}-{number}"
        told = self.told[gid] = Told()
        fields = {
            "gid": gid,
            "trans_type": "msg",
            "steps": [{"action": self._branch}],
            "payloads": ["{}"],
            "query_prepared": self._branch,
            "timeout_to_fail": 600,
        }
        told.prepared = await self._insist("prepare", fields, client)
        if number % ABORTS_EVERY == 0:
            told.aborted = await self._insist("abort", {"gid": gid, "trans_type": "msg"}, client)
        else:
            told.submitted = await self._insist("submit", fields, client)

    async def _insist(self, what: str, fields: dict[str, Any], client: Client) -> bool:
        """Send it until it is answered with success.

        False when an answer came that must not come.
        """
        repeated = False
        while True:
            began = time.monotonic()
            await client.send(post(f"/api/dtmsvr/{what}", msgspec.json.encode(fields)))
            response = await client.response(timeout_s=_ANSWER_S)
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            if response.status == 200 or (repeated and self._is_done(what, response)):
                return True
            if response.status != 503 or "retry-after" not in response.headers:
                self.unexpected.append(f"{what} {fields['gid']}: {response.status} {response.body[:300]!r}")
                return False
            answer = msgspec.json.decode(response.body)
            self.refused[answer["code"]] += 1
            self.reasons[answer["code"]] = answer["message"]
            await self._tell()
            repeated = True
            await asyncio.sleep(_PAUSE_S)

    def _is_done(self, what: str, response: Response) -> bool:
        """Return True for a conflict by which an earlier try has done it already.

        That try was not acknowledged.
        """
        return what == "submit" and response.status == 409 and b"succeed" in response.body

    async def _tell(self) -> None:
        async with self._progress:
            self._progress.notify_all()
