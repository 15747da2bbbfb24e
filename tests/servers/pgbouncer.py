"""A private PgBouncer in transaction mode before a test's PostgreSQL.

It is the real program, as operators run it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec
import psycopg

from tests.servers.database import Address, Database
from tests.servers.postgres import PostgresServer
from tests.servers.server import DatabaseServer, ServerUnavailable


class PgBouncer(DatabaseServer):
    """A pool of one PostgreSQL's databases.

    Clients use its own user, port and password.
    """

    kind = "pgbouncer"
    part = "PgBouncer"
    system_users = ("postgres",)
    own_database = "postgres"
    _program: str

    def __init__(self, behind: PostgresServer, settings: Mapping[str, str] | None = None) -> None:
        """Make one, not started.

        Arguments:
            behind: the server it pools.
            settings: lines of its configuration, over transaction mode with 8 connections a database.
        """
        super().__init__()
        self._behind = behind
        self._settings = {"pool_mode": "transaction", "default_pool_size": "8", **(settings or {})}

    def find_programs(self) -> None:
        found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
        if found is None:
            raise ServerUnavailable("it is not installed; `make servers` installs it where it may")
        self._program = found

    def make_data(self, directory: Path, address: Address, user: str) -> None:
        behind = self._behind.address
        server = f"host={behind.host} port={behind.port} user={behind.user} password={behind.password}"
        settings = {
            "listen_addr": address.host,
            "listen_port": str(address.port),
            "unix_socket_dir": "",
            "auth_type": "scram-sha-256",
            "auth_file": str(directory / "users"),
            "admin_users": address.user,
            **self._settings,
        }
        lines = [f"{name} = {value}" for name, value in settings.items()]
        configuration = directory / "pgbouncer.ini"
        configuration.write_text("\n".join(["[databases]", f"* = {server}", "[pgbouncer]", *lines]) + "\n")
        users = directory / "users"
        users.write_text(f'"{address.user}" "{address.password}"\n')
        for file in (configuration, users):
            file.chmod(0o644)  # the directory itself is closed to others

    def command(self, directory: Path, address: Address) -> list[str]:
        return [self._program, str(directory / "pgbouncer.ini")]

    def try_connection(self, address: Address) -> bool:
        try:
            with psycopg.connect(
                host=address.host,
                port=address.port,
                user=address.user,
                password=address.password,
                dbname=address.own_database,
                connect_timeout=30,
            ) as connection:
                connection.execute("select 1")
        except psycopg.Error:
            return False
        return True

    def create_database(self, name: str) -> Database:
        self._behind.create_database(name)
        return self.database(name)

    def drop_database(self, name: str) -> None:
        self._behind.drop_database(name)

    def database(self, name: str) -> Database:
        """Return the database `name` of the server behind, reached through the pool."""
        return Database(msgspec.structs.replace(self.address, kind=self._behind.kind), name)
