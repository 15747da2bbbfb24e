"""Every statement reads large tables by an index, whatever the statistics are.

Nothing that is due is sorted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.postgres.plans import Access, Plan, complaints, inside, normal, read
from tests.integration.postgres.seeded import Statistics, plans_by_statistics
from tests.servers.postgres import PostgresServer
from twophase.stores import postgres

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]

FOLDER = Path(postgres.__file__).parent
STATEMENTS = {path.stem: normal(path.read_text()) for path in sorted((FOLDER / "sql").glob("*.sql"))}
INSIDE = {name: inside((FOLDER / f"{name}.sql").read_text()) for name in ("flush", "adopt", "audit", "append", "own")}
READ_WHOLE_INDEXES = {"overview"}
"""Statements that count; their index covers the columns that they read."""
READ_WHOLE_TABLES = {"waiting_by_owner"}
"""Statements that read all live rows.

They run in the background, and only where a token has a quota.
"""
ONLY_SLOTS = {"now", "add_slot", "wake"}
"""Statements that read no table, or only the node slots, of which there are few.

The second runs only when all slots are held.
"""

POOLED = {
    "overview": "message",
    "search_history": "rows of history are sorted",
    "oldest_history": "rows of history are sorted",
    "queue_spans": "rows of queue_entry are sorted",
}
"""Freedoms of a session without the store's settings.

It may count the live rows in their table, and sort a narrow range.
"""


@pytest.fixture(scope="module")
def executed(postgres_server: PostgresServer) -> dict[Statistics, list[Plan]]:
    return plans_by_statistics(postgres_server)


def _named(name: str, plans: list[Plan]) -> list[Plan]:
    return [plan for plan in plans if plan.text == STATEMENTS[name]]


@pytest.mark.parametrize("statistics", Statistics)
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_is_served_by_an_index(
    executed: dict[Statistics, list[Plan]], name: str, statistics: Statistics
) -> None:
    plans = _named(name, executed[statistics])

    assert plans != [] or name in ONLY_SLOTS, "every statement is executed by every_statement.py"
    found = [wrong for plan in plans for wrong in complaints(plan, name in READ_WHOLE_INDEXES)]
    if name in READ_WHOLE_TABLES:
        found = []
    elif statistics is Statistics.POOLED and name in POOLED:
        found = [wrong for wrong in found if POOLED[name] not in wrong]
    assert found == []


@pytest.mark.parametrize("statistics", Statistics)
def test_the_statements_inside_functions_are_served_by_indexes(
    executed: dict[Statistics, list[Plan]], statistics: Statistics
) -> None:
    inside = [plan for plan in executed[statistics] if plan.text not in STATEMENTS.values()]
    texts = tuple(plan.text.removeprefix("SELECT ") for plan in inside)  # 13 writes it before assigned expressions

    assert {name: len(found) for name, found in INSIDE.items()} == {
        "flush": 13,
        "adopt": 7,
        "audit": 4,
        "append": 6,
        "own": 5,
    }
    assert [one for found in INSIDE.values() for one in found if not one.endswith(texts)] == [], "all were executed"
    assert {plan.text: wrong for plan in inside if (wrong := complaints(plan, reads_whole_indexes=False))} == {}


@pytest.mark.parametrize("statistics", Statistics)
def test_what_is_due_comes_out_of_its_index_in_order(
    executed: dict[Statistics, list[Plan]], statistics: Statistics
) -> None:
    for plan in _named("due", executed[statistics]):
        assert [(access.index, access.kind) for access in plan.accesses] == [("message_due", "Index Scan")]


def test_every_statement_names_what_serves_it() -> None:
    files = [*(FOLDER / "sql").glob("*.sql"), *(FOLDER / f"{name}.sql" for name in INSIDE)]

    assert [path.name for path in files if "-- Served by:" not in path.read_text()] == []


def test_a_plan_that_scans_or_sorts_is_complained_of() -> None:
    sort = '{"Node Type": "Sort", "Plans": [%s]}'
    scan = '{"Node Type": "Seq Scan", "Relation Name": "message"}'
    whole = '{"Node Type": "Index Scan", "Relation Name": "history", "Index Name": "history_gid"}'
    notice = 'duration: 0.1 ms  plan:\n{"Query Text": "select 1", "Plan": %s}'

    scanned, wholly = read(notice % (sort % scan)), read(notice % whole)

    assert scanned is not None
    assert complaints(scanned, reads_whole_indexes=True) == ["Seq Scan of message", "rows of message are sorted"]
    assert wholly is not None
    assert wholly.accesses == [Access("history", "Index Scan", "history_gid", "")]
    assert complaints(wholly, reads_whole_indexes=False) == ["Index Scan of all of history_gid"]
    assert read("table already exists") is None
