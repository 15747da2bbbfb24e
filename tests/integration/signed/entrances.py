"""Every way in which a service of an integration is called, without a process.

An entrance makes a service on an engine, sends it one call, and returns the status of the answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent import futures
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio
import httpx
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from fastapi import FastAPI, Request, Response
from flask import Flask

import tests.integration.integrations.test_django  # noqa: F401 -- configures Django
from tests.integration.signed.running import KEY
from twophase.barrier import once as barrier_once
from twophase.barrier import require_signature
from twophase.core.errors import CallNotSigned
from twophase.core.signature import SIGNATURE_HEADER, TOLERANCE_MS, SigningKey, grpc_text, http_text, key_of, signed
from twophase.integrations import django as on_django
from twophase.integrations import fastapi as on_fastapi
from twophase.integrations import flask as on_flask
from twophase.integrations import grpc as on_grpc

KEYS: Final = {"k0": "another secret of the bank", "k1": KEY}
BODY: Final = b'{"amount":30}'
BRANCH: Final = {"branch_id": "01", "gid": "g", "op": "action", "trans_type": "msg"}
CHECK: Final = {"barrier": "0" * 32, "branch_id": "00", "gid": "g", "op": "msg", "trans_type": "msg"}
CHECK_PATH, BRANCH_PATH, METHOD = "/twophase/check", "/in", "/bank.Bank/In"
GOOD: Final = key_of("k1", KEY)

Text = Callable[[int], bytes]
Signing = Callable[[Text], list[str]]
"""Returns the values of the signature header, given the text to sign at a time."""
Effect = Callable[[Any], Any]


def _by(key: SigningKey, ago_ms: int = 0, more: bytes = b"") -> Signing:
    def sign(text_at: Text) -> list[str]:
        signed_ms = time.time_ns() // 1_000_000 - ago_ms
        return [signed(key, signed_ms, text_at(signed_ms) + more)]

    return sign


SIGNED: Final = _by(GOOD)
FORGERIES: Final[dict[str, Signing]] = {
    "unsigned": lambda _text_at: [],
    "empty": lambda _text_at: [""],
    "no signature": lambda _text_at: ["v1"],
    "of another secret": _by(key_of("k1", "guessed, and not right")),
    "of an unknown key": _by(key_of("k9", KEY)),
    "of another call": _by(GOOD, more=b"x"),
    "too old": _by(GOOD, TOLERANCE_MS + 60_000),
    "too new": _by(GOOD, -TOLERANCE_MS - 60_000),
    "doubled": lambda text_at: SIGNED(text_at) * 2,
}


class Ask(NamedTuple):
    """One call: the service's engine, its effect, and the call's signature."""

    engine: Any
    effect: Effect
    sign: Signing

    def http(self, verb: str) -> tuple[str, list[tuple[str, str]]]:
        """Return the target of a call over HTTP, and its headers."""
        path, query = (CHECK_PATH, CHECK) if verb == "GET" else (BRANCH_PATH, BRANCH)
        target = f"{path}?{'&'.join(f'{name}={value}' for name, value in query.items())}"
        body = b"" if verb == "GET" else BODY
        values = self.sign(lambda signed_ms: http_text(signed_ms, verb, target, "", body))
        return target, [(SIGNATURE_HEADER, value) for value in values]

    def grpc(self, method: str) -> list[tuple[str, str]]:
        """Return the metadata of a gRPC call."""
        query = CHECK if method == on_grpc.CHECK_METHOD else BRANCH
        metadata = [("twophase-barrier" if name == "barrier" else f"dtm-{name}", query[name]) for name in query]
        values = self.sign(lambda signed_ms: grpc_text(signed_ms, method, metadata, BODY))
        return [*metadata, *((SIGNATURE_HEADER, value) for value in values)]


class Entrance(NamedTuple):
    """A way in.

    `is_async`: it takes async engines, or blocking ones, or both for None. `by_alias`: it takes a name of Django's.
    """

    name: str
    is_async: bool | None
    ask: Callable[[Ask], Awaitable[int]]
    by_alias: bool = False


async def _to_fastapi(ask: Ask, app: FastAPI, verb: str) -> int:
    target, headers = ask.http(verb)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://bank") as http:
        return (await http.request(verb, target, headers=headers, content=b"" if verb == "GET" else BODY)).status_code


async def fastapi_check(ask: Ask) -> int:
    app = FastAPI()
    app.include_router(on_fastapi.check_router(ask.engine, keys=KEYS))
    return await _to_fastapi(ask, app, "GET")


async def fastapi_branch(ask: Ask) -> int:
    app = FastAPI()
    app.post(BRANCH_PATH)(on_fastapi.branch(ask.engine, keys=KEYS)(_blocking(ask.effect)))
    return await _to_fastapi(ask, app, "POST")


async def fastapi_abranch(ask: Ask) -> int:
    app = FastAPI()
    app.post(BRANCH_PATH)(on_fastapi.branch(ask.engine, keys=KEYS)(_coroutine(ask.effect)))
    return await _to_fastapi(ask, app, "POST")


async def fastapi_once(ask: Ask) -> int:
    app = FastAPI()

    @app.post(BRANCH_PATH)
    def receive(request: Request) -> Response:
        return on_fastapi.once(ask.engine, request, ask.effect, keys=KEYS)

    return await _to_fastapi(ask, app, "POST")


async def fastapi_aonce(ask: Ask) -> int:
    app = FastAPI()

    @app.post(BRANCH_PATH)
    async def receive(request: Request) -> Response:
        return await on_fastapi.aonce(ask.engine, request, ask.effect, keys=KEYS)

    return await _to_fastapi(ask, app, "POST")


async def _to_flask(ask: Ask, app: Flask, verb: str) -> int:
    target, headers = ask.http(verb)
    client = app.test_client()
    body = b"" if verb == "GET" else BODY
    # Not in the event loop, where a blocking branch is refused.
    return (await asyncio.to_thread(client.open, target, method=verb, headers=headers, data=body)).status_code


async def flask_check(ask: Ask) -> int:
    app = Flask("bank")
    app.register_blueprint(on_flask.check_blueprint(ask.engine, keys=KEYS))
    return await _to_flask(ask, app, "GET")


async def flask_check_by_configuration(ask: Ask) -> int:
    app = Flask("bank")
    app.config["TWOPHASE_KEYS"] = KEYS
    app.register_blueprint(on_flask.check_blueprint(ask.engine))
    return await _to_flask(ask, app, "GET")


async def _flask_branch(ask: Ask, view: Any) -> int:
    app = Flask("bank")
    app.post(BRANCH_PATH)(view)
    return await _to_flask(ask, app, "POST")


async def flask_branch(ask: Ask) -> int:
    return await _flask_branch(ask, on_flask.branch(ask.engine, keys=KEYS)(_blocking(ask.effect)))


async def flask_abranch(ask: Ask) -> int:
    return await _flask_branch(ask, on_flask.branch(ask.engine, keys=KEYS)(_coroutine(ask.effect)))


async def flask_once(ask: Ask) -> int:
    return await _flask_branch(ask, lambda: on_flask.once(ask.engine, ask.effect, keys=KEYS))


async def flask_aonce(ask: Ask) -> int:
    async def view() -> Any:
        return await on_flask.aonce(ask.engine, ask.effect, keys=KEYS)

    return await _flask_branch(ask, view)


def _django_request(ask: Ask, verb: str) -> HttpRequest:
    target, headers = ask.http(verb)
    # The server joins a header that comes twice.
    given = {SIGNATURE_HEADER: ",".join(value for _, value in headers)} if headers else {}
    factory = RequestFactory()
    if verb == "GET":
        return factory.get(target, headers=given)
    return factory.post(target, BODY, content_type="application/json", headers=given)


async def _to_django(view: Callable[[HttpRequest], Any], request: HttpRequest) -> int:
    return int((await asyncio.to_thread(view, request)).status_code)


async def django_check(ask: Ask) -> int:
    return await _to_django(on_django.check_view(ask.engine, keys=KEYS), _django_request(ask, "GET"))


async def django_branch(ask: Ask) -> int:
    view = on_django.branch(ask.engine, keys=KEYS)(_blocking_of_request(ask.effect))
    return await _to_django(view, _django_request(ask, "POST"))


async def django_abranch(ask: Ask) -> int:
    async def effect(handle: Any, _request: HttpRequest) -> None:
        await ask.effect(handle)

    view: Any = on_django.branch(ask.engine, keys=KEYS)(effect)
    return int((await view(_django_request(ask, "POST"))).status_code)


async def django_once(ask: Ask) -> int:
    def view(request: HttpRequest) -> HttpResponse:
        return on_django.once(ask.engine, request, ask.effect, keys=KEYS)

    return await _to_django(view, _django_request(ask, "POST"))


async def django_aonce(ask: Ask) -> int:
    return (await on_django.aonce(ask.engine, _django_request(ask, "POST"), ask.effect, keys=KEYS)).status_code


async def by_hand(ask: Ask) -> int:
    """Verify as a framework without an integration does."""
    target, headers = ask.http("POST")
    given = {SIGNATURE_HEADER: ",".join(value for _, value in headers)} if headers else {}
    try:
        require_signature(KEYS, "POST", target, given, BODY)
    except CallNotSigned:
        return 401
    await asyncio.to_thread(barrier_once, ask.engine, BRANCH, ask.effect)
    return 200


async def _to_grpc(ask: Ask, port: int, method: str) -> int:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_unary(method)
        try:
            await call(BODY, metadata=ask.grpc(method), timeout=60)
        except grpc.aio.AioRpcError as error:
            return 401 if error.code() is grpc.StatusCode.UNAUTHENTICATED else 500
        return 200


def _bank(behaviour: Any) -> grpc.GenericRpcHandler:
    handlers: dict[str, Any] = {"In": grpc.unary_unary_rpc_method_handler(behaviour)}
    return grpc.method_handlers_generic_handler("bank.Bank", handlers)


async def _on_grpc(ask: Ask, handler: Any, method: str) -> int:
    interceptors = [on_grpc.signed_calls(KEYS, METHOD)]
    server = grpc.server(futures.ThreadPoolExecutor(1), interceptors=interceptors)
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        return await _to_grpc(ask, port, method)
    finally:
        await asyncio.to_thread(server.stop(None).wait)


async def _on_grpc_aio(ask: Ask, handler: Any, method: str) -> int:
    server = grpc.aio.server(interceptors=[on_grpc.asigned_calls(KEYS, METHOD)])
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        return await _to_grpc(ask, port, method)
    finally:
        await server.stop(None)


async def grpc_check(ask: Ask) -> int:
    # Verified by the handler's own keys: the interceptor is for another method.
    return await _on_grpc(ask, on_grpc.check_handler(ask.engine, keys=KEYS), on_grpc.CHECK_METHOD)


async def grpc_acheck(ask: Ask) -> int:
    return await _on_grpc_aio(ask, on_grpc.acheck_handler(ask.engine, keys=KEYS), on_grpc.CHECK_METHOD)


async def grpc_once(ask: Ask) -> int:
    def receive(_body: bytes, context: Any) -> bytes:
        return on_grpc.once(ask.engine, context, ask.effect, b"done")

    return await _on_grpc(ask, _bank(receive), METHOD)


async def grpc_aonce(ask: Ask) -> int:
    async def receive(_body: bytes, context: Any) -> bytes:
        return await on_grpc.aonce(ask.engine, context, ask.effect, b"done")

    return await _on_grpc_aio(ask, _bank(receive), METHOD)


def _blocking(effect: Effect) -> Effect:
    def receive(connection: Any) -> None:
        effect(connection)

    return receive


def _blocking_of_request(effect: Effect) -> Callable[[Any, HttpRequest], None]:
    def receive(connection: Any, _request: HttpRequest) -> None:
        effect(connection)

    return receive


def _coroutine(effect: Effect) -> Effect:
    async def receive(connection: Any) -> None:
        await effect(connection)

    return receive


ENTRANCES: Final = (
    Entrance("FastAPI, check_router", None, fastapi_check),
    Entrance("FastAPI, @branch", False, fastapi_branch),
    Entrance("FastAPI, async @branch", True, fastapi_abranch),
    Entrance("FastAPI, once", False, fastapi_once),
    Entrance("FastAPI, aonce", True, fastapi_aonce),
    Entrance("Flask, check_blueprint", False, flask_check),
    Entrance("Flask, check_blueprint by TWOPHASE_KEYS", False, flask_check_by_configuration),
    Entrance("Flask, @branch", False, flask_branch),
    Entrance("Flask, async @branch", True, flask_abranch),
    Entrance("Flask, once", False, flask_once),
    Entrance("Flask, aonce", True, flask_aonce),
    Entrance("Django, check_view", False, django_check, by_alias=True),
    Entrance("Django, @branch", False, django_branch, by_alias=True),
    Entrance("Django, async @branch", True, django_abranch),
    Entrance("Django, once", False, django_once, by_alias=True),
    Entrance("Django, aonce", True, django_aonce),
    Entrance("require_signature", False, by_hand),
    Entrance("gRPC, check_handler", False, grpc_check),
    Entrance("gRPC, acheck_handler", None, grpc_acheck),
    Entrance("gRPC, once and signed_calls", False, grpc_once),
    Entrance("gRPC, aonce and asigned_calls", True, grpc_aonce),
)
