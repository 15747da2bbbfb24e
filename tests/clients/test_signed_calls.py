"""dtm's published clients beside services that verify signed calls.

The coordinator signs all its calls. dtm's services, in Go and Python, ignore the signature: their branches and
check-backs work as without it. A message may call both kinds, and a service that verifies refuses every other caller.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any

import grpc
import pytest

from tests.clients.harness import COMMITS_WITHIN_S, KILLED_IS_ASKED_AFTER_S, NOTHING, Harness, Setup
from tests.clients.orders import AMOUNT, PAYEE, PAYER, Order, Payload, Step

pytestmark = pytest.mark.timeout(600)

GO_HTTP, GO_GRPC = Setup("go", "http", "mysql"), Setup("go", "grpc", "mysql")
DTMCLI, SDK_HTTP, SDK_GRPC = (
    Setup("dtmcli", "http", "mysql"),
    Setup("sdk", "http", "mysql"),
    Setup("sdk", "grpc", "mysql"),
)
MIXED = (GO_HTTP, GO_GRPC, DTMCLI, SDK_HTTP, SDK_GRPC)
BOTH = {PAYER: -2 * AMOUNT, PAYEE: 2 * AMOUNT}
mixed = pytest.mark.parametrize("setup", MIXED, ids=[setup.name for setup in MIXED])
plain = pytest.mark.parametrize("setup", MIXED[:3], ids=[setup.name for setup in MIXED[:3]])
checked = pytest.mark.parametrize(
    ("setup", "service"),
    [(GO_HTTP, "sdk"), (GO_GRPC, "sdk"), (SDK_HTTP, "go"), (SDK_GRPC, "go"), (SDK_HTTP, "dtmcli")],
    ids=lambda part: part if isinstance(part, str) else part.name,
)


def _order(harness: Harness, setup: Setup, service: str | None = None, **others: Any) -> Order:
    """Return a transfer with branches at a plain service and at one that verifies."""
    dtms = "go" if setup.client == "sdk" else setup.client
    steps = [Step(harness.address(setup, "in", one), payload=Payload(refusals=1)) for one in (dtms, "sdk")]
    return harness.order(setup, service=service, steps=steps, amount=2 * AMOUNT, **others)


@mixed
def test_signed_and_plain_branches_of_one_message_take_effect_once(signing_harness: Harness, setup: Setup) -> None:
    order = _order(signing_harness, setup)
    assert signing_harness.transfer(setup, order).error == ""
    signing_harness.until(order, "succeed")
    assert signing_harness.moved(order) == BOTH


def test_a_json_rpc_branch_of_dtms_client_ignores_the_signature(signing_harness: Harness) -> None:
    setup = Setup("go", "json-rpc", "mysql")
    order = signing_harness.order(setup)
    assert signing_harness.transfer(setup, order).error == ""
    signing_harness.until(order, "succeed")
    assert signing_harness.moved(order) == {PAYER: -AMOUNT, PAYEE: AMOUNT}


@plain
def test_a_signed_check_back_at_the_producers_service_sees_the_commit_and_bars_what_is_not(
    signing_harness: Harness, setup: Setup
) -> None:
    harness, program = signing_harness, signing_harness.program(setup.client)
    committed = _order(harness, setup, timeout_to_fail=COMMITS_WITHIN_S, ending="hold after commit")
    program.kill_where_it_holds(committed)
    barred = _order(harness, setup, timeout_to_fail=KILLED_IS_ASKED_AFTER_S, ending="hold before commit")
    program.kill_where_it_holds(barred)
    harness.until(committed, "succeed")
    harness.until(barred, "failed")
    assert (harness.moved(committed), harness.moved(barred)) == (BOTH, NOTHING)


@checked
def test_a_signed_check_back_at_the_other_kind_of_service_bars_a_killed_producer(
    signing_harness: Harness, setup: Setup, service: str
) -> None:
    order = _order(
        signing_harness, setup, service, timeout_to_fail=KILLED_IS_ASKED_AFTER_S, ending="hold before commit"
    )
    signing_harness.program(setup.client).kill_where_it_holds(order)
    signing_harness.until(order, "failed")
    assert signing_harness.moved(order) == NOTHING


def test_an_outsider_is_refused_where_calls_are_verified_and_believed_where_not(signing_harness: Harness) -> None:
    """Prove that the SDK's service verifies, so the other tests saw signatures."""
    query = "gid=nosuch&branch_id=00&op=msg&trans_type=msg"
    statuses = {
        client: _status(f"{signing_harness.address(Setup(client, 'http', 'mysql'), 'check')}?{query}")
        for client in ("sdk", "go", "dtmcli")
    }
    assert statuses == {"sdk": 401, "go": 409, "dtmcli": 409}
    target, _, method = signing_harness.address(SDK_GRPC, "in").removeprefix("grpc://").partition("/")
    with grpc.insecure_channel(target) as opened:
        channel: Any = opened
        with pytest.raises(grpc.RpcError) as raised:
            channel.unary_unary(f"/{method}")(b"", metadata=[("dtm-gid", "nosuch")], timeout=60)
    error: Any = raised.value
    assert error.code() is grpc.StatusCode.UNAUTHENTICATED


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
