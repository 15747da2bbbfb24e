"""An error of a branch's function is never a success on gRPC.

The servers have an interceptor that catches every error, and replies.
"""

from __future__ import annotations

from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from sqlalchemy import NullPool, create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from tests.integration.integrations.test_fastapi import branch_query
from twophase.barrier import install
from twophase.integrations.grpc import aonce, once


class NoStockError(Exception):
    """An error of the application's."""


class _Catching(grpc.ServerInterceptor):
    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        behaviour = continuation(handler_call_details).unary_unary

        def caught(request: bytes, context: Any) -> bytes:
            try:
                answer: bytes = behaviour(request, context)
            except Exception:  # noqa: BLE001 -- as such interceptors do
                return b"caught"
            return answer

        return grpc.unary_unary_rpc_method_handler(caught)


class _ACatching(grpc.aio.ServerInterceptor):
    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        behaviour = (await continuation(handler_call_details)).unary_unary

        async def caught(request: bytes, context: Any) -> bytes:
            try:
                answer: bytes = await behaviour(request, context)
            except Exception:  # noqa: BLE001 -- as such interceptors do
                return b"caught"
            return answer

        return grpc.unary_unary_rpc_method_handler(caught)


def _end(request: bytes, context: Any) -> None:
    if request == b"set OK":
        context.set_code(grpc.StatusCode.OK)
    raise NoStockError("secret")


class _Bank(grpc.GenericRpcHandler):
    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def service(self, _details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        def receive(request: bytes, context: grpc.ServicerContext) -> bytes:
            def effect(_: object) -> None:
                if request == b"abort":
                    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
                _end(request, context)

            return once(self._engine, context, effect, b"done")

        return grpc.unary_unary_rpc_method_handler(receive)


class _ABank(grpc.GenericRpcHandler):
    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def service(self, _details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def receive(request: bytes, context: Any) -> bytes:
            async def effect(_: object) -> None:
                if request == b"abort":
                    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
                _end(request, context)

            return await aonce(self._engine, context, effect, b"done")

        return grpc.unary_unary_rpc_method_handler(receive)


GRPC_ENDS = pytest.mark.parametrize(
    ("request_", "code", "details"),
    [
        (b"", grpc.StatusCode.UNKNOWN, "NoStockError"),
        (b"set OK", grpc.StatusCode.UNKNOWN, "NoStockError"),
        (b"abort", grpc.StatusCode.RESOURCE_EXHAUSTED, "full"),
    ],
)
METADATA = [(f"dtm-{name}", value) for name, value in branch_query("g1").items()]


@GRPC_ENDS
def test_an_interceptor_that_catches_every_error_makes_no_success(
    tmp_path: Path, request_: bytes, code: grpc.StatusCode, details: str
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/bank.db", poolclass=NullPool)
    install(engine)
    server = grpc.server(futures.ThreadPoolExecutor(1), interceptors=[_Catching()], options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((_Bank(engine),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call: Any = channel.unary_unary("/bank.Bank/In")
            with pytest.raises(grpc.RpcError) as ended:
                call(request_, metadata=METADATA, timeout=60)
    finally:
        server.stop(None).wait()
    told: Any = ended.value
    assert (told.code(), details in told.details(), "secret" in told.details()) == (code, True, False)


@GRPC_ENDS
async def test_an_async_interceptor_that_catches_every_error_makes_no_success(
    tmp_path: Path, request_: bytes, code: grpc.StatusCode, details: str
) -> None:
    url = f"{tmp_path}/bank.db"
    install(create_engine(f"sqlite:///{url}", poolclass=NullPool))
    engine = create_async_engine(f"sqlite+aiosqlite:///{url}", poolclass=NullPool)
    server = grpc.aio.server(interceptors=[_ACatching()], options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((_ABank(engine),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call: Any = channel.unary_unary("/bank.Bank/In")
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await call(request_, metadata=METADATA, timeout=60)
    finally:
        await server.stop(None)
    assert (ended.value.code(), details in (ended.value.details() or "")) == (code, True)
    assert "secret" not in (ended.value.details() or "")
