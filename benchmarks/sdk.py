"""The cost of the SDK's own Python, on asyncio.

Sockets and database are replaced by objects that answer at once.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from unittest import mock

import uvloop
from asyncpg.pool import Pool

from benchmarks.measure import ROUNDS, Result
from twophase import AsyncClient, AsyncMessage
from twophase.barrier.dialect import POSTGRESQL
from twophase.barrier.placeholders import numbered
from twophase.client.transport.aio import AsyncTransport
from twophase.client.transport.wire import HttpAnswer

_MESSAGES = 2_000
_NOW_MS = 1_700_000_000_000
_ANSWER = HttpAnswer(200, b'{"dtm_result":"SUCCESS","prepared_at":1700000000000}')
_BRANCH = "http://bank-b.internal:8080/transfer-in"
_CHECK = "http://bank-a.internal:8080/twophase/check"
_PAYLOAD = {"account": "B", "amount": 30}
_IDENTITY = "0123456789abcdef"
_ANSWERS: tuple[tuple[str, list[tuple[object, ...]]], ...] = (
    ("read_identity", [(_IDENTITY, None)]),
    ("read_flaws", []),
    ("read_durability", []),
    ("insert_producer", [(_NOW_MS, _IDENTITY)]),
    ("verify", [(None,)]),
)
_ROWS = {numbered(POSTGRESQL.sql(statement))[0]: rows for statement, rows in _ANSWERS}


async def _yes(*_: object) -> HttpAnswer:
    return _ANSWER


async def _nothing(*_: object) -> None:
    """Return at once."""


class _Connection:
    """A connection and its transaction.

    The identity of its database is known already.
    """

    start = commit = rollback = _nothing

    def is_in_transaction(self) -> bool:
        return False

    def is_closed(self) -> bool:
        return False

    def transaction(self) -> _Connection:
        return self

    async def fetch(self, sql: str, *_: object) -> list[tuple[object, ...]]:
        return _ROWS[sql]


class _Pool(Pool):
    """A pool that always lends the same connection."""

    release: Any = _nothing

    def __init__(self) -> None:
        self._lent = _Connection()

    def __del__(self) -> None:
        """Close nothing: nothing is open."""

    def acquire(self, **_: object) -> Any:
        return _lend(self._lent)


async def _lend(connection: _Connection) -> _Connection:
    return connection


async def _round(work: Callable[[], Awaitable[None]]) -> float:
    cpu_s = time.process_time()
    for _ in range(_MESSAGES):
        await work()
    return (time.process_time() - cpu_s) / _MESSAGES * 1e6


async def _measure() -> list[Result]:
    coordinator, pool = AsyncClient("http://127.0.0.1:36789"), _Pool()

    async def by_hand() -> None:
        message = AsyncMessage(coordinator).add(_BRANCH, _PAYLOAD)
        await message.prepare(_CHECK)
        await message.submit()

    async def transaction() -> None:
        message = AsyncMessage(coordinator).add(_BRANCH, _PAYLOAD)
        async with message.transaction(pool, check=_CHECK):
            pass
        assert message.submitted

    found = []
    for name, work in (("prepare + submit by hand", by_hand), ("a transaction on asyncpg's pool", transaction)):
        rounds = [await _round(work) for _ in range(ROUNDS + 1)][1:]
        found.append(Result(f"SDK: {name}, CPU without I/O", tuple(rounds)))
    return found


def results() -> Iterator[Result]:
    """Yield all measurements of this module."""
    with mock.patch.object(AsyncTransport, "send", _yes):
        yield from uvloop.run(_measure())
