"""Requests as bytes, answers as errors, from the producer's side.

The formats are those of dtm-wire §1.2 to §1.4.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from twophase.client.transport.wire import HttpAnswer, Operation, encode_request, pause_asked_ms, read_answer
from twophase.core import errors
from twophase.core.errors import (
    ContentConflict,
    ContraryDecision,
    CoordinatorUnreachable,
    ForgottenMessage,
    InvalidRequest,
    LimitExceeded,
    NotYetDelivered,
    Overloaded,
    StateConflict,
    StoreFull,
    TwophaseError,
    Unavailable,
    UnknownMessage,
)
from twophase.core.message import Branch, Message
from twophase.core.options import Durability, Options


def answer(status: int, **body: Any) -> HttpAnswer:
    return HttpAnswer(status, msgspec.json.encode(body))


def fields(message: Message, operation: Operation = Operation.PREPARE) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(encode_request(message, operation))
    return decoded


def test_request_carries_what_dtm_reads() -> None:
    message = Message("g", (Branch("http://b/1", b'{"a":1}'), Branch("topic://t")), "http://a/check")
    assert fields(message) == {
        "gid": "g",
        "trans_type": "msg",
        "steps": [{"action": "http://b/1"}, {"action": "topic://t"}],
        "payloads": ['{"a":1}', ""],
        "query_prepared": "http://a/check",
    }


def test_options_are_sent_in_dtms_seconds_and_in_our_milliseconds() -> None:
    options = Options(
        concurrent=True,
        wait_result=True,
        delay_ms=1_500,
        timeout_to_fail_ms=2_500,
        request_timeout_ms=3_000,
        retry_interval_ms=1,
        headers=(("x-tenant", "blue"),),
        explicit_verdict=True,
        open=True,
        durability=Durability.CHECK_BACK,
    )
    said = fields(Message("g", (), options=options))
    assert said == {
        "gid": "g",
        "trans_type": "msg",
        "custom_data": '{"delay":2}',
        "wait_result": True,
        "timeout_to_fail": 3,
        "request_timeout": 3,
        "retry_interval": 1,
        "branch_headers": {"x-tenant": "blue"},
        "concurrent": True,
        "explicit_verdict": True,
        "open": True,
        "delay_ms": 1_500,
        "timeout_to_fail_ms": 2_500,
        "request_timeout_ms": 3_000,
        "retry_interval_ms": 1,
        "durability": "check-back",
    }


def test_abort_says_only_the_gid() -> None:
    message = Message("g", (Branch("http://b/1"),), "http://a/check")
    assert fields(message, Operation.ABORT) == {"gid": "g", "trans_type": "msg"}


def test_payload_that_is_no_text_cannot_travel() -> None:
    with pytest.raises(InvalidRequest, match="UTF-8"):
        encode_request(Message("g", (Branch("http://b/1", b"\xff"),)), Operation.SUBMIT)


def test_request_larger_than_a_coordinator_takes_is_refused_here() -> None:
    branches = tuple(Branch("http://b/1", b"x" * 1_000_000) for _ in range(5))
    with pytest.raises(LimitExceeded, match="request body"):
        encode_request(Message("g", branches), Operation.SUBMIT)


def test_state_only_in_dtms_words_is_understood() -> None:
    said = answer(409, dtm_result="FAILURE", message="current status 'succeed', cannot sumbmit. FAILURE")
    assert read_answer(Operation.SUBMIT, "g", said) == 0


@pytest.mark.parametrize(
    ("operation", "said", "expected"),
    [
        (Operation.PREPARE, answer(409, dtm_result="FAILURE", code="TP-2001", state="succeed"), StateConflict),
        (Operation.PREPARE, answer(409, dtm_result="FAILURE", code="TP-2002", state="prepared"), ContentConflict),
        (Operation.PREPARE, answer(409, dtm_result="FAILURE", message="cannot prepare. FAILURE"), StateConflict),
        (Operation.SUBMIT, answer(409, dtm_result="FAILURE", code="TP-2001", state="failed"), ContraryDecision),
        (
            Operation.SUBMIT,
            answer(409, dtm_result="FAILURE", message="current status 'failed', cannot sumbmit. FAILURE"),
            ContraryDecision,
        ),
        (Operation.SUBMIT, answer(409, dtm_result="FAILURE", code="TP-2002", state="submitted"), ContentConflict),
        (Operation.SUBMIT, answer(409, dtm_result="FAILURE", code="TP-2002", state="succeed"), ContentConflict),
        (Operation.SUBMIT, answer(409, dtm_result="FAILURE", code="TP-2006", state="submitted"), NotYetDelivered),
        (
            Operation.SUBMIT,
            answer(409, dtm_result="FAILURE", message="wait result not return success: FAILURE"),
            NotYetDelivered,
        ),
        (Operation.SUBMIT, answer(410, code="TP-2005", message="old"), ForgottenMessage),
        (Operation.ABORT, answer(409, dtm_result="FAILURE", code="TP-2001", state="submitted"), ContraryDecision),
        (Operation.ABORT, answer(500, code="TP-2004", message="no TransGlobal with gid: g found"), UnknownMessage),
        (Operation.ABORT, answer(500, message="no TransGlobal with gid: g found"), UnknownMessage),
        (Operation.PREPARE, answer(400, code="TP-1001", message="gid too long"), LimitExceeded),
        (Operation.PREPARE, answer(400, message="bad json"), InvalidRequest),
        (Operation.PREPARE, answer(503, code="TP-4004", message="disk"), StoreFull),
        (Operation.PREPARE, answer(500, message="storage: gone"), Unavailable),
        (Operation.PREPARE, HttpAnswer(503, b"{}", "1"), Overloaded),
        (Operation.PREPARE, answer(404, message="not here"), CoordinatorUnreachable),
        (Operation.PREPARE, HttpAnswer(404, b"<html>"), CoordinatorUnreachable),
        (Operation.PREPARE, HttpAnswer(200, b"<html>welcome</html>"), CoordinatorUnreachable),
        (Operation.PREPARE, HttpAnswer(200, b'"SUCCESS"'), CoordinatorUnreachable),
        (Operation.PREPARE, answer(200, dtm_result="FAILURE"), CoordinatorUnreachable),
        (Operation.PREPARE, HttpAnswer(200, b"\xff\xfe"), CoordinatorUnreachable),
        (Operation.PREPARE, HttpAnswer(200, b""), CoordinatorUnreachable),
        (Operation.PREPARE, HttpAnswer(301, b""), CoordinatorUnreachable),
    ],
)
def test_answer_says(operation: Operation, said: HttpAnswer, expected: type[TwophaseError]) -> None:
    with pytest.raises(TwophaseError) as raised:
        read_answer(operation, "g", said)
    assert type(raised.value) is expected
    assert raised.value.gid == "g"


def test_every_code_of_the_error_tree_is_understood() -> None:
    for name in dir(errors):
        kind = getattr(errors, name)
        if isinstance(kind, type) and issubclass(kind, TwophaseError):
            with pytest.raises(TwophaseError) as raised:
                read_answer(Operation.PREPARE, "g", answer(500, code=kind.code, message="x"))
            assert type(raised.value) is kind


@pytest.mark.parametrize(
    ("said", "pause_ms"),
    [("3", 3000), ("0", 0), ("0.25", 250), ("-1", 0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("inf", None)],
)
def test_retry_after_in_seconds_is_understood(said: str, pause_ms: int | None) -> None:
    assert pause_asked_ms(HttpAnswer(503, b"", said)) == pause_ms
