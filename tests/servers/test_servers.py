"""The servers on which the other tests depend."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pymysql
import pytest
import trustme

from benchmarks.servers.ports import KeptPort
from tests.servers.database import Address, Database
from tests.servers.missing import REQUIRE_VARIABLE, not_tested
from tests.servers.pgbouncer import PgBouncer
from tests.servers.plugin import running
from tests.servers.postgres import PostgresServer
from tests.servers.redis import connected

ROOT = Path(__file__).parents[2]
_PROGRAM = """
import sys, threading
from pathlib import Path
from tests.servers.{module} import {server}
server = {server}()
server.start()
print(server.address.directory, server.address.port, flush=True)
threading.Event().wait()
"""


def test_postgres_database_is_fresh_and_durable(postgres_database: Database) -> None:
    with psycopg.connect(postgres_database.dsn) as connection:
        tables = connection.execute("select count(*) from pg_tables where schemaname = 'public'").fetchone()
        settings = [connection.execute(f"show {name}").fetchone() for name in ("fsync", "synchronous_commit")]
    assert tables == (0,)
    assert settings == [("on",), ("on",)]


def test_redis_database_is_fresh_and_durable(redis_database: Database) -> None:
    with connected(redis_database.address) as connection:
        assert list(connection.scan_iter(f"{redis_database.name}*")) == []
        assert connection.config_get("appendonly", "appendfsync") == {"appendonly": "yes", "appendfsync": "always"}


def test_mariadb_database_is_fresh_and_durable(mariadb_database: Database) -> None:
    database = mariadb_database
    with (
        pymysql.connect(
            host=database.host,
            port=database.port,
            user=database.user,
            password=database.password,
            database=database.name,
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("show tables")
        assert cursor.fetchall() == ()
        cursor.execute("select @@innodb_flush_log_at_trx_commit, @@innodb_doublewrite")
        assert cursor.fetchone() == (1, 1)
        cursor.execute("select @@tmpdir, @@datadir")
        temporary, data = cursor.fetchone() or ("", "")
        # In a shared folder, another server that starts would remove the temporary tables of running statements.
        assert Path(data).parent == Path(temporary)


@pytest.mark.parametrize(("module", "server"), [("postgres", "PostgresServer"), ("mariadb", "MariadbServer")])
def test_server_ends_and_cleans_up_when_its_user_is_killed(
    module: str, server: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(f"{module}_server")  # not here: the summary names it
    program = _PROGRAM.format(module=module, server=server)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT) as user:
        assert user.stdout is not None
        directory = Path(user.stdout.readline().split()[0])
        assert directory.exists()
        user.send_signal(signal.SIGKILL)
    for _ in range(600):
        if not directory.parent.exists():
            return
        threading.Event().wait(0.1)
    pytest.fail(f"{directory} outlived the process that started the server")


def test_missing_part_skips_loudly_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRE_VARIABLE, raising=False)
    with pytest.raises(pytest.skip.Exception, match="NOT TESTED: A thing: it is not there"):
        not_tested("A thing", "it is not there")
    monkeypatch.setenv(REQUIRE_VARIABLE, "all")
    with pytest.raises(pytest.fail.Exception, match="NOT TESTED: A thing: it is not there"):
        not_tested("A thing", "it is not there")


def test_servers_listen_on_private_ports_of_this_machine_only(postgres_database: Database) -> None:
    assert postgres_database.host == "127.0.0.1"
    assert postgres_database.port not in {5432, 3306}
    assert isinstance(postgres_database.address, Address)
    assert os.getpid() != postgres_database.address.guardian_pid


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    """A server that may be killed: no other test uses it."""
    with running(PostgresServer(settings={"max_connections": "17"})) as server:
        yield server


@pytest.mark.parametrize("outage", [PostgresServer.crash, PostgresServer.shut_down])
def test_a_server_that_went_down_comes_back_with_its_data_on_its_port(
    own_postgres: PostgresServer, outage: Callable[[PostgresServer], None]
) -> None:
    database = own_postgres.create_database(f"kept_{outage.__name__}")
    with psycopg.connect(database.dsn) as connection:
        connection.execute("create table kept as select 1 as one")

    outage(own_postgres)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(database.dsn)
    own_postgres.restart()

    with psycopg.connect(database.dsn) as connection:
        assert connection.execute("select one from kept").fetchone() == (1,)


def test_a_server_has_the_settings_its_test_gives_it(own_postgres: PostgresServer) -> None:
    with psycopg.connect(own_postgres.url) as connection:
        assert connection.execute("show max_connections").fetchone() == ("17",)


def test_a_server_with_a_certificate_is_reached_by_tls_only(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with running(PostgresServer(certificate=authority.issue_cert("127.0.0.1"))) as server:
        with psycopg.connect(f"{server.url}?sslmode=verify-full&sslrootcert={tmp_path / 'ca.pem'}") as connection:
            encrypted = connection.execute("select ssl from pg_stat_ssl where pid = pg_backend_pid()").fetchone()
        assert encrypted == (True,)
        with pytest.raises(psycopg.OperationalError, match="no encryption"):
            psycopg.connect(f"{server.url}?sslmode=disable")


def test_pgbouncer_lends_one_connection_to_a_transaction_at_a_time(own_postgres: PostgresServer) -> None:
    with running(PgBouncer(own_postgres, {"default_pool_size": "1"})) as pool:
        dsn = pool.create_database("pooled").dsn
        with psycopg.connect(dsn, autocommit=True) as one, psycopg.connect(dsn, autocommit=True) as other:
            backends = {
                connection.execute("select pg_backend_pid()").fetchone() for connection in (one, other, one, other)
            }
    assert len(backends) == 1


def test_a_kept_port_is_given_to_no_other_and_serves_its_server_repeatedly() -> None:
    kept = KeptPort()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", kept.number))
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", kept.number))
    for _ in range(2):
        with (
            socket.create_server(("127.0.0.1", kept.number)) as server,
            socket.create_connection(("127.0.0.1", kept.number)),
        ):
            server.accept()[0].close()
    kept.release()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", kept.number))
    kept.release()
