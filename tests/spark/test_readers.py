"""The readers on real databases.

The tests show what is read, what is refused, that nothing is written, and that nothing is torn.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.servers.database import Database as ServerDatabase
from tests.spark.cases import IDENTITY, Case
from tests.spark.plant import System, make_system, plant
from twophase.barrier.installing import install
from twophase.core.errors import CannotRead
from twophase.core.lifecycle import State
from twophase.core.message import Branch, Message
from twophase.core.redirect import Redirection, redirect
from twophase_spark.locations import Role, parse_coordinator, parse_named
from twophase_spark.readers import probe as probing
from twophase_spark.readers.bodies import calls_of
from twophase_spark.readers.database import open_database
from twophase_spark.readers.probe import ROWS_PER_SLICE_MIN, Slice, Source, horizon_ms, probe
from twophase_spark.readers.rows import read_gids, read_slice
from twophase_spark.schemas import BRANCHES_UNKNOWN

pytestmark = pytest.mark.spark


@pytest.fixture
def system(tmp_path: Path) -> System:
    return make_system(tmp_path)


def rows_in(batches: Iterable[Any]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def everything(source: Source) -> list[dict[str, Any]]:
    return [row for part in source.slices for row in rows_in(read_slice(source, part))]


def coordinator_of(system: System, slices_max: int = 2) -> Source:
    return probe(parse_coordinator(f"sqlite:///{system.coordinator}"), slices_max)


def business(role: Role, file: Path, table: str = "", slices_max: int = 2) -> Source:
    return probe(parse_named(role, f"bank=sqlite:///{file}{table}"), slices_max)


def test_a_message_is_read_with_its_branches_and_identity(system: System) -> None:
    plant(system, [Case("g", "", created_ms=1_000, delay_ms=7, branches=(("01", "http://b/1"), ("02", "http://b/2")))])

    [row] = everything(coordinator_of(system))

    assert row["branches"] == [{"branch_id": "01", "url": "http://b/1"}, {"branch_id": "02", "url": "http://b/2"}]
    assert (row["state"], row["created_ms"], row["finished_ms"], row["delay_ms"]) == (State.SUCCEEDED, 1_000, 1_020, 7)
    assert (row["checked"], row["identity"], row["decided_by"]) == (True, IDENTITY, "submit")


def test_live_and_final_messages_are_read(system: System) -> None:
    plant(system, [Case("live", "", State.PREPARED, parked=True), Case("final", "", State.FAILED)])

    rows = {row["gid"]: row for row in everything(coordinator_of(system))}

    assert (rows["live"]["state"], rows["live"]["parked"], rows["live"]["finished_ms"]) == (State.PREPARED, True, None)
    assert (rows["final"]["state"], rows["final"]["parked"]) == (State.FAILED, False)


def test_a_body_that_cannot_be_decoded_is_a_row_of_its_own(system: System) -> None:
    plant(system, [Case("broken", "", checked=None), Case("whole", "")])

    assert {row["gid"]: row["checked"] for row in everything(coordinator_of(system))} == {"broken": None, "whole": True}


def test_a_barrier_gives_producer_and_branch_rows_apart(system: System) -> None:
    plant(system, [Case("g", "", prepared_ms=99)])
    system.execute(system.bank_a, "insert into barrier (trans_type, gid, branch_id, op, barrier_id, reason) "
                   "values ('saga', 's', '01', 'action', '01', 'action')")  # fmt: skip

    assert everything(business(Role.PRODUCER, system.bank_a)) == [
        {"source": "bank", "gid": "g", "reason": "msg", "prepared_ms": 99}
    ]
    assert everything(business(Role.CONSUMER, system.bank_a)) == []
    assert everything(business(Role.CONSUMER, system.bank_b)) == [{"source": "bank", "gid": "g", "branch_id": "01"}]


def test_a_branch_whose_transaction_ended_inside_its_block_is_no_effect(system: System) -> None:
    plant(system, [Case("g", "")])
    system.execute(system.bank_b, "update barrier set reason = 'unfinished'")

    assert everything(business(Role.CONSUMER, system.bank_b)) == []


def test_a_barrier_made_by_dtm_is_read(tmp_path: Path) -> None:
    file = tmp_path / "dtm.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("create table barrier (trans_type, gid, branch_id, op, barrier_id, reason)")
        connection.execute("insert into barrier values ('msg', 'g', '00', 'msg', '01', 'msg')")

    source = business(Role.PRODUCER, file)

    assert (source.identity, source.horizon_ms) == (None, 0)
    assert everything(source) == [{"source": "bank", "gid": "g", "reason": "msg", "prepared_ms": None}]


def test_a_ledger_keeps_repetitions_and_may_have_other_columns_and_types(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("create table booking (tx integer, step text, primary key (tx, step, rowid_)) without rowid"
                           .replace("tx integer, step text,", "tx integer, step text, rowid_ integer,"))  # fmt: skip
        connection.executemany("insert into booking values (?, ?, ?)", [(7, "01", 1), (7, "01", 2)])

    rows = everything(business(Role.LEDGER, file, "#booking?gid=tx&branch=step"))

    assert rows == [{"source": "bank", "gid": "7", "branch_id": "01"}] * 2


def test_rows_without_gid_are_not_the_audits_business(system: System) -> None:
    system.execute(system.bank_b, "insert into ledger (account, amount) values ('B', 5)")

    assert everything(business(Role.LEDGER, system.bank_b, "#ledger")) == []


def test_slices_cover_every_row_once_and_rows_added_later(system: System) -> None:
    count = ROWS_PER_SLICE_MIN * 3
    with closing(sqlite3.connect(system.bank_b)) as connection, connection:
        connection.executemany(
            "insert into ledger (gid, branch_id) values (?, '01')", ((f"g{n}",) for n in range(count))
        )

    source = business(Role.LEDGER, system.bank_b, "#ledger", slices_max=3)
    system.execute(system.bank_b, "insert into ledger (gid, branch_id) values ('later', '01')")

    assert len(source.slices) == 3
    assert sorted(row["gid"] for row in everything(source)) == sorted([*(f"g{n}" for n in range(count)), "later"])


def test_history_is_cut_by_node_and_seq(system: System) -> None:
    plant(system, [Case(f"g{number}", "") for number in range(5)])
    system.execute(system.coordinator, "update history set node = 2, seq = seq + 10 where seq > 3")

    source = coordinator_of(system)

    assert [part for part in source.slices if part.table == "history"] == [
        Slice("history", "seq", node=1, rows=3),
        Slice("history", "seq", node=2, rows=2),
    ]
    assert len(everything(source)) == 5


def test_suspects_are_read_by_gid(system: System) -> None:
    plant(system, [Case("live", "", State.PREPARED), Case("final", ""), Case("other", "")])

    assert {row["gid"] for row in rows_in(read_gids(coordinator_of(system), ["live", "final", "none"]))} == {
        "live",
        "final",
    }
    for source in (business(Role.PRODUCER, system.bank_a), business(Role.LEDGER, system.bank_b, "#ledger")):
        assert [row["gid"] for row in rows_in(read_gids(source, ["final"]))] == ["final"]


def test_horizons_and_identity_are_found(system: System) -> None:
    system.execute(system.coordinator, "update store_meta set value = 5 where name = 'history_horizon_ms'")
    system.execute(system.bank_a, "insert into twophase_meta values ('horizon_ms', '6')")

    assert coordinator_of(system).horizon_ms == 5
    bank = business(Role.PRODUCER, system.bank_a)
    assert (bank.identity, bank.horizon_ms) == (IDENTITY, 6)
    system.execute(system.bank_a, "update twophase_meta set value = '8' where name = 'horizon_ms'")
    assert horizon_ms(bank) == 8
    system.execute(system.bank_a, "insert into twophase_meta values ('branch_horizon_ms', '9')")
    assert horizon_ms(bank) == 9, "of either kind of rows"


def test_nothing_can_be_written(system: System) -> None:
    with (
        open_database(parse_named(Role.PRODUCER, f"a=sqlite:///{system.bank_a}")) as database,
        pytest.raises(CannotRead, match="readonly"),
    ):
        database.rows("delete from barrier")


def test_one_snapshot_sees_no_later_commit(system: System) -> None:
    with open_database(parse_coordinator(f"sqlite:///{system.coordinator}")) as database:
        assert database.rows("select count(*) from message") == [(0,)]
        plant(system, [Case("g", "", State.PREPARED)])
        assert database.rows("select count(*) from message") == [(0,)]


def test_a_store_whose_server_was_killed_is_read(system: System) -> None:
    """Its last commits stand only in the write-ahead log."""
    writer = (
        "import sqlite3, sys, time\n"
        f"connection = sqlite3.connect({str(system.coordinator)!r})\n"
        "connection.execute('pragma wal_autocheckpoint = 0')\n"
        "connection.execute(\"insert into store_meta values ('mark', 7)\")\n"
        "connection.commit()\n"
        "print('written', flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", writer], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        os.kill(process.pid, signal.SIGKILL)
    with open_database(parse_coordinator(f"sqlite:///{system.coordinator}")) as database:
        assert database.rows("select value from store_meta where name = 'mark'") == [(7,)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("drop table history", "no table history"),
        ("alter table history drop column reason", "no column ['reason']"),
    ],
)
def test_a_store_of_another_shape_is_refused(system: System, change: str, said: str) -> None:
    system.execute(system.coordinator, change)

    with pytest.raises(CannotRead) as raised:
        coordinator_of(system)
    assert said in raised.value.message


def test_a_file_that_is_missing_or_no_database_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotRead, match="there is no file"):
        business(Role.PRODUCER, tmp_path / "none.db")
    (tmp_path / "text.db").write_text("no database" * 100)
    with pytest.raises(CannotRead, match="not a database"):
        business(Role.PRODUCER, tmp_path / "text.db")


def test_a_database_without_barrier_table_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "empty.db")) as connection:
        connection.execute("create table account (id)")

    with pytest.raises(CannotRead, match="no table barrier"):
        business(Role.CONSUMER, tmp_path / "empty.db")


def test_a_password_is_never_shown() -> None:
    location = parse_named(Role.PRODUCER, "a=postgresql://me:s3cret@127.0.0.1:1/bank")

    with pytest.raises(CannotRead) as raised:
        probe(location, 1)
    assert "s3cret" not in str(raised.value)
    assert "me@127.0.0.1:1/bank" in str(raised.value)


def _read_from_server(url: str) -> None:
    install(url)
    from sqlalchemy import create_engine, text

    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("create table ledger (gid varchar(128), branch_id varchar(128))"))
        connection.execute(text("insert into ledger values ('g', '01'), ('g', '01'), (null, null)"))
        for gid, branch, op, reason in (
            ("g", "00", "msg", "msg"),
            ("r", "00", "msg", "rollback"),
            ("g", "01", "action", "action"),
            ("bare", "00", "msg", "msg"),
        ):
            connection.execute(
                text("insert into barrier (trans_type, gid, branch_id, op, barrier_id, reason, prepared_at) "
                     "values ('msg', :gid, :branch, :op, '01', :reason, 5)"),
                {"gid": gid, "branch": branch, "op": op, "reason": reason},
            )  # fmt: skip
        connection.execute(text("update barrier set body = '' where gid = 'bare'"))
    engine.dispose()
    began_s = time.monotonic()
    producer = probe(parse_named(Role.PRODUCER, f"bank={url}"), 4)
    consumer = probe(parse_named(Role.CONSUMER, f"bank={url}"), 4)
    ledger = probe(parse_named(Role.LEDGER, f"bank={url}#ledger"), 4)
    unknown_ms = (time.monotonic() - began_s) * 1000  # the database read its clock at any moment of this time
    assert producer.identity
    skews_ms = [abs(source.skew_ms) for source in (producer, consumer, ledger)]
    assert max(skews_ms) < 2_000 + unknown_ms, "it runs on this machine"
    assert sorted((row["gid"], row["reason"], row["prepared_ms"]) for row in everything(producer)) == [
        ("bare", BRANCHES_UNKNOWN, 5),
        ("g", "msg", 5),
        ("r", "rollback", 5),
    ]
    assert everything(consumer) == [{"source": "bank", "gid": "g", "branch_id": "01"}]
    assert everything(ledger) == [{"source": "bank", "gid": "g", "branch_id": "01"}] * 2
    assert [row["gid"] for row in rows_in(read_gids(producer, ["r", "none"]))] == ["r"]
    with open_database(producer.location) as opened, pytest.raises(CannotRead):
        opened.rows("delete from barrier")
    with pytest.raises(CannotRead, match="no table nothing"):
        probe(msgspec.structs.replace(producer.location, table="nothing"), 1)


def test_a_database_whose_clock_is_ahead_has_a_skew_above_0(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite gets a clock that is a minute ahead."""
    assert business(Role.PRODUCER, system.bank_a).skew_ms == 0
    monkeypatch.setitem(probing._CLOCKS, "sqlite", "select (cast(strftime('%s', 'now') as integer) + 60) * 1000")

    began_s = time.monotonic()
    skew_ms = business(Role.PRODUCER, system.bank_a).skew_ms
    unknown_ms = (time.monotonic() - began_s) * 1000
    assert 58_000 - unknown_ms < skew_ms < 61_000 + unknown_ms


@pytest.mark.postgres
def test_postgresql_is_read(postgres_database: ServerDatabase) -> None:
    _read_from_server(postgres_database.sqlalchemy_url("psycopg"))


@pytest.mark.mariadb
def test_mariadb_is_read(mariadb_database: ServerDatabase) -> None:
    _read_from_server(mariadb_database.sqlalchemy_url("pymysql"))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("(x'ff00', '01')", "wrong type for gid: bytes instead of string"),
        ("(1.5, '01')", "wrong type for gid: float instead of string"),
    ],
)
def test_a_value_that_is_no_gid_is_refused_by_name(system: System, values: str, said: str) -> None:
    system.execute(system.bank_b, "create table odd (gid, branch_id)")
    system.execute(system.bank_b, f"insert into odd values {values}")

    with pytest.raises(CannotRead) as raised:
        everything(business(Role.LEDGER, system.bank_b, "#odd"))
    assert said in raised.value.message


def test_a_time_that_is_text_is_refused_by_name(system: System) -> None:
    plant(system, [Case("g", "")])
    system.execute(system.bank_a, "update barrier set prepared_at = 'yesterday'")

    with pytest.raises(CannotRead, match="prepared_ms: string instead of int64"):
        everything(business(Role.PRODUCER, system.bank_a))


def test_rows_of_a_barrier_without_a_gid_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "dtm.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("create table barrier (trans_type, gid, branch_id, op, barrier_id, reason)")
        connection.execute("insert into barrier values ('msg', null, '00', 'msg', '01', 'msg')")

    with pytest.raises(CannotRead, match="rows without a gid"):
        everything(business(Role.PRODUCER, file))


def test_ids_as_bytes_and_filled_up_with_spaces_are_the_text_they_stand_for(system: System) -> None:
    system.execute(system.bank_b, "create table odd (gid, branch_id)")
    system.execute(system.bank_b, "insert into odd values (x'6731', '01  ')")

    assert everything(business(Role.LEDGER, system.bank_b, "#odd")) == [
        {"source": "bank", "gid": "g1", "branch_id": "01"}
    ]


def test_a_key_that_is_no_integer_is_refused(system: System) -> None:
    system.execute(system.bank_b, "insert into ledger (gid, branch_id, account) values ('g', '01', 'B')")

    with pytest.raises(CannotRead, match="account is no integer column"):
        business(Role.LEDGER, system.bank_b, "#ledger?key=account")


def test_a_column_may_be_generated(system: System) -> None:
    system.execute(system.bank_b, "create table made (tx text, branch_id text, gid text as ('g' || tx))")
    system.execute(system.bank_b, "insert into made values ('1', '01')")

    source = business(Role.LEDGER, system.bank_b, "#made")

    assert (everything(source), source.is_typed) == ([{"source": "bank", "gid": "g1", "branch_id": "01"}], True)


def test_a_view_is_read_whole_each_time(system: System) -> None:
    """A view of SQLite has no rowid to follow.

    Each is null, so no run with a state would see a row that is new.
    """
    system.execute(system.bank_b, "create view counted as select distinct gid, branch_id from ledger")
    system.execute(system.bank_b, "insert into ledger (gid, branch_id) values ('g', '01'), ('g', '01')")

    source = business(Role.LEDGER, system.bank_b, "#counted")

    assert (source.slices, source.bounds) == ((Slice("counted"),), ())
    assert everything(source) == [{"source": "bank", "gid": "g", "branch_id": "01"}]


def test_a_key_that_some_rows_lack_is_refused(system: System) -> None:
    """No slice would have these rows.

    So an effect that stands twice would be seen once.
    """
    system.execute(system.bank_b, "create table keyed (gid, branch_id, seq integer, voided integer)")
    system.execute(system.bank_b, "insert into keyed values ('g', '01', 1, 0), ('g', '01', null, 1)")

    assert len(everything(business(Role.LEDGER, system.bank_b, "#keyed?key=seq&where=voided%20%3D%200"))) == 1
    with pytest.raises(CannotRead, match="seq is null in some rows"):
        business(Role.LEDGER, system.bank_b, "#keyed?key=seq")


def test_calls_of_an_expanded_topic_are_its_subscribers() -> None:
    one = Branch("topic://one", subscribers=("http://b/1",))
    two = Branch("topic://two", subscribers=("http://b/2", "http://c/2"))
    none = Branch("topic://none")

    message = Message("g", (one, two, none))

    calls = calls_of([message])

    assert [(name, branch.url) for name, branch in zip(calls.ids, calls.branches, strict=True)] == [
        ("01", "http://b/1"),
        ("02-01", "http://b/2"),
        ("02-02", "http://c/2"),
        ("03", "topic://none"),
    ]


def test_calls_go_to_the_addresses_that_are_called_whatever_message_is_beside_them() -> None:
    sent = Message("redirected", (Branch("http://old/in"), Branch("http://c/in")))
    redirected, _ = redirect(sent, 0, Redirection("http://b/in", "01"))
    moved = Message("moved", (Branch("http://b/in", b"", ("",)), Branch("topic://", b"", ("", "http://c/in"))))
    topic = Message("topic", (Branch("topic://rates"),))
    expected = [
        ("01", "http://b/in"),
        ("02", "http://c/in"),
        ("01", "http://b/in"),
        ("02-01", "topic://"),
        ("02-02", "http://c/in"),
    ]

    for beside in ([], [topic], [None]):
        calls = calls_of([redirected, moved, *beside])

        called = [(name, branch.url) for name, branch in zip(calls.ids, calls.branches, strict=True)]
        assert called[: len(expected)] == expected
