"""Misuse that both type checkers refuse: each marked line is an error.

`make check` fails at a mark without an error.
"""
# pyright: reportUnnecessaryTypeIgnoreComment=error

from __future__ import annotations

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session, sessionmaker

from twophase import AsyncClient, Client, Message
from twophase.barrier import aonce, once
from twophase.integrations import fastapi, flask
from twophase.queues import AsyncConsumer, AsyncTransactionProducer, Consumer, Decision, Half, TransactionProducer

CHECK = "http://a/check"
message = Message("http://coordinator")


def spend(connection: Connection) -> int:
    return connection.closed


async def check_engines(engine: Engine, async_engine: AsyncEngine, maker: sessionmaker[Session]) -> None:
    with message.transaction(async_engine, CHECK):  # type: ignore[attr-defined]
        pass
    async with message.transaction(engine, CHECK):  # type: ignore[attr-defined]
        pass
    with message.transaction(maker, CHECK):  # type: ignore[call-overload]
        pass
    with message.transaction(object(), CHECK):  # type: ignore[call-overload]
        pass
    with message.transaction(None, CHECK):  # type: ignore[call-overload]
        pass
    with message.transaction(CHECK, engine):  # type: ignore[call-overload]
        pass


def check_handles(engine: Engine, session: Session) -> None:
    with message.transaction("postgresql://bank", CHECK) as alias:
        alias.execute("SELECT 1")  # type: ignore[attr-defined]
    with message.transaction(engine, CHECK) as connection:
        connection.add(object())  # type: ignore[attr-defined]
    with message.transaction(session, CHECK) as opened:
        opened.exec_driver_sql("SELECT 1")  # type: ignore[attr-defined]


async def check_functions(engine: Engine, async_engine: AsyncEngine, session: Session) -> None:
    message.do_and_submit(session, spend, CHECK)  # type: ignore[arg-type]
    message.do_and_submit(async_engine, spend, CHECK)  # type: ignore[call-overload]
    once(session, {}, spend)  # type: ignore[arg-type]
    await aonce(engine, {}, spend)  # type: ignore[call-overload]
    flask.once(session, spend)  # type: ignore[arg-type]


def check_branches(engine: Engine) -> None:
    @fastapi.branch(engine)  # type: ignore[arg-type]
    def branch(connection: Session) -> None: ...


class Shop:
    def execute(self, message: Half, argument: int) -> Decision:
        return Decision.COMMIT

    def check(self, message: Half) -> Decision:
        return Decision.UNKNOWN


class Unsure:
    def execute(self, message: Half, argument: int) -> bool:
        return True

    def check(self, message: Half) -> bool:
        return False


def check_consumers(client: Client, async_client: AsyncClient) -> None:
    consumer = Consumer(client, "billing")

    @consumer.handler("orders")  # type: ignore[type-var]
    async def bill(order: bytes) -> None: ...

    Consumer(async_client, "billing")  # type: ignore[arg-type]
    TransactionProducer(client, "shop", Unsure())  # type: ignore[arg-type]
    TransactionProducer(async_client, "shop", Shop())  # type: ignore[arg-type]


def check_async_consumers(client: Client, async_client: AsyncClient) -> None:
    consumer = AsyncConsumer(async_client, "billing")

    @consumer.handler("orders")  # type: ignore[type-var]
    def bill(order: bytes) -> None: ...

    AsyncConsumer(client, "billing")  # type: ignore[arg-type]
    AsyncTransactionProducer(async_client, "shop", Shop())  # type: ignore[arg-type]
