"""Requests of RocketMQ's clients as bytes.

Each is refused, or read; a message that is taken has the same attributes in the address of its branch.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, Final

from benchmarks.load import http2
from twophase.core.errors import TwophaseError
from twophase.core.queue_message import address_of, message_of
from twophase.grpc_server.http2 import frames
from twophase.grpc_server.status import framed
from twophase.rocketmq_wire import requests
from twophase.rocketmq_wire.descriptors import SERVICE, kind
from twophase.rocketmq_wire.requests import BrokenMessage
from twophase.server.rocketmq.checking import check_after_ms, message_in

_NOW_MS: Final = 1_700_000_000_000
_PARSERS: Final = (
    requests.parse_route,
    requests.parse_assignment,
    requests.parse_end,
    requests.parse_recall,
    requests.parse_receive,
    requests.parse_ack,
    requests.parse_extend,
    requests.parse_dead_letter,
    requests.parse_heartbeat,
    requests.parse_termination,
    requests.parse_settings,
)
WORDS: Final = (b"%DLQ%", b"||", b"\x00", b"\xff", b"\xed\xa0\x80", b"a" * 300, b"&tag=", b"%26", b"/")


def _message(**system: Any) -> Any:
    return kind("Message")(
        topic=kind("Resource")(name="orders", resource_namespace="shop"),
        body=b"{}",
        user_properties={"shop": "7"},
        system_properties=kind("SystemProperties")(message_id="01AB", body_encoding=1, **system),
    )


def _seeds() -> list[bytes]:
    messages = [
        _message(message_type=1, tag="paid", keys=["7", "8"], born_host="host"),
        _message(message_type=2, message_group="order-7"),
        _message(message_type=3, delivery_timestamp=kind("google.protobuf.Timestamp")(seconds=1_700_000_060)),
        _message(message_type=4, orphaned_transaction_recovery_duration=kind("google.protobuf.Duration")(seconds=9)),
    ]
    topic, group = kind("Resource")(name="orders"), kind("Resource")(name="billing")
    made = [
        *(kind("SendMessageRequest")(messages=[message]) for message in messages),
        kind("QueryRouteRequest")(topic=topic),
        kind("EndTransactionRequest")(topic=topic, transaction_id="queue-1", message_id="01AB", resolution=1),
        kind("ReceiveMessageRequest")(group=group, message_queue=kind("MessageQueue")(topic=topic), batch_size=32),
        kind("AckMessageRequest")(group=group, topic=topic),
        kind("TelemetryCommand")(settings=kind("Settings")(client_type=1)),
    ]
    return [one.SerializeToString() for one in made]


SEEDS: Final = _seeds()
_METHODS: Final = (
    *("SendMessage",) * 4,
    *("QueryRoute", "EndTransaction", "ReceiveMessage", "AckMessage", "Telemetry"),
)
"""The method of each seed."""


def calls(metadata: bytes) -> list[bytes]:
    """Return connections that make calls; each is the greeting, and frames.

    `metadata`: more of it, as a block.
    """
    known = frames.field(b"x-mq-client-id", b"fuzz") + metadata
    made = []
    for method, raw in zip(_METHODS, SEEDS, strict=True):
        block = http2.head(f"/{SERVICE}/{method}", "localhost") + known
        # Each on streams of its own: twice the same, and a cut.
        made.append([frames.header_frames(stream, block) + _data(stream, raw) for stream in (1, 3)])
    greeting = frames.PREFACE + frames.settings({}) + frames.frame(frames.SETTINGS, frames.ACK)
    cut = frames.reset(1, frames.CANCEL)
    return [
        *(greeting + first + second for first, second in made),
        *(greeting + first + cut for first, _ in made),
        *(greeting + one[0] + other[1] for one, other in itertools.pairwise(made)),
    ]


def _data(stream: int, raw: bytes) -> bytes:
    return frames.frame(frames.DATA, frames.END_STREAM, stream, framed(raw))


CALLS: Final = calls(b"")
CALL_WORDS: Final = [
    *WORDS,
    *(frames.frame(number, 0, stream, b"") for number in range(10) for stream in (0, 1, 3)),
    *(frames.reset(1, frames.CANCEL), frames.window_update(1, 2**31 - 1), frames.window_update(0, 1)),
    *(_data(1, raw) for raw in SEEDS),
    *(method.encode() for method in _METHODS),
]


def check(raw: bytes) -> None:
    """Check what becomes of some bytes."""
    for parse in _PARSERS:
        with contextlib.suppress(BrokenMessage):
            parse(raw)
    sent = []
    with contextlib.suppress(BrokenMessage):
        sent = requests.parse_send(raw)
    for one in sent:
        with contextlib.suppress(TwophaseError):
            check_after_ms(one)
            taken = message_in(one, _NOW_MS)
            read = message_of(address_of(taken), taken.body)
            assert read == taken, f"{read!r} is not {taken!r}"
