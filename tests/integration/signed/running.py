"""A service in a process of its own, and its database."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from twophase.barrier import install

KEY = "of the bank, and the coordinator"
_START_S = 60.0


class Service:
    """A running service; its account begins with 0."""

    def __init__(self, address: str, file: Path) -> None:
        self.address = address
        self.file = file
        (self.identity,) = self.query("select value from twophase_meta where name = 'identity'")[0]
        self.log = ""

    @property
    def check(self) -> str:
        """The check address, with the name of its database."""
        path = "/twophase.Producer/Check" if self.address.startswith("grpc") else "/twophase/check"
        return f"{self.address}{path}?barrier={self.identity}"

    @property
    def branch(self) -> str:
        """The address of the branch; over HTTP with escaped characters."""
        return (
            f"{self.address}/bank.Bank/In"
            if self.address.startswith("grpc")
            else f"{self.address}/in/Zo%C3%AB%20B?at=a%20b"
        )

    def query(self, sql: str) -> list[Any]:
        with contextlib.closing(sqlite3.connect(self.file, timeout=30)) as connection, connection:
            return connection.execute(sql).fetchall()

    @property
    def balance(self) -> int:
        return int(self.query("select balance from account")[0][0])

    @property
    def rows(self) -> list[Any]:
        """The barrier's rows: gid, branch and reason."""
        return self.query("select gid, branch_id, reason from barrier order by id")


@contextlib.asynccontextmanager
async def running(kind: str, folder: Path, keys: dict[str, str] | None) -> AsyncIterator[Service]:
    """Run a service of this kind, with these keys; its log is read at the end."""
    file = folder / f"{kind}.db"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("create table account (balance integer)")
        connection.execute("insert into account values (0)")
        connection.commit()
        install(connection)
    given = {} if keys is None else {"KEYS": msgspec.json.encode(keys).decode()}
    command = (sys.executable, "-m", "tests.integration.signed.service", kind, str(file))
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, env=_environment(given))
    service = None
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_START_S):
            address = (await process.stdout.readline()).decode().strip()
        assert address, (await process.communicate())[1].decode()
        service = Service(address, file)
        yield service
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        _, errors = await process.communicate()
        if service is not None:
            service.log = errors.decode()


def destinations(*entries: Sequence[Any]) -> dict[str, str]:
    """Return the coordinator's environment, with entries of address and fields."""
    listed = [{"name": f"d{i}", "url": url, **fields} for i, (url, fields) in enumerate(entries)]
    assert "TWOPHASE_DESTINATIONS" not in os.environ
    return {"TWOPHASE_DESTINATIONS": msgspec.json.encode(listed).decode(), "BANK_KEY": KEY}


def signing(**more: Any) -> dict[str, Any]:
    """Return the fields by which calls to a destination are signed."""
    return {"key": "env:BANK_KEY", "key_id": "k1", **more}


def _environment(given: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "KEYS"} | given
