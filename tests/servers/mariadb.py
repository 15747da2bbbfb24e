"""A private MariaDB, durable at every commit.

The barrier's MySQL dialect is tested against it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql
from pymysql.connections import Connection

from tests.servers.database import Address, Database
from tests.servers.server import DatabaseServer, ServerUnavailable


class MariadbServer(DatabaseServer):
    """MariaDB from the programs found in PATH or in the system directories."""

    kind = "mysql"
    part = "MariaDB"
    system_users = ("mysql",)
    own_database = "mysql"
    _server: str
    _installer: str

    def find_programs(self) -> None:
        path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/bin"
        server, installer = shutil.which("mariadbd", path=path), shutil.which("mariadb-install-db", path=path)
        if not server or not installer or not shutil.which("my_print_defaults", path=path):
            raise ServerUnavailable("it is not installed; `make servers` installs it where it may")
        self._server, self._installer = server, installer

    def make_data(self, directory: Path, address: Address, user: str) -> None:
        init = directory / "init.sql"
        init.write_text(
            f"create user '{address.user}'@'%' identified by '{address.password}';\n"
            f"grant all on *.* to '{address.user}'@'%' with grant option;\n"
        )
        init.chmod(0o644)  # the directory itself is closed to others
        # Not the machine's folder: a server that starts removes the temporary tables there, of other servers too.
        folders = [f"--datadir={directory / 'data'}", f"--tmpdir={directory}"]
        options = ["--no-defaults", *folders, "--skip-test-db", "--skip-name-resolve"]
        speed = ["--innodb-flush-log-at-trx-commit=0", "--innodb-log-file-size=16M"]
        self.run_as(user, [self._installer, *options, *speed, "--auth-root-authentication-method=normal"], directory)

    def command(self, directory: Path, address: Address) -> list[str]:
        settings = {
            "datadir": str(directory / "data"),
            "tmpdir": str(directory),
            "socket": str(directory / "socket"),
            "pid-file": str(directory / "pid"),
            "init-file": str(directory / "init.sql"),
            "bind-address": address.host,
            "port": str(address.port),
            "max-connections": "300",
            "innodb-buffer-pool-size": "64M",
            "innodb-log-file-size": "16M",
            "innodb-flush-log-at-trx-commit": "1",
            "character-set-server": "utf8mb4",
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [self._server, "--no-defaults", "--skip-name-resolve", *options]

    def try_connection(self, address: Address) -> bool:
        try:
            with self._connect(address) as connection:
                connection.ping()
        except pymysql.Error:
            return False
        return True

    def create_database(self, name: str) -> Database:
        self._run(f"create database `{name}`")
        return self.database(name)

    def drop_database(self, name: str) -> None:
        # An open transaction on one of its tables would delay the statement for a day: end those first.
        with self._connect(self.address) as connection, connection.cursor() as cursor:
            cursor.execute("select id from information_schema.processlist where db = %s", (name,))
            for (thread,) in cursor.fetchall():
                with contextlib.suppress(pymysql.OperationalError):  # it has ended meanwhile
                    cursor.execute(f"kill {int(thread)}")
        self._run(f"drop database if exists `{name}`")

    def _run(self, statement: str) -> None:
        with self._connect(self.address) as connection, connection.cursor() as cursor:
            cursor.execute("set session lock_wait_timeout = 10")
            cursor.execute(statement)

    def _connect(self, address: Address) -> Connection:
        return pymysql.connect(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password,
            database=address.own_database,
            connect_timeout=30,
            autocommit=True,
            ssl_disabled=True,  # otherwise it reads this machine's certificates for every connection
        )


def lock_waits(query: Callable[[str], list[Any]]) -> int:
    """Return the number of sessions of one database that wait for a row's lock now.

    The tables of `information_schema` that show it are renewed only after 0.1 s without a reader: two workers that read
    in turn would see the past for ever. The monitor's text is always new.

    Arguments:
        query: the rows of a statement, as a session of that database sees them.
    """
    own = {int(number) for (number,) in query("select id from information_schema.processlist where db = database()")}
    ((_, _, text),) = query("show engine innodb status")
    waiting = [part for part in text.split("---TRANSACTION ")[1:] if "LOCK WAIT" in part]
    found = [re.search(r"thread id (\d+)", part) for part in waiting]
    return len([one for one in found if one is not None and int(one[1]) in own])
