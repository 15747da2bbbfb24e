"""The requests of queues by route, each with its fields for a message.

`test_queue_owner_matrix.py` sends them.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.support.rocketmq_wire import HALF, message, resource, seconds
from twophase.core.queue_api import PREFIX
from twophase.rocketmq_wire.codes import ClientType
from twophase.rocketmq_wire.descriptors import SERVICE, kind

READS, RECEIPTS, CLAIMS, NAMES, LISTS, ASKS, ENDS = (
    "reads",
    "names a receipt",
    "claims",
    "names a topic or a client",
    "lists",
    "asks for questions",
    "ends polls",
)
GROUP, TOPIC, OTHERS_TOPIC = "billing", "orders", "bills"


class Thing(NamedTuple):
    """A message of a queue, as requests name it.

    `receipt`: that of its delivery. `letter`: the number of a dead letter of the group.
    """

    id: str
    gid: str
    receipt: str = ""
    topic: str = TOPIC
    group: str = GROUP
    letter: int = 0


class Asked(NamedTuple):
    """A request: what it does, its fields for a thing, and the query of its path.

    `finder`: the client for whom it finds something; empty where it finds nothing for the owner either.
    """

    kind: str
    fields: Callable[[Thing], dict[str, Any]]
    query: str = ""
    finder: str = "owner"


def _half(body: bytes) -> Callable[[Thing], dict[str, Any]]:
    encoded = b64encode(body).decode()
    return lambda one: {
        "group": one.group,
        "client": "me",
        "address": f"queue://{one.topic}?id={one.id}",
        "body": encoded,
    }


def _decide(decision: str, *, checked: bool) -> Callable[[Thing], dict[str, Any]]:
    return lambda one: {"transaction_id": one.gid, "decision": decision, "client": "me", "checked": checked}


def _of(one: Thing, **more: Any) -> dict[str, Any]:
    return {"group": one.group, "topic": one.topic, "receipt": one.receipt, **more}


def _of_several(one: Thing) -> dict[str, Any]:
    return {"group": one.group, "topic": one.topic, "receipts": [one.receipt]}


def _nothing(_: Thing) -> dict[str, Any]:
    return {}


def _named(one: Thing, **more: Any) -> dict[str, Any]:
    return {"group": resource(one.group), "topic": resource(one.topic), **more}


def _sent(body: bytes = b"{}", **system: Any) -> Callable[[Thing], dict[str, Any]]:
    return lambda one: {"messages": [message(one.id, body, one.topic, **system)]}


def _ended(resolution: int, source: int, topic: str = "", *, with_id: bool = True) -> Callable[[Thing], dict[str, Any]]:
    """Return an EndTransaction.

    The server looks for the message of one without its id, or with another topic.
    """
    return lambda one: {
        "topic": resource(topic or one.topic),
        "message_id": one.id if with_id else "",
        "transaction_id": one.gid,
        "resolution": resolution,
        "source": source,
    }


def _taken(one: Thing) -> dict[str, Any]:
    """Return a ReceiveMessage of one message."""
    return {
        "group": resource(one.group),
        "message_queue": kind("MessageQueue")(topic=resource(one.topic)),
        "batch_size": 1,
        "invisible_duration": seconds(30),
        "long_polling_timeout": seconds(0),
    }


def _subscription(one: Thing) -> Any:
    entry = kind("SubscriptionEntry")(topic=resource(one.topic))
    subscription = kind("Subscription")(group=resource(one.group), subscriptions=[entry])
    return kind("Settings")(client_type=ClientType.SIMPLE_CONSUMER, subscription=subscription)


OWN: Final = "/api/twophase/"
HALVES, LETTERS = f"{OWN}halves", f"{OWN}letters/{{name:path}}"
METHOD: Final = f"/{SERVICE}/"
MATRIX: Final[dict[str, tuple[Asked, ...]]] = {
    HALVES: (Asked(LISTS, _nothing), Asked(LISTS, _nothing, "?limit=1")),
    LETTERS: (
        Asked(LISTS, _nothing, finder="operator"),
        Asked(LISTS, _nothing, "?payload=true", finder="operator"),
    ),
    f"{LETTERS}/redrive": (
        Asked(READS, lambda one: {"numbers": [one.letter]}, finder="operator"),
        Asked(READS, lambda one: {"numbers": [one.letter], "dry_run": True}, finder="operator"),
        Asked(READS, lambda one: {"numbers": [one.letter], "topic": OTHERS_TOPIC}, finder="operator"),
    ),
    f"{PREFIX}receive": (
        Asked(READS, lambda one: {"group": one.group, "topic": one.topic, "client": "me", "wait_ms": 0}),
    ),
    f"{PREFIX}ack": (Asked(RECEIPTS, _of_several),),
    f"{PREFIX}nack": (Asked(RECEIPTS, _of), Asked(RECEIPTS, lambda one: _of(one, pause_ms=0))),
    f"{PREFIX}extend": (Asked(RECEIPTS, lambda one: _of(one, lease_ms=1_000)),),
    f"{PREFIX}give-back": (Asked(RECEIPTS, _of_several),),
    f"{PREFIX}dead-letter": (Asked(RECEIPTS, lambda one: _of(one, reason="mine")),),
    f"{PREFIX}half": (Asked(CLAIMS, _half(b"{}")), Asked(CLAIMS, _half(b"[]"), finder="")),
    f"{PREFIX}decide": (
        *(
            Asked(CLAIMS, _decide(decision, checked=checked))
            for decision in ("commit", "rollback")
            for checked in (False, True)
        ),
        Asked(READS, _decide("unknown", checked=True), finder=""),
        Asked(NAMES, _decide("unknown", checked=False)),
    ),
    f"{PREFIX}questions": (Asked(ASKS, lambda one: {"group": one.group, "client": "me", "wait_ms": 60_000}),),
    f"{PREFIX}leave": (Asked(ENDS, lambda _: {"client": "me"}),),
    f"{METHOD}QueryRoute": (Asked(NAMES, lambda one: {"topic": resource(one.topic)}),),
    f"{METHOD}QueryAssignment": (Asked(NAMES, _named),),
    f"{METHOD}Heartbeat": (
        Asked(NAMES, lambda one: {"client_type": ClientType.PUSH_CONSUMER, "group": resource(one.group)}),
    ),
    f"{METHOD}NotifyClientTermination": (Asked(ENDS, lambda one: {"group": resource(one.group)}),),
    f"{METHOD}Telemetry": (
        Asked(ASKS, lambda one: {"topics": (one.topic,), "producer.group": one.group}),
        Asked(NAMES, lambda one: {"settings": _subscription(one)}),
    ),
    f"{METHOD}SendMessage": (
        Asked(CLAIMS, _sent()),
        Asked(CLAIMS, _sent(**HALF)),
        Asked(CLAIMS, _sent(b"[]"), finder=""),
        Asked(CLAIMS, _sent(b"[]", **HALF), finder=""),
    ),
    f"{METHOD}EndTransaction": (
        *(Asked(CLAIMS, _ended(resolution, source)) for resolution in (1, 2) for source in (1, 2)),
        Asked(CLAIMS, _ended(1, 1, with_id=False)),
        Asked(CLAIMS, _ended(1, 1, "another-topic"), finder=""),
        Asked(READS, _ended(0, 2), finder=""),
        Asked(NAMES, _ended(0, 1)),
    ),
    f"{METHOD}RecallMessage": (
        Asked(READS, lambda one: {"topic": resource(one.topic), "recall_handle": f"{one.gid}:{one.id}"}),
    ),
    f"{METHOD}ReceiveMessage": (
        Asked(READS, _taken),
        Asked(READS, lambda one: _taken(one) | {"auto_renew": True}),
    ),
    f"{METHOD}AckMessage": (
        Asked(RECEIPTS, lambda one: _named(one, entries=[kind("AckMessageEntry")(receipt_handle=one.receipt)])),
    ),
    f"{METHOD}ChangeInvisibleDuration": (
        Asked(RECEIPTS, lambda one: _named(one, receipt_handle=one.receipt, invisible_duration=seconds(0))),
        Asked(RECEIPTS, lambda one: _named(one, receipt_handle=one.receipt, invisible_duration=seconds(60))),
    ),
    f"{METHOD}ForwardMessageToDeadLetterQueue": (
        Asked(RECEIPTS, lambda one: _named(one, receipt_handle=one.receipt, message_id=one.id)),
    ),
}
