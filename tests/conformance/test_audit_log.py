"""An act and its row of the audit log are one commit, and the rows are a chain."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from tests.conformance.engines import Engine, PostgresEngine
from tests.support.items import SetClock, abort, flush, live, prepare
from twophase.core.audit_log import NO_HASH, AuditEntry, AuditRow, AuditSearch, recomputed
from twophase.core.lifecycle import State
from twophase.stores.base import Store
from twophase.stores.batch import Batch, Insert, Item, Park, Redirect
from twophase.stores.rows import Subscriber

STOP = AuditEntry("eve", "192.0.2.7", "stop", "a", "an order of ünknown size", "prepared", "failed")


def _act(target: str, act: str = "park", who: str = "eve") -> AuditEntry:
    return AuditEntry(who, "192.0.2.7", act, target)


def _park(gid: str, version: int = 1) -> Park:
    return Park(gid, version, True, 0)


async def _rows(store: Store) -> list[AuditRow]:
    return list(await store.audit_chain(0, 1_000))


async def _assert_chained(store: Store) -> None:
    head = await store.audit_head()
    previous, seq = head.anchor_hash, head.anchor_seq
    for row in await _rows(store):
        assert (row.seq, row.previous, row.hash) == (seq + 1, previous, recomputed(row))
        previous, seq = row.hash, row.seq
    assert (head.seq, head.hash) == (seq, previous)


async def test_an_act_is_a_row_with_the_stores_time_and_node(store: Store, clock: SetClock) -> None:
    await flush(store, prepare("a"))
    await store.flush(Batch([abort("a")], [], {0: STOP}))
    (row,) = await _rows(store)
    assert AuditEntry(row.who, row.peer, row.act, row.target, row.reason, row.before, row.after) == STOP
    assert (row.seq, row.at_ms, row.node, row.previous) == (1, clock.time_ms, store.slot[0], NO_HASH)
    await _assert_chained(store)


async def test_a_flush_without_an_act_writes_no_row(store: Store) -> None:
    await flush(store, prepare("a"), prepare("b"))
    await flush(store, abort("a"), _park("b"))
    assert await _rows(store) == []
    assert (await store.audit_head()).hash == NO_HASH


async def test_an_act_whose_item_is_refused_has_no_row(store: Store) -> None:
    await flush(store, prepare("a"), prepare("b"), prepare("c"))
    items: list[Item] = [_park("a"), _park("b", version=9), _park("c"), _park("unknown")]
    result = await store.flush(Batch(items, [], {at: _act(item.gid) for at, item in enumerate(items)}))
    assert result.refused.keys() == {1, 3}
    assert [row.target for row in await _rows(store)] == ["a", "c"]
    await _assert_chained(store)


async def test_every_kind_of_change_may_be_an_act_in_one_flush(store: Store) -> None:
    await flush(store, prepare("a"), prepare("b"), prepare("c"))
    taken = Insert("taken", State.PREPARED, 0, b"body", created_ms=5)
    items: list[Item] = [_park("a"), abort("b"), Redirect("c", 1, 0, 0, b"other"), taken, prepare("plain")]
    await store.flush(Batch(items, [], {0: _act("a"), 1: _act("b"), 2: _act("c"), 3: _act("taken")}))
    assert sorted(row.target for row in await _rows(store)) == ["a", "b", "c", "taken"]
    assert (await live(store, "taken")).created_ms == 5
    await _assert_chained(store)


async def test_a_value_that_no_database_takes_keeps_its_neighbours_acts(store: Store) -> None:
    await flush(store, prepare("a"), prepare("b"))
    items: list[Item] = [_park("a"), Insert("bad\ud800", State.PREPARED, 0, b""), _park("b")]
    await store.flush(Batch(items, [], {0: _act("a"), 1: _act("bad"), 2: _act("b")}))
    assert [row.target for row in await _rows(store)] == ["a", "b"]
    await _assert_chained(store)


async def test_text_of_an_act_is_cleaned_and_bounded(store: Store) -> None:
    await store.append_audit([AuditEntry("eve\n", "", "stop", "x" * 9_000, "nul\0 \ud800 \x1b[2J")])
    (row,) = await _rows(store)
    assert (row.who, row.reason) == ("eve\\n", "nul\\x00 \\ud800 \\x1b[2J")
    assert len(row.target) == 2_000
    await _assert_chained(store)


async def test_a_topic_and_its_act_are_one_commit(store: Store) -> None:
    assert await store.change_topic(0, "rates", [Subscriber("http://b/in")], _act("rates", "subscribe"))
    assert not await store.change_topic(0, "rates", None, _act("rates", "delete-topic"))
    assert await store.change_topic(1, "rates", None, _act("rates", "delete-topic"))
    assert [row.act for row in await _rows(store)] == ["subscribe", "delete-topic"]
    await _assert_chained(store)


async def test_a_search_finds_the_newest_first_page_by_page(store: Store, clock: SetClock) -> None:
    for number in range(5):
        clock.time_ms += 1
        await store.append_audit([_act(f"g{number}", who="eve" if number % 2 else "bob")])
    first = await store.audit_search(AuditSearch(), 0, 2)
    second = await store.audit_search(AuditSearch(), first.position, 2)
    last = await store.audit_search(AuditSearch(), second.position, 2)
    assert [[row.target for row in page.rows] for page in (first, second, last)] == [["g4", "g3"], ["g2", "g1"], ["g0"]]
    assert last.position == 0

    async def found(search: AuditSearch) -> list[str]:
        return [row.target for row in (await store.audit_search(search, 0, 10)).rows]

    assert await found(AuditSearch(who="eve")) == ["g3", "g1"]
    assert await found(AuditSearch(target="g2")) == ["g2"]
    assert await found(AuditSearch(act="stop")) == []
    assert await found(AuditSearch(since_ms=clock.time_ms - 1)) == ["g4", "g3"]


async def test_cleaning_removes_the_beginning_and_keeps_its_end(store: Store, clock: SetClock) -> None:
    for number in range(5):
        clock.time_ms += 10
        await store.append_audit([_act(f"g{number}")])
    before = await _rows(store)
    await store.purge(before[3].at_ms, 2)
    assert [row.seq for row in await _rows(store)] == [3, 4, 5]
    await store.purge(before[3].at_ms, 2)
    head = await store.audit_head()
    assert (head.anchor_seq, head.anchor_hash) == (3, before[2].hash)
    assert await _rows(store) == before[3:]
    await store.append_audit([_act("later")])
    await _assert_chained(store)


async def test_cleaning_leaves_all_rows_where_an_archive_lacks_them(
    store: Store, engine: Engine, tmp_path: Path, clock: SetClock
) -> None:
    await store.append_audit([_act("a")])
    clock.time_ms += 1_000
    engine.archived(tmp_path, clock.time_ms)
    await store.purge(clock.time_ms, 10)
    assert len(await _rows(store)) == 1


async def test_cleaning_removes_what_an_archive_has_and_no_more(
    store: Store, engine: Engine, tmp_path: Path, clock: SetClock
) -> None:
    for number in range(5):
        clock.time_ms += 10
        await store.append_audit([_act(f"g{number}")])
    before = await _rows(store)
    engine.archived(tmp_path, clock.time_ms, audit_through=3)
    await store.purge(before[2].at_ms, 10)
    assert [row.seq for row in await _rows(store)] == [3, 4, 5]
    await store.purge(before[4].at_ms, 10)
    assert [row.seq for row in await _rows(store)] == [4, 5]
    await _assert_chained(store)


async def test_the_chain_goes_on_after_a_restart(engine: Engine, tmp_path: Path, clock: SetClock) -> None:
    for _ in range(2):
        store = engine.make(tmp_path, clock)
        await store.start()
        await store.append_audit([_act("a")])
        await store.stop()
    store = engine.make(tmp_path, clock)
    await store.start()
    assert [row.seq for row in await _rows(store)] == [1, 2]
    await _assert_chained(store)
    await store.stop()


async def test_a_changed_row_has_another_hash(store: Store) -> None:
    await store.append_audit([STOP])
    (row,) = await _rows(store)
    for column in ("seq", "at_ms", "node"):
        assert recomputed(msgspec.structs.replace(row, **{column: getattr(row, column) + 1})) != row.hash
    for column in ("who", "peer", "act", "target", "reason", "before", "after", "previous"):
        assert recomputed(msgspec.structs.replace(row, **{column: getattr(row, column) + "x"})) != row.hash
    shifted = msgspec.structs.replace(row, who=row.who[:-1], peer=row.who[-1] + row.peer)
    assert recomputed(shifted) != row.hash


async def test_nodes_that_write_at_once_make_one_chain(
    postgres_server: object, tmp_path: Path, clock: SetClock
) -> None:
    engine = PostgresEngine()
    stores = [engine.make(tmp_path, clock) for _ in range(3)]
    for store in stores:
        await store.start()

    async def act(store: Store, name: str) -> None:
        for number in range(10):
            gid = f"{name}-{number}"
            await flush(store, prepare(gid))
            await store.flush(Batch([_park(gid)], [], {0: _act(gid)}))

    await asyncio.gather(*(act(store, f"n{at}") for at, store in enumerate(stores)))
    rows = await _rows(stores[0])
    assert len(rows) == 30
    assert {row.node for row in rows} == {store.slot[0] for store in stores}
    await _assert_chained(stores[0])
    for store in stores:
        await store.stop()


async def test_tokens_are_noted_with_their_rows_by_who_knows_the_last(store: Store) -> None:
    none = await store.tokens_seen()
    assert none.by_name == {}
    assert await store.note_tokens(none, {"shop": "produce", "desk": "operate"}, [_act("shop", "token")])
    assert not await store.note_tokens(none, {}, [_act("shop", "token")])
    some = await store.tokens_seen()
    assert some.by_name == {"shop": "produce", "desk": "operate"}
    assert await store.note_tokens(some, {"shop": "observe"}, [_act("shop", "token"), _act("desk", "token")])
    assert (await store.tokens_seen()).by_name == {"shop": "observe"}
    assert [row.target for row in await _rows(store)] == ["shop", "shop", "desk"]
    await _assert_chained(store)
