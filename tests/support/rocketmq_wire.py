"""A client of RocketMQ that sends what a test tells it, right or wrong."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
from typing import Any

import grpc
import grpc.aio

from tests.support.rocketmq_port import Serving
from twophase.rocketmq_wire.codes import ClientType, Code, MessageType
from twophase.rocketmq_wire.descriptors import SERVICE, kind
from twophase.server.identity.scopes import ROUTES

PATIENCE_S = 30.0
TOPIC = "orders"
GROUP = "billing"
STREAMS = frozenset({"ReceiveMessage", "Telemetry"})
METHODS = sorted(route.rpartition("/")[2] for route in ROUTES if route.startswith(f"/{SERVICE}/"))


class Wire:
    """A client's connection.

    Arguments:
        server: the port, or its address.
        token: the access key and the secret key.
        secret: another secret key.
        authority: the certificate that it trusts, for a server that speaks TLS.
        metadata: more of it.
    """

    def __init__(
        self,
        server: Serving | str,
        token: str = "",
        secret: str | None = None,
        *,
        authority: Any = None,
        **metadata: Any,
    ) -> None:
        address = server if isinstance(server, str) else server.address
        if authority:
            self._channel: Any = grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(authority))
        else:
            self._channel = grpc.aio.insecure_channel(address)
        signature = hmac.new((token if secret is None else secret).encode(), b"20260101T000000Z", hashlib.sha1)
        self.metadata = [
            *{"x-mq-client-id": "me", "x-mq-language": "JAVA", **metadata}.items(),
            ("x-mq-date-time", "20260101T000000Z"),
            (
                "authorization",
                f"MQv2-HMAC-SHA1 Credential={token}, SignedHeaders=x-mq-date-time, Signature={signature.hexdigest()}",
            ),
        ]

    async def close(self) -> None:
        await self._channel.close()

    async def raw(self, method: str, raw: bytes) -> Any:
        """Make a call of one answer; return it as it was parsed."""
        call = self._channel.unary_unary(
            f"/{SERVICE}/{method}", response_deserializer=kind(f"{method}Response").FromString
        )
        return await call(raw, metadata=self.metadata, timeout=PATIENCE_S)

    async def ask(self, method: str, **fields: Any) -> Any:
        return await self.raw(method, packed(f"{method}Request", **fields))

    async def code(self, method: str, **fields: Any) -> Code:
        """Return the status code of an answer, which has a text beside it."""
        status = (await self.ask(method, **fields)).status
        assert status.message
        return Code(status.code)

    async def receive(self, **fields: Any) -> list[Any]:
        """Return the parts of an answer to a ReceiveMessage."""
        asked = {
            "group": resource(GROUP),
            "message_queue": kind("MessageQueue")(topic=resource(TOPIC)),
            "batch_size": 16,
            "invisible_duration": seconds(30),
            "long_polling_timeout": seconds(0),
        } | fields
        call = self._channel.unary_stream(
            f"/{SERVICE}/ReceiveMessage", response_deserializer=kind("ReceiveMessageResponse").FromString
        )
        raw = packed("ReceiveMessageRequest", **asked)
        return [part async for part in call(raw, metadata=self.metadata, timeout=PATIENCE_S)]

    def telemetry(self) -> Any:
        call = self._channel.stream_stream(
            f"/{SERVICE}/Telemetry", response_deserializer=kind("TelemetryCommand").FromString
        )
        return call(metadata=self.metadata)

    async def settle(self, **fields: Any) -> Any:
        """Open a stream, and send settings over it; return it."""
        stream = self.telemetry()
        await stream.write(settings_command(**fields))
        async with asyncio.timeout(PATIENCE_S):
            assert (await stream.read()).status.code == Code.OK
        return stream

    async def first_code(self, method: str) -> Code | grpc.StatusCode:
        """Return the status code of an empty request."""
        if method == "ReceiveMessage":
            return Code((await self.receive())[0].status.code)
        if method == "Telemetry":
            stream = self.telemetry()
            answer = asyncio.ensure_future(stream.read())
            with contextlib.suppress(grpc.aio.AioRpcError):  # a refused stream has ended before
                await stream.write(settings_command())
            async with asyncio.timeout(PATIENCE_S):
                return Code((await answer).status.code)
        return Code((await self.ask(method)).status.code)


def resource(name: str) -> Any:
    return kind("Resource")(name=name)


def seconds(seconds: int) -> Any:
    return kind("google.protobuf.Duration")(seconds=seconds)


def packed(name: str, **fields: Any) -> bytes:
    raw: bytes = kind(name)(**fields).SerializeToString()
    return raw


def settings_command(
    topics: tuple[str, ...] = (TOPIC,), client_type: int = ClientType.PRODUCER, **properties: str
) -> bytes:
    publishing = kind("Publishing")(topics=map(resource, topics))
    settings = kind("Settings")(client_type=client_type, publishing=publishing, client_properties=properties)
    return packed("TelemetryCommand", settings=settings)


def message(
    message_id: str = "01AB", body: bytes = b"{}", topic: str = TOPIC, properties: Any = None, **system: Any
) -> Any:
    system = {"message_type": MessageType.NORMAL, "body_encoding": 1, "message_id": message_id} | system
    return kind("Message")(
        topic=resource(topic),
        body=body,
        user_properties=properties or {},
        system_properties=kind("SystemProperties")(**system),
    )


HALF: dict[str, Any] = {"message_type": MessageType.TRANSACTION}
