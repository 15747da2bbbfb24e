"""A search and what is due later, over the rows of several nodes."""

from __future__ import annotations

import pytest

from tests.conformance.postgres.conftest import LEASE_MS, Join
from tests.support.items import SetClock, abort, flush, prepare
from twophase.core.lifecycle import State
from twophase.stores import search
from twophase.stores.search import Search


async def test_history_of_all_nodes_comes_in_one_order(join: Join, clock: SetClock) -> None:
    one, two = await join(), await join()
    for number in range(6):
        clock.time_ms += 10
        node = two if number % 3 else one
        await flush(node, prepare(f"p{number}"))
        await flush(node, abort(f"p{number}"))

    for limit in (1, 2, 5, 6):
        found: list[str] = []
        page = await one.search(Search(), "", limit)
        found += [row.gid for row in page.rows]
        while page.position:
            page = await two.search(Search(), page.position, limit)
            found += [row.gid for row in page.rows]
        assert found == [f"p{number}" for number in reversed(range(6))]


async def test_bounded_pages_keep_the_order_over_nodes(
    join: Join, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "EXAMINED_MAX", 4)
    one, two = await join(), await join()
    for number in range(20):
        clock.time_ms += 10
        node = two if number > 15 or number == 3 else one
        await flush(node, prepare(f"p{number:02}"))
        await flush(node, abort(f"p{number:02}"))

    found: list[str] = []
    position = ""
    for _ in range(50):
        page = await one.search(Search(frozenset({State.FAILED})), position, 100)
        found += [row.gid for row in page.rows]
        position = page.position
        if not position:
            break

    assert found == [f"p{number:02}" for number in reversed(range(20))]


async def test_a_node_that_joins_after_a_page_changes_no_page(join: Join, clock: SetClock) -> None:
    one = await join()
    for gid in ("a", "b"):
        clock.time_ms += 10
        await flush(one, prepare(gid))
        await flush(one, abort(gid))
    page = await one.search(Search(), "", 1)
    two = await join()
    await flush(two, prepare("c"))
    await flush(two, abort("c"))

    assert [row.gid for row in (await one.search(Search(), page.position, 9)).rows] == ["a"]


async def test_what_is_due_later_is_read_for_every_epoch(join: Join, clock: SetClock) -> None:
    one, two = await join(), await join()
    await flush(one, *(prepare(f"a{due}", due_in_ms=due) for due in (1, 3, 5)))
    await flush(two, *(prepare(f"b{due}", due_in_ms=due) for due in (2, 4)))
    await one.stop()
    clock.time_ms += LEASE_MS + 1
    three = await join()
    await flush(three, prepare("c", due_in_ms=9))

    rows = await two.later((-1, ""), 4)

    assert [row.gid for row in rows] == ["a1", "b2", "a3", "b4"]
    assert [row.owned for row in rows] == [False, True, False, True]
    assert [row.gid for row in await three.later((rows[-1].due_ms, "b4"), 9)] == ["a5", "c"]
