"""dtm's published clients, unchanged, against a real server.

The tests check the money, and what the producer learns. The scenarios are those of dtm's own tests of its clients
(dtm-wire §7, rows 12 to 16 and 26).
"""

from __future__ import annotations

import secrets
import time
from typing import Final

import pytest

from tests.clients.harness import COMMITS_WITHIN_S, KILLED_IS_ASKED_AFTER_S, MOVED, NOTHING, Harness, Setup
from tests.clients.orders import AMOUNT, PAYEE, PAYER, Payload
from tests.clients.setups import driven

pytestmark = pytest.mark.timeout(
    600
)  # the first test of a run waits for servers, and for `go build` where none was done

DELAY_S: Final = 1


@driven
def test_money_moves_once(harness: Harness, setup: Setup) -> None:
    order = harness.order(setup)
    assert harness.transfer(setup, order).error == ""
    harness.until(order, "succeed")
    assert harness.moved(order) == MOVED


@driven
def test_gid_may_be_the_servers(harness: Harness, setup: Setup) -> None:
    told = harness.transfer(setup, harness.order(setup, gid=""))
    assert told.error == ""
    order = harness.order(setup, gid=told.gid)
    harness.until(order, "succeed")
    assert harness.moved(order) == MOVED


@pytest.mark.parametrize("ending", ["business error", "failure"])
@driven
def test_business_error_has_no_effect(harness: Harness, setup: Setup, ending: str) -> None:
    order = harness.order(setup, ending=ending)
    assert harness.transfer(setup, order).error in {"there is no money", "FAILURE"}
    harness.until(order, "failed")
    assert harness.moved(order) == NOTHING


@driven
def test_producer_killed_after_its_commit_is_made_up_for_by_the_check_back(harness: Harness, setup: Setup) -> None:
    order = harness.order(setup, ending="hold after commit", timeout_to_fail=COMMITS_WITHIN_S)
    harness.program(setup.client).kill_where_it_holds(order)
    harness.until(order, "succeed")
    assert harness.moved(order) == MOVED


@driven
def test_producer_killed_before_its_commit_is_rolled_back_by_the_check_back(harness: Harness, setup: Setup) -> None:
    order = harness.order(setup, ending="hold before commit", timeout_to_fail=KILLED_IS_ASKED_AFTER_S)
    harness.program(setup.client).kill_where_it_holds(order)
    harness.until(order, "failed")
    assert harness.moved(order) == NOTHING


@driven
def test_producer_that_comes_after_the_check_back_is_refused_as_a_duplicate(harness: Harness, setup: Setup) -> None:
    order = harness.order(setup, ending="asked first")
    assert "duplicate" in harness.transfer(setup, order).error.lower()
    harness.until(order, "failed")
    assert harness.moved(order) == NOTHING


@driven
def test_commit_that_fails_has_no_effect(harness: Harness, setup: Setup) -> None:
    order = harness.order(setup, ending="commit fails")
    assert harness.transfer(setup, order).error
    harness.until(order, "failed")
    assert harness.moved(order) == NOTHING


@driven
def test_error_after_the_commit_is_reported_and_the_message_delivered(harness: Harness, setup: Setup) -> None:
    order = harness.order(setup, ending="error after commit")
    assert harness.transfer(setup, order).error == "the commit is said to have failed"
    harness.until(order, "succeed")
    assert harness.moved(order) == MOVED


@driven
def test_wait_result_returns_when_the_money_has_moved(harness: Harness, setup: Setup) -> None:
    order = harness.order(setup, wait_result=True)
    assert harness.transfer(setup, order).error == ""
    assert harness.moved(order) == MOVED


@driven
def test_wait_result_tells_of_a_refusal_and_the_branch_is_called_again(harness: Harness, setup: Setup) -> None:
    order = harness.order(setup, Payload(refusals=1), wait_result=True)
    assert harness.transfer(setup, order).error
    harness.until(order, "succeed")
    assert harness.moved(order) == MOVED


@driven
def test_delayed_message_waits(harness: Harness, setup: Setup) -> None:
    began = time.monotonic()
    order = harness.order(setup, delay=DELAY_S)
    assert harness.transfer(setup, order).error == ""
    harness.until(order, "succeed")
    assert time.monotonic() - began >= DELAY_S
    assert harness.moved(order) == MOVED


@driven
def test_concurrent_branches_are_called_at_once(harness: Harness, setup: Setup) -> None:
    order = harness.order(setup, Payload(meet=2), Payload(meet=2), concurrent=True, amount=2 * AMOUNT)
    assert harness.transfer(setup, order).error == ""
    harness.until(order, "succeed")
    assert harness.moved(order) == {PAYER: -2 * AMOUNT, PAYEE: 2 * AMOUNT}


@driven
def test_business_does_not_run_when_prepare_does_not_get_through(harness: Harness, setup: Setup) -> None:
    nobody = "127.0.0.1:1" if setup.protocol == "grpc" else f"{harness.coordinator.http}/api/nothing"
    order = harness.order(setup, server=nobody)
    assert harness.transfer(setup, order).error
    assert harness.moved(order) == NOTHING


@driven
def test_topic_reaches_every_subscriber(harness: Harness, setup: Setup) -> None:
    # twophase has no barrier in Redis.
    services = (setup.client,) if setup.store == "redis" else (setup.client, "sdk")
    amount = len(services) * AMOUNT
    order = harness.order(setup, topic=f"paid-{secrets.token_hex(4)}", amount=amount)
    for service in services:
        status = harness.coordinator.subscribe(
            order.steps[0].topic, harness.address(_by_http(setup, service), "in", service)
        )
        assert status == 200
    assert harness.transfer(setup, order).error == ""
    harness.until(order, "succeed")
    assert harness.moved(order) == {PAYER: -amount, PAYEE: amount}


@driven
def test_unknown_topic_stops_the_business(harness: Harness, setup: Setup) -> None:
    order = harness.order(setup, topic=f"nobody-{secrets.token_hex(4)}")
    assert harness.transfer(setup, order).error
    assert harness.coordinator.state(order.gid) is None
    assert harness.moved(order) == NOTHING


def _by_http(setup: Setup, service: str) -> Setup:
    """Return the combination itself, or the one by HTTP.

    The latter is used where a service does not speak JSON-RPC, which a message may mix with HTTP.
    """
    plain = setup.protocol == "json-rpc" and service == "sdk"
    return Setup(setup.client, "http", setup.store) if plain else setup
