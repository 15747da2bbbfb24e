"""The types of blocks, effects and branches, as both type checkers infer them.

`make check` checks them; they never run.
"""

from __future__ import annotations

import sqlite3
from typing import Any, assert_type

import aiosqlite
import asyncpg
import psycopg
import pymysql
from django.db.backends.base.base import BaseDatabaseWrapper
from django.http import HttpRequest
from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.orm import Session, scoped_session

from twophase import AsyncClient, AsyncMessage, Client, Message
from twophase.barrier import aonce, once
from twophase.client.transaction import AsyncTransaction, Transaction
from twophase.integrations import django, fastapi, flask, grpc
from twophase.queues import (
    AsyncConsumer,
    AsyncTransactionProducer,
    Consumer,
    Decision,
    Half,
    Received,
    Sent,
    TransactionProducer,
    queue_address,
)

Row = tuple[Any, ...]
CHECK = "http://a/check"
message = Message("http://coordinator")
async_message = AsyncMessage("http://coordinator")


class BankSession(Session):
    """A Session of the application's own."""

    bank = "a"


def check_sqlalchemy(
    engine: Engine, connection: Connection, session: Session, own: BankSession, scoped: scoped_session[Session]
) -> None:
    assert_type(message.transaction(engine, CHECK), Transaction[Connection])
    assert_type(message.transaction(connection, CHECK), Transaction[Connection])
    assert_type(message.transaction(session, CHECK), Transaction[Session])
    assert_type(message.transaction(own, CHECK), Transaction[BankSession])
    assert_type(message.transaction(scoped, CHECK), Transaction[Session])
    with message.transaction(engine, check=CHECK) as opened:
        assert_type(opened, Connection)


async def check_async_sqlalchemy(engine: AsyncEngine, connection: AsyncConnection, session: AsyncSession) -> None:
    assert_type(message.transaction(engine, CHECK), AsyncTransaction[AsyncConnection])
    assert_type(message.transaction(connection, CHECK), AsyncTransaction[AsyncConnection])
    assert_type(message.transaction(session, CHECK), AsyncTransaction[AsyncSession])
    async with async_message.transaction(engine, check=CHECK) as opened:
        assert_type(opened, AsyncConnection)


def check_drivers(
    lite: sqlite3.Connection, postgres: psycopg.Connection[Row], mysql: pymysql.Connection[pymysql.cursors.Cursor]
) -> None:
    assert_type(message.transaction(lite, CHECK), Transaction[sqlite3.Connection])
    assert_type(message.transaction(postgres, CHECK), Transaction[psycopg.Connection[Row]])
    assert_type(message.transaction(mysql, CHECK), Transaction[pymysql.Connection[pymysql.cursors.Cursor]])
    assert_type(message.transaction("default", CHECK), Transaction[BaseDatabaseWrapper])


async def check_async_drivers(
    pool: asyncpg.Pool,
    connection: asyncpg.Connection,
    lent: asyncpg.pool.PoolConnectionProxy,
    postgres: psycopg.AsyncConnection[Row],
    lite: aiosqlite.Connection,
) -> None:
    assert_type(message.transaction(pool, CHECK), AsyncTransaction[asyncpg.Connection])
    assert_type(message.transaction(connection, CHECK), AsyncTransaction[asyncpg.Connection])
    assert_type(message.transaction(lent, CHECK), AsyncTransaction[asyncpg.Connection])
    assert_type(message.transaction(postgres, CHECK), AsyncTransaction[psycopg.AsyncConnection[Row]])
    assert_type(message.transaction(lite, CHECK), AsyncTransaction[aiosqlite.Connection])


def check_unknown_engine(unknown: Any) -> None:
    with message.transaction(unknown, CHECK) as opened:
        opened.execute()
    once(unknown, {}, lambda connection: connection.execute())


def spend(connection: Connection) -> int:
    return connection.closed


async def aspend(connection: AsyncConnection) -> int:
    return connection.closed


def check_functions(engine: Engine, lite: sqlite3.Connection) -> None:
    assert_type(message.do_and_submit(engine, spend, CHECK), int)
    assert_type(message.do_and_submit(lite, lambda connection: connection.total_changes, CHECK), int)
    assert_type(message.do_and_submit("default", lambda connection: connection.vendor, CHECK), str)
    assert_type(once(engine, {}, spend), int | None)
    assert_type(once(lite, {}, lambda connection: connection.total_changes), int | None)
    flask.once(engine, spend)
    grpc.once(engine, None, spend, b"")


async def check_async_functions(engine: AsyncEngine, pool: asyncpg.Pool) -> None:
    async def take(connection: asyncpg.Connection) -> str:
        return str(connection)

    assert_type(await async_message.do_and_submit(engine, aspend, CHECK), int)
    assert_type(await async_message.do_and_submit(pool, take, CHECK), str)
    assert_type(await aonce(engine, {}, aspend), int | None)
    assert_type(await aonce(pool, {}, take), str | None)
    await flask.aonce(engine, aspend)
    await grpc.aonce(engine, None, aspend, b"")


def check_branches(engine: Engine, async_engine: AsyncEngine) -> None:
    @fastapi.branch(engine)
    def plain(connection: Connection, amount: int) -> None: ...

    @fastapi.branch(async_engine)
    async def asynchronous(connection: AsyncConnection, amount: int) -> None: ...

    @flask.branch(engine)
    def view(connection: Connection, amount: int) -> None: ...

    @django.branch("default")
    def django_view(connection: BaseDatabaseWrapper, request: HttpRequest, amount: int) -> None: ...

    plain(amount=1)
    view(amount=1)


class Order:
    """A type of the application's own."""


class Shop:
    def execute(self, message: Half, argument: Order) -> Decision:
        return Decision.COMMIT

    def check(self, message: Half) -> Decision:
        return Decision.UNKNOWN


class AsyncShop:
    async def execute(self, message: Half, argument: Order) -> Decision:
        return Decision.COMMIT

    async def check(self, message: Half) -> Decision:
        return Decision.UNKNOWN


def check_consumers(client: Client) -> None:
    consumer = Consumer(client, "billing")

    @consumer.handler("orders", tags=["paid", "sent"], concurrency=4)
    def bill(order: Order, message: Received) -> None: ...

    bill(Order(), consumer.receive("orders")[0])  # a decorated function is the function itself
    consumer.subscribe("bills", lambda payload: None)
    (message,) = consumer.receive("orders", wait=5, lease=30)
    assert_type(message.decode(Order), Order)
    assert_type(message.decode(dict[str, int]), dict[str, int])
    assert_type(message.body, bytes)
    assert_type(consumer.ack(message), bool)
    assert_type(TransactionProducer(client, "shop", Shop()).send("orders", Order(), Order(), keys=["7"]), Sent)
    Message(client).add(queue_address("orders", tag="paid"), {})


async def check_async_consumers(client: AsyncClient) -> None:
    consumer = AsyncConsumer(client, "billing")

    @consumer.handler("orders")
    async def bill(order: Order) -> None: ...

    await bill(Order())
    assert_type(await consumer.receive("orders"), list[Received])
    assert_type(await AsyncTransactionProducer(client, "shop", AsyncShop()).send("orders", b"", Order()), Sent)
