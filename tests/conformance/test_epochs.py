"""Stopping, starting again, and being fenced."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.engines import Engine
from tests.support.items import SetClock, abort, final, flush, live, prepare
from twophase.core.errors import StoreError, StoreFenced
from twophase.stores.base import Store
from twophase.stores.batch import Decide
from twophase.stores.rows import DecidedBy


async def test_everything_is_there_after_a_restart(engine: Engine, tmp_path: Path, clock: SetClock) -> None:
    first = engine.make(tmp_path, clock)
    await first.start()
    await flush(first, prepare("a"), prepare("b"))
    await flush(first, abort("a"), Decide("b", 1, 0, DecidedBy.SUBMIT))
    known = [await first.get("a"), await first.get("b")]
    await first.stop()

    second = engine.make(tmp_path, clock)
    await second.start()

    assert [await second.get("a"), await second.get("b")] == known
    await second.stop()


async def test_history_numbers_go_on_after_a_restart(engine: Engine, tmp_path: Path, clock: SetClock) -> None:
    for seq in (1, 2, 3):
        store = engine.make(tmp_path, clock)
        await store.start()
        await flush(store, prepare(f"g{seq}"))
        await flush(store, abort(f"g{seq}"))
        assert (await final(store, f"g{seq}")).seq == seq
        await store.stop()


async def test_history_numbers_leave_none_out_when_finishes_are_refused(store: Store) -> None:
    for number in range(1, 6):
        gid = f"g{number}"
        await flush(store, prepare(gid))
        await flush(store, abort("unknown"), abort(gid), abort(f"g{number - 1}"))
        assert (await final(store, gid)).seq == number


async def test_a_node_whose_slot_was_taken_can_change_nothing(engine: Engine, store: Store, tmp_path: Path) -> None:
    await flush(store, prepare("g"))
    engine.usurp(tmp_path)

    with pytest.raises(StoreFenced):
        await flush(store, abort("g"), prepare("new"))

    assert (await live(store, "g")).version == 1
    assert await store.get("new") is None
    with pytest.raises(StoreFenced):
        await flush(store, prepare("later"))


async def test_stop_may_be_called_twice_and_before_start(engine: Engine, tmp_path: Path, clock: SetClock) -> None:
    store = engine.make(tmp_path, clock)
    await store.stop()
    await store.start()
    await store.stop()
    await store.stop()

    with pytest.raises(StoreError, match="not open"):
        await flush(store, prepare("g"))
    with pytest.raises(StoreError, match="not open"):
        await store.get("g")
