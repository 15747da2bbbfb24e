"""The identity belongs to one barrier table.

Another table, schema, copy or replica never answers for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.integration.barrier.conftest import MARKS, empty_bank
from tests.servers.mariadb import MariadbServer
from tests.servers.plugin import running
from tests.servers.postgres import PostgresServer
from tests.servers.standby import PostgresStandby
from tests.support.business_databases import SYNC_WAYS, Bank, new_gid
from twophase.barrier.asking import check_back
from twophase.barrier.cleaning import DAY_MS, KEEP_MS, clean, database_now_ms, identity_of
from twophase.barrier.dialect import MYSQL
from twophase.barrier.installing import install
from twophase.barrier.open import open_transaction
from twophase.barrier.producer import begin_producer, read_identity, verify_producer
from twophase.barrier.transaction import perform
from twophase.core.errors import BarrierTableMissing, ConfigurationError, DatabaseIsReplica, DatabaseSwitched
from twophase.core.verdict import Verdict

ORDERS = "orders_barrier"
MARIADB_12 = ("ON", "NO_LOCK", "NO_LOCK_NO_ADMIN")
"""The values of `read_only` by which MariaDB is read-only, from 12.0 on.

Before, it was a number.
"""


@pytest.fixture(params=[pytest.param(kind, marks=MARKS[kind]) for kind in SYNC_WAYS])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bank]:
    """Each database, without any table."""
    yield from empty_bank(request, request.param, tmp_path)


@pytest.fixture
def schemas(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bank]:
    """PostgreSQL with a schema `tenant`.

    A session's search path names it before `public`.
    """
    for bank in empty_bank(request, "postgresql", tmp_path):
        bank.query("create schema tenant")
        yield bank


PATH = {"connect_args": {"options": "-csearch_path=tenant,public"}}


def commit(engine: object, table: str, gid: str, *, identity: str | None = None) -> str:
    """Commit a producer's row; return the identity of its table, as read before."""
    transaction = open_transaction(engine)
    try:
        read = perform(read_identity(transaction.dialect, table), transaction)
        row = begin_producer(transaction.dialect, table, gid, gid, None, identity=identity or read)
        perform(row, transaction)
        perform(verify_producer(transaction.dialect, table, gid, gid), transaction)
        transaction.commit()
    finally:
        transaction.rollback()
        transaction.close()
    return read


def test_route_that_asks_another_table_of_the_schema_answers_unknown(empty: Bank) -> None:
    with empty.engine() as engine:
        install(engine)
        install(engine, ORDERS)
        assert install(engine, ORDERS) == []
        gid = new_gid()
        identity = commit(engine, ORDERS, gid)
        assert identity != identity_of(engine)
        assert check_back(engine, gid, identity=identity).verdict is Verdict.UNKNOWN
        assert check_back(engine, gid, identity=identity, table=ORDERS).verdict is Verdict.COMMITTED


def test_cleaning_one_table_leaves_the_horizon_of_another_in_the_schema(empty: Bank) -> None:
    with empty.engine() as engine:
        install(engine)
        install(engine, ORDERS)
        now_ms = database_now_ms(engine)
        old_ms = now_ms - KEEP_MS - 2 * DAY_MS
        gid = new_gid()
        empty.query(
            f"insert into {ORDERS} (trans_type, gid, branch_id, op, barrier_id, reason, token, prepared_at)"
            f" values ('msg', '{gid}', '00', 'msg', '01', 'msg', 'x', {old_ms})"
        )
        assert clean(engine, undecided_ms=now_ms, unfinished_ms=None, table=ORDERS).producer_rows == 1
        cleaned = check_back(engine, new_gid(), prepared_at_ms=old_ms, table=ORDERS)
        untouched = check_back(engine, new_gid(), prepared_at_ms=old_ms)
    assert (cleaned.verdict, untouched.verdict) == (Verdict.UNKNOWN, Verdict.ROLLED_BACK)


def test_row_in_another_table_than_was_prepared_is_refused_before_the_business(empty: Bank) -> None:
    gid = new_gid()
    with empty.engine() as engine:
        install(engine)
        with pytest.raises(DatabaseSwitched):
            commit(engine, "barrier", gid, identity="that of another tenant")
    assert empty.query("select * from barrier") == []


@pytest.mark.postgres
def test_install_names_the_table_in_its_own_schema_whatever_else_the_search_path_finds(schemas: Bank) -> None:
    with schemas.engine() as engine:
        install(engine)
    schemas.query("create table tenant.barrier (like public.barrier including all)")
    with schemas.engine(**PATH) as engine:
        install(engine)
        gid = new_gid()
        identity = commit(engine, "barrier", gid)
        assert check_back(engine, gid, identity=identity).verdict is Verdict.COMMITTED
    with schemas.engine() as engine:
        assert identity_of(engine) != identity
        assert check_back(engine, gid, identity=identity).verdict is Verdict.UNKNOWN


@pytest.mark.postgres
def test_barrier_and_identity_in_two_schemas_are_no_barrier(schemas: Bank) -> None:
    with schemas.engine() as engine:
        install(engine)
    schemas.query("create table tenant.barrier (like public.barrier including all)")
    with schemas.engine(**PATH) as engine:
        with pytest.raises(BarrierTableMissing):
            commit(engine, "barrier", new_gid())
        assert check_back(engine, new_gid()).verdict is Verdict.UNKNOWN
        with pytest.raises(BarrierTableMissing):
            identity_of(engine)


@pytest.mark.postgres
def test_row_beside_another_schemas_identity_is_refused_before_the_business(schemas: Bank) -> None:
    with schemas.engine() as engine:
        install(engine)
        named = identity_of(engine)
    schemas.query("create table tenant.barrier (like public.barrier including all)")
    gid = new_gid()
    with schemas.engine(**PATH) as engine:
        transaction = open_transaction(engine)
        with pytest.raises(DatabaseSwitched):
            perform(begin_producer(transaction.dialect, "barrier", gid, gid, None, identity=named), transaction)
        transaction.rollback()
        transaction.close()
    assert schemas.query("select * from tenant.barrier") == []


@pytest.mark.postgres
def test_install_refuses_a_barrier_behind_another_schemas_identity(schemas: Bank) -> None:
    with schemas.engine() as engine:
        install(engine)
    schemas.query("create table tenant.twophase_meta (like public.twophase_meta including all)")
    with schemas.engine(**PATH) as engine, pytest.raises(ConfigurationError, match="twophase_meta of another schema"):
        install(engine)


@pytest.mark.postgres
def test_schema_whose_name_needs_quotes_gets_its_barrier(schemas: Bank) -> None:
    schemas.query('create schema "My-Tenant"')
    with schemas.engine(connect_args={"options": '-csearch_path="My-Tenant"'}) as engine:
        assert len(install(engine)) == 3
        assert install(engine) == []
        gid = new_gid()
        assert check_back(engine, gid, identity=commit(engine, "barrier", gid)).verdict is Verdict.COMMITTED


@pytest.mark.postgres
def test_table_that_a_subscription_writes_does_not_decide(schemas: Bank) -> None:
    gid = new_gid()
    with schemas.engine() as engine:
        install(engine)
        commit(engine, "barrier", gid)
        with schemas.plain(autocommit=True) as connection:
            connection.execute(
                "create subscription copy connection 'dbname=nowhere' publication all_of_it with (connect = false)"
            )
            connection.execute(
                "insert into pg_subscription_rel (srsubid, srrelid, srsubstate)"
                " select oid, 'barrier'::regclass, 'r' from pg_subscription where subname = 'copy'"
            )
        try:
            with pytest.raises(DatabaseIsReplica):
                commit(engine, "barrier", new_gid())
            assert check_back(engine, gid).verdict is Verdict.UNKNOWN
        finally:
            with schemas.plain(autocommit=True) as connection, contextlib.suppress(Exception):
                connection.execute("alter subscription copy set (slot_name = none)")
                connection.execute("drop subscription copy")


@pytest.mark.mariadb
def test_server_that_replicates_another_does_not_decide() -> None:
    gid = new_gid()
    # A server of its own: a channel concerns every database of a server, and so every other test that runs at the same
    # time.
    with running(MariadbServer()) as server:
        bank = Bank("mysql", server.create_database("bank").dsn.split("://", 1)[1])
        with bank.engine() as engine:
            install(engine)
            commit(engine, "barrier", gid)
            bank.query("change master 'copy' to master_host = '127.0.0.1', master_user = 'nobody'")
            try:
                with pytest.raises(DatabaseIsReplica):
                    commit(engine, "barrier", new_gid())
                assert check_back(engine, gid).verdict is Verdict.UNKNOWN
            finally:
                bank.query("reset slave 'copy' all")
            assert check_back(engine, gid).verdict is Verdict.COMMITTED


@pytest.mark.mariadb
@pytest.mark.parametrize(
    ("read_only", "refused"),
    [("0", False), ("'OFF'", False), ("1", True), *((f"'{word}'", True) for word in MARIADB_12)],
)
def test_read_only_server_does_not_decide_in_whatever_words_it_says_so(
    mysql_bank: Bank, read_only: str, refused: bool
) -> None:
    variable = "@@global.read_only"  # a literal takes its place: the variable concerns every database of a server
    for statement in ("read_identity", "read_meta"):
        sql = MYSQL.sql(statement)
        assert variable in sql
        said = [value for row in mysql_bank.query(sql.replace(variable, read_only)) for value in row]
        assert ("it is read-only, as replicas are" in said) is refused


@pytest.mark.mariadb
def test_user_who_may_not_see_the_channels_is_served(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    gid = new_gid()
    user = f"clerk_{gid[-6:]}"
    for bank in empty_bank(request, "mysql", tmp_path):
        with bank.engine() as engine:
            install(engine)
        place = bank.where.partition("@")[2]
        bank.query(f"create user {user}@'%' identified by 'pw'")
        bank.query(f"grant all on `{place.partition('/')[2]}`.* to {user}@'%'")
        try:
            with Bank("mysql", f"{user}:pw@{place}").engine() as engine:
                identity = commit(engine, "barrier", gid)
                assert check_back(engine, gid, identity=identity).verdict is Verdict.COMMITTED
        finally:
            bank.query(f"drop user {user}@'%'")


@pytest.mark.postgres
def test_standby_does_not_decide() -> None:
    with running(PostgresServer()) as primary:
        with contextlib.closing(psycopg.connect(primary.database("postgres").dsn)) as connection:
            install(connection)  # before the standby copies it
        with (
            running(PostgresStandby(primary)) as standby,
            contextlib.closing(psycopg.connect(standby.database("postgres").dsn)) as connection,
        ):
            with pytest.raises(DatabaseIsReplica, match="standby"):
                commit(connection, "barrier", new_gid())
            assert check_back(connection, new_gid()).verdict is Verdict.UNKNOWN
