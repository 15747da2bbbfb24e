"""A connection that ends inside a block is named as the reason.

The error does not name the block, which has done nothing wrong.
"""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
import sqlalchemy
from asyncpg.exceptions import InterfaceError

from tests.servers.proxy import Proxy
from tests.support.business_databases import SPEND, Bank, arun, new_gid, run
from tests.support.waiting import blocked_until, until
from twophase.barrier.branch import aonce, once
from twophase.core.errors import TransactionLost

REASON = "The connection to the database ended before COMMIT"
OPEN = {
    "postgresql": "select pid from pg_stat_activity where datname = current_database() and xact_start is not null "
    "and pid <> pg_backend_pid()",
    "mysql": "select id from information_schema.processlist where db = database() and id <> connection_id()",
}
END = {"postgresql": "select pg_terminate_backend({})", "mysql": "kill {}"}
_postgres, _mariadb = pytest.mark.postgres, pytest.mark.mariadb
SYNC = [
    pytest.param("postgresql", "psycopg", marks=_postgres),
    pytest.param("postgresql", "engine", marks=_postgres),
    pytest.param("postgresql", "session", marks=_postgres),
    pytest.param("mysql", "pymysql", marks=_mariadb),
    pytest.param("mysql", "engine", marks=_mariadb),
]
ASYNC = [
    pytest.param("postgresql", "asyncpg pool", marks=_postgres),
    pytest.param("postgresql", "asyncpg connection", marks=_postgres),
    pytest.param("postgresql", "asyncpg engine", marks=_postgres),
    pytest.param("postgresql", "asyncpg session", marks=_postgres),
    pytest.param("postgresql", "psycopg plain", marks=_postgres),
    pytest.param("postgresql", "psycopg engine", marks=_postgres),
    pytest.param("mysql", "asyncmy engine", marks=_mariadb),
]


def end_open(bank: Bank) -> None:
    """End the other connections of the bank, as a crash does."""
    ended = bank.query(OPEN[bank.kind])
    for (number,) in ended:
        bank.query(END[bank.kind].format(number))
    blocked_until(lambda: not set(ended) & set(bank.query(OPEN[bank.kind])))


def is_gone(handle: Any) -> bool:
    """Return True when asyncpg has noticed the connection's end."""
    try:
        return bool(handle.is_closed())
    except InterfaceError:
        return True


def call() -> dict[str, str]:
    return {"gid": new_gid(), "branch_id": "01", "op": "action", "trans_type": "msg"}


@pytest.mark.parametrize(("kind", "way"), SYNC)
def test_the_lost_connection_is_named(banks: dict[str, Bank], kind: str, way: str) -> None:
    bank = banks[kind]

    def effect(handle: Any) -> None:
        run(handle, SPEND)
        end_open(bank)

    with bank.reached(way) as engine, pytest.raises(TransactionLost, match=REASON) as lost:
        once(engine, call(), effect)
    assert lost.value.remedy.startswith("Look for the reason in the database's log")
    assert bank.balance() == 100


@pytest.mark.parametrize(("kind", "way"), ASYNC)
async def test_the_lost_connection_of_an_async_library_is_named(banks: dict[str, Bank], kind: str, way: str) -> None:
    bank = banks[kind]

    async def effect(handle: Any) -> None:
        await arun(handle, SPEND)
        end_open(bank)

    async with bank.areached(way) as engine:
        with pytest.raises(TransactionLost, match=REASON):
            await aonce(engine, call(), effect)
    assert bank.balance() == 100


@pytest.mark.postgres
async def test_an_error_of_a_pools_lost_connection_is_the_functions_own(banks: dict[str, Bank]) -> None:
    """asyncpg's pool takes the connection back at once, and refuses calls about it."""
    bank = banks["postgresql"]

    async def effect(handle: Any) -> None:
        await arun(handle, SPEND)
        end_open(bank)
        await until(lambda: is_gone(handle))
        raise ValueError("the function's own")

    async with bank.areached("asyncpg pool") as pool:
        with pytest.raises(ValueError, match="the function's own"):
            await aonce(pool, call(), effect)
    assert bank.balance() == 100


@pytest.mark.postgres
async def test_a_cancellation_in_begin_stays_one_when_the_connection_ends_behind_it(banks: dict[str, Bank]) -> None:
    bank = banks["postgresql"]
    url = sqlalchemy.make_url(bank.url("psycopg"))
    library: Any = asyncpg  # it has no types

    async def effect(_handle: Any) -> None:
        raise AssertionError("it is not called")

    with Proxy(str(url.host), int(url.port or 0)) as proxy:
        dsn = url.set(drivername="postgresql", port=proxy.port).render_as_string(hide_password=False)
        async with library.create_pool(dsn, min_size=1, max_size=1) as pool:
            proxy.partition()
            branch = asyncio.create_task(aonce(pool, call(), effect))
            await until(proxy.holds.is_set)
            branch.cancel()
            await asyncio.sleep(0)
            proxy.cut()
            await asyncio.wait([branch])
            proxy.heal()
        await until(lambda: proxy.connections == 0)  # asyncpg asks the server to cancel by one of its own
    assert branch.cancelled()
