"""Health and reflection beside the service, by grpcio's own servicers.

The servicers run on a context that has only what they need. Their messages are protobuf's, so bytes become messages
here; the port knows bytes only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final, NoReturn

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from twophase.grpc_server.services import Services
from twophase.grpc_server.status import Ended, Status
from twophase.grpc_server.streaming import StreamingCall
from twophase.grpc_server.unary import UnaryCall
from twophase.grpc_wire.messages import pool

_HEALTH: Final = f"/{health.SERVICE_NAME}"
_REFLECTION: Final = f"/{reflection.SERVICE_NAME}/ServerReflectionInfo"
_MESSAGE_BYTES_MAX: Final = 16 * 1024
"""Names are all that a request holds.

A stream keeps its request and the answer for as long as the client does not take the answer.
"""
_BROKEN: Final = "the request is not a protobuf message of this method."


class Operators:
    """Both services.

    Arguments:
        service: the name of the service whose health they report.
    """

    def __init__(self, service: str) -> None:
        self._names = ("", service)
        self._health: Any = health.aio.HealthServicer()
        known = pool()
        for file in (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
            known.AddSerializedFile(file.serialized_pb)
        listed = (service, health.SERVICE_NAME, reflection.SERVICE_NAME)
        self._reflection: Any = reflection.aio.ReflectionServicer(listed, pool=known)

    def serve(self, services: Services) -> None:
        """Add their methods."""
        services.coroutine(f"{_HEALTH}/Check", self._check, _MESSAGE_BYTES_MAX)
        services.always(f"{_HEALTH}/Check")
        services.streaming(f"{_HEALTH}/Watch", self._watch, _MESSAGE_BYTES_MAX)
        services.streaming(_REFLECTION, self._reflect, _MESSAGE_BYTES_MAX)

    async def serving(self) -> None:
        """Report that requests are accepted."""
        for name in self._names:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def leaving(self) -> None:
        """Report that no more requests are accepted."""
        await self._health.enter_graceful_shutdown()

    async def _check(self, _call: UnaryCall, raw: bytes) -> bytes:
        answer = await self._health.Check(_parsed(health_pb2.HealthCheckRequest, raw), _Context(None))
        return _bytes_of(answer)

    async def _watch(self, call: StreamingCall) -> None:
        async for raw in call:
            await self._health.Watch(_parsed(health_pb2.HealthCheckRequest, raw), _Context(call))

    async def _reflect(self, call: StreamingCall) -> None:
        async def requests() -> AsyncIterator[Any]:
            async for raw in call:
                yield _parsed(reflection_pb2.ServerReflectionRequest, raw)

        async for answer in self._reflection.ServerReflectionInfo(requests(), _Context(call)):
            await call.send(_bytes_of(answer))


class _Context:
    """The part of grpcio's context that the servicers use."""

    def __init__(self, call: StreamingCall | None) -> None:
        self._call = call

    async def write(self, message: Any) -> None:
        """Send a message of a stream."""
        assert self._call is not None, "only streams write"
        await self._call.send(_bytes_of(message))

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        """End the call."""
        number: int = code.value[0]
        raise Ended(Status(number), details)


def _parsed(kind: Any, raw: bytes) -> Any:
    try:
        return kind.FromString(raw)
    except DecodeError as error:
        raise Ended(Status.INVALID_ARGUMENT, _BROKEN) from error


def _bytes_of(message: Any) -> bytes:
    raw: bytes = message.SerializeToString()
    return raw
