"""The servers that the other tests stand on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psycopg
import pymysql
import pytest

from tests.servers.database import Address, Database
from tests.servers.missing import REQUIRE_VARIABLE, not_tested

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


@pytest.mark.parametrize(("module", "server"), [("postgres", "PostgresServer"), ("mariadb", "MariadbServer")])
def test_server_ends_and_cleans_up_when_its_user_is_killed(
    module: str, server: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(f"{module}_server")  # not here: said loudly
    program = _PROGRAM.format(module=module, server=server)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT) as user:
        assert user.stdout is not None
        directory = Path(user.stdout.readline().split()[0])
        assert directory.exists()
        user.send_signal(signal.SIGKILL)
    for _ in range(200):
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
