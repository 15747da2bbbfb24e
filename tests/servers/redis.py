"""A private Redis that syncs its log before every answer.

dtm's Redis barrier is driven against it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import redis

from tests.servers.database import Address, Database
from tests.servers.server import DatabaseServer, ServerUnavailable


class RedisServer(DatabaseServer):
    """Redis from the program found in PATH.

    It has no databases by name: a name is the beginning of keys.
    """

    kind = "redis"
    part = "Redis"
    system_users = ("redis",)
    own_database = "0"
    _program: str

    def find_programs(self) -> None:
        found = shutil.which("redis-server", path=f"{os.environ.get('PATH', os.defpath)}:/usr/bin")
        if found is None:
            raise ServerUnavailable("it is not installed; `make servers` installs it where it may")
        self._program = found

    def make_data(self, directory: Path, address: Address, user: str) -> None:
        settings = {
            "bind": address.host,
            "port": str(address.port),
            "dir": str(directory),
            "requirepass": address.password,
            "appendonly": "yes",
            "appendfsync": "always",
            "save": '""',
            "daemonize": "no",
        }
        configuration = directory / "redis.conf"
        configuration.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        configuration.chmod(0o644)  # the directory itself is closed to others

    def command(self, directory: Path, address: Address) -> list[str]:
        return [self._program, str(directory / "redis.conf")]

    def try_connection(self, address: Address) -> bool:
        try:
            with connected(address) as connection:
                return bool(connection.ping())
        except redis.RedisError:
            return False

    def create_database(self, name: str) -> Database:
        return self.database(name)

    def drop_database(self, name: str) -> None:
        with connected(self.address) as connection:
            for key in connection.scan_iter(f"{name}*"):
                connection.delete(key)


def connected(address: Address) -> redis.Redis:
    """Return a client of a running server; a context manager."""
    return redis.Redis(
        host=address.host,
        port=address.port,
        password=address.password,
        decode_responses=True,
        socket_connect_timeout=30,
        socket_timeout=30,
    )
