"""A cancelled call gives its connection back, however often it is cancelled.

Its transaction holds no row.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.servers.mariadb import lock_waits
from tests.support.business_databases import SPEND, Bank, arun, begin, new_gid
from twophase.barrier.asking import CheckBackAnswer, acheck_back
from twophase.barrier.branch import aonce
from twophase.barrier.dialect import POSTGRESQL
from twophase.barrier.installing import ainstall
from twophase.barrier.open import aopen_transaction, open_transaction
from twophase.barrier.shelter import give_back
from twophase.core.verdict import Verdict

ROUNDS = 60
WAYS = [
    pytest.param("postgresql", "asyncpg pool", marks=pytest.mark.postgres),
    pytest.param("postgresql", "asyncpg engine", marks=pytest.mark.postgres),
    pytest.param("postgresql", "psycopg engine", marks=pytest.mark.postgres),
    pytest.param("mysql", "asyncmy engine", marks=pytest.mark.mariadb),
]
Call = Callable[[Any, str], Coroutine[Any, Any, Any]]


async def ask(engine: Any, gid: str) -> CheckBackAnswer:
    return await acheck_back(engine, gid)


async def take_effect(engine: Any, gid: str) -> str | None:
    async def effect(handle: Any) -> str:
        await arun(handle, SPEND)
        await asyncio.Event().wait()
        return "done"

    call = {"gid": gid, "branch_id": "01", "op": "action", "trans_type": "msg"}
    return await aonce(engine, call, effect)


def options_of(way: str, connections: int) -> dict[str, Any]:
    return {} if way.endswith("pool") else {"pool_size": connections, "max_overflow": 0, "pool_timeout": 60}


async def cancel(task: asyncio.Task[Any], *, turns: int) -> None:
    """Cancel the task twice, with `turns` turns of the loop in between.

    In these turns the task cleans up.
    """
    task.cancel()
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize(("kind", "way"), WAYS)
@pytest.mark.parametrize("turns", [1, 2, 4, 8])
async def test_a_check_back_cancelled_twice_gives_its_connection_back(
    banks: dict[str, Bank], kind: str, way: str, turns: int
) -> None:
    bank, gid = banks[kind], new_gid()
    with bank.plain() as connection:
        holder = open_transaction(connection)
        begin(holder, gid)
        async with bank.areached(way, **options_of(way, 4)) as engine:
            for _ in range(4):  # as many as there are connections
                asking = asyncio.create_task(ask(engine, gid))
                await waiting(bank)
                await cancel(asking, turns=turns)
            holder.rollback()
            holder.close()
            answer = await asyncio.wait_for(ask(engine, gid), 90)
    assert answer.verdict is Verdict.ROLLED_BACK


@pytest.mark.postgres
@pytest.mark.parametrize("way", ["asyncpg pool", "asyncpg engine", "psycopg engine"])
@pytest.mark.parametrize("turns", [1, 2, 4])
async def test_an_installation_cancelled_twice_gives_its_connection_back(
    banks: dict[str, Bank], way: str, turns: int
) -> None:
    bank = banks["postgresql"]
    with bank.plain() as holder:
        holder.execute(POSTGRESQL.sql("install_lock"))
        async with bank.areached(way, **options_of(way, 4)) as engine:
            for _ in range(4):  # as many as there are connections
                installing = asyncio.create_task(ainstall(engine))
                await waiting(bank)
                await cancel(installing, turns=turns)
            holder.rollback()
            assert await asyncio.wait_for(ainstall(engine), 90) == []


@pytest.mark.parametrize("turns", [0, 1, 4])
async def test_a_begin_cancelled_while_it_waits_for_the_lock_leaves_aiosqlite_free(
    sqlite_bank: Bank, turns: int
) -> None:
    with sqlite_bank.plain() as connection:
        holder = open_transaction(connection)
        async with sqlite_bank.areached("aiosqlite plain") as engine:
            opening = asyncio.create_task(aopen_transaction(engine))
            await asyncio.sleep(0)  # its thread has the work now
            opening.cancel()
            for _ in range(turns):
                await asyncio.sleep(0)
            opening.cancel()
            await asyncio.sleep(0)
            holder.rollback()
            holder.close()
            await asyncio.wait([opening])
            assert opening.cancelled()
            assert not engine.in_transaction
            sqlite_bank.query(SPEND)


@pytest.mark.postgres
@pytest.mark.parametrize("way", ["asyncpg connection", "asyncpg pool"])
@pytest.mark.parametrize("again", [0, 1, 4])
async def test_a_begin_that_is_cancelled_leaves_no_transaction_behind(
    banks: dict[str, Bank], way: str, again: int
) -> None:
    """The connection is good for the next transaction, and asyncpg finds none to end."""
    found: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context))
    async with banks["postgresql"].areached(way) as engine:
        for turns in range(1, 30):
            opening = asyncio.create_task(aopen_transaction(engine))
            for _ in range(turns):
                await asyncio.sleep(0)
            await cancel(opening, turns=again)
            if not opening.cancelled():
                await give_back(opening.result())
            await give_back(await asyncio.wait_for(aopen_transaction(engine), 90))
    assert found == []


async def waiting(bank: Bank) -> None:
    """Wait until a session of the bank waits for a row's lock."""
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(waits, bank):
            await asyncio.sleep(0)


def waits(bank: Bank) -> int:
    if bank.kind == "mysql":
        return lock_waits(bank.query)
    return len(
        bank.query("select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
    )


@pytest.mark.parametrize(("kind", "way"), WAYS)
async def test_calls_cancelled_at_random_leave_every_connection_and_row_free(
    banks: dict[str, Bank], kind: str, way: str
) -> None:
    bank, dice = banks[kind], random.Random(20)
    gids = [new_gid() for _ in range(ROUNDS)]
    async with bank.areached(way, **options_of(way, 2)) as engine:
        for gid in gids:
            call: Call = dice.choice((ask, take_effect))
            task = asyncio.create_task(call(engine, gid))
            for _ in range(dice.randrange(60)):
                await asyncio.sleep(0)
            await cancel(task, turns=dice.randrange(12))
        for gid in gids:
            answer = await asyncio.wait_for(ask(engine, gid), 90)
            assert answer.verdict is Verdict.ROLLED_BACK
    assert bank.balance() == 100
