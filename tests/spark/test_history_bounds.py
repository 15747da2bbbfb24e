"""The bounds of history are reported right, by a few steps into its key.

Every round of an audit reads them.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.servers.database import Database
from tests.spark.cases import Case
from tests.spark.plant import System, make_system, plant
from tests.spark.test_readers import coordinator_of
from twophase.stores.postgres.schema import schema
from twophase_spark.locations import parse_coordinator
from twophase_spark.readers.probe import FIRST_NODE_SQL, LAST_SEQ_SQL, NEXT_NODE_SQL, probe

pytestmark = pytest.mark.spark
STATEMENTS = [FIRST_NODE_SQL, NEXT_NODE_SQL, LAST_SEQ_SQL]
MANY = """
    insert into history (node, seq, gid, created_ms, decided_ms, finished_ms, done, attempts, state, decided_by, reason,
                         body)
    select n % 3, n, 'g' || n, 1, 1, 1, 1, 0, 4, '', '', '' from generate_series(1, 30000) as n
"""


@pytest.fixture
def system(tmp_path: Path) -> System:
    return make_system(tmp_path)


def test_history_ends_with_the_last_number_given_whatever_still_stands(system: System) -> None:
    plant(system, [Case(f"g{number}", "") for number in range(5)])
    system.execute(system.coordinator, "insert into node values (1, 1, '', 5, 1, 1)")
    system.execute(system.coordinator, "delete from history where seq > 2")

    assert [(bound.first, bound.last) for bound in coordinator_of(system).bounds] == [(1, 5)]


def test_history_of_nodes_that_no_row_names_is_bounded_too(system: System) -> None:
    plant(system, [Case(f"g{number}", "") for number in range(6)])
    system.execute(system.coordinator, "update history set node = 7, seq = seq + 10 where seq > 4")
    system.execute(system.coordinator, "insert into node values (1, 1, '', 9, 1, 1), (3, 1, '', 5, 1, 1)")

    assert [(bound.node, bound.first, bound.last) for bound in coordinator_of(system).bounds] == [
        *((1, 1, 9), (3, 6, 5), (7, 15, 16)),
    ]


@pytest.mark.parametrize("sql", STATEMENTS)
def test_sqlite_takes_a_step_into_the_key(system: System, sql: str) -> None:
    with closing(sqlite3.connect(system.coordinator)) as connection:
        [(*_, detail)] = connection.execute(f"explain query plan {sql}", (1,) * sql.count("?"))

    assert "USING COVERING INDEX sqlite_autoindex_history_1" in detail
    assert detail.startswith("SEARCH") or "where" not in sql, "what is not sought is the first row of all"


@pytest.mark.postgres
def test_postgresql_takes_a_step_into_the_key(postgres_database: Database) -> None:
    with psycopg.connect(postgres_database.dsn, autocommit=True) as connection:
        connection.execute(schema().encode())
        connection.execute(MANY)
        connection.execute("vacuum analyze history")
        for sql in STATEMENTS:
            found = connection.execute(f"explain (format json) {sql.replace('?', '1')}".encode()).fetchone()
            assert found is not None
            [told] = found[0] if isinstance(found[0], list) else json.loads(found[0])
            assert list(_nodes(told["Plan"])) == ["Limit", "Index Only Scan"], sql

    source = probe(parse_coordinator(postgres_database.dsn), 1)
    assert [(bound.node, bound.first, bound.last) for bound in source.bounds] == [
        *((0, 3, 30_000), (1, 1, 29_998), (2, 2, 29_999)),
    ]


def _nodes(plan: dict[str, Any]) -> list[str]:
    return [plan["Node Type"], *(name for below in plan.get("Plans", ()) for name in _nodes(below))]
