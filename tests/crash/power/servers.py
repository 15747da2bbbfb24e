"""Database servers of a test's own whose disk can lose its power."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from tests.crash.power.disk import Disk
from tests.servers.database import Address
from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer


def _with_disk(directory: Path, disk: Disk, command: list[str], kind: str) -> list[str]:
    """Return the command, started by a script that loads the disk.

    The guardian gives servers an environment of its own.
    """
    script = directory / kind
    settings = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in disk.environment.items())
    script.write_text(f'#!/bin/sh\n{settings}exec "$@"\n')
    script.chmod(0o755)
    return [str(script), *command]


class PowerlessPostgres(PostgresServer):
    """PostgreSQL on such a disk."""

    disk: Disk

    def make_data(self, directory: Path, address: Address, user: str) -> None:
        super().make_data(directory, address, user)
        self.disk = Disk(directory / "data")

    def command(self, directory: Path, address: Address) -> list[str]:
        return _with_disk(directory, self.disk, super().command(directory, address), self.kind)

    def lose_power(self, kill: Callable[[], None] = lambda: None) -> None:
        """Lose what was not synced; return when the server answers again.

        `kill` ends the other processes that must end then.
        """

        def end() -> None:
            kill()
            self.crash()

        self.disk.lose_power(end)
        self.restart()


class PowerlessMariadb(MariadbServer):
    """MariaDB on such a disk, with a binary log.

    Arguments:
        sync_binlog: as the server's setting; 0 is its default.
    """

    disk: Disk

    def __init__(self, sync_binlog: int) -> None:
        super().__init__()
        self._sync_binlog = sync_binlog

    def make_data(self, directory: Path, address: Address, user: str) -> None:
        super().make_data(directory, address, user)
        self.disk = Disk(directory / "data")

    def command(self, directory: Path, address: Address) -> list[str]:
        binary_log = ["--log-bin=binary", "--server-id=1", f"--sync-binlog={self._sync_binlog}"]
        # Code that bypasses the C library's calls would bypass the disk.
        plain = ["--innodb-use-native-aio=0", "--innodb-flush-method=fsync"]
        command = [*super().command(directory, address), *binary_log, *plain]
        return _with_disk(directory, self.disk, command, self.kind)

    def lose_power(self) -> None:
        """Lose what was not synced; return when the server answers again."""
        self.disk.lose_power(self.crash)
        self.restart()
