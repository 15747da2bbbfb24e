"""The meaning of a coordinator's gRPC status for the caller.

It is the same as that of the HTTP answer.
"""

from __future__ import annotations

import pytest

from twophase.client.transport.grpc_wire import GrpcTarget, answer_of, encode_request
from twophase.client.transport.wire import Operation, TransportFailure, pause_asked_ms, read_answer
from twophase.core.errors import (
    ConfigurationError,
    ContraryDecision,
    CoordinatorUnreachable,
    ForgottenMessage,
    InvalidRequest,
    LimitExceeded,
    NotYetDelivered,
    Overloaded,
    ServerFault,
    StateConflict,
    TwophaseError,
    Unavailable,
    UnknownMessage,
    UnsupportedType,
)
from twophase.core.message import Branch, Message
from twophase.core.options import Durability, Options
from twophase.grpc_wire.messages import Request, parse_request

SUBMITTED = "current status 'submitted', cannot prepare. FAILURE"

REFUSALS: list[tuple[Operation, int, str, dict[str, str], type[TwophaseError]]] = [
    # twophase's, by code and state
    (Operation.PREPARE, 10, SUBMITTED, {"code": "TP-2001", "state": "submitted"}, StateConflict),
    (Operation.ABORT, 10, "FAILURE", {"code": "TP-2003", "state": "succeed"}, ContraryDecision),
    (Operation.SUBMIT, 10, "FAILURE", {"code": "TP-2001", "state": "failed"}, ContraryDecision),
    (Operation.SUBMIT, 10, "FAILURE", {"code": "TP-2006", "state": "submitted"}, NotYetDelivered),
    (Operation.SUBMIT, 2, "wait result", {"code": "TP-2006", "state": "submitted"}, NotYetDelivered),
    (Operation.SUBMIT, 11, "older", {"code": "TP-2005"}, ForgottenMessage),
    (Operation.ABORT, 5, "no TransGlobal", {"code": "TP-2004"}, UnknownMessage),
    (Operation.SUBMIT, 3, "gid is empty", {"code": "TP-1000"}, InvalidRequest),
    (Operation.SUBMIT, 12, "saga", {"code": "TP-1002"}, UnsupportedType),
    (Operation.SUBMIT, 14, "full", {"code": "TP-3001"}, Overloaded),
    (Operation.PREPARE, 2, "a fault", {"code": "TP-3005"}, ServerFault),
    # dtm's, by text alone
    (Operation.PREPARE, 10, SUBMITTED, {}, StateConflict),
    (Operation.SUBMIT, 10, "current status 'failed', cannot sumbmit. FAILURE", {}, ContraryDecision),
    (Operation.SUBMIT, 10, "wait result not return success: FAILURE", {}, NotYetDelivered),
    (Operation.ABORT, 2, "no TransGlobal with gid: g found", {}, UnknownMessage),
    (Operation.SUBMIT, 2, "storage: NotFound", {}, Unavailable),
    # another server's
    (Operation.SUBMIT, 12, "Method not found!", {}, CoordinatorUnreachable),
]


@pytest.mark.parametrize(("operation", "code", "details", "said", "error"), REFUSALS)
def test_a_refusal_is_the_error_that_http_would_be(
    operation: Operation, code: int, details: str, said: dict[str, str], error: type[TwophaseError]
) -> None:
    answer = answer_of(code, details, {f"twophase-{name}": value for name, value in said.items()})
    with pytest.raises(error) as caught:
        read_answer(operation, "g", answer)
    assert type(caught.value) is error


def test_success_carries_the_time_of_prepare_if_there_is_one() -> None:
    for said, time in (({"twophase-prepared-at": "17"}, 17), ({}, 0), ({"twophase-prepared-at": "x"}, 0)):
        assert read_answer(Operation.PREPARE, "g", answer_of(0, "", said)) == time


def test_a_submit_that_meets_a_succeeded_message_is_success() -> None:
    answer = answer_of(10, "current status 'succeed', cannot sumbmit. FAILURE", {})
    assert read_answer(Operation.SUBMIT, "g", answer) == 0


@pytest.mark.parametrize("code", [1, 4, 8, 14])
def test_no_answer_is_tried_again(code: int) -> None:
    with pytest.raises(TransportFailure):
        answer_of(code, "", {})


@pytest.mark.parametrize(("pushback", "pause_ms"), [("250", 250), ("", 1000), ("soon", 1000)])
def test_an_overloaded_coordinator_says_when_to_come_back(pushback: str, pause_ms: int) -> None:
    answer = answer_of(14, "full", {"twophase-code": "TP-3001", "grpc-retry-pushback-ms": pushback})
    assert pause_asked_ms(answer) == pause_ms


def test_a_whole_message_is_written() -> None:
    options = Options(
        concurrent=True, wait_result=True, delay_ms=1_500, timeout_to_fail_ms=7_001, request_timeout_ms=3,
        retry_interval_ms=4, headers=(("x-a", "1"),), explicit_verdict=True, open=True,
        durability=Durability.CHECK_BACK,
    )  # fmt: skip
    message = Message(
        "g", (Branch("grpc://b:1/p.S/M", b"\x00\xff"), Branch("http://b/in")), "grpc://a:1/p.S/C", options
    )
    assert parse_request(encode_request(message, Operation.SUBMIT)) == Request(
        gid="g", trans_type="msg", steps='[{"action":"grpc://b:1/p.S/M"},{"action":"http://b/in"}]',
        payloads=[b"\x00\xff", b""], query_prepared="grpc://a:1/p.S/C", custom_data='{"delay":2}', wait_result=True,
        timeout_to_fail=8, retry_interval=1, request_timeout=1, branch_headers={"x-a": "1"}, concurrent=True,
        delay_ms=1_500, timeout_to_fail_ms=7_001, request_timeout_ms=3, retry_interval_ms=4, explicit_verdict=True,
        open=True, durability="check-back",
    )  # fmt: skip


def test_a_request_too_large_is_refused_here() -> None:
    branches = (Branch("http://b/in", b"x" * (1 << 20)),) * 4
    with pytest.raises(LimitExceeded):
        encode_request(Message("g", branches), Operation.SUBMIT)


@pytest.mark.parametrize(
    ("server", "authority", "tls"),
    [
        ("grpc://localhost", "localhost:36790", False),
        ("grpc://Coordinator:7/", "coordinator:7", False),
        ("grpcs://[::1]:7", "[::1]:7", True),
        ("grpc://[::1]", "[::1]:36790", False),
    ],
)
def test_addresses_of_servers(server: str, authority: str, tls: bool) -> None:
    target = GrpcTarget(server)
    assert (target.authority, target.tls) == (authority, tls)


@pytest.mark.parametrize(
    "server", ["grpc://", "grpc://a/path", "grpc://a:x", "grpc://u:p@a:1", "grpc://a b", "grpc://a?x"]
)
def test_what_is_no_address_is_refused_with_a_remedy(server: str) -> None:
    with pytest.raises(ConfigurationError, match=r"Write grpc://host:36790"):
        GrpcTarget(server)
