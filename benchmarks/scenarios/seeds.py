"""Rows put into a store by SQL, as a long-running server would have left them."""

from __future__ import annotations

import contextlib
import importlib.resources
import time
from typing import Final

from benchmarks.scenarios.figure import Stage
from benchmarks.servers.postgres import postgres
from benchmarks.servers.setups import Store, sqlite_store, store_in
from twophase.core.gid import GID_CHARACTERS
from twophase.core.message import Branch, Message, encode

_FOLDER: Final = importlib.resources.files("benchmarks.scenarios") / "sql"
_GID: Final = "@" * GID_CHARACTERS
"""The row's own gid replaces it where the message is going to be called."""
_NOBODY: Final = "http://127.0.0.1:9/transfer-in"


def fresh_stores(stage: Stage, running: contextlib.ExitStack, count: int = 2) -> list[Store]:
    """Return stores of the stage's kind.

    On PostgreSQL they are databases of one server.
    """
    if stage.kind == "sqlite":
        return [running.enter_context(sqlite_store(stage.directory)) for _ in range(count)]
    server = running.enter_context(postgres(stage.directory))
    return [store_in(server, f"store{number}") for number in range(count)]


def seed(
    store: Store, live: int = 0, history: int = 0, ended_ago_ms: int = 0, due: int = 0, receiver: str = _NOBODY
) -> None:
    """Add messages, then run `settle.sql`, the upkeep of the database.

    The messages are prepared and not due, delivered, or submitted and due. The store's tables must exist: a server has
    run on it. With SQLite no server may be running.

    Arguments:
        live: prepared messages, whose check-back is due in a year.
        history: delivered messages, of which one ended each millisecond.
        ended_ago_ms: milliseconds since the last of these ended.
        due: submitted messages that are due.
        receiver: the URL of their branch.
    """
    now_ms = time.time_ns() // 1_000_000
    rows = (("live", live, now_ms), ("history", history, now_ms - ended_ago_ms), ("due", due, now_ms))
    for name, count, ms in rows:
        if count:
            store.execute(_filled(store.kind, name, count, ms, receiver))
    # One at a time: PostgreSQL refuses `vacuum` together with others.
    for statement in _filled(store.kind, "settle").split(";"):
        store.execute(statement)


def _filled(kind: str, name: str, count: int = 0, now_ms: int = 0, receiver: str = _NOBODY) -> str:
    sql = (_FOLDER / kind / f"{name}.sql").read_text()
    message = Message(_GID, (Branch(receiver, b'{"account":"B","amount":30}'),), "http://127.0.0.1:9/check")
    body = encode(message)
    before, after = body.split(_GID.encode())
    values = {
        ":count": str(count), ":now": str(now_ms), ":body": body.hex(), ":before": before.hex(), ":after": after.hex()
    }  # fmt: skip
    for placeholder, value in values.items():
        sql = sql.replace(placeholder, value)
    return sql
