"""A message keeps its owner, live and in history."""

from __future__ import annotations

from tests.support.items import final, flush, live
from twophase.core.lifecycle import State
from twophase.stores.base import Store
from twophase.stores.batch import Batch, Decide, Finish, Insert
from twophase.stores.rows import DecidedBy
from twophase.stores.search import Search


def _new(gid: str, owner: str = "", *, created_ms: int | None = None, body: bytes = b"body") -> Insert:
    return Insert(gid, State.PREPARED, 1_000, body, created_ms, owner)


async def test_an_owner_goes_with_the_message_into_history(store: Store) -> None:
    await flush(store, _new("a", "orders"), _new("b"), _new("c", "stock"))
    assert [(await live(store, gid)).owner for gid in "abc"] == ["orders", "", "stock"]
    await flush(store, Decide("a", 1, 0, DecidedBy.SUBMIT))
    await flush(store, Finish("a", 2, State.SUCCEEDED), Finish("b", 1, State.FAILED, "", DecidedBy.ABORT))
    assert [(await final(store, gid)).owner for gid in "ab"] == ["orders", ""]


async def test_a_flush_of_one_owner_alone_marks_every_message(store: Store) -> None:
    await flush(store, *(_new(f"g{number}", "orders") for number in range(5)))
    assert {(await live(store, f"g{number}")).owner for number in range(5)} == {"orders"}


async def test_an_owner_is_kept_beside_a_message_that_was_begun_elsewhere(store: Store) -> None:
    await flush(store, _new("mine", "orders"), _new("taken", created_ms=17))
    assert ((await live(store, "mine")).owner, (await live(store, "taken")).owner) == ("orders", "")
    assert (await live(store, "taken")).created_ms == 17


async def test_a_search_by_owner_finds_that_owners_messages_alone(store: Store) -> None:
    await flush(store, _new("a", "orders"), _new("b", "stock"), _new("c"))
    await flush(store, _new("d", "orders"), _new("e", "stock"))
    await store.flush(Batch([Finish(gid, 1, State.FAILED, "", DecidedBy.ABORT) for gid in "de"], []))
    found = await store.search(Search(owner="orders"), "", 10)
    everything = await store.search(Search(), "", 10)
    assert [row.gid for row in found.rows] == ["a", "d"]
    assert len(everything.rows) == 5


async def test_live_messages_are_counted_by_owner_with_their_bytes(store: Store) -> None:
    await flush(
        store, _new("a", "orders", body=b"1234"), _new("b", "orders", body=b"12"), _new("c"), _new("d", "stock")
    )
    await flush(store, Finish("d", 1, State.FAILED, "", DecidedBy.ABORT))
    assert await store.waiting_by_owner() == {"orders": (2, 6)}


async def test_the_size_of_the_store_grows_with_its_rows(store: Store) -> None:
    before = await store.size_bytes()
    await flush(store, *(_new(f"g{number}", body=bytes(5_000)) for number in range(40)))
    assert before > 0
    assert await store.size_bytes() > before
