"""Rows that the driver reads while Spark starts."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tests.spark.cases import BROKEN, IN_ORDER
from tests.spark.plant import make_system, one_service, plant
from tests.spark.test_increment import locations
from twophase.core.errors import CannotRead
from twophase_spark.auditing.run import begin, look_into
from twophase_spark.inputs import ahead
from twophase_spark.inputs.ahead import Kept, read_ahead
from twophase_spark.inputs.plan import Plan
from twophase_spark.inputs.source import tables_of
from twophase_spark.locations import Role
from twophase_spark.readers.probe import Source

CASES = [case for case in (*IN_ORDER, *BROKEN) if one_service(case) and None not in case.ledger]
"""A branch that is null is read as an empty one by slices only."""


@pytest.fixture
def sources(tmp_path: Path) -> list[Source]:
    system = make_system(tmp_path)
    plant(system, CASES)
    return look_into(Plan(locations(system), cores=2))


def kept(sources: list[Source]) -> Kept:
    found = read_ahead(sources).kept()
    assert found is not None
    return found


def test_every_row_is_kept_with_the_time_when_all_had_been_read(sources: list[Source]) -> None:
    before_s, before_ms = time.monotonic(), time.time_ns() // 1_000_000

    reading = read_ahead(sources)
    found = reading.kept()

    assert found is not None
    assert before_s <= found.read_s <= time.monotonic()
    assert before_ms <= reading.as_of_ms <= time.time_ns() // 1_000_000
    gids = sorted(case.gid for case in CASES)
    assert found.has(gids, tables_of(sources, gids))
    assert sum(table.num_rows for table in found.tables.values()) >= len(CASES)


def test_rows_of_some_gids_are_those_that_are_read_by_gid(sources: list[Source]) -> None:
    gids = [CASES[0].gid, CASES[-1].gid]

    found = kept(sources)

    assert found.has(gids, tables_of(sources, gids))
    assert not found.has(gids, tables_of(sources, gids[:1]))
    assert not found.has(gids[:1], tables_of(sources, gids))
    assert found.has(["unknown"], tables_of(sources, ["unknown"]))


@pytest.mark.parametrize("role", [Role.COORDINATOR, Role.PRODUCER, Role.CONSUMER, Role.LEDGER])
def test_one_row_more_or_less_is_a_change(sources: list[Source], role: Role) -> None:
    gids = sorted(case.gid for case in CASES)
    found, tables = kept(sources), tables_of(sources, gids)
    twice = pa.concat_tables([tables[role], tables[role].slice(0, 1)])

    assert not found.has(gids, tables | {role: twice})
    assert not found.has(gids, tables | {role: tables[role].slice(1)})
    assert not found.has(gids, {of: table for of, table in tables.items() if of is not role})
    assert found.has(gids, tables | {role: tables[role].take(list(reversed(range(tables[role].num_rows))))})


def test_a_change_within_a_list_is_a_change(sources: list[Source]) -> None:
    gids = sorted(case.gid for case in CASES)
    found, tables = kept(sources), tables_of(sources, gids)
    journal = tables[Role.COORDINATOR]
    branches = journal.column("branches").to_pylist()
    place = next(place for place, one in enumerate(branches) if one)
    branches[place] = [{**branches[place][0], "url": "http://elsewhere/in"}, *branches[place][1:]]
    index = journal.schema.get_field_index("branches")
    column = pa.array(branches, journal.schema.field(index).type)

    assert not found.has(
        gids, tables | {Role.COORDINATOR: journal.set_column(index, journal.schema.field(index), column)}
    )


@pytest.mark.parametrize("bound", ["ROWS_MAX", "BYTES_MAX"])
def test_what_is_too_much_is_left_to_the_tasks(
    sources: list[Source], bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, bound, 1)

    assert read_ahead(sources).kept() is None


def test_rows_that_were_not_foreseen_count_too(sources: list[Source], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "ROWS_MAX", 1)
    monkeypatch.setattr(ahead, "rows_in", lambda _: 0)

    assert read_ahead(sources).kept() is None


def test_locks_of_a_process_that_has_the_file_open_stay(tmp_path: Path) -> None:
    """ADBC's SQLite would release them when it closes the file.

    Another process could write then.
    """
    system = make_system(tmp_path)
    plant(system, CASES)
    sources = look_into(Plan(locations(system), cores=1))
    with closing(sqlite3.connect(system.coordinator, isolation_level=None)) as open_here:
        open_here.execute("begin immediate")
        kept(sources)
        other = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('begin immediate')"
        done = subprocess.run(
            [sys.executable, "-c", other, system.coordinator], capture_output=True, text=True, check=False
        )
        open_here.execute("rollback")

    assert "database is locked" in done.stderr


def test_a_table_of_unknown_size_that_mysql_reads_to_its_end_is_left_to_the_tasks(sources: list[Source]) -> None:
    ledger = next(one for one in sources if one.location.role is Role.LEDGER)
    on_mysql = msgspec.structs.replace(
        ledger, location=msgspec.structs.replace(ledger.location, engine="mysql"), bounds=()
    )

    assert read_ahead([on_mysql]).kept() is None


def test_what_cannot_be_read_is_said_when_it_is_asked_for(sources: list[Source]) -> None:
    nowhere = msgspec.structs.replace(sources[0].location, url="sqlite:////nowhere/store.db")
    gone = [msgspec.structs.replace(sources[0], location=nowhere)]

    reading = read_ahead(gone)

    with pytest.raises(CannotRead):
        reading.kept()


def test_with_a_state_nothing_is_read_before_its_sums(tmp_path: Path) -> None:
    system = make_system(tmp_path)

    plan = Plan(locations(system), cores=1, state=tmp_path / "state")

    assert begin(plan, look_into(plan)) is None
