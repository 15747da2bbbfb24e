"""The meaning of answers to a probe of a check address."""

from __future__ import annotations

import msgspec
import pytest

from twophase.barrier.asking import CheckBackQuestion
from twophase.barrier.http_answer import parse_query
from twophase.core.errors import InvalidRequest
from twophase.core.gid import PROBE_GID, validate_gid
from twophase.core.probe import PROBE_QUERY, Probed, ProbeState, interpret_probe
from twophase.core.verdict import Verdict, interpret_check_back

REFUSED = b'{"code":"TP-1000","message":"A check-back has op=msg and branch_id=00."}'


@pytest.mark.parametrize("state", ProbeState)
@pytest.mark.parametrize("text", ["card 4711", "TP-6001: card 4711", "TP-0000: card 4711"])
def test_what_is_told_of_a_report_has_no_text_of_it(state: ProbeState, text: str) -> None:
    body = msgspec.json.encode({"probe": state, "message": text, "remedy": text, "now_ms": 17})
    probed = interpret_probe(200, "probe", body, "")
    assert (probed.message, probed.remedy) == (text, text)
    told = probed.told
    assert told.report is not None
    assert (told.state, told.well, told.report.now_ms) == (state, probed.well, 17)
    assert "4711" not in f"{told.message} {told.remedy} {told.report}"
    assert told.message


@pytest.mark.parametrize(
    ("status", "header", "body", "error", "state"),
    [
        (200, "probe", b'{"probe":"ready","now_ms":17}', "", ProbeState.READY),
        (200, "probe", b'{"probe":"busy"}', "", ProbeState.BUSY),
        (200, "probe", b'{"probe":"no_barrier"}', "", ProbeState.NO_BARRIER),
        (200, "probe", b"<html>", "", ProbeState.NOT_A_ROUTE),
        (200, "probe", b'{"x":' + b"[" * 100_000, "", ProbeState.NOT_A_ROUTE),
        (500, "probe", b'{"probe":"ready"}', "", ProbeState.NOT_A_ROUTE),
        (200, "committed", b'{"probe":"ready"}', "", ProbeState.NOT_A_ROUTE),
        (200, None, b'{"probe":"ready"}', "", ProbeState.NOT_A_ROUTE),
        (200, None, b"welcome", "", ProbeState.NOT_A_ROUTE),
        (400, None, REFUSED, "", ProbeState.UNPROBEABLE),
        (400, None, b"", f"gRPC INVALID_ARGUMENT: {REFUSED.decode()}", ProbeState.UNPROBEABLE),
        (400, None, b'{"code":"TP-1000"}', "", ProbeState.NOT_A_ROUTE),
        (302, None, b"", "", ProbeState.NOT_A_ROUTE),
        (401, None, b"", "", ProbeState.NOT_A_ROUTE),
        (0, None, b"", "connect: refused", ProbeState.UNREACHABLE),
    ],
)
def test_an_answer_tells_the_condition_of_the_address(
    status: int, header: str | None, body: bytes, error: str, state: ProbeState
) -> None:
    assert interpret_probe(status, header, body, error).state is state


def test_a_redirect_may_lead_to_a_login_that_the_coordinator_does_not_have() -> None:
    remedy = interpret_probe(302, None, b"", "").remedy
    assert "not followed" in remedy
    assert "login" in remedy


@pytest.mark.parametrize("state", ProbeState)
def test_an_address_is_well_that_answers_or_is_busy_or_knows_no_probes(state: ProbeState) -> None:
    assert Probed(state).well is (state in {ProbeState.READY, ProbeState.BUSY, ProbeState.UNPROBEABLE})


def test_what_a_grpc_service_sent_behind_its_status_is_left_out() -> None:
    assert interpret_probe(0, None, b"", "gRPC UNAVAILABLE: card 4111").message == "gRPC UNAVAILABLE"


def test_an_answer_to_a_probe_is_no_verdict() -> None:
    assert interpret_check_back(200, "probe", b'{"probe":"ready"}', explicit=False) is Verdict.UNKNOWN


def test_a_route_of_ones_own_refuses_a_probe_so_that_it_is_known_for_a_route() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_query(dict(PROBE_QUERY))
    assert interpret_probe(400, None, str(caught.value).encode(), "").state is ProbeState.UNPROBEABLE


def test_a_route_that_knows_no_probes_refuses_one_before_it_looks_at_its_database() -> None:
    """The parameters that a route of an earlier version reads, without the gid.

    Any gid was allowed then.
    """
    with pytest.raises(InvalidRequest, match="op=msg"):
        parse_query(dict(PROBE_QUERY) | {"gid": "any"})
    assert parse_query(dict(PROBE_QUERY) | {"gid": "any", "op": "msg"}) == CheckBackQuestion("any")


def test_the_probes_gid_names_no_message() -> None:
    with pytest.raises(InvalidRequest, match="reserved"):
        validate_gid(PROBE_GID)


def test_what_is_no_report_is_told_whole() -> None:
    probed = Probed(ProbeState.UNPROBEABLE, "no answer in time", "look there")
    assert probed.told is probed
