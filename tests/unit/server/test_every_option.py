"""No encoding loses an option of a message.

Each option is tried alone, and all are tried together.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from twophase import Message as Producers
from twophase.client.transport import grpc_wire, wire
from twophase.client.transport.wire import Operation
from twophase.core.message import Branch, Message, decode, encode
from twophase.core.options import Durability, Options
from twophase.grpc_wire.messages import Request
from twophase.server.api.dtm_grpc import _read
from twophase.server.codecs.decode import Decoder
from twophase.server.codecs.options import OPTION_FIELDS, usual_options
from twophase.server.codecs.wire import WireRequest

OTHERWISE: dict[str, Any] = {
    "concurrent": True,
    "wait_result": True,
    "delay_ms": 1_500,
    "timeout_to_fail_ms": 7_001,
    "request_timeout_ms": 3,
    "retry_interval_ms": 4,
    "headers": (("x-tenant", "blue"),),
    "explicit_verdict": True,
    "open": True,
    "durability": Durability.CHECK_BACK,
    "not_before_ms": 1_700_000_000_123,
    "attempts_max": 9,
    "trace": (("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),),
    "strict": True,
}
"""A value for every option that is not its default."""

_decoder = Decoder(lambda url: None)


def _over_http(message: Message) -> Options:
    return _decoder.message(wire.encode_request(message, Operation.PREPARE), message.options.trace).options


def _over_grpc(message: Message) -> Options:
    raw = grpc_wire.encode_request(message, Operation.PREPARE)
    return _decoder.message_of(*_read(raw), message.options.trace).options


def _in_a_row(message: Message) -> Options:
    return decode(encode(message)).options


WAYS = [_over_http, _over_grpc, _in_a_row]


def test_every_option_is_looked_at_here() -> None:
    assert tuple(OTHERWISE) == Options.__struct_fields__
    assert all(value != getattr(Options(), name) for name, value in OTHERWISE.items())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("names", [(), *((name,) for name in OTHERWISE), tuple(OTHERWISE)])
def test_an_option_arrives_as_it_was_asked_for(way: Callable[[Message], Options], names: tuple[str, ...]) -> None:
    options = Options(**{name: OTHERWISE[name] for name in names})
    branches = (Branch("http://b/in", b"{}"),)
    assert way(Message("g", branches, "http://a/check", options)) == options


def test_a_producer_can_ask_for_every_option_but_what_is_not_its_to_ask() -> None:
    """Two options are not the producer's to ask for.

    `transaction` and its relatives ask for `explicit_verdict`; a request's headers bring `trace`.
    """
    asked = Producers(
        "http://localhost",
        concurrent=True,
        wait_result=True,
        delay=1,
        check_after=1,
        branch_timeout=1,
        retry_interval=1,
        headers={"x-tenant": "blue"},
        allow_late_branches=True,
        acknowledge="early",
        deliver_at=datetime.now(UTC) + timedelta(days=1),
        max_rounds=1,
    )._draft.options
    said = {name for name in Options.__struct_fields__ if getattr(asked, name) != getattr(Options(), name)}
    assert said == set(Options.__struct_fields__) - {"explicit_verdict", "trace"}


JUDGED = {"explicit_verdict", "strict"}


@pytest.mark.parametrize("name", sorted(JUDGED))
def test_usual_options_are_one_object_for_all_messages_judged_alike(name: str) -> None:
    judged: Any = {name: True}
    options = usual_options(WireRequest(**judged))
    assert options == Options(**judged)
    assert options is usual_options(WireRequest(**judged, gid="g"))


def test_a_producer_asks_for_status_alone_unless_it_says_otherwise() -> None:
    def said(**options: Any) -> bytes:
        draft = Producers("http://localhost", "g", **options).add("http://b/in")._draft
        return wire.encode_request(draft.content(), Operation.SUBMIT)

    assert b'"strict":true' in said()
    assert b'"strict":true' in said(delay=1)
    assert b"strict" not in said(strict=False)


@pytest.mark.parametrize("name", [name for name in OPTION_FIELDS if name not in JUDGED])
def test_a_request_with_one_option_has_no_usual_options(name: str) -> None:
    assert usual_options(WireRequest()) == Options()
    one: dict[str, Any] = {name: "x"}
    assert usual_options(WireRequest(**one)) is None


def test_both_wires_have_the_same_fields_for_options() -> None:
    said = set(wire._Request.__struct_fields__)
    assert set(OPTION_FIELDS) == said - {"gid", "trans_type", "steps", "payloads", "query_prepared", "protocol"}
    assert set(Request.__struct_fields__) == said - {"protocol"}
