"""The requests of queues' clients: what may be left out, and their bounds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from twophase.core.queue_api import Ask, Decide, Decision, Extend, GiveUp, HalfMessage, Leave, Nack, Receipts, Receive

_OF_A_GROUP = {"group": "billing", "topic": "orders"}
_OF_A_DELIVERY = {**_OF_A_GROUP, "receipt": "r"}


def decoded(fields: dict[str, Any], kind: type[msgspec.Struct]) -> msgspec.Struct:
    return msgspec.json.decode(msgspec.json.encode(fields), type=kind)


@pytest.mark.parametrize(
    ("kind", "fields", "left_out"),
    [
        (Receive, {**_OF_A_GROUP, "client": "c"}, {"tags": "*", "limit": 1, "lease_ms": 60_000, "wait_ms": 20_000}),
        (Receipts, {**_OF_A_GROUP, "receipts": ["r"]}, {"namespace": ""}),
        (Extend, {**_OF_A_DELIVERY, "lease_ms": 1_000}, {"namespace": ""}),
        (Nack, _OF_A_DELIVERY, {"attempt": 1, "pause_ms": None}),
        (GiveUp, _OF_A_DELIVERY, {"reason": ""}),
        (Leave, {"client": "c"}, {}),
        (HalfMessage, {"group": "g", "client": "c", "address": "queue://a?id=1", "body": "e30="}, {"body": b"{}"}),
        (Decide, {"transaction_id": "t", "decision": "commit", "client": "c"}, {"decision": Decision.COMMIT}),
        (Ask, {"group": "g", "client": "c"}, {"wait_ms": 20_000}),
    ],
)
def test_what_is_left_out_has_its_default(kind: type[msgspec.Struct], fields: dict[str, Any], left_out: Any) -> None:
    request = decoded(fields, kind)
    assert {name: getattr(request, name) for name in left_out} == left_out
    for name in fields:
        with pytest.raises(msgspec.ValidationError, match=name):
            decoded({key: value for key, value in fields.items() if key != name}, kind)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Receive, {**_OF_A_GROUP, "client": "with space"}),
        (Receive, {**_OF_A_GROUP, "client": "line\n"}),
        (Receive, {**_OF_A_GROUP, "client": "c", "limit": 33}),
        (Receive, {**_OF_A_GROUP, "client": "c", "wait_ms": 60_001}),
        (Receive, {**_OF_A_GROUP, "client": "c", "lease_ms": 999}),
        (Receive, {"group": "", "topic": "orders", "client": "c"}),
        (Receipts, {**_OF_A_GROUP, "receipts": []}),
        (Receipts, {**_OF_A_GROUP, "receipts": ["r"] * 33}),
        (Extend, {**_OF_A_DELIVERY, "lease_ms": 12 * 3600 * 1000 + 1}),
        (Nack, {**_OF_A_DELIVERY, "pause_ms": -1}),
        (Nack, {**_OF_A_DELIVERY, "attempt": 0}),
        (GiveUp, {**_OF_A_DELIVERY, "reason": "r" * 501}),
        (Decide, {"transaction_id": "t", "decision": "maybe", "client": "c"}),
        (HalfMessage, {"group": "g", "client": "c", "address": "a", "body": "", "check_after_ms": 0}),
    ],
)
def test_what_is_out_of_bounds_is_refused(kind: type[msgspec.Struct], fields: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        decoded(fields, kind)
