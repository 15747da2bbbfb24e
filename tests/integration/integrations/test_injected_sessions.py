"""A session that a framework injects is refused, unless it is in the transaction.

What it writes would be lost, or stay without the barrier row.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import aiosqlite
import httpx
import pytest
from django.http import HttpRequest
from django.test import RequestFactory
from fastapi import Depends, FastAPI
from flask import Flask
from sqlalchemy import Connection, Engine, NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tests.integration.integrations import test_django
from tests.integration.integrations.test_fastapi import branch_query
from twophase.barrier import install
from twophase.barrier.open import is_outside
from twophase.core.errors import OutsideTransaction
from twophase.integrations import django as on_django
from twophase.integrations import fastapi as on_fastapi
from twophase.integrations import flask as on_flask
from twophase.integrations.functions import call_inside

INSERT = text("insert into orders values (1)")
assert test_django.ENGINES, "that module configures Django"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "shop.db"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("create table orders (article integer)")
        install(connection)
    return file


@pytest.fixture
def engine(file: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{file}", poolclass=NullPool)
    yield engine
    engine.dispose()


@pytest.fixture
async def async_engine(file: Path) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{file}", poolclass=NullPool)
    yield engine
    await engine.dispose()


def rows(file: Path) -> tuple[int, int]:
    """Return the numbers of orders and of barrier rows."""
    with contextlib.closing(sqlite3.connect(file)) as connection:
        ((orders, barrier),) = connection.execute(
            "select (select count(*) from orders), (select count(*) from barrier)"
        ).fetchall()
    return orders, barrier


def engine_of() -> Engine:
    """Stand for the service's engine; a test overrides it."""
    raise AssertionError


def async_engine_of() -> AsyncEngine:
    """Stand for the service's async engine; a test overrides it."""
    raise AssertionError


def session(engine: Annotated[Engine, Depends(engine_of)]) -> Iterator[Session]:
    """FastAPI's usual way to a session."""
    with Session(engine) as opened:
        yield opened


async def async_session(engine: Annotated[AsyncEngine, Depends(async_engine_of)]) -> AsyncIterator[AsyncSession]:
    """`session` for an async engine."""
    async with AsyncSession(engine) as opened:
        yield opened


async def post(app: FastAPI, path: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        return await client.post(path, params=branch_query("g"))


async def test_a_session_that_fastapi_injects_is_refused(engine: Engine, async_engine: AsyncEngine, file: Path) -> None:
    app = FastAPI()
    app.dependency_overrides = {engine_of: lambda: engine, async_engine_of: lambda: async_engine}

    @app.post("/sync")
    @on_fastapi.branch(engine)
    def receive(_connection: Connection, db: Annotated[Session, Depends(session)]) -> None:
        db.execute(INSERT)

    @app.post("/async")
    @on_fastapi.branch(async_engine)
    async def areceive(_connection: AsyncConnection, db: Annotated[AsyncSession, Depends(async_session)]) -> None:
        await db.execute(INSERT)

    for path, type_ in (("/sync", "Session"), ("/async", "AsyncSession")):
        answer = await post(app, path)
        assert (answer.status_code, answer.json()["code"]) == (500, "TP-5014")
        assert f"db of {'receive' if path == '/sync' else 'areceive'} is a {type_} " in answer.json()["message"]
    assert rows(file) == (0, 0)


async def test_a_session_on_the_given_connection_works_in_the_transaction(
    engine: Engine, async_engine: AsyncEngine, file: Path
) -> None:
    """The remedy that the error names."""
    app = FastAPI()

    @app.post("/sync")
    @on_fastapi.branch(engine)
    def receive(connection: Connection) -> None:
        with Session(connection) as session:
            session.execute(INSERT)
            session.commit()

    @app.post("/async")
    @on_fastapi.branch(async_engine)
    async def areceive(connection: AsyncConnection) -> None:
        async with AsyncSession(connection) as session:
            await session.execute(INSERT)

    assert (await post(app, "/sync")).status_code == 200
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        assert (await client.post("/async", params=branch_query("h"))).status_code == 200
    assert rows(file) == (2, 2)


def _injecting(**injected: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that injects as a framework's extension does."""

    def decorate(view: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **values: view(*args, **values, **injected)

    return decorate


def test_a_session_that_an_extension_of_flask_injects_is_refused(engine: Engine, file: Path) -> None:
    app = Flask("shop")

    @on_flask.branch(engine)
    def receive(_connection: Connection, db: Session) -> None:
        db.execute(INSERT)

    with Session(engine) as session:
        app.add_url_rule("/in", "in", _injecting(db=session)(receive), methods=["POST"])
        answer = app.test_client().post("/in", query_string=branch_query("g"))
    assert (answer.status_code, answer.get_json()["code"], rows(file)) == (500, "TP-5014", (0, 0))


async def test_a_session_that_a_decorator_of_django_injects_is_refused(async_engine: AsyncEngine, file: Path) -> None:
    @on_django.branch(async_engine)
    async def receive(_connection: AsyncConnection, _request: HttpRequest, db: AsyncSession) -> None:
        await db.execute(INSERT)

    async with AsyncSession(async_engine) as session:
        request = RequestFactory().post("/in", query_params=branch_query("g"))
        answer = await _injecting(db=session)(receive)(request)
    assert (answer.status_code, b"TP-5014" in answer.content, rows(file)) == (500, True, (0, 0))


def test_the_session_that_is_the_engine_may_be_injected(engine: Engine, file: Path) -> None:
    sessions = scoped_session(sessionmaker(engine))

    @on_flask.branch(sessions)
    def receive(_connection: Session, db: Session, registry: scoped_session[Session]) -> None:
        assert registry() is db
        db.execute(INSERT)

    app = Flask("shop")
    injecting = _injecting(db=sessions(), registry=sessions)(receive)
    app.add_url_rule("/in", "in", injecting, methods=["POST"])
    answer = app.test_client().post("/in", query_string=branch_query("g"))
    sessions.remove()
    assert (answer.status_code, rows(file)) == (200, (1, 1))


async def test_only_what_works_in_the_transaction_is_inside(engine: Engine, async_engine: AsyncEngine) -> None:
    with engine.connect() as one, engine.connect() as other, Session(one) as on_one, Session(other) as on_other:
        registry = scoped_session(sessionmaker(one))
        registry()
        inside = [one, on_one, registry, engine, sessionmaker(engine), 7, "text", None]
        assert [is_outside(value, handle) for handle in (one, on_one) for value in inside] == [False] * 16
        with Session(engine) as on_engine, contextlib.closing(sqlite3.connect(":memory:")) as driver:
            for value in (other, on_other, on_engine, scoped_session(sessionmaker(engine)), driver):
                with pytest.raises(OutsideTransaction):
                    call_inside(lambda *_: None, (7, value), {}, one)
    async with async_engine.connect() as one_, async_engine.connect() as other_, AsyncSession(one_) as on_one_:
        assert [is_outside(value, one_) for value in (one_, on_one_, async_engine)] == [False] * 3
        async with aiosqlite.connect(":memory:") as adriver, AsyncSession(async_engine) as on_engine_:
            assert [is_outside(value, one_) for value in (other_, on_engine_, adriver)] == [True] * 3
