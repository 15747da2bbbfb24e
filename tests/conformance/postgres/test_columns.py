"""A batch as arrays: its content, the order of its answers, and the oldest birth."""

from __future__ import annotations

from tests.conformance.postgres.conftest import Join
from tests.support.items import abort, flush, live, plain, prepare
from twophase.core.audit_log import AuditEntry
from twophase.core.gid import make_gid
from twophase.core.lifecycle import State
from twophase.stores.batch import Decide, Finish, Item, Park, Reschedule
from twophase.stores.postgres import statements
from twophase.stores.postgres.columns import Columns, oldest_born_ms

NEVER_MS = 2**63 - 1


def test_positions_are_counted_over_finishes_decides_changes_inserts() -> None:
    items: list[Item] = [prepare("i"), Park("p", 1, parked=True, due_ms=5), Decide("d", 1, 0, "submit"), abort("f")]
    items.append(Reschedule("r", 1, 6, 1, 2))

    columns = Columns(list(enumerate(items)), ())

    assert columns.order == [3, 2, 1, 4, 0]
    assert columns.gids == ["i"]
    changes = columns.arrays[12:18]
    assert changes == (["p", "r"], [1, 1], [5, 6], [None, 1], [None, 2], [True, None])


def test_a_column_of_one_value_travels_as_one_value() -> None:
    same = Columns(list(enumerate([prepare("a"), prepare("b")])), ())
    mixed = Columns(list(enumerate([prepare("a", due_in_ms=1), plain("b")])), ())

    assert same.arrays[18:22] == (["a", "b"], [State.PREPARED], [35_000], [b"body", b"body"])
    assert mixed.arrays[18:22] == (["a", "b"], [State.PREPARED, State.SUBMITTED], [1, 0], [b"body", b"body"])
    assert Columns([(0, Decide("d", 1, 0, "submit"))], ()).arrays[11] is None, "no body at all"
    assert same.arrays[:18] == (None,) * 18


async def test_columns_of_one_and_of_many_values_mean_the_same(join: Join) -> None:
    store = await join()
    await flush(store, *(prepare(gid) for gid in "abcd"))

    assert (await flush(store, Reschedule("a", 1, 9, 0, 0), Decide("b", 1, 7, "submit"))).refused == {}
    result = await flush(store, Decide("a", 2, 5, "check-back", b"new"), Decide("c", 1, 6, "submit"), abort("d"))
    assert result.refused == {}

    rows = [await live(store, gid) for gid in "abc"]
    assert [(row.version, row.decided_by, row.body) for row in rows] == [
        (3, "check-back", b"new"),
        (2, "submit", b"body"),
        (2, "submit", b"body"),
    ]
    assert [row.due_ms - row.decided_ms for row in rows] == [5, 7, 6]
    ends = [Finish("a", 3, State.SUCCEEDED, done=1), Finish("b", 2, State.FAILED, "why", "operator", 2), abort("c", 2)]
    assert (await flush(store, *ends)).refused == {}


def test_the_oldest_birth_is_that_of_our_own_gids_alone() -> None:
    young, old = make_gid(2_000, bytes(10)), make_gid(1_000, bytes(10))
    looks_like_ours = "tp" + "!" * 26

    assert oldest_born_ms([young, old, "order-17"]) == 1_000
    assert oldest_born_ms([looks_like_ours, young, old]) == 1_000
    assert oldest_born_ms([looks_like_ours, "order-17"]) == NEVER_MS
    assert oldest_born_ms([]) == NEVER_MS


def test_only_a_flush_with_an_act_carries_the_columns_of_acts() -> None:
    items: list[tuple[int, Item]] = [(0, abort("a")), (1, abort("b"))]
    entry = AuditEntry("eve", "", "stop", "b")

    usual, acted = Columns(items, [], {}), Columns(items, [], {1: entry, 7: entry})

    assert (usual.statement, acted.statement) == (statements.FLUSH, statements.FLUSH_AUDITED)
    assert acted.arguments[: len(usual.arguments)] == usual.arguments
    assert acted.arguments[len(usual.arguments)] == [2]
