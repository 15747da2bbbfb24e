"""Rows that SQLite itself finds too big.

They are refused one by one, in every kind of change.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.items import abort, final, flush, live, prepare
from twophase.core.lifecycle import State
from twophase.stores.batch import Decide, Finish, Item, Rejected
from twophase.stores.rows import DecidedBy
from twophase.stores.sqlite import SqliteStore, connection

LIMIT = 20_000
SLIGHTLY_LESS = bytes(LIMIT - 20)
"""A body within the limit on a value, beyond that on a row.

The fault is found in the middle of a statement, not when the value is bound.
"""


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqliteStore]:
    monkeypatch.setattr(connection, "RECORD_BYTES_MAX", LIMIT)
    made = SqliteStore(tmp_path / "store.db")
    await made.start()
    yield made
    await made.stop()


@pytest.mark.parametrize("body", [bytes(LIMIT + 1), SLIGHTLY_LESS], ids=["value", "row"])
async def test_a_new_message_too_big_is_rejected_alone(store: SqliteStore, body: bytes) -> None:
    items = [prepare(f"g{number}", body=body if number == 5 else b"small") for number in range(16)]

    result = await flush(store, *items)

    assert list(result.refused) == [5]
    assert isinstance(result.refused[5], Rejected)
    assert (await store.overview()).prepared == 15


@pytest.mark.parametrize("big", [LIMIT + 1, LIMIT - 20], ids=["value", "row"])
@pytest.mark.parametrize("kind", ["decide", "finish"])
async def test_a_change_too_big_is_rejected_alone(store: SqliteStore, kind: str, big: int) -> None:
    gids = [f"g{number}" for number in range(16)]
    await flush(store, *(prepare(gid) for gid in gids))

    def change(gid: str) -> Item:
        if kind == "decide":
            return Decide(gid, 1, 0, DecidedBy.SUBMIT, bytes(big) if gid == "g5" else None)
        reason = "x" * big if gid == "g5" else "fine"
        return Finish(gid, 1, State.FAILED, reason=reason, decided_by=DecidedBy.ABORT)

    result = await flush(store, *map(change, gids))

    assert list(result.refused) == [5]
    assert isinstance(result.refused[5], Rejected)
    assert (await live(store, "g5")).version == 1
    assert (await store.overview()).prepared == 1


async def test_history_numbers_leave_none_out_when_an_end_is_rejected(store: SqliteStore) -> None:
    await flush(store, *(prepare(f"g{number}") for number in range(4)))
    await flush(
        store,
        abort("g0"),
        Finish("g1", 1, State.FAILED, reason="x" * LIMIT, decided_by=DecidedBy.ABORT),
        abort("g2"),
    )
    await flush(store, abort("g3"))

    assert [(await final(store, gid)).seq for gid in ("g0", "g2", "g3")] == [1, 2, 3]
