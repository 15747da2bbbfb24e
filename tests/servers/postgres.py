"""A private PostgreSQL, with fsync on: the crash rules of the barrier are tested against it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from tests.servers.database import Address, Database
from tests.servers.server import DatabaseServer, ServerUnavailable


class PostgresServer(DatabaseServer):
    """PostgreSQL from the newest programs found in PATH or where Debian keeps them."""

    kind = "postgresql"
    part = "PostgreSQL"
    system_users = ("postgres",)
    own_database = "postgres"
    _programs: Path

    def find_programs(self) -> None:
        candidates = sorted(
            Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]), reverse=True
        )
        in_path = shutil.which("postgres")
        if in_path:
            candidates.append(Path(in_path).resolve())
        for candidate in candidates:
            if (candidate.parent / "initdb").exists():
                self._programs = candidate.parent
                return
        raise ServerUnavailable("it is not installed; `make servers` installs it where it may")

    def make_data(self, directory: Path, address: Address, user: str) -> None:
        password_file = directory / "password"
        password_file.write_text(address.password)
        password_file.chmod(0o644)  # the directory itself is closed to others
        data = directory / "data"
        settings = ["--no-sync", "--encoding=UTF8", "--locale=C", "--auth=scram-sha-256", f"--username={address.user}"]
        command = [str(self._programs / "initdb"), f"--pgdata={data}", f"--pwfile={password_file}", *settings]
        self.run_as(user, command, directory)

    def command(self, directory: Path, address: Address) -> list[str]:
        settings = {
            "listen_addresses": address.host,
            "port": str(address.port),
            "unix_socket_directories": "",
            "max_connections": "300",
            "shared_buffers": "64MB",
            "fsync": "on",
            "synchronous_commit": "on",
            "full_page_writes": "on",
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [str(self._programs / "postgres"), "-D", str(directory / "data"), *options]

    def try_connection(self, address: Address) -> bool:
        try:
            with self._connect(address) as connection:
                connection.execute("select 1")
        except psycopg.Error:
            return False
        return True

    def create_database(self, name: str) -> Database:
        with self._connect(self.address) as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        return self.database(name)

    def drop_database(self, name: str) -> None:
        with self._connect(self.address) as connection:
            connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def _connect(self, address: Address) -> psycopg.Connection[Any]:
        return psycopg.connect(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password,
            dbname=address.own_database,
            connect_timeout=5,
            autocommit=True,
        )
