"""A timeout ends a statement of the function, or the wait for another call.

The first is an error, because it may end every call. The second is not.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
import sqlalchemy
from sqlalchemy import NullPool, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from tests.integration.barrier.test_branch import call_of
from tests.support.business_databases import Bank, new_gid, run
from twophase.barrier.branch import aonce, once
from twophase.barrier.branch_answer import aanswer_branch, answer_branch
from twophase.barrier.http_answer import HttpReply

SLEEP = {"postgresql": "select pg_sleep(60)", "mysql": "select sleep(60)"}
CODE = {"postgresql": "SQLSTATE 57014", "mysql": "MySQL error 1969"}
SYNC = {
    "postgresql": ("psycopg", {"options": "-c statement_timeout=300"}),
    "mysql": ("pymysql", {"init_command": "set session max_statement_time = 0.3"}),
}
ASYNC: dict[str, tuple[str, dict[str, Any]]] = {
    "postgresql": ("asyncpg", {"server_settings": {"statement_timeout": "300"}}),
    "mysql": ("asyncmy", {"init_command": "set session max_statement_time = 0.3"}),
}


@pytest.fixture(
    params=[pytest.param("postgresql", marks=pytest.mark.postgres), pytest.param("mysql", marks=pytest.mark.mariadb)]
)
def server(request: pytest.FixtureRequest, banks: dict[str, Bank]) -> Bank:
    """A bank on a server that ends statements."""
    bank = banks[request.param]
    bank.query("delete from barrier")
    return bank


@pytest.fixture
def hasty(server: Bank) -> Iterator[sqlalchemy.Engine]:
    """An engine whose statements may take 0.3 s."""
    driver, options = SYNC[server.kind]
    engine = sqlalchemy.create_engine(server.url(driver), poolclass=NullPool, connect_args=options)
    yield engine
    engine.dispose()


@pytest.fixture
async def ahasty(server: Bank) -> AsyncIterator[AsyncEngine]:
    driver, options = ASYNC[server.kind]
    engine = create_async_engine(server.url(driver), poolclass=NullPool, connect_args=options)
    yield engine
    await engine.dispose()


def _told(reply: HttpReply) -> dict[str, str]:
    body: dict[str, str] = msgspec.json.decode(reply.body)
    return body


def test_a_statement_of_the_function_that_takes_too_long_is_an_error(
    server: Bank, hasty: sqlalchemy.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    reply = answer_branch(lambda: once(hasty, call_of(new_gid()), lambda handle: run(handle, SLEEP[server.kind])))
    assert (reply.status, CODE[server.kind] in _told(reply)["message"]) == (500, True)
    assert [record.levelno for record in caplog.records if record.name == "twophase.barrier"] == [logging.ERROR]
    assert server.query("select * from barrier") == []


async def test_an_async_statement_that_takes_too_long_is_an_error(server: Bank, ahasty: AsyncEngine) -> None:
    async def effect(connection: AsyncConnection) -> None:
        await connection.execute(text(SLEEP[server.kind]))

    reply = await aanswer_branch(lambda: aonce(ahasty, call_of(new_gid()), effect))
    assert (reply.status, CODE[server.kind] in _told(reply)["message"]) == (500, True)


def test_a_wait_for_another_call_of_the_branch_that_takes_too_long_is_no_error(
    server: Bank, hasty: sqlalchemy.Engine
) -> None:
    call, replies = call_of(new_gid()), list[HttpReply]()
    second = lambda: once(hasty, call, lambda _: None)  # noqa: E731
    with server.engine() as engine:
        once(engine, call, lambda _: replies.append(answer_branch(second)))
    assert [reply.status for reply in replies] == [425]
    assert CODE[server.kind] in _told(replies[0])["message"]


async def test_an_async_wait_that_takes_too_long_is_no_error(server: Bank, ahasty: AsyncEngine) -> None:
    call, replies = call_of(new_gid()), list[HttpReply]()
    driver, _ = ASYNC[server.kind]
    engine = create_async_engine(server.url(driver), poolclass=NullPool)

    async def nothing(_: object) -> None: ...

    async def first(_: object) -> None:
        replies.append(await aanswer_branch(lambda: aonce(ahasty, call, nothing)))

    await aonce(engine, call, first)
    await engine.dispose()
    assert [reply.status for reply in replies] == [425]
    assert CODE[server.kind] in _told(replies[0])["message"]


def test_a_lock_that_another_transaction_holds_is_told_and_logged(
    server: Bank, caplog: pytest.LogCaptureFixture
) -> None:
    wait = {"postgresql": "set local lock_timeout = '200ms'", "mysql": "set session innodb_lock_wait_timeout = 1"}
    codes = {"postgresql": "SQLSTATE 55P03", "mysql": "MySQL error 1205"}

    def effect(handle: Any) -> None:
        run(handle, wait[server.kind])
        run(handle, "update account set balance = balance - 30")

    with server.plain() as holder, server.engine() as engine:
        run(holder, "update account set balance = balance - 1")
        reply = answer_branch(lambda: once(engine, call_of(new_gid()), effect))
        holder.rollback()
    why = codes[server.kind]
    assert (reply.status, why in _told(reply)["message"]) == (425, True)
    assert [(record.levelno, why in record.getMessage()) for record in caplog.records] == [(logging.WARNING, True)]
