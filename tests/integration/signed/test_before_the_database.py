"""With keys, a call that none has signed reaches no connection and no statement.

Every entrance of every integration is tried, with an engine of every kind that the barrier takes. One without content
records each attribute that is looked up; a real one records each connection and each statement.
"""

from __future__ import annotations

import importlib
import inspect
import sqlite3
import types
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
import sqlalchemy
from django.conf import settings
from django.db import connections
from django.db.backends.sqlite3.base import DatabaseWrapper
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from tests.integration.signed.entrances import ENTRANCES, FORGERIES, SIGNED, Ask, Entrance
from twophase.barrier import install
from twophase.barrier.open import _ASYNC, _Kind
from twophase.integrations import django as on_django
from twophase.integrations import fastapi as on_fastapi
from twophase.integrations import flask as on_flask
from twophase.integrations import grpc as on_grpc

DEPOSIT: Final = "update account set balance = balance + 30"
ALIAS: Final = "counted"


KINDS: Final = [(kind, name) for kind in _Kind for name in kind.value[1:]]
"""Every class of object that the barrier takes for an engine."""
TOUCHED: Final = [
    (entrance, kind, name)
    for entrance in ENTRANCES
    for kind, name in KINDS
    if not entrance.by_alias and entrance.is_async in {None, kind in _ASYNC}
]
MODULES: Final = {"FastAPI": on_fastapi, "Flask": on_flask, "Django": on_django, "gRPC": on_grpc}


def test_every_function_that_takes_keys_is_an_entrance() -> None:
    assert settings.configured
    for framework, module in MODULES.items():
        names = " ".join(one.name for one in ENTRANCES if one.name.startswith(framework)).replace("@", "").split()
        verifying = {
            name
            for name, function in vars(module).items()
            if not name.startswith("_")
            and inspect.isfunction(function)
            and "keys" in inspect.signature(function).parameters
        }
        verifying -= {"known_keys", "accept", "validate_branch"}
        assert verifying, framework
        assert verifying <= set(names), framework


def untouched(base: type, touches: list[str]) -> Any:
    """Return an object of a class that records every attribute that is looked up."""

    def look_up(self: Any, name: str) -> Any:
        if name == "__class__":
            return type(self)
        touches.append(name)
        raise RuntimeError(f"{name} was looked up")

    members = {"__getattribute__": look_up, "__del__": lambda _self: None}
    made: Any = types.new_class(f"Untouched{base.__name__}", (base,), {}, lambda body: body.update(members))
    return sqlite3.Connection.__new__(made) if base is sqlite3.Connection else object.__new__(made)


def _never(_handle: Any) -> Any:
    raise AssertionError("the effect ran")


async def _anever(_handle: Any) -> Any:
    raise AssertionError("the effect ran")


@pytest.mark.parametrize(("entrance", "kind", "name"), TOUCHED, ids=lambda part: getattr(part, "name", part))
async def test_a_call_that_is_not_signed_touches_no_engine(entrance: Entrance, kind: _Kind, name: str) -> None:
    touches: list[str] = []
    engine = untouched(getattr(importlib.import_module(kind.value[0]), name), touches)
    effect = _anever if kind in _ASYNC else _never
    for forgery, sign in FORGERIES.items():
        assert await entrance.ask(Ask(engine, effect, sign)) == 401, forgery
        assert touches == [], forgery
    await _answered(entrance, Ask(engine, effect, SIGNED))
    assert touches != [], "a signed call goes on to the engine"


async def _answered(entrance: Entrance, ask: Ask) -> None:
    try:
        assert await entrance.ask(ask) != 401
    except RuntimeError as error:
        assert "was looked up" in str(error)  # noqa: PT017 -- a test client may raise it, or answer 500


class Counted:
    """A database, and what was asked of it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "bank.db"
        self.events: list[str] = []
        self.to_close: list[Callable[[], Any]] = []
        with closing(sqlite3.connect(self.file)) as connection:
            connection.execute("pragma journal_mode = wal")
            connection.execute("create table account (balance integer)")
            connection.execute("insert into account values (0)")
            connection.commit()
            install(connection)

    def note(self, what: str) -> Callable[..., None]:
        """Return a listener."""

        def heard(*_arguments: Any) -> None:
            self.events.append(what)

        return heard

    def listen(self, engine: Any) -> Any:
        """Note all that an engine of SQLAlchemy does."""
        for event in ("do_connect", "engine_connect", "before_cursor_execute", "begin"):
            sqlalchemy.event.listen(engine, event, self.note(event))
        sqlalchemy.event.listen(engine.pool, "checkout", self.note("checkout"))
        self.to_close.append(engine.dispose)
        return engine

    def django(self, patch: pytest.MonkeyPatch) -> str:
        """Note all that Django's connections do; return the alias."""
        for name in ("connect", "get_new_connection", "create_cursor", "ensure_connection"):
            patch.setattr(DatabaseWrapper, name, self._noting(name))
        described = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(self.file)}
        patch.setitem(
            connections.databases, ALIAS, connections.configure_settings({"default": {}, ALIAS: described})[ALIAS]
        )
        return ALIAS

    def _noting(self, name: str) -> Any:
        original = getattr(DatabaseWrapper, name)

        def method(wrapper: Any, *arguments: Any) -> Any:
            self.events.append(name)
            result = original(wrapper, *arguments)
            if name == "get_new_connection":
                self.to_close.append(result.close)
            return result

        return method


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[Counted]:
    """A database with a barrier and one account."""
    database = Counted(tmp_path)
    yield database
    for close in database.to_close:
        close()


def _deposit(handle: Any) -> None:
    if hasattr(handle, "cursor"):
        with closing(handle.cursor()) as cursor:
            cursor.execute(DEPOSIT)
    else:
        handle.execute(sqlalchemy.text(DEPOSIT))


async def _adeposit(handle: Any) -> None:
    await handle.execute(sqlalchemy.text(DEPOSIT))


def _makers(entrance: Entrance) -> list[str]:
    """Return the engines of which all that happens is counted."""
    if entrance.by_alias:
        return ["Django"]
    blocking, asynchronous = ["SQLAlchemy", "Django"], ["async SQLAlchemy"]
    return [*blocking, *asynchronous] if entrance.is_async is None else asynchronous if entrance.is_async else blocking


CELLS: Final = [(entrance, maker) for entrance in ENTRANCES for maker in _makers(entrance)]


@pytest.mark.parametrize(("entrance", "maker"), CELLS, ids=lambda part: getattr(part, "name", part))
async def test_a_call_that_is_not_signed_opens_no_connection_and_says_no_statement(
    entrance: Entrance, maker: str, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect: Callable[[Any], Awaitable[None] | None] = _deposit
    engine: Any
    if maker == "Django":
        engine = counted.django(monkeypatch)
    elif maker == "SQLAlchemy":
        engine = counted.listen(sqlalchemy.create_engine(f"sqlite:///{counted.file}"))
    else:
        async_engine = create_async_engine(f"sqlite+aiosqlite:///{counted.file}", poolclass=NullPool)
        counted.listen(async_engine.sync_engine)
        engine, effect = async_engine, _adeposit

    for _ in ("a new engine", "one with connections"):
        counted.events.clear()
        for name, sign in FORGERIES.items():
            assert await entrance.ask(Ask(engine, effect, sign)) == 401, name
            assert counted.events == [], name
        assert await entrance.ask(Ask(engine, effect, SIGNED)) == (500 if "check" in entrance.name else 200)
        assert {"create_cursor", "before_cursor_execute"} & set(counted.events), "a signed call says statements"
