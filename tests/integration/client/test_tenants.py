"""One engine with a schema or a database for each tenant.

Every message is decided by the table that it was written to.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import secrets
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import event, text
from sqlalchemy.orm import Session

from tests.integration.client.ledgers import mariadb_connection
from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer
from tests.support.recording_coordinator import RecordingCoordinator, Told
from twophase import Client, Progress
from twophase.barrier import check_back, install, once
from twophase.core.errors import BarrierTableUnusable, BeginDeadlinePassed, DatabaseSwitched
from twophase.core.limits import BEGIN_DEADLINE_MS
from twophase.core.verdict import Verdict

TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")
RED, BLUE = TENANTS = tuple(f"{color}_{secrets.token_hex(4)}" for color in ("red", "blue"))
ACCOUNT = ("create table account (balance int)", "insert into account values (100)")
SPEND = "update account set balance = balance - 30"


@pytest.fixture(scope="module")
def schemas(postgres_server: PostgresServer) -> Iterator[str]:
    """A PostgreSQL database with a schema, a barrier and an account for each tenant."""
    name = f"tenants_{secrets.token_hex(6)}"
    database = postgres_server.create_database(name)
    for tenant in TENANTS:
        with psycopg.connect(database.dsn, autocommit=True) as connection:
            connection.execute(f"create schema {tenant}".encode())
            connection.execute(f"set search_path = {tenant}".encode())
            for statement in ACCOUNT:
                connection.execute(statement.encode())
        with psycopg.connect(database.dsn, options=f"-csearch_path={tenant}") as connection:
            install(connection)
    yield database.sqlalchemy_url("psycopg")
    postgres_server.drop_database(name)


@pytest.fixture(scope="module")
def databases(mariadb_server: MariadbServer) -> Iterator[str]:
    """A MariaDB with a database for each tenant.

    The URL is that of the first.
    """
    made = {tenant: mariadb_server.create_database(tenant) for tenant in TENANTS}
    for database in made.values():
        connection = mariadb_connection(database, autocommit=True)
        with contextlib.closing(connection), connection.cursor() as cursor:
            for statement in ACCOUNT:
                cursor.execute(statement)
        with contextlib.closing(mariadb_connection(database)) as connection:
            install(connection)
    yield f"{made[RED].sqlalchemy_url('pymysql')}?ssl_disabled=true"
    for tenant in TENANTS:
        mariadb_server.drop_database(tenant)


@pytest.fixture(
    params=[
        pytest.param(("schemas", "set search_path = {}"), marks=pytest.mark.postgres, id="postgresql"),
        pytest.param(("databases", "use {}"), marks=pytest.mark.mariadb, id="mariadb"),
    ]
)
def place(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A URL, and the statement that chooses a tenant."""
    fixture, choose = request.param
    return request.getfixturevalue(fixture), choose


def _choose_by(target: Any, name: str, choose: str) -> None:
    """Choose the connection's tenant at an event of SQLAlchemy, as applications do."""

    @event.listens_for(target, name)
    def chosen(connection: Any, *_: object) -> None:
        if isinstance(connection, sqlalchemy.Connection):
            connection.exec_driver_sql(choose.format(TENANT.get()))
            return
        cursor = connection.cursor()
        cursor.execute(choose.format(TENANT.get()))
        cursor.close()
        connection.commit()


def _route(engine: sqlalchemy.Engine, check_url: str, gid: str) -> Verdict:
    """Answer as a check-back route whose address names the tenant by a parameter."""
    query = parse_qs(urlsplit(check_url).query)
    chosen = TENANT.set(query["tenant"][0])
    try:
        return check_back(engine, gid, identity=query["barrier"][0]).verdict
    finally:
        TENANT.reset(chosen)


def _spend(client: Client, engine: sqlalchemy.Engine, tenant: str) -> str:
    chosen = TENANT.set(tenant)
    try:
        message = client.message().add("http://bank-b/transfer-in")
        with message.transaction(engine, check=f"http://bank-a/check?tenant={tenant}") as connection:
            connection.execute(text(SPEND))
        return message.gid
    finally:
        TENANT.reset(chosen)


@pytest.mark.parametrize("moment", ["checkout", "begin"])
def test_each_tenants_message_is_decided_by_the_table_of_that_tenant(
    place: tuple[str, str], moment: str, coordinator: RecordingCoordinator
) -> None:
    url, choose = place
    engine = sqlalchemy.create_engine(url)
    _choose_by(engine, moment, choose)
    with Client(coordinator.url) as client:
        for tenant in (*TENANTS, *TENANTS):
            gid = _spend(client, engine, tenant)
            assert _route(engine, coordinator.last("prepare")["query_prepared"], gid) is Verdict.COMMITTED
    engine.dispose()


def test_message_that_joins_a_transaction_of_another_tenant_is_aborted_and_leaves_no_row(
    place: tuple[str, str], coordinator: RecordingCoordinator
) -> None:
    url, choose = place
    engine = sqlalchemy.create_engine(url)
    with Client(coordinator.url) as client:
        with Session(engine) as session, session.begin():
            session.connection().exec_driver_sql(choose.format(RED))
            client.message().add("http://b").join(session, "http://a/check")
        refused = client.message().add("http://b")
        with Session(engine) as session, session.begin():
            session.connection().exec_driver_sql(choose.format(BLUE))
            with pytest.raises(DatabaseSwitched, match="the transaction is still open"):
                refused.join(session, "http://a/check")
            assert refused.state is Progress.NOT_STARTED
            session.execute(text(SPEND))
        with Session(engine) as session:
            session.connection().exec_driver_sql(choose.format(BLUE))
            rows = session.execute(text("select count(*) from barrier where gid = :gid"), {"gid": refused.gid})
            assert rows.scalar_one() == 0
    engine.dispose()
    assert coordinator.operations == ["prepare", "submit", "prepare", "abort"]


def test_message_that_joins_too_late_is_aborted_and_leaves_no_row(
    place: tuple[str, str], coordinator: RecordingCoordinator
) -> None:
    url, choose = place
    engine = sqlalchemy.create_engine(url)
    long_ago_ms = time.time_ns() // 1_000_000 - 2 * BEGIN_DEADLINE_MS.value
    coordinator.tell("prepare", Told(body=b'{"dtm_result":"SUCCESS","prepared_at":%d}' % long_ago_ms))
    with Client(coordinator.url) as client, Session(engine) as session, session.begin():
        session.connection().exec_driver_sql(choose.format(RED))
        message = client.message().add("http://b")
        with pytest.raises(BeginDeadlinePassed, match="Fate: not started"):
            message.join(session, "http://a/check")
        rows = session.execute(text("select count(*) from barrier where gid = :gid"), {"gid": message.gid})
        assert rows.scalar_one() == 0
    engine.dispose()
    assert coordinator.operations == ["prepare", "abort"]


@pytest.mark.postgres
def test_message_of_another_schema_than_was_read_is_refused_and_the_next_is_right(
    schemas: str, coordinator: RecordingCoordinator
) -> None:
    dsn = schemas.replace("+psycopg", "")
    with psycopg.connect(dsn, options=f"-csearch_path={RED}") as connection, Client(coordinator.url) as client:
        with client.message().add("http://b").transaction(connection, check="http://a/check"):
            pass
        connection.execute(f"set search_path = {BLUE}".encode())
        connection.commit()
        refused = client.message().add("http://b")
        with pytest.raises(DatabaseSwitched), refused.transaction(connection, check="http://a/check"):
            pytest.fail("the business ran")
        with client.message().add("http://b").transaction(connection, check="http://a/check"):
            pass
        assert connection.execute("select count(*) from barrier where gid = %s", (refused.gid,)).fetchone() == (0,)
        connection.rollback()
        rows = connection.execute(f"select value from {BLUE}.twophase_meta".encode()).fetchall()
        connection.rollback()
    assert coordinator.operations == ["prepare", "submit", "prepare", "abort", "prepare", "submit"]
    assert coordinator.last("prepare")["query_prepared"] == f"http://a/check?barrier={rows[0][0]}"


def test_tenant_that_the_application_chose_on_a_connection_is_the_one_that_is_read(
    place: tuple[str, str], coordinator: RecordingCoordinator
) -> None:
    """The identity is read on the Connection once another tenant was met."""
    url, choose = place
    engine = sqlalchemy.create_engine(url)
    outcomes = []
    with Client(coordinator.url) as client:
        for tenant in (RED, BLUE, BLUE, RED):
            with engine.connect() as connection:
                connection.exec_driver_sql(choose.format(tenant))
                connection.commit()
                message = client.message().add("http://b")
                try:
                    with message.transaction(connection, check=f"http://a/check?tenant={tenant}") as begun:
                        begun.execute(text(SPEND))
                    outcomes.append("committed")
                except DatabaseSwitched:
                    outcomes.append("switched")
                connection.invalidate()  # it keeps its tenant
    engine.dispose()
    assert outcomes == ["committed", "switched", "committed", "committed"]


@pytest.mark.mariadb
def test_each_tenants_barrier_table_is_proven(databases: str) -> None:
    """MariaDB's insert does not name the key, so one table proves nothing for another."""
    engine = sqlalchemy.create_engine(databases)
    _choose_by(engine, "checkout", "use {}")
    calls = itertools.count(1)

    def effect(tenant: str) -> str | None:
        call = {"gid": f"proven-{next(calls)}", "branch_id": "01", "op": "action", "trans_type": "msg"}
        chosen = TENANT.set(tenant)
        try:
            return once(engine, call, lambda _: "done")
        finally:
            TENANT.reset(chosen)

    assert effect(RED) == "done"
    plain = sqlalchemy.create_engine(databases)
    with plain.connect() as connection:
        connection.exec_driver_sql(f"alter table {BLUE}.barrier drop key uniq_barrier")
    try:
        with pytest.raises(BarrierTableUnusable):
            effect(BLUE)
        assert effect(RED) == "done"
    finally:
        with plain.connect() as connection:
            connection.exec_driver_sql(
                f"alter table {BLUE}.barrier add constraint uniq_barrier unique (gid, branch_id, op, barrier_id)"
            )
        plain.dispose()
        engine.dispose()
