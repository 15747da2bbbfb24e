"""Rows that a database hides, or cleans by a clock of its own, prove nothing."""

from __future__ import annotations

import time

import psycopg
import pymysql
import pytest
from sqlalchemy import create_engine

from tests.servers.database import Database as ServerDatabase
from tests.spark.test_readers import everything, rows_in
from twophase.barrier.cleaning import KEEP_LEAST_MS, clean
from twophase.barrier.installing import install
from twophase.core.errors import CannotRead
from twophase_spark.locations import Role, parse_named
from twophase_spark.readers.probe import Source, probe
from twophase_spark.readers.rows import read_gids
from twophase_spark.sink.database import install_ledger

pytestmark = pytest.mark.spark
DAY_MS = 24 * 3600 * 1000


def connected(database: ServerDatabase) -> pymysql.connections.Connection:
    return pymysql.connect(
        host=database.host,
        port=database.port,
        user=database.user,
        password=database.password,
        database=database.name,
        autocommit=True,
    )


def as_auditor(database: ServerDatabase, *grants: str) -> str:
    """Return the URL of a user that has these rights only."""
    with connected(database) as connection, connection.cursor() as cursor:
        cursor.execute("create or replace user auditor identified by 'pw'")
        for grant in grants:
            cursor.execute(f"grant select on {database.name}.{grant} to auditor")
    return f"mysql://auditor:pw@{database.host}:{database.port}/{database.name}"


@pytest.mark.mariadb
def test_a_horizon_that_the_user_may_not_see_is_not_taken_for_none(mariadb_database: ServerDatabase) -> None:
    """MySQL does not show a user that such a table exists."""
    install(mariadb_database.sqlalchemy_url("pymysql"))

    def probed(*grants: str) -> Source:
        return probe(parse_named(Role.CONSUMER, f"b={as_auditor(mariadb_database, *grants)}"), 1)

    with pytest.raises(CannotRead, match="may not read twophase_meta"):
        probed("barrier")
    with pytest.raises(CannotRead, match="may not read barrier"):
        probed("twophase_meta")
    assert probed("barrier", "twophase_meta").identity
    assert probed("*").identity
    with connected(mariadb_database) as connection, connection.cursor() as cursor:
        cursor.execute("drop table twophase_meta")
    assert probed("*").identity is None, "a table that dtm made"


@pytest.mark.mariadb
def test_rows_that_were_cleaned_by_local_times_are_not_missing(mariadb_database: ServerDatabase) -> None:
    """The time of a barrier row is local to its writer; in America it is behind."""
    url = mariadb_database.sqlalchemy_url("pymysql")
    install(url)
    now_ms = time.time_ns() // 1_000_000
    finished_ms = now_ms - 3 * DAY_MS
    called_ms = finished_ms - 6 * 3600 * 1000
    with connected(mariadb_database) as connection, connection.cursor() as cursor:
        cursor.execute("set time_zone = '-12:00'")
        cursor.execute(
            "insert into barrier (trans_type, gid, branch_id, op, barrier_id, reason, token, create_time) "
            "values ('msg', 'g', '01', 'action', '01', 'action', 't', from_unixtime(%s))",
            (called_ms / 1000,),
        )
    engine = create_engine(url)
    try:
        cleaned = clean(engine, undecided_ms=None, unfinished_ms=finished_ms, keep_ms=KEEP_LEAST_MS)
    finally:
        engine.dispose()

    assert cleaned.branch_rows == 1
    source = probe(parse_named(Role.CONSUMER, f"b={mariadb_database.dsn}"), 1)
    assert source.horizon_ms > called_ms


@pytest.mark.postgres
def test_rows_that_a_policy_hides_are_refused(postgres_database: ServerDatabase) -> None:
    install(postgres_database.sqlalchemy_url("psycopg"))
    with psycopg.connect(postgres_database.dsn, autocommit=True) as connection:
        connection.execute("create table ledger (gid text, branch_id text, tenant text)")
        connection.execute("drop role if exists tenant_auditor")
        connection.execute("create role tenant_auditor login password 'pw'")
        connection.execute("grant select on all tables in schema public to tenant_auditor")
        own = postgres_database.dsn.replace(
            f"{postgres_database.user}:{postgres_database.password}@", "tenant_auditor:pw@"
        )
        ledger = parse_named(Role.LEDGER, f"b={own}#ledger")
        assert probe(ledger, 1).slices
        connection.execute("alter table ledger enable row level security")

        with pytest.raises(CannotRead, match="row-level security hides rows of ledger"):
            probe(ledger, 1)
        assert probe(parse_named(Role.LEDGER, f"b={postgres_database.dsn}#ledger"), 1).slices, "its owner sees all"

        engine = create_engine(postgres_database.sqlalchemy_url("psycopg"))
        install_ledger(engine)
        engine.dispose()
        connection.execute("grant select on all tables in schema public to tenant_auditor")
        producer = parse_named(Role.PRODUCER, f"a={own}")
        assert probe(producer, 1).has_batches
        connection.execute("alter table twophase_spark_message enable row level security")
        with pytest.raises(CannotRead, match="row-level security hides rows of twophase_spark_message"):
            probe(producer, 1)
        connection.execute("drop owned by tenant_auditor")
        connection.execute("drop role tenant_auditor")


STRANGE = ["g1", "Überweisung", "заказ", "注文", "💶", "a\0b"]


@pytest.mark.mariadb
@pytest.mark.parametrize("charset", ["latin1", "ascii", "utf8mb3", "utf8mb4", "cp1251", "gbk"])
def test_a_gid_that_a_column_cannot_hold_is_not_in_it(mariadb_database: ServerDatabase, charset: str) -> None:
    """A suspect of one service is asked for in all of them."""
    with connected(mariadb_database) as connection, connection.cursor() as cursor:
        cursor.execute(f"create table ledger (gid varchar(60) character set {charset}, branch_id varchar(9))")
        cursor.execute("insert into ledger values ('g1', '01')")
    ledger = probe(parse_named(Role.LEDGER, f"b={mariadb_database.dsn}#ledger"), 1)

    assert rows_in(read_gids(ledger, STRANGE)) == everything(ledger)


VIEWS = {
    "invoked": "create view invoked with (security_invoker) as select * from ledger",
    "owned": "create view owned as select * from ledger",
    "hidden": "create view hidden as select * from ledger; alter view hidden owner to tenant_owner",
    "deep": "create view deep as select * from hidden",
    "around": "create view around as select * from invoked",
    "kept": "create materialized view kept as select * from ledger; "
    "alter materialized view kept owner to tenant_owner; refresh materialized view kept",
    "filled": "create materialized view filled as select * from invoked",
    "filled_short": "create materialized view filled_short as select * from invoked; grant select on invoked to "
    "tenant_owner; alter materialized view filled_short owner to tenant_owner; refresh materialized view filled_short",
    "no_policy": "create view no_policy with (security_invoker) as select gid, branch_id, tenant from plain; "
    "create rule writes as on insert to no_policy do instead insert into ledger values (new.*)",
}


@pytest.mark.postgres
def test_rows_that_a_policy_hides_below_a_view_are_refused(postgres_database: ServerDatabase) -> None:
    """Each view is refused exactly if this user sees fewer rows than the table has."""
    roles = ("tenant_auditor", "tenant_owner")
    with psycopg.connect(postgres_database.dsn, autocommit=True) as connection:
        for role in roles:
            connection.execute(f"drop role if exists {role}")
            connection.execute(f"create role {role} login password 'pw'")
        connection.execute("grant create, usage on schema public to tenant_owner")
        for table in ("ledger", "plain"):
            connection.execute(f"create table {table} (gid text, branch_id text, tenant text)")
            connection.execute(f"insert into {table} values ('a', '01', 'x'), ('b', '01', 'y')")
        connection.execute("alter table ledger enable row level security")
        connection.execute("create policy of_tenant on ledger using (tenant = 'x')")
        connection.execute("grant select on all tables in schema public to tenant_owner")
        for made in VIEWS.values():
            connection.execute(made)
        connection.execute("grant select on all tables in schema public to tenant_auditor")
        own = postgres_database.dsn.replace(
            f"{postgres_database.user}:{postgres_database.password}@", "tenant_auditor:pw@"
        )

        def seen(dsn: str, view: str) -> int:
            with psycopg.connect(dsn) as user:
                [(count,)] = user.execute(f"select count(*) from {view}").fetchall()
            return int(count)

        def is_refused(dsn: str, view: str) -> bool:
            try:
                probe(parse_named(Role.LEDGER, f"b={dsn}#{view}"), 1)
            except CannotRead as error:
                return f"row-level security hides rows of {view}" in str(error)
            return False

        short = {view for view in VIEWS if seen(own, view) < 2}
        assert {view for view in VIEWS if is_refused(own, view)} == short
        to_all = {"hidden", "deep", "kept", "filled_short"}
        assert {"invoked", *to_all} <= short
        assert {view for view in VIEWS if is_refused(postgres_database.dsn, view)} == to_all
        for role in roles:
            connection.execute(f"drop owned by {role} cascade")
            connection.execute(f"drop role {role}")


@pytest.mark.postgres
def test_a_gid_that_a_database_cannot_hold_is_not_in_it(postgres_database: ServerDatabase) -> None:
    name = "bank_in_latin1"
    with psycopg.connect(postgres_database.dsn, autocommit=True) as connection:
        connection.execute(f"drop database if exists {name}")
        connection.execute(f"create database {name} encoding 'LATIN1' lc_collate 'C' lc_ctype 'C' template template0")
        try:
            for database in (postgres_database.name, name):
                dsn = postgres_database.dsn.replace(f"/{postgres_database.name}", f"/{database}")
                with psycopg.connect(dsn, autocommit=True) as bank:
                    bank.execute("create table ledger (gid text, branch_id text)")
                    bank.execute("insert into ledger values ('g1', '01')")
                ledger = probe(parse_named(Role.LEDGER, f"b={dsn}#ledger"), 1)

                assert rows_in(read_gids(ledger, STRANGE)) == everything(ledger)
        finally:
            connection.execute(f"drop database {name}")
