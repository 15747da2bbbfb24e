"""The recognition of engines."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest
from django import db  # not its connection, whose attributes pytest would read
from django.db.backends.base.base import BaseDatabaseWrapper
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import scoped_session, sessionmaker

from twophase.barrier.open import is_async, open_transaction, refuse_no_engine
from twophase.client.cleaner import BarrierCleaner
from twophase.core.errors import UnsupportedEngine
from twophase.integrations import django as on_django
from twophase.integrations import fastapi as on_fastapi
from twophase.integrations import flask as on_flask
from twophase.integrations import grpc as on_grpc


class StandsFor:
    """An object that passes for another.

    Web frameworks hand out such objects for what belongs to a request.
    """

    def __init__(self, kind: type) -> None:
        self._kind = kind

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self._kind


def test_what_passes_for_an_engine_is_taken_for_one() -> None:
    assert is_async(StandsFor(asyncpg.Pool))
    assert not is_async(StandsFor(sqlite3.Connection))


def test_one_class_that_is_no_engine_says_nothing_of_another() -> None:
    for nothing in (object(), 7, StandsFor(dict)):
        with pytest.raises(UnsupportedEngine):
            open_transaction(nothing)
    bank = sqlite3.connect(":memory:")
    open_transaction(bank).rollback()
    bank.close()


def test_a_url_instead_of_an_engine_is_answered_with_how_to_make_one() -> None:
    import django.db  # noqa: F401 -- where Django is loaded, a text is an alias

    with pytest.raises(UnsupportedEngine) as raised:
        open_transaction("postgresql://orders:hush@bank/orders")
    assert "create_engine(url)" in raised.value.message
    assert "hush" not in str(raised.value)


def engine_of() -> AsyncEngine:
    return create_async_engine("sqlite+aiosqlite://")


NO_ENGINES = {
    "None": (None, "None is not an engine"),
    "a function": (engine_of, "A function is not an engine"),
    "a partial": (functools.partial(engine_of), "A function is not an engine"),
    "a class": (AsyncEngine, "A class is not an engine"),
    "a sessionmaker": (sessionmaker(create_engine("sqlite://")), "sessionmaker makes sessions"),
    "an async_sessionmaker": (async_sessionmaker(engine_of()), "async_sessionmaker makes sessions"),
    "an async_scoped_session": (
        async_scoped_session(async_sessionmaker(engine_of()), asyncio.current_task),
        "async_scoped_session makes sessions",
    ),
    "Django's connection": (db.connection, "ConnectionProxy is not an engine.* its alias"),
    "Django's connections": (db.connections, "ConnectionHandler is not an engine.* its alias"),
    "a connection of a backend": (
        BaseDatabaseWrapper.__new__(BaseDatabaseWrapper),
        "BaseDatabaseWrapper is not an engine.* its alias",
    ),
    "a sync_engine": (engine_of().sync_engine, "sync side of an async engine"),
}
ROUTES: tuple[Callable[[Any], Any], ...] = (
    on_fastapi.check_router,
    on_flask.check_blueprint,
    on_django.check_view,
    on_grpc.check_handler,
    on_grpc.acheck_handler,
    lambda engine: BarrierCleaner(engine, ["http://coordinator:1"]),
)


@pytest.mark.parametrize("name", NO_ENGINES)
def test_what_is_plainly_no_engine_is_refused_when_a_route_is_made(name: str) -> None:
    engine, reason = NO_ENGINES[name]
    for route in ROUTES:
        with pytest.raises(UnsupportedEngine, match=reason):
            route(engine)


def test_what_may_be_an_engine_passes() -> None:
    asynchronous, blocking = engine_of(), create_engine("sqlite://")
    for engine in ("orders", asynchronous, blocking, scoped_session(sessionmaker(blocking)), StandsFor(asyncpg.Pool)):
        refuse_no_engine(engine)
