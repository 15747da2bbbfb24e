"""A private Redis that syncs its log before every answer: dtm's Redis barrier is driven against it."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import BinaryIO

from tests.servers.database import Address, Database
from tests.servers.server import DatabaseServer, ServerUnavailable


class RedisServer(DatabaseServer):
    """Redis from the program found in PATH. It has no databases by name: a name is the beginning of keys."""

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
            return ask(address, "PING") == "PONG"
        except (OSError, RedisError):
            return False

    def create_database(self, name: str) -> Database:
        return self.database(name)

    def drop_database(self, name: str) -> None:
        keys = ask(self.address, "KEYS", f"{name}*")
        assert isinstance(keys, list)
        if keys:
            ask(self.address, "DEL", *(str(key) for key in keys))


class RedisError(Exception):
    """Redis refused a command."""


Reply = str | int | None | list["Reply"]


def ask(address: Address, *words: str) -> Reply:
    """One command on a connection of its own; what it answers.

    Raises:
        RedisError: it refused.
        OSError: it cannot be reached.
    """
    with socket.create_connection((address.host, address.port), timeout=5) as connection:
        answers = connection.makefile("rb")
        connection.sendall(_command("AUTH", address.password) + _command(*words))
        _reply(answers)
        return _reply(answers)


def _command(*words: str) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in words)


def _reply(answers: BinaryIO) -> Reply:
    line = answers.readline().decode().rstrip("\r\n")
    if not line:
        raise ConnectionError("Redis closed the connection")
    kind, rest = line[0], line[1:]
    match kind:
        case "-":
            raise RedisError(rest)
        case ":":
            return int(rest)
        case "$":
            return None if rest == "-1" else answers.read(int(rest) + 2)[:-2].decode()
        case "*":
            return [_reply(answers) for _ in range(int(rest))]
        case _:
            return rest
