"""A service of one account on each framework, in a process of its own.

It is started by `python -m tests.integration.signed.service KIND DATABASE`, and prints the address on which it listens.
Its keys are in the environment variable KEYS, as JSON; without it calls are not verified.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from concurrent import futures
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler
from wsgiref.simple_server import make_server as make_wsgi_server

import sqlalchemy
from fastapi import Body, FastAPI, Request, Response
from sqlalchemy.ext.asyncio import create_async_engine

KEYS: dict[str, str] | None = json.loads(os.environ["KEYS"]) if "KEYS" in os.environ else None
DEPOSIT = "update account set balance = balance + :amount"
HTTP_KINDS = ("fastapi", "fastapi-async", "flask", "django", "django-asgi")
GRPC_KINDS = ("grpc", "grpc-aio")
METHOD = "/bank.Bank/In"


def deposit(connection: Any, body: bytes) -> None:
    """Take the amount: the branch's effect."""
    connection.execute(sqlalchemy.text(DEPOSIT), {"amount": json.loads(body or b'{"amount":0}')["amount"]})


def on_fastapi(file: Path, *, asynchronous: bool) -> Any:
    """Make the service on FastAPI."""
    from twophase.integrations.fastapi import aonce, branch, check_router

    app = FastAPI()
    if asynchronous:
        async_engine = create_async_engine(f"sqlite+aiosqlite:///{file}")
        app.include_router(check_router(async_engine, keys=KEYS))

        @app.post("/in/{name}")
        async def areceive(request: Request) -> Response:
            body = await request.body()

            async def effect(connection: Any) -> None:
                await connection.run_sync(deposit, body)

            return await aonce(async_engine, request, effect, keys=KEYS)

    else:
        engine = sqlalchemy.create_engine(f"sqlite:///{file}")
        app.include_router(check_router(engine, keys=KEYS))

        @app.post("/in/{name}")
        @branch(engine, keys=KEYS)
        def receive(connection: Any, name: str, amount: int = Body(embed=True)) -> None:
            deposit(connection, json.dumps({"amount": amount}).encode())

        @app.post("/unread")
        @branch(engine, keys=KEYS)
        def unread(connection: Any) -> None:
            deposit(connection, b'{"amount":7}')

    return app


def on_flask(file: Path) -> Any:
    """Make the service on Flask, whose configuration has the keys."""
    from flask import Flask, request

    from twophase.integrations.flask import branch, check_blueprint

    engine = sqlalchemy.create_engine(f"sqlite:///{file}")
    app = Flask("bank")
    app.config["TWOPHASE_KEYS"] = KEYS
    app.register_blueprint(check_blueprint(engine))

    @app.post("/in/<name>")
    @branch(engine)
    def receive(connection: Any, name: str) -> None:
        deposit(connection, request.get_data())

    return app


def on_django(file: Path) -> None:
    """Configure the service on Django, whose settings have the keys."""
    from django.conf import settings
    from django.http import HttpRequest
    from django.urls import path

    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file)}
    settings.configure(
        ROOT_URLCONF=__name__,
        DATABASES={"default": database},
        SECRET_KEY="s" * 20,
        TWOPHASE_KEYS=KEYS,
        ALLOWED_HOSTS="*",
    )
    import django

    django.setup()
    from twophase.integrations.django import branch, check_view

    @branch()
    def receive(connection: Any, request: HttpRequest, name: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(DEPOSIT.replace(":amount", "%s"), [json.loads(request.body)["amount"]])

    globals()["urlpatterns"] = [path("twophase/check", check_view()), path("in/<name>", receive)]


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the base class's name
        """Log nothing."""


def serve_wsgi(app: Any) -> None:
    """Serve by wsgiref, which keeps no path as it arrived; Flask's own server does."""
    with make_wsgi_server("127.0.0.1", 0, app, handler_class=_Quiet) as server:
        _ready(f"http://127.0.0.1:{server.server_port}")
        server.serve_forever()


def serve_flask(app: Any) -> None:
    """Serve by Werkzeug."""
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", 0, app, threaded=True)
    _ready(f"http://127.0.0.1:{server.port}")
    server.serve_forever()


def serve_asgi(app: Any) -> None:
    """Serve by uvicorn."""
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    _ready(f"http://127.0.0.1:{listening.getsockname()[1]}")
    config = uvicorn.Config(app, log_level="error", lifespan="off")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))


def serve_grpc(file: Path) -> None:
    """Serve by grpc."""
    import grpc

    from twophase.integrations.grpc import check_handler, once, signed_calls

    engine = sqlalchemy.create_engine(f"sqlite:///{file}")

    def receive(body: bytes, context: Any) -> bytes:
        return once(engine, context, lambda connection: deposit(connection, body), b"done")

    interceptors = [] if KEYS is None else [signed_calls(KEYS, METHOD)]
    server = grpc.server(futures.ThreadPoolExecutor(4), interceptors=interceptors)
    handlers: dict[str, Any] = {"In": grpc.unary_unary_rpc_method_handler(receive)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bank.Bank", handlers),))
    server.add_generic_rpc_handlers((check_handler(engine, keys=KEYS),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    _ready(f"grpc://127.0.0.1:{port}")
    server.wait_for_termination()


async def serve_grpc_aio(file: Path) -> None:
    """Serve by grpc.aio; the branch's requests are decoded."""
    import grpc.aio

    from twophase.integrations.grpc import acheck_handler, aonce, asigned_calls

    engine = create_async_engine(f"sqlite+aiosqlite:///{file}")

    async def receive(request: Any, context: Any) -> bytes:
        async def effect(connection: Any) -> None:
            await connection.run_sync(deposit, json.dumps(request).encode())

        return await aonce(engine, context, effect, b"done")

    server = grpc.aio.server(interceptors=[] if KEYS is None else [asigned_calls(KEYS, METHOD)])
    handlers: dict[str, Any] = {"In": grpc.unary_unary_rpc_method_handler(receive, request_deserializer=json.loads)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bank.Bank", handlers),))
    server.add_generic_rpc_handlers((acheck_handler(engine, keys=KEYS),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    _ready(f"grpc://127.0.0.1:{port}")
    await server.wait_for_termination()


def _ready(address: str) -> None:
    print(address, flush=True)


def main(kind: str, file: Path) -> None:
    """Serve until the process is killed."""
    if kind.startswith("fastapi"):
        serve_asgi(on_fastapi(file, asynchronous=kind == "fastapi-async"))
    elif kind == "flask":
        serve_flask(on_flask(file))
    elif kind == "django":
        on_django(file)
        from django.core.wsgi import get_wsgi_application

        serve_wsgi(get_wsgi_application())
    elif kind == "django-asgi":
        on_django(file)
        from django.core.asgi import get_asgi_application

        serve_asgi(get_asgi_application())
    elif kind == "grpc":
        serve_grpc(file)
    else:
        asyncio.run(serve_grpc_aio(file))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
