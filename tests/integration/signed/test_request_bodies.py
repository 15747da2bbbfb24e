"""Bodies that a route has read or not, and gRPC methods that are open."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import sqlalchemy
from fastapi import FastAPI, Request, Response
from sqlalchemy.ext.asyncio import create_async_engine

from tests.integration.signed.running import KEY, running
from twophase.barrier import install
from twophase.core.signature import SIGNATURE_HEADER, grpc_text, http_text, key_of, signed
from twophase.integrations.fastapi import aonce, once
from twophase.integrations.grpc import signed_calls

KEYS = {"k1": KEY}
SIGNING = key_of("k1", KEY)
QUERY = "branch_id=01&gid=g&op=action&trans_type=msg"


def headers(target: str, body: bytes) -> dict[str, str]:
    now_ms = time.time_ns() // 1_000_000
    return {SIGNATURE_HEADER: signed(SIGNING, now_ms, http_text(now_ms, "POST", target, "", body))}


async def test_a_route_that_reads_no_body_is_verified_by_it_all_the_same(tmp_path: Path) -> None:
    target = f"/unread?{QUERY}"
    async with running("fastapi", tmp_path, KEYS) as service, httpx.AsyncClient(base_url=service.address) as http:
        given = headers(target, b"of the message")
        assert (await http.post(target, content=b"another", headers=given)).status_code == 401
        assert service.rows == []
        assert (await http.post(target, content=b"of the message", headers=given)).status_code == 200
        assert (service.balance, len(service.rows)) == (7, 1)


@pytest.mark.parametrize("path", ["/consumed", "/blocking"])
async def test_a_body_that_cannot_be_read_is_the_routes_mistake_and_leaves_nothing(tmp_path: Path, path: str) -> None:
    app, file = FastAPI(), tmp_path / "bank.db"
    with closing(sqlite3.connect(file)) as connection:
        install(connection)
    async_engine = create_async_engine(f"sqlite+aiosqlite:///{file}")
    engine = sqlalchemy.create_engine(f"sqlite:///{file}")

    @app.post("/consumed")
    async def consumed(request: Request) -> Response:
        async for _ in request.stream():
            pass

        async def effect(_connection: Any) -> None:
            raise AssertionError("it ran")

        return await aonce(async_engine, request, effect, keys=KEYS)

    @app.post("/blocking")
    async def blocking(request: Request) -> Response:
        return once(engine, request, lambda _: None, keys=KEYS)

    target = f"{path}?{QUERY}"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://bank") as http:
        answer = await http.post(target, content=b"{}", headers=headers(target, b"{}"))
    await async_engine.dispose()
    engine.dispose()
    assert (answer.status_code, answer.json()["code"]) == (500, "TP-5010")
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("select * from barrier").fetchall() == []


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """A gRPC server with two services, of which one is verified."""
    called: list[str] = []

    def echo(body: bytes, _context: Any) -> bytes:
        called.append(body.decode())
        return body

    handlers: dict[str, Any] = {
        "In": grpc.unary_unary_rpc_method_handler(echo),
        "Stream": grpc.stream_unary_rpc_method_handler(lambda bodies, _context: b"".join(bodies)),
    }
    verified = signed_calls(KEYS, "/bank.Bank/In", "/bank.Bank/Stream")
    running_server = grpc.server(futures.ThreadPoolExecutor(2), interceptors=[verified])
    for name in ("bank.Bank", "bank.Open"):
        running_server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
    port = running_server.add_insecure_port("127.0.0.1:0")
    running_server.start()
    yield f"127.0.0.1:{port}", called
    running_server.stop(None).wait()


def test_only_the_methods_that_are_named_are_verified(server: tuple[str, list[str]]) -> None:
    address, called = server
    with grpc.insecure_channel(address) as opened:
        channel: Any = opened
        assert channel.unary_unary("/bank.Open/In")(b"open", timeout=60) == b"open"
        assert channel.stream_unary("/bank.Open/Stream")(iter([b"1", b"2"]), timeout=60) == b"12"
        forged: tuple[tuple[Any, Any], ...] = (
            (channel.unary_unary("/bank.Bank/In"), b"forged"),
            (channel.stream_unary("/bank.Bank/Stream"), iter([b"1", b"2"])),
        )
        for call, sent in forged:
            with pytest.raises(grpc.RpcError) as raised:
                call(sent, timeout=60)
            error: Any = raised.value
            assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        now_ms, metadata = time.time_ns() // 1_000_000, [("dtm-gid", "g")]
        value = signed(SIGNING, now_ms, grpc_text(now_ms, "/bank.Bank/In", metadata, b"right"))
        given = [*metadata, (SIGNATURE_HEADER, value)]
        assert channel.unary_unary("/bank.Bank/In")(b"right", metadata=given, timeout=60) == b"right"
    assert called == ["open", "right"]
