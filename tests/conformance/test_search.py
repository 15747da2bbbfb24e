"""A person's search among all messages, page by page.

The overview of messages due later than they should be is tested, too.
"""

from __future__ import annotations

import pytest

from tests.support.items import LONE_SURROGATE, SetClock, abort, flush, plain, prepare
from twophase.core.errors import InvalidRequest
from twophase.core.lifecycle import State
from twophase.core.message import Branch, Message, encode
from twophase.stores import search
from twophase.stores.base import Store
from twophase.stores.batch import Finish, Insert, Park
from twophase.stores.rows import LiveRow
from twophase.stores.search import Search

DONE = frozenset({State.SUCCEEDED})


def calling(gid: str, *urls: str, payload: bytes = b"") -> Insert:
    """Return a prepared message with a branch for each address."""
    return prepare(gid, body=encode(Message(gid, tuple(Branch(url, payload) for url in urls))))


async def finished(store: Store, clock: SetClock, *gids: str) -> None:
    """Finish messages one after the other."""
    for gid in gids:
        clock.time_ms += 10
        await flush(store, prepare(gid))
        await flush(store, abort(gid))


async def gids(store: Store, wanted: Search | None = None, limit: int = 100) -> list[str]:
    """Return every gid found, over all pages."""
    found: list[str] = []
    position = ""
    for _ in range(200):
        page = await store.search(wanted or Search(), position, limit)
        assert len(page.rows) <= limit
        found += [row.gid for row in page.rows]
        position = page.position
        if not position:
            return found
    raise AssertionError("the pages have no end")


async def test_an_empty_store_is_one_empty_page(store: Store) -> None:
    page = await store.search(Search(), "", 10)

    assert (list(page.rows), page.position) == ([], "")


async def test_live_messages_come_by_gid_and_then_history_the_newest_first(store: Store, clock: SetClock) -> None:
    await finished(store, clock, "first", "zweite", "last")
    await flush(store, prepare("a"), plain("c"), prepare("b"))

    assert await gids(store) == ["c", "b", "a", "last", "zweite", "first"]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 100])
async def test_pages_join_without_gap_or_repeat(store: Store, clock: SetClock, limit: int) -> None:
    past, now = [f"p{number}" for number in range(5)], [f"n{number}" for number in range(4)]
    await finished(store, clock, *past)
    await flush(store, *(prepare(gid) for gid in now))

    assert await gids(store, limit=limit) == [*reversed(now), *reversed(past)]


async def test_a_page_that_holds_all_there_is_is_the_last(store: Store, clock: SetClock) -> None:
    await finished(store, clock, "p")
    await flush(store, prepare("n"))

    assert (await store.search(Search(), "", 2)).position == ""
    assert (await store.search(Search(), "", 1)).position != ""
    assert (await store.search(Search(frozenset({State.PREPARED})), "", 1)).position == ""


async def test_what_ends_between_two_pages_is_seen(store: Store, clock: SetClock) -> None:
    await finished(store, clock, "old")
    await flush(store, prepare("a"), prepare("b"))
    first = await store.search(Search(), "", 1)
    await finished(store, clock, "new")
    await flush(store, abort("a"), abort("b"))

    rest: list[str] = []
    position = first.position
    while position:
        page = await store.search(Search(), position, 1)
        rest += [row.gid for row in page.rows]
        position = page.position
    assert {row.gid for row in first.rows} == {"b"}
    assert set(rest) == {"a", "b", "new", "old"}, "b again, as final: it was live when it was shown"


async def test_what_ends_while_history_is_read_moves_no_page(store: Store, clock: SetClock) -> None:
    await finished(store, clock, "one", "two", "three")
    page = await store.search(Search(), "", 1)
    await finished(store, clock, "four")

    assert [row.gid for row in page.rows] == ["three"]
    assert [row.gid for row in (await store.search(Search(), page.position, 9)).rows] == ["two", "one"]


async def test_states_and_parked_restrict(store: Store, clock: SetClock) -> None:
    await finished(store, clock, "failed")
    await flush(store, plain("done"), prepare("prepared"), plain("submitted"), prepare("parked"))
    await flush(store, Finish("done", 1, State.SUCCEEDED), Park("parked", 1, parked=True, due_ms=0))

    assert await gids(store, Search(frozenset({State.PREPARED}))) == ["prepared", "parked"]
    assert await gids(store, Search(frozenset({State.SUBMITTED, State.FAILED}))) == ["submitted", "failed"]
    assert await gids(store, Search(DONE)) == ["done"]
    assert await gids(store, Search(parked=True)) == ["parked"]
    assert await gids(store, Search(parked=False)) == ["submitted", "prepared", "done", "failed"]
    assert await gids(store, Search(DONE, parked=True)) == []
    assert await gids(store, Search(frozenset())) == []


async def test_the_beginning_of_the_gid_restricts(store: Store, clock: SetClock) -> None:
    await finished(store, clock, "order-1", "Order-2", "xorder-3", "order%4")
    await flush(
        store, prepare("order-"), prepare("order-9"), prepare("order"), prepare("ordes"), prepare("order-\U0010ffff")
    )

    assert await gids(store, Search(gid_prefix="order-")) == ["order-\U0010ffff", "order-9", "order-", "order-1"]
    assert await gids(store, Search(gid_prefix="order%")) == ["order%4"]
    assert await gids(store, Search(gid_prefix="nobody")) == []


async def test_the_time_of_birth_restricts(store: Store, clock: SetClock) -> None:
    start_ms = clock.time_ms
    await finished(store, clock, "p10", "p20", "p30")
    clock.time_ms = start_ms + 25
    await flush(store, prepare("n25"))

    wanted = Search(created_from_ms=start_ms + 20, created_before_ms=start_ms + 30)
    assert await gids(store, wanted) == ["n25", "p20"]


async def test_the_destination_restricts_by_the_beginning_of_an_address(store: Store) -> None:
    await flush(
        store,
        calling("a", "http://mail:80/send"),
        calling("b", "http://bank/in", "https://mail:80/receipt"),
        calling("c", "http://bank/in", payload=b"http://mail:80/send"),
        calling("d", "http://notmail:80/send"),
        calling("e", "http://mail:80/send"),
    )
    await flush(store, abort("e"))

    assert await gids(store, Search(destination="mail:80")) == ["b", "a", "e"]
    assert await gids(store, Search(destination="http://mail:80/send")) == ["a", "e"]
    assert await gids(store, Search(destination="mail:80"), limit=1) == ["b", "a", "e"]


async def test_an_address_that_only_continues_the_wanted_one_is_another(store: Store) -> None:
    await flush(
        store,
        calling("a", "http://mail:80/send"),
        calling("b", "http://mail:8080/send"),
        calling("c", "http://mail:80/sender"),
        prepare("d", body=encode(Message("d", (), "http://shop:80/check"))),
        prepare("e", body=encode(Message("e", (), "http://shop:8080/check"))),
    )

    assert await gids(store, Search(destination="http://mail:80")) == ["c", "a"]
    assert await gids(store, Search(destination="mail:80/send")) == ["a"]
    assert await gids(store, Search(check="shop:80")) == ["d"]


async def test_what_cannot_be_read_is_shown_rather_than_hidden(store: Store) -> None:
    await flush(store, prepare("broken", body=b"\xc1 http://mail"))

    assert await gids(store, Search(destination="http://mail")) == ["broken"]


async def test_a_page_looks_at_a_bounded_number_of_rows(
    store: Store, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "EXAMINED_MAX", 3)
    await finished(store, clock, *(f"p{number}" for number in range(8)))
    await flush(store, *(prepare(f"n{number}") for number in range(8)))
    wanted = Search(gid_prefix="p0")

    short = await store.search(Search(frozenset({State.SUBMITTED, State.FAILED})), "", 100)

    assert (list(short.rows), short.position) == ([], "ln5")
    assert await gids(store, wanted) == ["p0"]
    assert len(await gids(store)) == 16


async def test_a_position_that_was_never_given_is_refused(store: Store) -> None:
    for position in ("abc", "h.x", "h1", "h.1-99999999999999999999", "h.9999999999-1", "l" + LONE_SURROGATE):
        with pytest.raises(InvalidRequest, match="position"):
            await store.search(Search(), position, 1)
    assert (await store.search(Search(), "h.7-5", 1)).position == ""
    assert (await store.search(Search(), "l", 1)).position == ""


async def test_a_quote_and_a_percent_sign_are_letters(store: Store) -> None:
    await flush(store, prepare("o'brien"), prepare("100%"), prepare('a"b'))

    assert await gids(store, Search(gid_prefix="o'")) == ["o'brien"]
    assert (await store.search(Search(), "lo'x", 10)).rows[0].gid == "o'brien"
    assert await gids(store, Search(destination="' or 1=1 --")) == []


async def test_later_rows_come_in_order_and_parked_ones_do_not(store: Store, clock: SetClock) -> None:
    start_ms = clock.time_ms
    await flush(store, *(prepare(f"g{due}", due_in_ms=due) for due in (10, 30, 20, 40)), plain("now"))
    await flush(store, Park("g40", 1, parked=True, due_ms=start_ms + 40))

    rows = await store.later((start_ms + 10, "\U0010ffff"), 10)

    assert [row.gid for row in rows] == ["g20", "g30"]
    assert all(isinstance(row, LiveRow) and row.owned for row in rows)
    assert [row.gid for row in await store.later((start_ms, ""), 2)] == ["now", "g10"]
    assert [row.gid for row in await store.later((start_ms + 20, "g20"), 1)] == ["g30"]
