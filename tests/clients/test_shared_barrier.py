"""Services of several clients on one barrier table.

A message that one prepares, another answers for. The table is dtm's, completed by `twophase barrier install`. A Go
service answers check-backs and branches for a producer of twophase's SDK and the reverse, over HTTP and gRPC; Python's
dtmcli takes part on MariaDB.
"""

from __future__ import annotations

import pytest

from tests.clients.lanes import SHARED
from tests.clients.scene import KILLED_IS_ASKED_AFTER_S, MOVED, NOTHING, Lane, Scene

pytestmark = pytest.mark.timeout(600)

shared = pytest.mark.parametrize(
    ("lane", "service"), SHARED, ids=[f"{lane.name}-served-by-{service}" for lane, service in SHARED]
)


@shared
def test_money_moves_once(scene: Scene, lane: Lane, service: str) -> None:
    wish = scene.wish(lane, service=service)
    assert scene.transfer(lane, wish).error == ""
    scene.until(wish, "succeed")
    assert scene.moved(wish) == MOVED


@shared
def test_business_error_has_no_effect(scene: Scene, lane: Lane, service: str) -> None:
    wish = scene.wish(lane, service=service, ending="business error")
    assert scene.transfer(lane, wish).error == "there is no money"
    scene.until(wish, "failed")
    assert scene.moved(wish) == NOTHING


@shared
def test_check_back_of_the_other_client_sees_the_commit_of_a_killed_producer(
    scene: Scene, lane: Lane, service: str
) -> None:
    wish = scene.wish(lane, service=service, timeout_to_fail=KILLED_IS_ASKED_AFTER_S, ending="hold after commit")
    program = scene.program(lane.client)
    if lane.client == "sdk":
        program.dies_at("producer.after_commit", wish)
    else:
        program.kill_where_it_holds(wish)
    scene.until(wish, "succeed")
    assert scene.moved(wish) == MOVED


@shared
def test_check_back_of_the_other_client_bars_a_killed_producer(scene: Scene, lane: Lane, service: str) -> None:
    wish = scene.wish(lane, service=service, timeout_to_fail=KILLED_IS_ASKED_AFTER_S, ending="hold before commit")
    scene.program(lane.client).kill_where_it_holds(wish)
    scene.until(wish, "failed")
    assert scene.moved(wish) == NOTHING
