"""The victim of `test_sqlite`: it writes to each database below a folder.

`python -m tests.crash.power.sqlite_life FOLDER COORDINATOR`, with the disk of `disk.py` loaded. It reports that all was
acknowledged, and waits. Connections stay open: the last one that closes would write what is missing.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, event, text
from sqlalchemy.orm import Session

from tests.support.items import plain
from twophase import Message
from twophase.barrier.branch import once
from twophase.stores.batch import Batch
from twophase.stores.sqlite import SqliteStore

JOURNAL_MODES = ("delete", "truncate", "persist", "wal")
TAKE = "update account set balance = balance - 30"
STORED = "stored"
_open: list[object] = []


def produce_by_connection(file: Path, journal_mode: str, coordinator: str) -> None:
    """Send a message within a transaction of a plain connection."""
    connection = sqlite3.connect(file)
    _open.append(connection)
    connection.execute(f"pragma journal_mode = {journal_mode}")
    message = Message(coordinator).add("http://bank-b/transfer-in", {"amount": 30})
    with message.transaction(connection, check="http://bank-a/twophase/check") as handle:
        handle.execute(TAKE)


def produce_by_session(file: Path, journal_mode: str, coordinator: str) -> None:
    """Send a message within the transaction of a session."""
    message = Message(coordinator).add("http://bank-b/transfer-in", {"amount": 30})
    session = Session(_engine(file, journal_mode))
    _open.append(session)
    with message.transaction(session, check="http://bank-a/twophase/check") as handle:
        handle.execute(text(TAKE))


def consume(file: Path, journal_mode: str, _coordinator: str) -> None:
    """Take effect as a branch."""
    call = {"trans_type": "msg", "gid": "a-gid", "branch_id": "01", "op": "action"}
    once(_engine(file, journal_mode), call, lambda handle: handle.execute(text(TAKE)))


LIVES: dict[str, Callable[[Path, str, str], None]] = {
    "produce_by_connection": produce_by_connection,
    "produce_by_session": produce_by_session,
    "consume": consume,
}


def place(folder: Path, life: str, journal_mode: str) -> Path:
    """Return the database of one life, in a directory of its own.

    Another life's sync of the same directory would count for this one.
    """
    return folder / f"{life}-{journal_mode}" / "bank.db"


def _engine(file: Path, journal_mode: str) -> Any:
    engine = create_engine(f"sqlite:///{file}")
    event.listen(engine, "connect", lambda raw, _record: raw.execute(f"pragma journal_mode = {journal_mode}"))
    _open.append(engine)
    return engine


async def _store(folder: Path) -> None:
    store = SqliteStore(folder / "store" / "coordinator.db")
    await store.start()
    _open.append(store)
    result = await store.flush(Batch([plain(STORED)], []))
    assert not result.refused


def main(folder: Path, coordinator: str) -> None:
    """Run every life; after the output the power may be lost."""
    for journal_mode in JOURNAL_MODES:
        for name, life in LIVES.items():
            life(place(folder, name, journal_mode), journal_mode, coordinator)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_store(folder))
    print("acknowledged", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
