"""A standby of a running PostgreSQL, and its promotion.

It is promoted as when the primary's machine is lost.

with running(PostgresStandby(primary)) as standby:
    standby.synchronous()   # from now on a commit of the primary is acknowledged when the standby has it too
    primary.crash()
    standby.promote()
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from tests.servers.database import Address
from tests.servers.postgres import PostgresServer
from tests.servers.server import ServerUnavailable

_WAIT_SECONDS = 60


class PostgresStandby(PostgresServer):
    """A standby that follows `primary` by streaming replication.

    It has the same users, passwords and databases.
    """

    def __init__(self, primary: PostgresServer, directory: Path | None = None) -> None:
        super().__init__(directory)
        self._primary = primary

    def start(self) -> None:
        super().start()
        self._address = self._as_primary_knows(self.address)

    def make_data(self, directory: Path, address: Address, user: str) -> None:
        source = self._primary.address
        conninfo = f"host={source.host} port={source.port} user={source.user} password={source.password}"
        command = [str(self._programs / "pg_basebackup"), f"--pgdata={directory / 'data'}", f"--dbname={conninfo}"]
        self.run_as(user, [*command, "--write-recovery-conf", "--checkpoint=fast", "--no-sync"], directory)

    def try_connection(self, address: Address) -> bool:
        return super().try_connection(self._as_primary_knows(address))

    def synchronous(self) -> None:
        """Let the primary wait for this standby with every commit. Returns when it does."""
        with self._connect(self._primary.address) as connection:
            connection.execute("alter system set synchronous_standby_names = '*'")
            connection.execute("select pg_reload_conf()")
            self._until(connection, "select count(*) = 1 from pg_stat_replication where sync_state = 'sync'")

    def cut_off(self) -> None:
        """Let it receive nothing more of the primary. Returns when that is so."""
        with self._connect(self.address) as connection:
            connection.execute("alter system set primary_conninfo = ''")
            connection.execute("select pg_reload_conf()")
            self._until(connection, "select not exists (select 1 from pg_stat_wal_receiver)")

    def promote(self) -> None:
        """Make it the primary. Returns when it takes writes."""
        with self._connect(self.address) as connection:
            connection.execute("select pg_promote(wait => true, wait_seconds => 30)")
            self._until(connection, "select not pg_is_in_recovery()")

    def _as_primary_knows(self, address: Address) -> Address:
        return msgspec.structs.replace(address, password=self._primary.address.password)

    def _until(self, connection: psycopg.Connection[Any], question: str) -> None:
        pause = threading.Event()
        for _ in range(_WAIT_SECONDS * 20):
            row = connection.execute(question.encode()).fetchone()
            if row is not None and row[0]:
                return
            pause.wait(0.05)
        raise ServerUnavailable(f"never true of the standby: {question}")
