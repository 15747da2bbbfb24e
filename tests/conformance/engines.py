"""The engines the suite runs against. A new one appends itself to `ENGINES`; nothing else changes."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Protocol

from twophase.core.hooks import Clock
from twophase.stores.base import Store
from twophase.stores.sqlite import SqliteStore


class Engine(Protocol):
    """What the suite asks of an engine beyond the store itself."""

    name: str

    def make(self, folder: Path, clock: Clock) -> Store:
        """A store, not started; two made for one folder share their data."""
        ...

    def usurp(self, folder: Path) -> None:
        """Take the place of the node that runs, as a process that believes it dead would."""
        ...

    def finished(self, folder: Path, after_seq: int) -> list[tuple[int, str]]:
        """What a reader that follows history sees behind `after_seq`: (seq, gid) in order, by its own connection."""
        ...

    def archived(self, folder: Path, until_ms: int) -> None:
        """An archive has taken history up to here; write it where `purge` looks (`store_meta`)."""
        ...


class SqliteEngine:
    """The embedded engine."""

    name = "sqlite"

    def make(self, folder: Path, clock: Clock) -> Store:
        return SqliteStore(folder / "store.db", clock=clock)

    def usurp(self, folder: Path) -> None:
        connection = sqlite3.connect(folder / "store.db")
        with connection:
            connection.execute("update node set epoch = epoch + 1, owner = 'another'")
        connection.close()

    def finished(self, folder: Path, after_seq: int) -> list[tuple[int, str]]:
        connection = sqlite3.connect(f"file:{folder / 'store.db'}?mode=ro", uri=True)
        try:
            return connection.execute(
                "select seq, gid from history where node = 1 and seq > ? order by seq", (after_seq,)
            ).fetchall()
        finally:
            connection.close()

    def archived(self, folder: Path, until_ms: int) -> None:
        connection = sqlite3.connect(folder / "store.db")
        with connection:
            connection.execute("insert into store_meta (name, value) values ('archived_until_ms', ?)", (until_ms,))
        connection.close()


ENGINES: tuple[Engine, ...] = (SqliteEngine(),)
