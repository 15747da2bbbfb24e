"""A barrier table that cannot keep the promises is refused (I4, I6).

install, producer, check-back and branch refuse it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from tests.integration.barrier.conftest import MARKS, empty_bank
from tests.integration.barrier.test_branch import call_of
from tests.support.business_databases import ASYNC_WAYS, SYNC_WAYS, Bank, begin, new_gid
from twophase.barrier.asking import acheck_back, check_back
from twophase.barrier.branch import aonce, once
from twophase.barrier.installing import ainstall, install
from twophase.barrier.open import open_transaction
from twophase.barrier.producer import begin_producer, read_identity
from twophase.barrier.transaction import perform
from twophase.core.errors import BarrierTableUnusable, DatabaseSwitched, TwophaseError
from twophase.core.verdict import Verdict

DROP_KEY = {
    "sqlite": "drop table barrier",
    "postgresql": "alter table barrier drop constraint uniq_barrier",
    "mysql": "alter table barrier drop key uniq_barrier",
}
SQLITE_TABLE = """create table barrier (
    id integer primary key, trans_type text, gid text {null}, branch_id text not null, op text not null,
    barrier_id text not null, reason text, create_time text, update_time text, token text, body blob,
    prepared_at integer{key})"""
KEYS = {
    "none": "",
    "three columns": "create unique index k on barrier (gid, branch_id, op)",
    "five columns": "create unique index k on barrier (gid, branch_id, op, barrier_id, trans_type)",
    "not unique": "create index k on barrier (gid, branch_id, op, barrier_id)",
}
PARTIAL = "create unique index k on barrier (gid, branch_id, op, barrier_id) where trans_type = 'msg'"
DEFERRED = "alter table barrier add constraint k unique (gid, branch_id, op, barrier_id) deferrable"
BEGINNING = "create unique index k on barrier (gid(20), branch_id, op, barrier_id)"
UNLOGGED_PARTITION = """
alter table barrier rename to made;
alter table made rename constraint uniq_barrier to uniq_made;
create table barrier (like made including defaults including identity) partition by hash (gid);
drop table made;
alter table barrier add constraint uniq_barrier unique (gid, branch_id, op, barrier_id);
create table barrier_0 partition of barrier for values with (modulus 2, remainder 0);
create unlogged table barrier_1 partition of barrier for values with (modulus 2, remainder 1)"""
FORGET = """create function forget() returns trigger language plpgsql
as $$ begin delete from barrier where gid = new.gid; return null; end $$"""
DEFERRED_TRIGGER = """create constraint trigger late after insert on barrier deferrable initially deferred
for each row execute function forget()"""
NULLABLE = {
    "postgresql": "alter table barrier alter column gid drop not null",
    "mysql": "alter table barrier modify column gid varchar(128) collate utf8mb4_bin",
}


def _cases() -> Iterator[Any]:
    for kind in SYNC_WAYS:
        cases = [(name, (DROP_KEY[kind], key)) for name, key in KEYS.items()]
        if kind != "mysql":
            cases.append(("partial", (DROP_KEY[kind], PARTIAL)))
        if kind == "postgresql":
            cases.append(("deferrable", (DROP_KEY[kind], DEFERRED)))
            cases.append(("unlogged", ("alter table barrier set unlogged", "")))
            cases.append(("unlogged partition", (UNLOGGED_PARTITION, "")))
            cases.append(("deferred trigger", (FORGET, DEFERRED_TRIGGER)))
        if kind == "mysql":
            cases.append(("beginning", (DROP_KEY[kind], BEGINNING)))
            cases.append(("no transactions", ("alter table barrier engine = Aria", "")))
        cases.append(("null", (NULLABLE.get(kind, DROP_KEY[kind]), "")))
        yield from (pytest.param(kind, name, sql, marks=MARKS[kind], id=f"{kind}-{name}") for name, sql in cases)


def _spoil(bank: Bank, name: str, statements: tuple[str, str]) -> None:
    for statement in statements:
        if statement:
            bank.query(statement)
        if statement == DROP_KEY["sqlite"]:
            null, key = ("", ", unique (gid, branch_id, op, barrier_id)") if name == "null" else ("not null", "")
            bank.query(SQLITE_TABLE.format(null=null, key=key))


@pytest.mark.parametrize(("kind", "name", "statements"), list(_cases()))
def test_it_is_refused_before_anything_relies_on_it(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, name: str, statements: tuple[str, str]
) -> None:
    for bank in empty_bank(request, kind, tmp_path):
        with bank.engine() as engine:
            install(engine)
        _spoil(bank, name, statements)
        with bank.engine() as engine:
            for _ in range(2):
                with pytest.raises(BarrierTableUnusable, match="TP-6006"):
                    once(engine, call_of(new_gid()), lambda _: pytest.fail("the effect ran"))
                answer = check_back(engine, new_gid())
                assert (answer.verdict, answer.evidence[:7]) == (Verdict.UNKNOWN, "TP-6006")
            transaction = open_transaction(engine)
            with pytest.raises(BarrierTableUnusable):
                perform(read_identity(transaction.dialect, "barrier", allow_unsafe=True), transaction)
            transaction.rollback()
            transaction.close()


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=MARKS[kind]) for kind in SYNC_WAYS])
@pytest.mark.parametrize("column", ["gid", "branch_id", "op", "barrier_id"])
def test_each_column_of_the_key_that_may_be_null_is_refused(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, column: str
) -> None:
    for bank in empty_bank(request, kind, tmp_path):
        with bank.engine() as engine:
            install(engine)
        if kind == "sqlite":
            bank.query("drop table barrier")
            table = SQLITE_TABLE.format(null="not null", key=", unique (gid, branch_id, op, barrier_id)")
            bank.query(table.replace(f" {column} text not null", f" {column} text"))
        elif kind == "postgresql":
            bank.query(f"alter table barrier alter column {column} drop not null")
        else:
            bank.query(f"alter table barrier modify column {column} varchar(45) collate utf8mb4_bin null")
        with bank.engine() as engine:
            answer = check_back(engine, new_gid())
        assert (answer.verdict, answer.evidence[:7]) == (Verdict.UNKNOWN, "TP-6006")


@pytest.mark.parametrize(
    ("kind", "way"), [pytest.param(kind, ASYNC_WAYS[kind][0], marks=MARKS[kind]) for kind in ASYNC_WAYS]
)
async def test_it_is_refused_through_an_async_engine(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, way: str
) -> None:
    async def effect(_: Any) -> None:
        pytest.fail("the effect ran")

    for bank in empty_bank(request, kind, tmp_path):
        with bank.engine() as engine:
            install(engine)
        _spoil(bank, "none", (DROP_KEY[kind], ""))
        async with bank.areached(way) as engine:
            with pytest.raises(BarrierTableUnusable):
                await aonce(engine, call_of(new_gid()), effect)
            assert (await acheck_back(engine, new_gid())).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=MARKS[kind]) for kind in ("sqlite", "postgresql")])
def test_a_table_that_loses_its_key_while_it_is_used_is_refused(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    for bank in empty_bank(request, kind, tmp_path):
        with bank.engine() as engine:
            install(engine)
            assert once(engine, call_of(new_gid()), lambda _: "done") == "done"
            _spoil(bank, "none", (DROP_KEY[kind], ""))
            with pytest.raises(BarrierTableUnusable):
                once(engine, call_of(new_gid()), lambda _: "done")
            transaction = open_transaction(engine)
            with pytest.raises(BarrierTableUnusable):
                begin(transaction, new_gid())
            transaction.rollback()
            transaction.close()
            assert check_back(engine, new_gid()).evidence[:7] == "TP-6006"


TEMPORARY = "create temporary table barrier (like public.barrier including all)"
TEMPORARY_META = "create temporary table twophase_meta as select * from public.twophase_meta"


def _shadow(engine: sqlalchemy.Engine) -> None:
    """Put a temporary barrier before the proven one, on the pool's only connection."""
    with engine.begin() as connection:
        connection.exec_driver_sql(TEMPORARY)
        connection.exec_driver_sql(TEMPORARY_META)


def test_a_temporary_table_that_hides_the_proven_one_is_refused(postgres_bank: Bank) -> None:
    with postgres_bank.engine(pool_size=1, max_overflow=0) as engine:
        assert once(engine, call_of(new_gid()), lambda _: "done") == "done"
        assert check_back(engine, new_gid()).verdict is Verdict.ROLLED_BACK
        _shadow(engine)
        with pytest.raises(BarrierTableUnusable, match="TP-6006"):
            once(engine, call_of(new_gid()), lambda _: pytest.fail("the effect ran"))
        assert check_back(engine, new_gid()).verdict is Verdict.UNKNOWN


def test_a_temporary_table_that_hides_the_proven_one_takes_no_message(postgres_bank: Bank) -> None:
    with postgres_bank.engine(pool_size=1, max_overflow=0) as engine:
        transaction = open_transaction(engine)
        identity = perform(read_identity(transaction.dialect, "barrier", allow_unsafe=True), transaction)
        transaction.rollback()
        transaction.close()
        _shadow(engine)
        for is_open in (False, True):
            transaction = open_transaction(engine)
            rule = begin_producer(
                transaction.dialect, "barrier", new_gid(), "token", None, identity=identity, is_open=is_open
            )
            with pytest.raises(DatabaseSwitched):
                perform(rule, transaction)
            transaction.rollback()
            transaction.close()


@pytest.mark.parametrize("way", ASYNC_WAYS["postgresql"])
async def test_a_table_made_unlogged_while_it_is_used_is_refused(postgres_bank: Bank, way: str) -> None:
    async def effect(_: Any) -> None:
        pass

    async with postgres_bank.areached(way) as engine:
        await aonce(engine, call_of(new_gid()), effect)
        postgres_bank.query("alter table barrier set unlogged")
        try:
            with pytest.raises(BarrierTableUnusable, match="TP-6006"):
                await aonce(engine, call_of(new_gid()), effect)
            assert (await acheck_back(engine, new_gid())).verdict is Verdict.UNKNOWN
        finally:
            postgres_bank.query("alter table barrier set logged")


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=MARKS[kind]) for kind in ("postgresql", "mysql")])
def test_install_gives_a_table_without_a_key_its_key(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    for bank in empty_bank(request, kind, tmp_path):
        with bank.engine() as engine:
            install(engine)
            for statement in (DROP_KEY[kind], NULLABLE[kind]):
                bank.query(statement)
            assert any("unique" in statement for statement in install(engine))
            assert install(engine) == []
            call = call_of(new_gid())
            assert [once(engine, call, lambda _: "done") for _ in range(2)] == ["done", None]


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=MARKS[kind]) for kind in SYNC_WAYS])
def test_install_refuses_a_table_whose_rows_take_no_key(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    row = "insert into barrier (trans_type, gid, branch_id, op, barrier_id) values ('msg', 'g', '01', 'action', '01')"
    for bank in empty_bank(request, kind, tmp_path):
        with bank.engine() as engine:
            install(engine)
            _spoil(bank, "none", (DROP_KEY[kind], ""))
            bank.query(row)
            bank.query(row)
            for _ in range(2):
                with pytest.raises(BarrierTableUnusable):
                    install(engine)


def test_install_moves_a_sequence_that_is_behind_the_rows(postgres_bank: Bank) -> None:
    with postgres_bank.engine() as engine:
        assert once(engine, call_of(new_gid()), lambda _: "done") == "done"
        postgres_bank.query("select setval(pg_get_serial_sequence('barrier', 'id'), 1, false)")
        postgres_bank.query("update barrier set id = 41")
        postgres_bank.query("select setval(pg_get_serial_sequence('barrier', 'id'), 40)")
        assert ["setval" in statement for statement in install(engine)] == [True]
        assert install(engine) == []
        assert once(engine, call_of(new_gid()), lambda _: "done") == "done"


@pytest.mark.postgres
def test_install_moves_the_sequence_of_a_table_that_dtm_made(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    for bank in empty_bank(request, "postgresql", tmp_path):
        bank.query("create sequence barrier_seq")
        bank.query(
            "create table barrier (id bigint not null default nextval('barrier_seq'),"
            " trans_type varchar(45) default '',"
            " gid varchar(128) default '', branch_id varchar(128) default '', op varchar(45) default '',"
            " barrier_id varchar(45) default '', reason varchar(45) default '', create_time timestamp(0) default null,"
            " update_time timestamp(0) default null, primary key (id),"
            " constraint uniq_barrier unique (gid, branch_id, op, barrier_id))"
        )
        bank.query(
            "insert into barrier (id, trans_type, gid, branch_id, op, barrier_id, reason)"
            " values (1, 'msg', 'g', '01', 'action', '01', 'action')"
        )
        with bank.engine() as engine:
            install(engine)
            assert once(engine, call_of(new_gid()), lambda _: "done") == "done"


@pytest.mark.parametrize("way", ASYNC_WAYS["postgresql"])
async def test_an_async_install_moves_the_sequence_too(postgres_bank: Bank, way: str) -> None:
    with postgres_bank.engine() as engine:
        assert await asyncio.to_thread(once, engine, call_of(new_gid()), lambda _: "done") == "done"
    postgres_bank.query("select setval(pg_get_serial_sequence('barrier', 'id'), min(id), false) from barrier")
    async with postgres_bank.areached(way) as engine:
        assert ["setval" in statement for statement in await ainstall(engine)] == [True]
        assert await ainstall(engine) == []


def test_a_user_who_may_not_move_a_sequence_may_install_all_the_same(postgres_bank: Bank) -> None:
    role = f"reader_{new_gid().replace('-', '_')}"
    postgres_bank.query(f"create role {role}")
    postgres_bank.query(f"grant select, insert on barrier, twophase_meta to {role}")
    try:
        with postgres_bank.plain() as connection:
            connection.execute(f"set session authorization {role}")
            connection.commit()
            assert install(connection) == []
    finally:
        postgres_bank.query(f"drop owned by {role}")
        postgres_bank.query(f"drop role {role}")


def test_a_second_barrier_table_stands_beside_the_first(bank: Bank) -> None:
    call = call_of(new_gid())
    with bank.engine() as engine:
        install(engine, "orders_barrier")
        try:
            for table in ("barrier", "orders_barrier"):
                assert [once(engine, call, lambda _: "done", table=table) for _ in range(2)] == ["done", None]
                assert check_back(engine, new_gid(), table=table).verdict is Verdict.ROLLED_BACK
        finally:
            bank.query("drop table orders_barrier")


def test_a_connection_in_pipeline_mode_is_refused_by_that_name(postgres_bank: Bank) -> None:
    with postgres_bank.plain() as connection, connection.pipeline():
        with pytest.raises(TwophaseError, match="pipeline") as caught:
            open_transaction(connection)
        assert caught.value.code == "TP-6004"
