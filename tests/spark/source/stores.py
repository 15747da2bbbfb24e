"""Stores with history in them, of both engines, as the source reads them.

Their schemas and rows are real.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import psycopg

from tests.support.secret_files import secret_in
from twophase.core.lifecycle import State
from twophase.core.message import Branch, Message, encode
from twophase.stores.postgres.store import PostgresStore
from twophase.stores.sqlite.schema import APPLICATION_ID, SCHEMA_VERSION, schema

BORN_MS = 1_800_000_000_000
_HISTORY = "(node, seq, gid, state, created_ms, decided_ms, finished_ms, decided_by, reason, attempts, done, body)"
_LIVE = "(gid, state, node, epoch, version, due_ms, created_ms, decided_ms, decided_by, attempts, parked, done, body)"
_ATTEMPT = "(gid, kind, branch_id, target, at_ms, status, latency_ms, result, error)"


class StoreUnderTest(Protocol):
    """The changes that a test makes to a store."""

    @property
    def url(self) -> str:
        """Return the URL for option `url`, without secrets."""

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement with `?` for each row, in one commit."""


class SqliteUnderTest:
    """A SQLite store."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "tp.db"
        self.url = f"sqlite:///{self.path}"
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executescript(schema())
            connection.execute("pragma journal_mode = wal")
            connection.execute(f"pragma application_id = {APPLICATION_ID}")
            connection.execute(f"pragma user_version = {SCHEMA_VERSION}")

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.executemany(sql, rows)


class PostgresUnderTest:
    """A PostgreSQL store, whose URL stands in a file."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.dsn = dsn
        self.url = secret_in(folder / "store-url", dsn + "\n")
        asyncio.run(self._create())
        self.many("delete from node where id > ?", [(-1,)])

    async def _create(self) -> None:
        store = PostgresStore(self.dsn)
        await store.start()
        await store.stop()

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        with psycopg.connect(self.dsn) as connection, connection.cursor() as cursor:
            cursor.executemany(sql.replace("?", "%s"), rows)


def gid_of(node: int, seq: int) -> str:
    """Return the gid of a planted message."""
    return f"n{node}-{seq:07}"


def body_of(gid: str, branches: Sequence[Branch] = (Branch("http://b/in", b'{"amount":30}'),)) -> bytes:
    """Return a stored message."""
    return encode(Message(gid, tuple(branches), "http://a/check?barrier=id"))


def history_row(node: int, seq: int, *, state: State = State.SUCCEEDED, body: bytes | None = None) -> tuple[Any, ...]:
    """Return a final message.

    It is born a millisecond a seq, decided 10 ms and finished 20 ms later.
    """
    gid = gid_of(node, seq)
    born = BORN_MS + seq
    known = (node, seq, gid, int(state), born, born + 10, born + 20, "submit", "", 0, 1)
    return (*known, body_of(gid) if body is None else body)


def finish(store: StoreUnderTest, node: int, first: int, last: int) -> None:
    """Insert rows of history from `first` to `last`, as flushes of a node leave them."""
    rows = [history_row(node, seq) for seq in range(first, last + 1)]
    store.many(f"insert into history {_HISTORY} values ({', '.join('?' * 12)})", rows)
    reach(store, node, last)


def add_history(store: StoreUnderTest, row: tuple[Any, ...]) -> None:
    """Insert one given row."""
    store.many(f"insert into history {_HISTORY} values ({', '.join('?' * 12)})", [row])
    reach(store, row[0], row[1])


def reach(store: StoreUnderTest, node: int, seq: int) -> None:
    """Set the last seq of a node, which appears if it is new."""
    store.many("delete from node where id = ?", [(node,)])
    if isinstance(store, SqliteUnderTest):
        store.many("insert into node values (?, 1, '', ?, 1, 1)", [(node, seq)])
    else:
        store.many("insert into node values (?, 1, 1, '', ?, 1, 1, '{}')", [(node, seq)])


def live(store: StoreUnderTest, gids: Sequence[str], *, state: State = State.SUBMITTED, node: int = 1) -> None:
    """Insert live messages."""
    parked: Any = False if isinstance(store, PostgresUnderTest) else 0
    rows = [
        (gid, int(state), node, 1, 1, 0, BORN_MS + number, 0, "", 0, parked, 0, body_of(gid))
        for number, gid in enumerate(gids)
    ]
    store.many(f"insert into message {_LIVE} values ({', '.join('?' * 13)})", rows)


def fail(store: StoreUnderTest, gids: Sequence[str]) -> None:
    """Insert a failed attempt of each message."""
    rows = [(gid, "branch", "01", "http://b/in", BORN_MS + n, 500, 7, "", "down") for n, gid in enumerate(gids)]
    store.many(f"insert into attempt {_ATTEMPT} values ({', '.join('?' * 9)})", rows)


def remove(store: StoreUnderTest, node: int, first: int, last: int) -> None:
    """Delete rows as retention does."""
    store.many("delete from history where node = ? and seq between ? and ?", [(node, first, last)])


def append(store: StoreUnderTest, topic: str, queue: int, first: int, last: int) -> None:
    """Insert entries from number `first` to `last`, as flushes leave them.

    They are a millisecond apart.
    """
    columns = "(topic, queue, number, gid, branch, stored_ms)"
    rows = [(topic, queue, n, f"{topic}-{queue}-{n}", n % 2, BORN_MS + n) for n in range(first, last + 1)]
    store.many(f"insert into queue_entry {columns} values (?, ?, ?, ?, ?, ?)", rows)
    store.many("delete from queue_counter where topic = ? and queue = ?", [(topic, queue)])
    store.many("insert into queue_counter (topic, queue, next_number) values (?, ?, ?)", [(topic, queue, last + 1)])
