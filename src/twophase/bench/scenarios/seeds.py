"""Rows put into a store by SQL, as a server that has run for long would have left them."""

from __future__ import annotations

import importlib.resources
import time
from typing import Final

from twophase.bench.setups import Store
from twophase.core.message import Branch, Message, encode

_FOLDER: Final = importlib.resources.files("twophase.bench.scenarios") / "sql"
_MESSAGE: Final = Message(
    "seed",
    (Branch("http://127.0.0.1:9/transfer-in", b'{"account":"B","amount":30}'),),
    "http://127.0.0.1:9/check",
)


def seed(store: Store, live: int = 0, history: int = 0) -> None:
    """Add prepared messages that are not due, and delivered ones; then let the database settle.

    The store's tables must be there: a server has run on it. SQLite's must not be running.
    """
    for name, count in (("live", live), ("history", history)):
        if count:
            store.execute(_filled(store.kind, name, count))
    # One at a time: PostgreSQL refuses `vacuum` together with others.
    for statement in _filled(store.kind, "settle", 0).split(";"):
        store.execute(statement)


def _filled(kind: str, name: str, count: int) -> str:
    sql = (_FOLDER / kind / f"{name}.sql").read_text()
    values = {":count": str(count), ":now": str(time.time_ns() // 1_000_000), ":body": encode(_MESSAGE).hex()}
    for placeholder, value in values.items():
        sql = sql.replace(placeholder, value)
    return sql
