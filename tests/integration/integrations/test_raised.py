"""An error of a branch's function is never a success.

Each service here answers every exception with 200, as some do that keep an error's code in the body.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flask
import pytest
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.core.signals import got_request_exception, request_finished, request_started
from django.db import close_old_connections, connections
from django.http import Http404, HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path
from fastapi import BackgroundTasks, FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from flask import Flask
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.integration.integrations import consumers, test_django
from tests.integration.integrations.test_fastapi import branch_query
from twophase.barrier import http_answer, install
from twophase.core.errors import FunctionRefused
from twophase.core.verdict import BranchResult, Verdict, interpret_branch, interpret_check_back
from twophase.integrations import django as on_django
from twophase.integrations import fastapi as on_fastapi
from twophase.integrations import flask as on_flask

_DJANGO_SETTINGS = test_django.ENGINES  # that module configures Django
RESERVE = "update stock set free = free - 1"

Told = tuple[int, dict[str, str], bytes]
Ask = Callable[[str, str, dict[str, str]], Told]


class NoStockError(Exception):
    """An error of the application's."""


def _raise(error: Exception) -> None:
    raise error


def _broken(*_: object, **__: object) -> Any:
    raise NoStockError("secret")


RAISED: dict[str, dict[str, Callable[[], None]]] = {
    "fastapi": {
        "an answer of 200": lambda: _raise(HTTPException(200, "seen before")),
        "no refusal": lambda: _raise(HTTPException(302, headers={"location": "/"})),
        "404": lambda: _raise(HTTPException(404, "no order 7")),
        "409": lambda: _raise(HTTPException(409, {"why": ["no order 7"]}, {"content-length": "999"})),
    },
    "flask": {
        "an answer of 200": lambda: flask.abort(flask.make_response("seen before", 200)),
        "no refusal": lambda: flask.abort(flask.redirect("/")),
        "404": lambda: flask.abort(404, "no order 7"),
        "409": lambda: flask.abort(flask.make_response({"why": "no order 7"}, 409)),
    },
    "django": {
        "404": lambda: _raise(Http404("no order 7")),
        "403": lambda: _raise(PermissionDenied("no order 7")),
        "400": lambda: _raise(SuspiciousOperation("no order 7")),
    },
}


class Service:
    """A branch on one framework, as a coordinator calls it."""

    def __init__(self, name: str, file: Path, ask: Ask) -> None:
        self.name = name
        self._file = file
        self._ask = ask

    def call(self, manner: str, then: str) -> Told:
        """Call the branch; its function reserves, then raises."""
        return self._ask("POST", f"/{manner}", {**branch_query("g1"), "then": then})

    def check(self) -> Told:
        query = {"gid": "g1", "branch_id": "00", "op": "msg", "trans_type": "msg"}
        return self._ask("GET", "/check", query)

    def left(self) -> list[tuple[int, int]]:
        """Return the free pieces, and the number of the barrier's rows."""
        with contextlib.closing(sqlite3.connect(self._file)) as connection:
            return connection.execute("select free, (select count(*) from barrier) from stock").fetchall()


def _effect(name: str, then: str) -> None:
    if then == "error":
        raise NoStockError("secret")
    RAISED[name][then]()


def fastapi_ask(engine: Any, async_engine: Any) -> Ask:
    app = FastAPI()
    app.include_router(on_fastapi.check_router(engine, "/check", require_identity=False))

    @app.exception_handler(Exception)
    @app.exception_handler(HTTPException)
    async def answer_all(_request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"code": 1, "message": str(error)})

    @app.post("/sync")
    @on_fastapi.branch(engine)
    def receive(connection: Any, then: str, response: Response) -> None:
        connection.execute(text(RESERVE))
        if then == "status 409 is set":
            response.status_code = 409
        else:
            _effect("fastapi", then)

    @app.post("/async")
    @on_fastapi.branch(async_engine)
    async def areceive(connection: Any, then: str, response: Response) -> None:
        await connection.execute(text(RESERVE))
        if then == "status 409 is set":
            response.status_code = 409
        else:
            _effect("fastapi", then)

    def ask(method: str, url: str, query: dict[str, str]) -> Told:
        answer = consumers.asgi_client(app, method)(url, params=query)
        return answer.status_code, dict(answer.headers), answer.content

    return ask


def flask_ask(engine: Any, async_engine: Any) -> Ask:
    app = Flask("shop")
    app.register_blueprint(on_flask.check_blueprint(engine, "/check", require_identity=False))

    @app.errorhandler(Exception)
    def answer_all(error: Exception) -> dict[str, object]:
        return {"code": 1, "message": str(error)}

    @app.post("/sync")
    @on_flask.branch(engine)
    def receive(connection: Any) -> None:
        connection.execute(text(RESERVE))
        _effect("flask", flask.request.args["then"])

    @app.post("/async")
    @on_flask.branch(async_engine)
    async def areceive(connection: Any) -> None:
        await connection.execute(text(RESERVE))
        _effect("flask", flask.request.args["then"])

    def ask(method: str, url: str, query: dict[str, str]) -> Told:
        answer = app.test_client().open(url, method=method, query_string=query)
        return answer.status_code, {name.lower(): value for name, value in answer.headers}, answer.data

    return ask


def answering_all(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Django middleware that answers every exception with 200."""

    def middleware(request: HttpRequest) -> HttpResponse:
        return get_response(request)

    vars(middleware)["process_exception"] = lambda _request, error: HttpResponse(str(error))
    return middleware


def django_ask(_engine: Any, async_engine: Any) -> Ask:
    @on_django.branch("shop")
    def receive(connection: Any, request: HttpRequest) -> None:
        with connection.cursor() as cursor:
            cursor.execute(RESERVE)
        _effect("django", request.GET["then"])

    @on_django.branch(async_engine)
    async def areceive(connection: Any, request: HttpRequest) -> None:
        await connection.execute(text(RESERVE))
        _effect("django", request.GET["then"])

    check = on_django.check_view("shop", require_identity=False)
    sys.modules["raising_urls"] = urls = types.ModuleType("raising_urls")
    urls.urlpatterns = [path("sync", receive), path("async", areceive), path("check", check)]  # type: ignore[attr-defined]

    def ask(method: str, url: str, query: dict[str, str]) -> Told:
        with override_settings(ROOT_URLCONF="raising_urls", MIDDLEWARE=[f"{__name__}.answering_all"]):
            answer = Client(raise_request_exception=False).generic(method, url, query_params=query)
        return answer.status_code, {name.lower(): value for name, value in answer.headers.items()}, answer.content

    return ask


ASKS = {"fastapi": fastapi_ask, "flask": flask_ask, "django": django_ask}


@pytest.fixture(params=ASKS)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    """A shop with ten pieces."""
    file = tmp_path / "shop.db"
    engine = create_engine(f"sqlite:///{file}", poolclass=NullPool)
    install(engine)
    with engine.begin() as connection:
        connection.execute(text("create table stock (free integer)"))
        connection.execute(text("insert into stock values (10)"))
    entry = {"ENGINE": _DJANGO_SETTINGS["sqlite"], "NAME": str(file)}
    connections.databases["shop"] = connections.configure_settings({"default": {}, "shop": entry})["shop"]
    request_started.disconnect(close_old_connections)
    request_finished.disconnect(close_old_connections)
    async_engine = create_async_engine(f"sqlite+aiosqlite:///{file}", poolclass=NullPool)
    yield Service(request.param, file, ASKS[request.param](engine, async_engine))
    request_started.connect(close_old_connections)
    request_finished.connect(close_old_connections)
    connections["shop"].close()
    del connections["shop"]
    del connections.databases["shop"]


MANNERS = pytest.mark.parametrize("manner", ["sync", "async"])


@MANNERS
def test_an_error_is_500_although_the_application_answers_errors_with_200(service: Service, manner: str) -> None:
    status, headers, body = service.call(manner, "error")
    assert (status, headers["x-twophase-verdict"]) == (500, "not_done")
    assert b"NoStockError" in body
    assert b"secret" not in body
    assert service.left() == [(10, 0)]


@MANNERS
@pytest.mark.parametrize("then", ["an answer of 200", "no refusal"])
def test_a_raised_answer_that_refuses_nothing_is_an_error(service: Service, manner: str, then: str) -> None:
    if then not in RAISED[service.name]:
        return  # Django raises no such answers
    status, _, body = service.call(manner, then)
    assert (status, FunctionRefused.code.encode() in body) == (500, True)
    assert service.left() == [(10, 0)]


@MANNERS
@pytest.mark.parametrize("then", ["400", "403", "404", "409"])
def test_a_raised_refusal_keeps_its_status_and_text(service: Service, manner: str, then: str) -> None:
    if then not in RAISED[service.name]:
        return
    status, _, body = service.call(manner, then)
    assert (status, b"no order 7" in body) == (int(then), True)
    assert interpret_branch(status, body, strict=True) is not BranchResult.SUCCEEDED
    assert service.left() == [(10, 0)]


def test_a_check_back_that_fails_is_no_commit_for_a_foreign_producer(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_answer, "check_back", _broken)
    status, headers, body = service.check()
    verdict = interpret_check_back(status, headers.get("x-twophase-verdict"), body, explicit=False, strict=True)
    assert (status, verdict) == (500, Verdict.UNKNOWN)
    assert b"secret" not in body


LOGGERS = {"fastapi": "twophase.barrier", "flask": "shop", "django": "django.request"}


@MANNERS
def test_an_error_is_logged_once_with_its_traceback_where_the_framework_logs_errors(
    service: Service, manner: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        service.call(manner, "error")
    found = [(record.name, record.exc_info and record.exc_info[0]) for record in caplog.records]
    assert found == [(LOGGERS[service.name], NoStockError)]


@MANNERS
def test_error_trackers_see_the_error_by_the_framework_s_signal(service: Service, manner: str) -> None:
    seen: list[object] = []

    def on_flask_error(_app: object, exception: object, **_: object) -> None:
        seen.append(exception)

    def on_django_error(**_: object) -> None:
        seen.append(sys.exc_info()[1])

    with contextlib.ExitStack() as listening:
        listening.enter_context(flask.got_request_exception.connected_to(on_flask_error))
        got_request_exception.connect(on_django_error)
        listening.callback(got_request_exception.disconnect, on_django_error)
        service.call(manner, "error")
    assert [type(one) for one in seen] == ([] if service.name == "fastapi" else [NoStockError])


def test_a_receiver_that_fails_makes_no_success(service: Service) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("of a tracker")

    with contextlib.ExitStack() as listening:
        listening.enter_context(flask.got_request_exception.connected_to(fail))
        got_request_exception.connect(fail)
        listening.callback(got_request_exception.disconnect, fail)
        assert service.call("sync", "error")[0] == 500


def test_an_exception_of_rest_framework_keeps_its_status(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    class APIException(Exception):
        status_code = 429
        detail = {"why": "no order 7"}  # noqa: RUF012 -- as there

    module = types.ModuleType("rest_framework.exceptions")
    module.APIException = APIException  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rest_framework.exceptions", module)
    monkeypatch.setitem(RAISED[service.name], "of rest", lambda: _raise(APIException()))
    status, _, body = service.call("sync", "of rest")
    assert (status, b"no order 7" in body) == ((429, True) if service.name == "django" else (500, False))


@MANNERS
@pytest.mark.parametrize(("refuses", "ran"), [(True, []), (False, [1])])
def test_background_tasks_run_only_after_a_commit(tmp_path: Path, manner: str, refuses: bool, ran: list[int]) -> None:
    file = tmp_path / "shop.db"
    engine = create_engine(f"sqlite:///{file}", poolclass=NullPool)
    install(engine)
    async_engine = create_async_engine(f"sqlite+aiosqlite:///{file}", poolclass=NullPool)
    app, done = FastAPI(), list[int]()

    def work(tasks: BackgroundTasks) -> None:
        tasks.add_task(done.append, 1)
        if refuses:
            raise on_fastapi.BranchRefused("no stock")

    @app.post("/sync")
    @on_fastapi.branch(engine)
    def receive(_connection: Any, tasks: BackgroundTasks) -> None:
        work(tasks)

    @app.post("/async")
    @on_fastapi.branch(async_engine)
    async def areceive(_connection: Any, tasks: BackgroundTasks) -> None:
        work(tasks)

    answer = consumers.asgi_client(app)(f"/{manner}", params=branch_query("g1"))
    assert (answer.status_code, done) == (409 if refuses else 200, ran)


@MANNERS
def test_a_status_that_a_function_sets_and_does_not_raise_is_an_error(service: Service, manner: str) -> None:
    if service.name != "fastapi":
        return  # others give the function no answer to set it on
    status, _, body = service.call(manner, "status 409 is set")
    assert (status, FunctionRefused.code.encode() in body) == (500, True)
    assert service.left() == [(10, 0)]
