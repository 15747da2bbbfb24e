"""dtm's published clients, unchanged, against a real server.

The tests check the money, and what the producer learns. The scenarios are those of dtm's own tests of its clients
(dtm-wire §7, rows 12 to 16 and 26).
"""

from __future__ import annotations

import secrets
import time
from typing import Final

import pytest

from tests.clients.lanes import driven
from tests.clients.scene import KILLED_IS_ASKED_AFTER_S, MOVED, NOTHING, Lane, Scene
from tests.clients.wish import AMOUNT, PAYEE, PAYER, Payload

pytestmark = pytest.mark.timeout(
    600
)  # the first test of a run waits for servers, and for `go build` where none was done

DELAY_S: Final = 1


@driven
def test_money_moves_once(scene: Scene, lane: Lane) -> None:
    wish = scene.wish(lane)
    assert scene.transfer(lane, wish).error == ""
    scene.until(wish, "succeed")
    assert scene.moved(wish) == MOVED


@driven
def test_gid_may_be_the_servers(scene: Scene, lane: Lane) -> None:
    told = scene.transfer(lane, scene.wish(lane, gid=""))
    assert told.error == ""
    wish = scene.wish(lane, gid=told.gid)
    scene.until(wish, "succeed")
    assert scene.moved(wish) == MOVED


@pytest.mark.parametrize("ending", ["business error", "failure"])
@driven
def test_business_error_has_no_effect(scene: Scene, lane: Lane, ending: str) -> None:
    wish = scene.wish(lane, ending=ending)
    assert scene.transfer(lane, wish).error in {"there is no money", "FAILURE"}
    scene.until(wish, "failed")
    assert scene.moved(wish) == NOTHING


@driven
def test_producer_killed_after_its_commit_is_made_up_for_by_the_check_back(scene: Scene, lane: Lane) -> None:
    wish = scene.wish(lane, ending="hold after commit", timeout_to_fail=KILLED_IS_ASKED_AFTER_S)
    scene.program(lane.client).kill_where_it_holds(wish)
    scene.until(wish, "succeed")
    assert scene.moved(wish) == MOVED


@driven
def test_producer_killed_before_its_commit_is_rolled_back_by_the_check_back(scene: Scene, lane: Lane) -> None:
    wish = scene.wish(lane, ending="hold before commit", timeout_to_fail=KILLED_IS_ASKED_AFTER_S)
    scene.program(lane.client).kill_where_it_holds(wish)
    scene.until(wish, "failed")
    assert scene.moved(wish) == NOTHING


@driven
def test_producer_that_comes_after_the_check_back_is_refused_as_a_duplicate(scene: Scene, lane: Lane) -> None:
    wish = scene.wish(lane, ending="asked first")
    assert "duplicate" in scene.transfer(lane, wish).error.lower()
    scene.until(wish, "failed")
    assert scene.moved(wish) == NOTHING


@driven
def test_commit_that_fails_has_no_effect(scene: Scene, lane: Lane) -> None:
    wish = scene.wish(lane, ending="commit fails")
    assert scene.transfer(lane, wish).error
    scene.until(wish, "failed")
    assert scene.moved(wish) == NOTHING


@driven
def test_error_after_the_commit_is_reported_and_the_message_delivered(scene: Scene, lane: Lane) -> None:
    wish = scene.wish(lane, ending="error after commit")
    assert scene.transfer(lane, wish).error == "the commit is said to have failed"
    scene.until(wish, "succeed")
    assert scene.moved(wish) == MOVED


@driven
def test_wait_result_returns_when_the_money_has_moved(scene: Scene, lane: Lane) -> None:
    wish = scene.wish(lane, wait_result=True)
    assert scene.transfer(lane, wish).error == ""
    assert scene.moved(wish) == MOVED


@driven
def test_wait_result_tells_of_a_refusal_and_the_branch_is_called_again(scene: Scene, lane: Lane) -> None:
    wish = scene.wish(lane, Payload(refusals=1), wait_result=True)
    assert scene.transfer(lane, wish).error
    scene.until(wish, "succeed")
    assert scene.moved(wish) == MOVED


@driven
def test_delayed_message_waits(scene: Scene, lane: Lane) -> None:
    began = time.monotonic()
    wish = scene.wish(lane, delay=DELAY_S)
    assert scene.transfer(lane, wish).error == ""
    scene.until(wish, "succeed")
    assert time.monotonic() - began >= DELAY_S
    assert scene.moved(wish) == MOVED


@driven
def test_concurrent_branches_are_called_at_once(scene: Scene, lane: Lane) -> None:
    wish = scene.wish(lane, Payload(meet=2), Payload(meet=2), concurrent=True, amount=2 * AMOUNT)
    assert scene.transfer(lane, wish).error == ""
    scene.until(wish, "succeed")
    assert scene.moved(wish) == {PAYER: -2 * AMOUNT, PAYEE: 2 * AMOUNT}


@driven
def test_business_does_not_run_when_prepare_does_not_get_through(scene: Scene, lane: Lane) -> None:
    nobody = "127.0.0.1:1" if lane.protocol == "grpc" else f"{scene.coordinator.http}/api/nothing"
    wish = scene.wish(lane, server=nobody)
    assert scene.transfer(lane, wish).error
    assert scene.moved(wish) == NOTHING


@driven
def test_topic_reaches_every_subscriber(scene: Scene, lane: Lane) -> None:
    # twophase has no barrier in Redis.
    services = (lane.client,) if lane.store == "redis" else (lane.client, "sdk")
    amount = len(services) * AMOUNT
    wish = scene.wish(lane, topic=f"paid-{secrets.token_hex(4)}", amount=amount)
    for service in services:
        status = scene.coordinator.subscribe(wish.steps[0].topic, scene.address(_by_http(lane, service), "in", service))
        assert status == 200
    assert scene.transfer(lane, wish).error == ""
    scene.until(wish, "succeed")
    assert scene.moved(wish) == {PAYER: -amount, PAYEE: amount}


@driven
def test_unknown_topic_stops_the_business(scene: Scene, lane: Lane) -> None:
    wish = scene.wish(lane, topic=f"nobody-{secrets.token_hex(4)}")
    assert scene.transfer(lane, wish).error
    assert scene.coordinator.state(wish.gid) is None
    assert scene.moved(wish) == NOTHING


def _by_http(lane: Lane, service: str) -> Lane:
    """Return the combination itself, or the one by HTTP.

    The latter is used where a service does not speak JSON-RPC, which a message may mix with HTTP.
    """
    plain = lane.protocol == "json-rpc" and service == "sdk"
    return Lane(lane.client, "http", lane.store) if plain else lane
