"""A commit with a barrier row waits for the disk (I1, I6).

It does so whatever the connection or the block has set.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from tests.integration.barrier.test_branch import call_of
from tests.support.business_databases import ASYNC_WAYS, SYNC_WAYS, Bank, begin, new_gid, run, verify
from twophase.barrier.branch import BranchCall, aonce, begin_branch, once, verify_branch
from twophase.barrier.dialect import SQLITE
from twophase.barrier.durability import require_durability
from twophase.barrier.installing import install
from twophase.barrier.open import open_transaction
from twophase.barrier.transaction import Statement, SyncTransaction, perform
from twophase.core.errors import UnsafeDatabase

EXTRA = 3


class BorrowedSqlite:
    """A connection in a transaction of the application's."""

    dialect = SQLITE

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, statement: Statement) -> list[Any]:
        return self._connection.execute(statement.sql, statement.parameters).fetchall()


def _synchronous_commit(transaction: SyncTransaction) -> str:
    [[setting]] = transaction.execute(Statement("show synchronous_commit", {}))
    return str(setting)


@pytest.mark.parametrize(("set_in_block", "at_commit"), [("off", "on"), ("local", "on"), ("remote_apply",) * 2])
def test_a_producer_s_block_cannot_weaken_its_commit(postgres_bank: Bank, set_in_block: str, at_commit: str) -> None:
    gid = new_gid()
    with postgres_bank.engine() as engine:
        transaction = open_transaction(engine)
        begin(transaction, gid)
        run(transaction.handle, f"set local synchronous_commit = {set_in_block}")
        verify(transaction, gid)
        assert _synchronous_commit(transaction) == at_commit
        transaction.rollback()
        transaction.close()


def test_a_branch_s_block_cannot_weaken_its_commit(postgres_bank: Bank) -> None:
    call = BranchCall(new_gid(), "01")
    with postgres_bank.engine() as engine:
        transaction = open_transaction(engine)
        perform(begin_branch(transaction.dialect, "barrier", call, "token"), transaction)
        run(transaction.handle, "set local synchronous_commit = off")
        perform(verify_branch(transaction.dialect, "barrier", call, "token"), transaction)
        assert _synchronous_commit(transaction) == "on"
        transaction.rollback()
        transaction.close()


def test_a_dead_receiver_s_transaction_ends_within_minutes(postgres_bank: Bank) -> None:
    """Otherwise its row would delay every repeated call of the branch."""
    with postgres_bank.engine() as engine:
        transaction = open_transaction(engine)
        perform(begin_branch(transaction.dialect, "barrier", BranchCall(new_gid(), "01"), "token"), transaction)
        [[bound]] = transaction.execute(Statement("show idle_in_transaction_session_timeout", {}))
        assert bound == "5min"
        transaction.rollback()
        transaction.close()


@pytest.mark.parametrize("way", SYNC_WAYS["sqlite"])
def test_sqlite_syncs_the_directory_too(sqlite_bank: Bank, way: str) -> None:
    def look(handle: Any) -> int:
        pragma = "pragma synchronous"
        rows = handle.execute(sqlalchemy.text(pragma) if way != "sqlite3" else pragma)
        return int(rows.fetchone()[0])

    with sqlite_bank.reached(way) as engine:
        assert once(engine, call_of(new_gid()), look) == EXTRA


@pytest.mark.parametrize("way", ASYNC_WAYS["sqlite"])
async def test_sqlite_syncs_the_directory_too_through_an_async_engine(sqlite_bank: Bank, way: str) -> None:
    async def look(handle: Any) -> int:
        if way == "aiosqlite plain":
            return int((await handle.execute_fetchall("pragma synchronous"))[0][0])
        return int((await handle.execute(sqlalchemy.text("pragma synchronous"))).scalar_one())

    async with sqlite_bank.areached(way) as engine:
        assert await aonce(engine, call_of(new_gid()), look) == EXTRA


@pytest.mark.parametrize(("journal_mode", "refused"), [("wal", True), ("delete", False)])
def test_attached_database_in_wal_is_refused_because_each_file_commits_by_itself(
    tmp_path: Path, journal_mode: str, refused: bool
) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "bank.db")) as connection:
        install(connection)
        connection.execute("attach ? as other", (str(tmp_path / "other.db"),))
        connection.execute(f"pragma other.journal_mode = {journal_mode}")
        transaction = open_transaction(connection)
        with pytest.raises(UnsafeDatabase, match="attached") if refused else contextlib.nullcontext():
            perform(require_durability(transaction.dialect, "barrier"), transaction)
        transaction.rollback()
        transaction.close()


@pytest.mark.parametrize("journal_mode", ["memory", "off"])
def test_attached_database_without_a_journal_on_disk_is_refused(tmp_path: Path, journal_mode: str) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "bank.db")) as connection:
        install(connection)
        connection.execute("attach ? as other", (str(tmp_path / "other.db"),))
        connection.execute(f"pragma other.journal_mode = {journal_mode}")
        transaction = open_transaction(connection)
        with pytest.raises(UnsafeDatabase, match=f"journal_mode {journal_mode}[)] in other"):
            perform(require_durability(transaction.dialect, "barrier"), transaction)
        transaction.rollback()
        transaction.close()


def test_barrier_in_an_attached_file_is_looked_at_although_the_main_database_has_none(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("attach ? as bank", (str(tmp_path / "bank.db"),))
        connection.execute("pragma bank.synchronous = full")
        connection.execute("begin immediate")
        connection.execute("create table bank.account (id)")  # in the application's own transaction: nothing was set
        with pytest.raises(UnsafeDatabase, match="below EXTRA"):
            perform(require_durability(SQLITE, "bank.barrier"), BorrowedSqlite(connection))


@pytest.mark.parametrize("main", [":memory:", "main.db"])
def test_sqlite_syncs_the_directory_of_attached_databases_too(tmp_path: Path, main: str) -> None:
    def settings() -> list[tuple[int]]:
        return [connection.execute(f'pragma "{name}".synchronous').fetchone() for name in names]

    names = ["main", "bank of ours"]
    where = main if main == ":memory:" else str(tmp_path / main)
    with contextlib.closing(sqlite3.connect(where)) as connection:
        connection.execute('attach ? as "bank of ours"', (str(tmp_path / "bank.db"),))
        connection.execute('pragma "bank of ours".synchronous = off')
        before = settings()
        transaction = open_transaction(connection)
        assert settings() == [(EXTRA,), (EXTRA,)]
        transaction.rollback()
        transaction.close()
        assert settings() == before
