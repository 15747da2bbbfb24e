"""A commit with a barrier row waits for the disk, whatever the connection or the block has set (I1, I6)."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from tests.integration.barrier.banks import ASYNC_WAYS, SYNC_WAYS, Bank, begin, new_gid, run, verify
from tests.integration.barrier.test_branch import call_of
from twophase.barrier.branch import BranchCall, aonce, begin_branch, once, verify_branch
from twophase.barrier.durability import require_durability
from twophase.barrier.installing import install
from twophase.barrier.open import open_transaction
from twophase.barrier.transaction import Statement, SyncTransaction, perform
from twophase.core.errors import UnsafeDatabase

EXTRA = 3


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
