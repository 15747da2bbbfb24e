"""One server's port as a client of RocketMQ sees it, in one of the server's lives.

A call returns None when its outcome is unknown: the server died, was frozen, or refused to say.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio

from twophase.rocketmq_wire.codes import ClientType, Code, MessageType, Resolution, Source
from twophase.rocketmq_wire.descriptors import SERVICE, kind

CALL_S: Final = 6.0
POLL_S: Final = 1.0
_TYPES: Final = {
    "plain": MessageType.NORMAL,
    "fifo": MessageType.FIFO,
    "delayed": MessageType.DELAY,
    "half": MessageType.TRANSACTION,
}
_ENDED: Final = (grpc.RpcError, grpc.aio.UsageError, asyncio.CancelledError)
"""The ends of a call without an answer, also by a closed channel."""
_CLIENTS: Final = itertools.count()


class Given(NamedTuple):
    """A message that a consumer got, and its receipt."""

    id: str
    body: bytes
    handle: str


def resource(name: str) -> Any:
    """Return a name as requests have it."""
    return kind("Resource")(name=name)


def message(topic: str, id_: str, what: str, body: bytes, *, group: str = "", due_ms: int = 0) -> Any:
    """Return a message as it is sent.

    Arguments:
        topic, id_, body: of the message.
        what: plain, fifo, delayed or half.
        group: its message group; for fifo.
        due_ms: when it is due, by the wall clock; for delayed.
    """
    made = kind("Message")(topic=resource(topic), body=body)
    system = made.system_properties
    system.message_id, system.message_type, system.body_encoding = id_, _TYPES[what], 1
    if group:
        system.message_group = group
    if due_ms:
        system.delivery_timestamp.FromMilliseconds(due_ms)
    return made


class Port:
    """The port of a server between one start and its end.

    Arguments:
        address: of the port.
        life: names the server and its start, which no other life shares.
    """

    def __init__(self, address: str, life: str) -> None:
        self.life = life
        self._channel: Any = grpc.aio.insecure_channel(address, [("grpc.enable_retries", 0)])

    async def close(self) -> None:
        """End every call."""
        await self._channel.close()

    async def send(self, messages: Sequence[Any], client: str) -> list[str] | None:
        """Send messages; return their transaction ids when all are taken, else None."""
        reply = await self._call("SendMessage", kind("SendMessageRequest")(messages=messages), client)
        return [one.transaction_id for one in reply.entries] if _is_ok(reply) else None

    async def end(self, topic: str, id_: str, transaction: str, resolution: Resolution, *, checked: bool) -> int:
        """Decide about a half message; return the code of the answer, 0 for none."""
        request = kind("EndTransactionRequest")(
            topic=resource(topic),
            message_id=id_,
            transaction_id=transaction,
            resolution=resolution,
            source=Source.SERVER_CHECK if checked else Source.CLIENT,
        )
        reply = await self._call("EndTransaction", request, "decides")
        return 0 if reply is None else int(reply.status.code)

    async def receive(
        self, group: str, topic: str, client: str, *, limit: int, invisible_s: int, renewed: bool
    ) -> list[Given] | None:
        """Wait for messages for a second; None when this server gives none out now."""
        duration = kind("google.protobuf.Duration")
        request = kind("ReceiveMessageRequest")(
            group=resource(group),
            message_queue=kind("MessageQueue")(topic=resource(topic)),
            batch_size=limit,
            auto_renew=renewed,
            long_polling_timeout=duration(nanos=int(POLL_S * 1e9) % 10**9, seconds=int(POLL_S)),
        )
        if not renewed:
            request.invisible_duration.seconds = invisible_s
        call = self._channel.unary_stream(
            f"/{SERVICE}/ReceiveMessage", response_deserializer=kind("ReceiveMessageResponse").FromString
        )
        found: list[Given] = []
        try:
            async for part in call(request.SerializeToString(), metadata=_as(client), timeout=CALL_S):
                if part.HasField("message"):
                    system = part.message.system_properties
                    found.append(Given(system.message_id, part.message.body, system.receipt_handle))
                elif part.HasField("status") and part.status.code not in {Code.OK, Code.MESSAGE_NOT_FOUND}:
                    return None
        except _ENDED:
            _raise_if_cancelled()
            return found or None  # what has come before the end was given out
        return found

    async def ack(self, group: str, topic: str, given: Sequence[Given], client: str) -> set[str]:
        """Acknowledge messages; return the ids of those that were confirmed."""
        entry = kind("AckMessageEntry")
        request = kind("AckMessageRequest")(
            group=resource(group),
            topic=resource(topic),
            entries=[entry(message_id=one.id, receipt_handle=one.handle) for one in given],
        )
        reply = await self._call("AckMessage", request, client)
        if reply is None:
            return set()
        return {one.id for one, told in zip(given, reply.entries, strict=False) if told.status.code == Code.OK}

    async def extend(self, group: str, topic: str, one: Given, client: str, seconds: int) -> Given | None:
        """Keep a message for as long; return it with its new receipt, or None."""
        request = kind("ChangeInvisibleDurationRequest")(
            group=resource(group),
            topic=resource(topic),
            receipt_handle=one.handle,
            message_id=one.id,
            invisible_duration=kind("google.protobuf.Duration")(seconds=seconds),
        )
        reply = await self._call("ChangeInvisibleDuration", request, client)
        return one._replace(handle=reply.receipt_handle) if _is_ok(reply) else None

    async def stream(self, client: str, settings: Any, on_question: Callable[[Any], None]) -> None:
        """Hold a stream of telemetry until it ends or is cancelled."""
        command = kind("TelemetryCommand")
        method = self._channel.stream_stream(f"/{SERVICE}/Telemetry", response_deserializer=command.FromString)
        call = None
        try:
            call = method(metadata=_as(client))
            await call.write(command(settings=settings).SerializeToString())
            while (part := await call.read()) is not grpc.aio.EOF:
                if part.HasField("recover_orphaned_transaction_command"):
                    on_question(part.recover_orphaned_transaction_command)
        except _ENDED:
            _raise_if_cancelled()
        finally:
            if call is not None:
                call.cancel()

    async def _call(self, method: str, request: Any, client: str) -> Any:
        call = self._channel.unary_unary(
            f"/{SERVICE}/{method}", response_deserializer=kind(f"{method}Response").FromString
        )
        try:
            return await call(request.SerializeToString(), metadata=_as(client), timeout=CALL_S)
        except _ENDED:
            _raise_if_cancelled()
            return None


def _raise_if_cancelled() -> None:
    """Raise where this task was cancelled, and not its call alone."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def producer_settings(topics: Sequence[str]) -> Any:
    """Return what a producer of topics sends first."""
    made = kind("Settings")(client_type=ClientType.PRODUCER)
    made.publishing.topics.extend(map(resource, topics))
    return made


def consumer_settings(group: str, topic: str) -> Any:
    """Return what a push consumer sends first."""
    made = kind("Settings")(client_type=ClientType.PUSH_CONSUMER)
    made.subscription.group.CopyFrom(resource(group))
    made.subscription.subscriptions.add().topic.CopyFrom(resource(topic))
    return made


def new_client(what: str) -> str:
    """Return a client id that no client had."""
    return f"{what}-{next(_CLIENTS)}"


def now_ms() -> int:
    """Return the wall clock, which the servers share."""
    return time.time_ns() // 1_000_000


def _as(client: str) -> list[tuple[str, str]]:
    return [("x-mq-client-id", client)]


def _is_ok(reply: Any) -> bool:
    return reply is not None and reply.status.code == Code.OK
