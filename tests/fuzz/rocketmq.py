"""Requests of RocketMQ's clients as bytes.

Each is refused, or read; a message that is taken has the same attributes in the address of its branch.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

from twophase.core.errors import TwophaseError
from twophase.core.queue_message import address_of, message_of
from twophase.rocketmq_wire import requests
from twophase.rocketmq_wire.descriptors import kind
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
