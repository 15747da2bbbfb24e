"""A consumer is one function on every framework, and answers with its reasons.

A consumer that was not started answers 503.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sqlite3
import sys
import threading
import types
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import fastapi
import msgspec
import pytest
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, connections
from django.test import Client, override_settings
from sqlalchemy import NullPool, create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from tests.integration.integrations import consumers, test_django
from tests.integration.integrations.consumers import Wish
from tests.integration.integrations.test_fastapi import branch_query
from twophase.barrier import install
from twophase.barrier.bounded_cleaning import CleanedSome
from twophase.client.cleaner import BarrierCleaner
from twophase.errors import FunctionRefused, UnsupportedEngine
from twophase.integrations import django as on_django
from twophase.integrations import fastapi as on_fastapi
from twophase.integrations import flask as on_flask
from twophase.integrations import grpc as on_grpc

Post = Callable[..., tuple[int, dict[str, Any], dict[str, str]]]
Clean = Callable[..., BarrierCleaner]
_DJANGO_SETTINGS = test_django.ENGINES  # that module configures Django


class Shop:
    """A service on one framework, and its database."""

    def __init__(self, file: Path, post: Post, clean: Clean) -> None:
        self.file = file
        self.post = post
        self.clean = clean

    def query(self, sql: str) -> list[Any]:
        with contextlib.closing(sqlite3.connect(self.file)) as connection, connection:
            return connection.execute(sql).fetchall()

    def reserve(self, manner: str, gid: str, pieces: int) -> tuple[int, dict[str, Any]]:
        status, body, _ = self.post(f"/{manner}/7", branch_query(gid), {"pieces": pieces})
        return status, body


def fastapi_post(engine: Any, async_engine: Any) -> tuple[Post, Clean]:
    app = consumers.fastapi_app(engine, async_engine)
    ask = consumers.asgi_client(app)

    def post(url: str, query: dict[str, str], body: Any) -> tuple[int, dict[str, Any], dict[str, str]]:
        answer = ask(url, params=query, json=body, headers={"x-tenant": "blue"})
        return answer.status_code, _json(answer.content), dict(answer.headers)

    return post, functools.partial(on_fastapi.clean_barrier, app, engine)


def flask_post(engine: Any, async_engine: Any) -> tuple[Post, Clean]:
    app = consumers.flask_app(engine, async_engine)
    client = app.test_client()

    def post(url: str, query: dict[str, str], body: Any) -> tuple[int, dict[str, Any], dict[str, str]]:
        answer = client.post(url, query_string=query, json=body)
        return answer.status_code, _json(answer.data), {name.lower(): value for name, value in answer.headers}

    return post, functools.partial(on_flask.clean_barrier, app, engine)


def django_post(_engine: Any, async_engine: Any) -> tuple[Post, Clean]:
    sys.modules["shop_urls"] = urls = types.ModuleType("shop_urls")
    urls.urlpatterns = consumers.django_urls(async_engine)  # type: ignore[attr-defined]

    def post(url: str, query: dict[str, str], body: Any) -> tuple[int, dict[str, Any], dict[str, str]]:
        middleware = ["django.middleware.csrf.CsrfViewMiddleware", "twophase.integrations.django.UnavailableMiddleware"]
        with override_settings(ROOT_URLCONF="shop_urls", MIDDLEWARE=middleware):
            client = Client(enforce_csrf_checks=url not in {"/orders", "/payments"}, raise_request_exception=False)
            answer = client.post(url, msgspec.json.encode(body), "application/json", query_params=query)
        return (
            answer.status_code,
            _json(answer.content),
            {name.lower(): value for name, value in answer.headers.items()},
        )

    def clean(coordinators: list[str], ended: Callable[[], None]) -> BarrierCleaner:
        cleaner = on_django.clean_barrier("shop", coordinators)
        cleaner._ended = ended  # the connections of the test's own thread stay open
        return cleaner

    return post, clean


def _json(body: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return found


@pytest.fixture(params=[fastapi_post, flask_post, django_post], ids=["fastapi", "flask", "django"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """A shop with ten pieces of article 7."""
    file = tmp_path / "shop.db"
    engine = create_engine(f"sqlite:///{file}", poolclass=NullPool)
    async_engine = create_async_engine(f"sqlite+aiosqlite:///{file}", poolclass=NullPool)
    install(engine)
    entry = {"ENGINE": _DJANGO_SETTINGS["sqlite"], "NAME": str(file)}
    connections.databases["shop"] = connections.configure_settings({"default": {}, "shop": entry})["shop"]
    request_started.disconnect(close_old_connections)
    request_finished.disconnect(close_old_connections)
    one = Shop(file, *request.param(engine, async_engine))
    one.query("create table stock (article integer primary key, free integer)")
    one.query("insert into stock values (7, 10)")
    yield one
    request_finished.disconnect(dispatch_uid="twophase cleaning shop barrier")
    request_started.connect(close_old_connections)
    request_finished.connect(close_old_connections)
    connections["shop"].close()
    del connections["shop"]
    del connections.databases["shop"]
    engine.dispose()


MANNERS = pytest.mark.parametrize("manner", ["sync", "async"])


@MANNERS
def test_a_branch_is_one_function_and_takes_effect_once(shop: Shop, manner: str) -> None:
    answers = [shop.reserve(manner, "g1", 2) for _ in range(2)]
    assert answers == [(200, {"dtm_result": "SUCCESS"})] * 2
    assert shop.query("select free from stock") == [(8,)]


@MANNERS
def test_a_refusal_is_answered_with_its_reason(shop: Shop, manner: str) -> None:
    assert shop.reserve(manner, "g1", 200) == (409, {"dtm_result": "FAILURE", "message": "only 100 of 7"})
    assert shop.query("select count(*) from barrier") == [(0,)]


@MANNERS
def test_an_error_of_the_barrier_is_answered_with_its_code(shop: Shop, manner: str) -> None:
    shop.query("drop table barrier")
    status, body = shop.reserve(manner, "g1", 2)
    assert (status, body["code"]) == (500, "TP-6001")
    assert "no complete barrier table 'barrier'" in body["message"]
    assert shop.query("select free from stock") == [(10,)]


def test_a_producer_whose_coordinator_is_away_answers_503(shop: Shop) -> None:
    status, body, headers = shop.post("/orders", {}, {})
    assert (status, body["code"], headers["retry-after"]) == (503, "TP-3004", "1")
    assert body["message"] == (
        "No coordinator could take the message of this request. The message's transaction was not started."
    )


def test_what_is_committed_is_never_answered_with_503(shop: Shop) -> None:
    status, _, headers = shop.post("/payments", {}, {})
    assert (status, "retry-after" in headers) == (500, False)


def test_django_cleans_each_barrier_table_of_an_alias(monkeypatch: pytest.MonkeyPatch) -> None:
    hinted: list[BarrierCleaner] = []

    def hint(cleaner: BarrierCleaner) -> None:
        hinted.append(cleaner)

    monkeypatch.setattr(BarrierCleaner, "hint", hint)
    tables = ("barrier", "orders_barrier")
    cleaners = [on_django.clean_barrier("both", ["http://coordinator:1"], table=table) for table in tables]
    try:
        request_finished.send(sender=None)
    finally:
        for table in tables:
            request_finished.disconnect(dispatch_uid=f"twophase cleaning both {table}")
    assert hinted == cleaners


def test_old_barrier_rows_are_removed_after_an_answer(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    cleaned: list[object] = []

    def clean_now(cleaner: BarrierCleaner) -> CleanedSome:
        cleaned.append(cleaner)
        return CleanedSome(1, -1)

    monkeypatch.setattr(BarrierCleaner, "clean_now", clean_now)
    cleaner = shop.clean(["http://coordinator:36789"], ended=ended.set)
    cleaner._next_s = 0.0
    assert shop.reserve("sync", "g1", 2)[0] == 200
    assert ended.wait(30)
    assert cleaned == [cleaner]


@pytest.mark.parametrize("integration", [on_fastapi, on_flask, on_django], ids=["fastapi", "flask", "django"])
def test_an_async_function_needs_an_async_engine(integration: Any, tmp_path: Path) -> None:
    async def areceive(connection: Any) -> None: ...

    def receive(connection: Any) -> None: ...

    with pytest.raises(FunctionRefused, match="areceive is an `async def`; its engine must be an async one"):
        integration.branch(create_engine("sqlite://"))(areceive)
    with pytest.raises(FunctionRefused, match="receive is a plain function"):
        integration.branch(create_async_engine("sqlite+aiosqlite://"))(receive)


@pytest.mark.parametrize("integration", [on_fastapi, on_flask, on_django], ids=["fastapi", "flask", "django"])
def test_a_branch_without_its_engine_is_refused(integration: Any) -> None:
    def receive(connection: Any) -> None: ...

    with pytest.raises(FunctionRefused, match=r"write `@branch\(engine\)`"):
        integration.branch(receive)


def _yields(connection: Any) -> Iterator[None]:
    yield connection


async def _ayields(connection: Any) -> AsyncIterator[None]:
    yield connection


@functools.wraps(_yields)
def _wrapped(connection: Any) -> Any:
    return list(_yields(connection))


class _Called:
    def __call__(self, connection: Any) -> Iterator[None]:
        yield connection


@pytest.mark.parametrize("integration", [on_fastapi, on_flask, on_django], ids=["fastapi", "flask", "django"])
@pytest.mark.parametrize("function", [_yields, _ayields, _wrapped, _Called(), functools.partial(_yields)])
def test_a_function_that_yields_is_refused_where_the_route_is_made(integration: Any, function: Any) -> None:
    """FastAPI would answer 200 for it before its first step, and call it a stream."""
    for engine in (create_engine("sqlite://"), create_async_engine("sqlite+aiosqlite://")):
        with pytest.raises(FunctionRefused, match="generator function"):
            integration.branch(engine)(function)


def _bare() -> None: ...


def _named_only(*, connection: Any) -> None: ...


def _payload(transfer: dict[str, Any]) -> None: ...


def _body(wish: Wish) -> None: ...


@pytest.mark.parametrize("integration", [on_fastapi, on_flask, on_django], ids=["fastapi", "flask", "django"])
@pytest.mark.parametrize(
    ("function", "why"),
    [
        (_bare, "no argument"),
        (_named_only, "no argument"),
        (_payload, "'transfer', of dict"),
        (_body, "'wish', of Wish"),
    ],
)
def test_a_function_without_a_place_for_the_connection_is_refused(integration: Any, function: Any, why: str) -> None:
    with pytest.raises(FunctionRefused, match=why):
        integration.branch(create_engine("sqlite://"))(function)


@pytest.mark.parametrize("annotation", [Any, object, "Connection", "of_elsewhere.Session", inspect.Parameter.empty])
def test_a_first_argument_that_may_be_a_connection_is_taken(annotation: Any) -> None:
    def effect(connection, request): ...  # type: ignore[no-untyped-def]

    if annotation is not inspect.Parameter.empty:
        effect.__annotations__["connection"] = annotation
    for integration in (on_fastapi, on_flask, on_django):
        assert integration.branch(create_engine("sqlite://"))(effect).__name__ == "effect"


@pytest.mark.parametrize("integration", [on_flask, on_django], ids=["flask", "django"])
def test_a_wrapper_that_takes_the_connection_is_judged_by_itself(integration: Any) -> None:
    @functools.wraps(_body)
    def wrapper(connection: Any) -> None:
        _body(Wish(pieces=connection.pieces))

    assert integration.branch(create_engine("sqlite://"))(wrapper).__name__ == "_body"


def test_on_fastapi_a_wrapper_is_judged_by_what_it_wraps() -> None:
    """FastAPI injects what the wrapped function takes."""

    @functools.wraps(_payload)
    def wrapper(_connection: Any, *args: Any, **injected: Any) -> None:
        _payload(*args, **injected)

    with pytest.raises(FunctionRefused, match="'transfer', of dict"):
        on_fastapi.branch(create_engine("sqlite://"))(wrapper)


def test_on_fastapi_a_function_may_take_the_request_itself(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}", poolclass=NullPool)
    install(engine)
    app, seen = fastapi.FastAPI(), list[str]()

    @app.post("/plain")
    @on_fastapi.branch(engine)
    def plain(_connection: Any, request: fastapi.Request) -> None:
        seen.append(request.url.path)

    @app.post("/annotated/{article}")
    @on_fastapi.branch(engine)
    def annotated(_connection: Any, article: int, request: Annotated[fastapi.Request, "as it came"]) -> None:
        seen.append(f"{request.url.path} {article}")

    ask = consumers.asgi_client(app)
    answers = [ask(path, params=branch_query(path)).status_code for path in ("/plain", "/annotated/7")]
    assert (answers, seen) == ([200, 200], ["/plain", "/annotated/7 7"])


@pytest.mark.parametrize(
    "make",
    [
        on_fastapi.check_router,
        on_flask.check_blueprint,
        on_django.check_view,
        on_grpc.check_handler,
        on_grpc.acheck_handler,
        lambda url: on_fastapi.branch(url)(print),
        lambda url: on_flask.branch(url)(print),
        lambda url: on_django.branch(url)(print),
    ],
)
def test_a_url_is_refused_where_the_route_is_made(make: Callable[[str], object]) -> None:
    with pytest.raises(UnsupportedEngine, match="create_engine") as refused:
        make("postgresql://shop:secret@localhost/shop")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("extra", "missing"),
    [("fastapi", "fastapi"), ("fastapi", "anyio"), ("flask", "flask"), ("django", "django"), ("grpc", "grpc")],
)
def test_an_integration_without_its_extra_names_it(extra: str, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(f"twophase.integrations.{extra}")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=rf"pip install 'twophase\[{extra}\]'") as raised:
        __import__(f"twophase.integrations.{extra}")
    assert raised.value.__cause__ is None
