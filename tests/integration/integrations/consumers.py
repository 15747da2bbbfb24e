"""One consumer on every framework: a function that reserves stock.

Beside it stands a producer without a coordinator.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import httpx
from django.http import HttpRequest, HttpResponse
from django.urls import path
from fastapi import Depends, FastAPI, Header
from flask import Flask, request
from pydantic import BaseModel
from sqlalchemy import text

from benchmarks.servers.ports import nobodys_port
from tests.support.one_try import one_try
from twophase import Client
from twophase.barrier import BranchRefused
from twophase.errors import CommittedDespiteError
from twophase.integrations import django as on_django
from twophase.integrations import fastapi as on_fastapi
from twophase.integrations import flask as on_flask

ALIAS = "shop"
RESERVE = "update stock set free = free - :pieces where article = :article and free >= :pieces"


class Wish(BaseModel):
    """The request: the number of pieces to reserve."""

    pieces: int


def tenant(x_tenant: Annotated[str, Header()] = "") -> str:
    """A dependency of the framework's."""
    return x_tenant


def reserve(connection: Any, article: int, pieces: int) -> None:
    """Reserve pieces: the branch's effect."""
    if pieces > 100:
        raise BranchRefused(f"only 100 of {article}")
    connection.execute(text(RESERVE), {"article": article, "pieces": pieces})


def order(engine: Any) -> None:
    """Run a producer whose coordinator does not run."""
    nowhere = one_try(Client(f"http://127.0.0.1:{nobodys_port()}"))
    with nowhere.message().add("http://b/in").transaction(engine, check="http://a/check"):
        raise AssertionError("the business ran")


def pay() -> None:
    """Run a producer whose transaction is committed all the same."""
    raise CommittedDespiteError


def fastapi_app(engine: Any, async_engine: Any) -> FastAPI:
    """Make the service on FastAPI."""
    app = FastAPI()
    app.include_router(on_fastapi.check_router(engine))
    on_fastapi.answer_unavailable(app)

    @app.post("/sync/{article}")
    @on_fastapi.branch(engine)
    def receive(connection: Any, article: int, wish: Wish, who: Annotated[str, Depends(tenant)]) -> None:
        assert who == "blue"
        reserve(connection, article, wish.pieces)

    @app.post("/async/{article}")
    @on_fastapi.branch(async_engine)
    async def areceive(connection: Any, article: int, wish: Wish, who: Annotated[str, Depends(tenant)]) -> None:
        assert who == "blue"
        await connection.run_sync(reserve, article, wish.pieces)

    app.post("/orders")(lambda: order(engine))
    app.post("/payments")(pay)
    return app


def flask_app(engine: Any, async_engine: Any) -> Flask:
    """Make the service on Flask."""
    app = Flask("shop")
    on_flask.answer_unavailable(app)

    @app.post("/sync/<int:article>")
    @on_flask.branch(engine)
    def receive(connection: Any, article: int) -> None:
        reserve(connection, article, request.get_json()["pieces"])

    @app.post("/async/<int:article>")
    @on_flask.branch(async_engine)
    async def areceive(connection: Any, article: int) -> None:
        await connection.run_sync(reserve, article, request.get_json()["pieces"])

    failing: Any = lambda: order(engine)  # noqa: E731
    paying: Any = pay
    app.post("/orders", endpoint="order")(failing)
    app.post("/payments", endpoint="pay")(paying)
    return app


def django_urls(async_engine: Any) -> list[Any]:
    """Make the service on Django."""

    @on_django.branch(ALIAS)
    def receive(connection: Any, request: HttpRequest, article: int) -> None:
        pieces = Wish.model_validate_json(request.body).pieces
        if pieces > 100:
            raise BranchRefused(f"only 100 of {article}")
        with connection.cursor() as cursor:
            cursor.execute("update stock set free = free - %s where article = %s", [pieces, article])

    @on_django.branch(async_engine)
    async def areceive(connection: Any, request: HttpRequest, article: int) -> None:
        await connection.run_sync(reserve, article, Wish.model_validate_json(request.body).pieces)

    def failing_order(_request: HttpRequest) -> HttpResponse:
        order(ALIAS)
        raise AssertionError

    def payment(_request: HttpRequest) -> HttpResponse:
        pay()
        raise AssertionError

    return [
        path("sync/<int:article>", receive),
        path("async/<int:article>", areceive),
        path("orders", failing_order),
        path("payments", payment),
    ]


def asgi_client(app: FastAPI, method: str = "POST") -> Any:
    """Make a function that calls a FastAPI application from blocking code."""

    def post(url: str, **request: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
                return await client.request(method, url, **request)

        return asyncio.run(ask())

    return post
