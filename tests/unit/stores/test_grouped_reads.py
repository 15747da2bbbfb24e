"""Reads of one moment go together, and each gets its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from twophase.stores.postgres.grouped import TOGETHER_MAX, GroupedReads


class _Table:
    """Rows whose reading waits for the test."""

    def __init__(self) -> None:
        self.reads: list[list[str]] = []
        self.may_answer = asyncio.Event()
        self.error: Exception | None = None

    async def read(self, gids: Sequence[str]) -> Mapping[str, str]:
        self.reads.append(list(gids))
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return {gid: f"row of {gid}" for gid in gids if gid != "absent"}


async def _asked(table: _Table, grouped: GroupedReads[str], *gids: str) -> list[asyncio.Task[str | None]]:
    tasks = [asyncio.create_task(grouped.get(gid)) for gid in gids]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


async def test_reads_of_one_turn_go_together() -> None:
    table = _Table()
    grouped = GroupedReads(table.read)
    tasks = await _asked(table, grouped, "a", "absent", "b", "a")
    table.may_answer.set()
    assert await asyncio.gather(*tasks) == ["row of a", None, "row of b", "row of a"]
    assert table.reads == [["a", "absent", "b", "a"]]


async def test_a_read_begins_after_it_was_asked_for() -> None:
    table = _Table()
    grouped = GroupedReads(table.read)
    first = await _asked(table, grouped, "a")
    second = await _asked(table, grouped, "b", "c")
    assert table.reads == [["a"]]
    table.may_answer.set()
    assert await asyncio.gather(*first, *second) == ["row of a", "row of b", "row of c"]
    assert table.reads == [["a"], ["b", "c"]]


async def test_an_error_reaches_all_of_its_read_and_none_of_the_next() -> None:
    table = _Table()
    grouped = GroupedReads(table.read)
    table.error = OSError("the database is gone")
    tasks = await _asked(table, grouped, "a", "b")
    later = await _asked(table, grouped, "c")
    table.may_answer.set()
    for task in tasks:
        with pytest.raises(OSError, match="gone"):
            await task
    table.error = None
    with pytest.raises(OSError, match="gone"):
        await later[0]
    assert await grouped.get("d") == "row of d"


async def test_a_cancelled_reader_disturbs_no_other() -> None:
    table = _Table()
    grouped = GroupedReads(table.read)
    gone, stays = await _asked(table, grouped, "a", "b")
    gone.cancel()
    table.may_answer.set()
    assert await stays == "row of b"
    with pytest.raises(asyncio.CancelledError):
        await gone


async def test_one_read_is_bounded() -> None:
    table = _Table()
    table.may_answer.set()
    grouped = GroupedReads(table.read)
    gids = [f"g{number}" for number in range(TOGETHER_MAX + 1)]
    assert await asyncio.gather(*(grouped.get(gid) for gid in gids)) == [f"row of {gid}" for gid in gids]
    assert [len(read) for read in table.reads] == [TOGETHER_MAX, 1]
