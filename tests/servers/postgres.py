"""A private PostgreSQL, with fsync on.

The crash rules of the barrier are tested against it. A test that needs another one than the run's starts its own, with
settings or a certificate of its choice:

    with running(PostgresServer(settings={"max_connections": "12"})) as server: ...
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import trustme
from psycopg import sql

from tests.servers.database import Address, Database
from tests.servers.server import DatabaseServer, ServerUnavailable

PROGRAMS_VARIABLE = "TWOPHASE_TEST_POSTGRES"
"""The variable with the folder of PostgreSQL's programs.

It selects another version than this machine's newest.
"""
CERTIFIED = "certified"
"""A role that logs in by a client certificate; a test makes it."""


class PostgresServer(DatabaseServer):
    """PostgreSQL from the programs that a variable names.

    Without the variable it is the newest in PATH or in Debian's folders.
    """

    kind = "postgresql"
    part = "PostgreSQL"
    system_users = ("postgres",)
    own_database = "postgres"
    _programs: Path

    def __init__(
        self,
        directory: Path | None = None,
        watched_pid: int | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        certificate: trustme.LeafCert | None = None,
        clients: trustme.CA | None = None,
    ) -> None:
        """Make one, not started.

        Arguments:
            directory, watched_pid: see DatabaseServer.
            settings: over those that every server of the tests has.
            certificate: when given, the server is reached by TLS only.
            clients: with a certificate: whose certificate `CERTIFIED` must show, who needs no password then.
        """
        super().__init__(directory, watched_pid)
        self._settings = dict(settings or {})
        self._certificate = certificate
        self._clients = clients

    def find_programs(self) -> None:
        named = os.environ.get(PROGRAMS_VARIABLE)
        candidates = sorted(
            Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]), reverse=True
        )
        if named:
            candidates = [Path(named) / "postgres"]
        in_path = shutil.which("postgres")
        if in_path and not named:
            candidates.append(Path(in_path).resolve())
        for candidate in candidates:
            if (candidate.parent / "initdb").exists():
                self._programs = candidate.parent
                return
        if named:
            raise ServerUnavailable(f"there is no initdb in {PROGRAMS_VARIABLE}={named}")
        raise ServerUnavailable("it is not installed; `make servers` installs it where it may")

    def make_data(self, directory: Path, address: Address, user: str) -> None:
        password_file = directory / "password"
        password_file.write_text(address.password)
        password_file.chmod(0o644)  # the directory itself is closed to others
        data = directory / "data"
        settings = ["--no-sync", "--encoding=UTF8", "--locale=C", "--auth=scram-sha-256", f"--username={address.user}"]
        command = [str(self._programs / "initdb"), f"--pgdata={data}", f"--pwfile={password_file}", *settings]
        self.run_as(user, command, directory)
        if self._certificate is not None:
            self._certify(directory, self._certificate)

    def _certify(self, directory: Path, certificate: trustme.LeafCert) -> None:
        key, chain = directory / "server.key", directory / "server.pem"
        certificate.private_key_pem.write_to_path(key)
        chain.write_bytes(b"".join(pem.bytes() for pem in certificate.cert_chain_pems))
        files, lines = [key, chain], ["hostssl all all 127.0.0.1/32 scram-sha-256\n"]
        if self._clients is not None:
            self._clients.cert_pem.write_to_path(directory / "clients.pem")
            files.append(directory / "clients.pem")
            lines.insert(0, f"hostssl all {CERTIFIED} 127.0.0.1/32 cert\n")
        owner = directory.stat()
        for file in files:
            file.chmod(0o600)
            os.chown(file, owner.st_uid, owner.st_gid)
        (directory / "data" / "pg_hba.conf").write_text("".join(lines))

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
            **self._settings,
        }
        if self._certificate is not None:
            files = {"ssl_cert_file": directory / "server.pem", "ssl_key_file": directory / "server.key"}
            if self._clients is not None:
                files["ssl_ca_file"] = directory / "clients.pem"
            settings |= {"ssl": "on", **{name: str(file) for name, file in files.items()}}
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
            connect_timeout=30,
            autocommit=True,
        )
