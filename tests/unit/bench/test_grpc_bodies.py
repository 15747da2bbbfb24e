"""A run over gRPC sends in protobuf the content that a run over HTTP sends."""

from __future__ import annotations

import pytest

from benchmarks.load.grpc_run import bodies
from benchmarks.load.workload import FIRST_NUMBER, NUMBER_AT, NUMBER_DIGITS, Gids, Workload
from twophase.grpc_wire.messages import parse_request
from twophase.server.codecs.wire import parse_steps

_SINK = "http://127.0.0.1:5000/a1b2c3d4"


# 37 bytes have the length `%`, which must not be taken for a place to fill.
@pytest.mark.parametrize("payload_bytes", [22, 28, 37, 500])
@pytest.mark.parametrize("branches", [1, 2, 17])
def test_a_body_is_a_request_with_its_gid_and_number(payload_bytes: int, branches: int) -> None:
    gid = Gids().new()
    raw = bodies(Workload(payload_bytes=payload_bytes, branches=branches), _SINK)(gid, 7)
    request = parse_request(raw[5:])

    assert raw[:5] == b"\0" + (len(raw) - 5).to_bytes(4, "big")
    assert (request.gid, request.trans_type, request.query_prepared) == (gid.decode(), "msg", f"{_SINK}/check")
    steps = parse_steps(request.steps)
    assert steps is not None
    assert [step.action for step in steps] == [f"{_SINK}/{number:02}" for number in range(1, branches + 1)]
    for payload in request.payloads:
        assert len(payload) == payload_bytes
        assert payload[NUMBER_AT : NUMBER_AT + NUMBER_DIGITS] == b"%d" % (FIRST_NUMBER + 7)


def test_options_go_with_the_message() -> None:
    raw = bodies(Workload(durability="check-back", timeout_to_fail_s=10), _SINK)(Gids().new(), 0)
    request = parse_request(raw[5:])

    assert (request.durability, request.timeout_to_fail) == ("check-back", 10)
