"""The same rules through every async library.

The libraries differ only in the way that a statement is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

import aiosqlite
import asyncpg
import psycopg
import pytest

from tests.integration.barrier.test_check_back import MARGIN_S
from tests.support.business_databases import ASYNC_WAYS, SPEND, Bank, abegin, arun, averify, begin, new_gid
from twophase.barrier.asking import acheck_back
from twophase.barrier.branch import aonce
from twophase.barrier.dialect import DEFAULT_TABLE
from twophase.barrier.installing import ainstall
from twophase.barrier.open import aopen_transaction, ask_engine, is_async, open_transaction
from twophase.barrier.probing import aprobe
from twophase.barrier.producer import read_identity, write_branches
from twophase.barrier.transaction import AsyncTransaction, aperform
from twophase.core.errors import (
    AutocommitRefused,
    CheckBackCameFirst,
    OpenTransaction,
    TransactionLost,
    UnsupportedEngine,
)
from twophase.core.probe import ProbeState
from twophase.core.verdict import Verdict

BankAndWay = tuple[Bank, str]


async def spend(transaction: AsyncTransaction, gid: str) -> None:
    """Begin, business, verify, commit, close."""
    await abegin(transaction, gid)
    await arun(transaction.handle, SPEND)
    await averify(transaction, gid)
    await transaction.commit()
    await transaction.close()


async def lose(transaction: AsyncTransaction, gid: str) -> None:
    """Let the verification fail, and roll back as the client does."""
    with pytest.raises(TransactionLost):
        await averify(transaction, gid)
    await transaction.rollback()
    await transaction.close()


async def test_row_and_business_commit_together_again_and_again(bank_and_async_way: BankAndWay) -> None:
    bank, way = bank_and_async_way
    gids = [new_gid(), new_gid()]
    async with bank.areached(way) as engine:
        for gid in gids:
            await spend(await aopen_transaction(engine), gid)
    assert [bank.reasons(gid) for gid in gids] == [["msg"], ["msg"]]
    assert bank.balance() == 40


async def test_row_and_business_roll_back_together(bank_and_async_way: BankAndWay) -> None:
    bank, way = bank_and_async_way
    gid = new_gid()
    async with bank.areached(way) as engine:
        transaction = await aopen_transaction(engine)
        await abegin(transaction, gid)
        await arun(transaction.handle, SPEND)
        await transaction.rollback()
        await transaction.close()
    assert (bank.reasons(gid), bank.balance()) == ([], 100)


@pytest.mark.parametrize("then", ["commit", "rollback"])
async def test_ending_the_transaction_inside_the_block_is_noticed(bank_and_async_way: BankAndWay, then: str) -> None:
    bank, way = bank_and_async_way
    gid = new_gid()
    async with bank.areached(way) as engine:
        transaction = await aopen_transaction(engine)
        await abegin(transaction, gid)
        await arun(transaction.handle, then)
        await arun(transaction.handle, SPEND)
        await lose(transaction, gid)
    assert bank.reasons(gid) == (["msg"] if then == "commit" else [])


async def test_a_swallowed_statement_error_never_passes_for_a_commit(bank_and_async_way: BankAndWay) -> None:
    bank, way = bank_and_async_way
    gid = new_gid()
    async with bank.areached(way) as engine:
        transaction = await aopen_transaction(engine)
        await abegin(transaction, gid)
        with contextlib.suppress(Exception):
            await arun(transaction.handle, "insert into account values ('A', 1)")
        if bank.kind == "postgresql":
            await lose(transaction, gid)
        else:  # there a failed statement undoes only itself
            await averify(transaction, gid)
            await transaction.commit()
            await transaction.close()
    assert bank.reasons(gid) == ([] if bank.kind == "postgresql" else ["msg"])


async def test_an_open_transaction_is_refused(bank_and_async_way: BankAndWay) -> None:
    bank, way = bank_and_async_way
    if way in ("asyncpg connection", "psycopg plain", "aiosqlite plain"):
        async with bank.areached(way) as connection:
            await connection.execute("begin")
            with pytest.raises(OpenTransaction):
                await aopen_transaction(connection)
        return
    driver = way.split()[0].replace("asyncpg pool", "asyncpg")
    async with bank.areached(f"{driver} session") as session:
        await arun(session, SPEND)
        with pytest.raises(OpenTransaction):
            await aopen_transaction(session)
        await session.rollback()


@pytest.mark.postgres
async def test_a_check_back_and_a_probe_wait_for_a_connection_of_asyncpgs_pool_in_bounds(
    banks: dict[str, Bank],
) -> None:
    async with banks["postgresql"].areached("asyncpg pool") as pool, contextlib.AsyncExitStack() as lent:
        for _ in range(pool.get_max_size()):
            await lent.enter_async_context(pool.acquire())
        answer = await asyncio.wait_for(acheck_back(pool, new_gid(), lock_timeout=0.2), 20)
        assert answer.verdict is Verdict.UNKNOWN
        report = await asyncio.wait_for(aprobe(pool, None, DEFAULT_TABLE, 200), 20)
        assert report.probe is ProbeState.DATABASE_FAILED
        await lent.aclose()
        assert (await acheck_back(pool, new_gid())).verdict is Verdict.ROLLED_BACK


@pytest.mark.parametrize(
    ("kind", "driver"),
    [
        ("sqlite", "aiosqlite"),
        pytest.param("postgresql", "asyncpg", marks=pytest.mark.postgres),
        pytest.param("postgresql", "psycopg", marks=pytest.mark.postgres),
        pytest.param("mysql", "asyncmy", marks=pytest.mark.mariadb),
    ],
)
async def test_an_autocommit_engine_is_refused(banks: dict[str, Bank], kind: str, driver: str) -> None:
    async with banks[kind].areached(f"{driver} engine", isolation_level="AUTOCOMMIT") as engine:
        with pytest.raises(AutocommitRefused):
            await aopen_transaction(engine)


async def test_an_autocommit_connection_of_aiosqlite_is_refused(sqlite_bank: Bank) -> None:
    async with aiosqlite.connect(sqlite_bank.where, isolation_level=None) as connection:
        with pytest.raises(AutocommitRefused):
            await aopen_transaction(connection)


@pytest.mark.postgres
async def test_an_autocommit_connection_of_psycopg_is_refused(postgres_bank: Bank) -> None:
    async with postgres_bank.areached("psycopg plain") as connection:
        await connection.set_autocommit(True)
        with pytest.raises(AutocommitRefused):
            await aopen_transaction(connection)


@pytest.mark.postgres
@pytest.mark.parametrize("way", ["psycopg plain", "asyncpg connection"])
async def test_a_closed_connection_is_called_closed(postgres_bank: Bank, way: str) -> None:
    """A commit that was cut off leaves such a one."""
    async with postgres_bank.areached(way) as connection:
        await connection.close()
        with pytest.raises((psycopg.OperationalError, asyncpg.exceptions.InterfaceError), match="closed"):
            await aopen_transaction(connection)


@pytest.mark.postgres
async def test_an_async_connection_in_pipeline_mode_is_refused(postgres_bank: Bank) -> None:
    async with postgres_bank.areached("psycopg plain") as connection, connection.pipeline():
        with pytest.raises(UnsupportedEngine, match="pipeline mode"):
            await aopen_transaction(connection)


@pytest.mark.postgres
async def test_a_commit_that_rolls_back_on_psycopg_is_no_commit(postgres_bank: Bank) -> None:
    async with postgres_bank.areached("psycopg plain") as connection:
        transaction = await aopen_transaction(connection)
        await abegin(transaction, new_gid())
        with contextlib.suppress(Exception):
            await arun(connection, "select 1 / 0")
        with pytest.raises(TransactionLost):
            await transaction.commit()
        await transaction.rollback()
        await transaction.close()


async def test_branches_and_commit_are_answered(bank_and_async_way: BankAndWay) -> None:
    bank, way = bank_and_async_way
    gid = new_gid()
    async with bank.areached(way) as engine:
        transaction = await aopen_transaction(engine)
        await abegin(transaction, gid)
        await aperform(write_branches(transaction.dialect, "barrier", gid, gid, b"\x91\x00\xff"), transaction)
        await averify(transaction, gid)
        await transaction.commit()
        await transaction.close()
        answer = await acheck_back(engine, gid)
    assert (answer.verdict, answer.body) == (Verdict.COMMITTED, b"\x91\x00\xff")


async def test_never_started_may_never_start(bank_and_async_way: BankAndWay) -> None:
    bank, way = bank_and_async_way
    gid = new_gid()
    async with bank.areached(way) as engine:
        assert (await acheck_back(engine, gid)).verdict is Verdict.ROLLED_BACK
        transaction = await aopen_transaction(engine)
        with pytest.raises(CheckBackCameFirst):
            await abegin(transaction, gid)
        await transaction.rollback()
        await transaction.close()


async def test_a_transaction_that_stays_is_in_progress_within_the_lock_timeout(bank_and_async_way: BankAndWay) -> None:
    bank, way = bank_and_async_way
    gid = new_gid()
    with bank.plain() as connection:
        transaction = open_transaction(connection)
        begin(transaction, gid)
        async with bank.areached(way) as engine:
            began = time.monotonic()
            assert (await acheck_back(engine, gid, lock_timeout=1)).verdict is Verdict.IN_PROGRESS
            assert time.monotonic() - began < 1.0 + MARGIN_S
        transaction.rollback()
        transaction.close()


async def test_a_check_back_waits_without_holding_the_loop(bank_and_async_way: BankAndWay) -> None:
    bank, way = bank_and_async_way
    gid = new_gid()
    driver = way.split()[0]
    async with bank.areached(f"{driver} engine") as engine:
        transaction = await aopen_transaction(engine)
        await abegin(transaction, gid)
        asked = [asyncio.create_task(acheck_back(engine, gid, lock_timeout=20)) for _ in range(3)]
        await asyncio.sleep(0)
        await transaction.commit()
        await transaction.close()
        answers = await asyncio.gather(*asked)
    assert {answer.verdict for answer in answers} == {Verdict.COMMITTED}


async def test_another_database_is_unknown(bank_and_async_way: BankAndWay) -> None:
    bank, way = bank_and_async_way
    async with bank.areached(way) as engine:
        assert (await acheck_back(engine, new_gid(), identity="of another shard")).verdict is Verdict.UNKNOWN


async def test_install_and_identity(bank_and_async_way: BankAndWay) -> None:
    bank, way = bank_and_async_way
    bank.query("drop table barrier")
    async with bank.areached(way) as engine:
        assert len(await ainstall(engine)) == 1
        assert await ainstall(engine) == []
        transaction = await aopen_transaction(engine)
        identity = await aperform(read_identity(transaction.dialect, "barrier"), transaction)
        await transaction.rollback()
        await transaction.close()
    assert [(identity,)] == bank.query("select value from twophase_meta where name = 'identity'")


async def test_a_branch_takes_effect_once(bank_and_async_way: BankAndWay) -> None:
    bank, way = bank_and_async_way
    call = {"gid": new_gid(), "branch_id": "01", "op": "action", "trans_type": "msg"}

    async def effect(handle: object) -> str:
        await arun(handle, SPEND)
        return "done"

    async with bank.areached(way) as engine:
        results = [await aonce(engine, call, effect) for _ in range(3)]
    assert results == ["done", None, None]
    assert bank.balance() == 70


async def test_a_branch_that_fails_leaves_nothing(bank_and_async_way: BankAndWay) -> None:
    bank, way = bank_and_async_way
    call = {"gid": new_gid(), "branch_id": "01", "op": "action", "trans_type": "msg"}

    async def effect(handle: object) -> None:
        await arun(handle, SPEND)
        raise LookupError

    async with bank.areached(way) as engine:
        with pytest.raises(LookupError):
            await aonce(engine, call, effect)
    assert (bank.balance(), bank.query("select * from barrier")) == (100, [])


@pytest.mark.parametrize("way", ASYNC_WAYS["postgresql"])
async def test_a_branch_whose_connection_is_lost_raises_its_own_error(postgres_bank: Bank, way: str) -> None:
    """asyncpg's pool takes such a connection back before the block's end does."""

    async def effect(handle: object) -> None:
        postgres_bank.query(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid()"
        )
        with pytest.raises(Exception, match=r"terminat|closed"):  # each library has its own
            await arun(handle, SPEND)
        raise LookupError

    call = {"gid": new_gid(), "branch_id": "01", "op": "action", "trans_type": "msg"}
    async with postgres_bank.areached(way) as engine:
        with pytest.raises(LookupError):
            await aonce(engine, call, effect)
    assert (postgres_bank.balance(), postgres_bank.query("select * from barrier")) == (100, [])


async def test_a_cancelled_branch_leaves_nothing_and_no_lock(bank_and_async_way: BankAndWay) -> None:
    bank, way = bank_and_async_way
    call = {"gid": new_gid(), "branch_id": "01", "op": "action", "trans_type": "msg"}
    inside = asyncio.Event()

    async def effect(handle: object) -> None:
        await arun(handle, SPEND)
        inside.set()
        await asyncio.Event().wait()

    async with bank.areached(way) as engine:
        task = asyncio.create_task(aonce(engine, call, effect))
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        bank.query(SPEND)
    assert (bank.balance(), bank.query("select * from barrier")) == (70, [])


async def test_the_async_form_is_chosen_by_the_engine(bank_and_async_way: BankAndWay) -> None:
    bank, way = bank_and_async_way
    async with bank.areached(way) as engine:
        assert is_async(engine)
        assert is_async(ask_engine(engine))
        with pytest.raises(UnsupportedEngine):
            open_transaction(engine)


async def test_a_sync_engine_is_no_async_one(sqlite_bank: Bank) -> None:
    with sqlite_bank.engine() as engine:
        assert not is_async(engine)
        with pytest.raises(UnsupportedEngine):
            await aopen_transaction(engine)
