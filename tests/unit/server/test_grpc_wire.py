"""dtm's gRPC messages: the field numbers, and the checked-in descriptor.

dtm's clients rely on the numbers.
"""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.core.errors import InvalidRequest
from twophase.grpc_wire.messages import (
    BrokenMessage,
    Request,
    encode_gid,
    encode_request,
    parse_gid,
    parse_request,
    parse_topic,
    pool,
)
from twophase.server.codecs.wire import WireStep, parse_steps

ROOT = Path(__file__).parents[3]

# dtm-wire §2
NUMBERS: dict[str, dict[str, int]] = {
    "DtmTransOptions": {
        "WaitResult": 1, "TimeoutToFail": 2, "RetryInterval": 3, "BranchHeaders": 5, "RequestTimeout": 6,
        "RetryLimit": 7,
    },
    "DtmRequest": {
        "Gid": 1, "TransType": 2, "TransOptions": 3, "CustomedData": 4, "BinPayloads": 5, "QueryPrepared": 6,
        "Steps": 7, "ReqExtra": 8, "RollbackReason": 9,
    },
    "DtmGidReply": {"Gid": 1},
    "DtmBranchRequest": {"Gid": 1, "TransType": 2, "BranchID": 3, "Op": 4, "Data": 5, "BusiPayload": 6},
    "DtmTopicRequest": {"Topic": 1, "URL": 2, "Remark": 3},
    "DtmProgressesReply": {"Transaction": 1, "Progresses": 2},
    "DtmTransaction": {"Gid": 1, "Status": 2, "RollbackReason": 3, "Result": 4},
    "DtmProgress": {"Status": 1, "BinData": 2, "BranchID": 3, "Op": 4},
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_fields_have_dtms_numbers_and_ours_stand_apart(name: str) -> None:
    fields = {field.name: field.number for field in pool().FindMessageTypeByName(f"dtmgimp.{name}").fields}
    assert {field: number for field, number in fields.items() if number <= 1000} == NUMBERS[name]


def test_the_service_has_dtms_methods() -> None:
    service = pool().FindServiceByName("dtmgimp.Dtm")
    assert {method.name: (method.input_type.name, method.output_type.name) for method in service.methods} == {
        "NewGid": ("Empty", "DtmGidReply"),
        "Submit": ("DtmRequest", "Empty"),
        "Prepare": ("DtmRequest", "Empty"),
        "Abort": ("DtmRequest", "Empty"),
        "RegisterBranch": ("DtmBranchRequest", "Empty"),
        "PrepareWorkflow": ("DtmRequest", "DtmProgressesReply"),
        "Subscribe": ("DtmTopicRequest", "Empty"),
        "Unsubscribe": ("DtmTopicRequest", "Empty"),
        "DeleteTopic": ("DtmTopicRequest", "Empty"),
    }


def test_the_descriptors_are_what_protoc_makes_of_the_files(tmp_path: Path) -> None:
    subprocess.run([ROOT / "scripts" / "proto", tmp_path], check=True, timeout=60)
    known = {file.name: file.read_bytes() for file in (ROOT / "src" / "twophase").glob("*/*.binpb")}
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == known, "run scripts/proto"


def test_bytes_written_by_others_are_read() -> None:
    by_hand = b"\x0a\x01g\x12\x03msg\x1a\x04\x08\x01\x10\x07\x2a\x02\x00\xff\x32\x01q\x3a\x02[]\xfa\x3f\x01?"
    assert parse_request(by_hand) == Request(
        gid="g", trans_type="msg", wait_result=True, timeout_to_fail=7, payloads=[b"\x00\xff"], query_prepared="q",
        steps="[]",
    )  # fmt: skip
    assert parse_topic(b"\x0a\x01t\x12\x01u\x1a\x01r").url == "u"
    assert parse_gid(encode_gid("g")) == "g"


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_NUMBER = st.integers(-(2**63), 2**63 - 1)


@given(
    st.builds(
        Request,
        gid=_TEXT,
        steps=_TEXT,
        payloads=st.lists(st.binary(max_size=20)),
        branch_headers=st.dictionaries(_TEXT, _TEXT),
        wait_result=st.booleans(),
        request_timeout=_NUMBER,
        delay_ms=_NUMBER,
        open=st.booleans(),
        durability=_TEXT,
        concurrent=st.booleans(),
        explicit_verdict=st.booleans(),
        retry_interval_ms=_NUMBER,
    )
)
def test_requests_survive_the_wire(request: Request) -> None:
    assert parse_request(encode_request(request)) == request


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_refused(raw: bytes) -> None:
    with contextlib.suppress(BrokenMessage):
        assert isinstance(parse_request(raw), Request)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("", None),
        ("null", None),
        ("[]", []),
        ('[{"action":"b:1/p.S/M"}]', [WireStep("b:1/p.S/M")]),
        ('[{"Action":"b:1/p.S/M","op":"x"}]', [WireStep("b:1/p.S/M")]),
    ],
)
def test_steps_are_read_as_tolerantly_as_over_http(text: str, steps: list[WireStep] | None) -> None:
    assert parse_steps(text) == steps


@pytest.mark.parametrize("text", ["{}", "[1]", '[{"action":1}]', "[", '[],"gid":"x"', "[" * 100_000])
def test_steps_that_are_none_are_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^TP-1000: steps: "):
        parse_steps(text)


def test_a_number_that_no_field_holds_is_the_callers_fault() -> None:
    impossible: dict[str, Any] = {"delay_ms": 2**63}
    with pytest.raises(ValueError, match="range"):
        encode_request(Request(**impossible))
