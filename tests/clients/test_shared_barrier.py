"""Services of several clients on one barrier table.

A message that one prepares, another answers for. The table is dtm's, completed by `twophase barrier install`. A Go
service answers check-backs and branches for a producer of twophase's SDK and the reverse, over HTTP and gRPC; Python's
dtmcli takes part on MariaDB.
"""

from __future__ import annotations

import pytest

from tests.clients.harness import COMMITS_WITHIN_S, KILLED_IS_ASKED_AFTER_S, MOVED, NOTHING, Harness, Setup
from tests.clients.setups import SHARED

pytestmark = pytest.mark.timeout(600)

shared = pytest.mark.parametrize(
    ("setup", "service"), SHARED, ids=[f"{setup.name}-served-by-{service}" for setup, service in SHARED]
)


@shared
def test_money_moves_once(harness: Harness, setup: Setup, service: str) -> None:
    order = harness.order(setup, service=service)
    assert harness.transfer(setup, order).error == ""
    harness.until(order, "succeed")
    assert harness.moved(order) == MOVED


@shared
def test_business_error_has_no_effect(harness: Harness, setup: Setup, service: str) -> None:
    order = harness.order(setup, service=service, ending="business error")
    assert harness.transfer(setup, order).error == "there is no money"
    harness.until(order, "failed")
    assert harness.moved(order) == NOTHING


@shared
def test_check_back_of_the_other_client_sees_the_commit_of_a_killed_producer(
    harness: Harness, setup: Setup, service: str
) -> None:
    order = harness.order(setup, service=service, timeout_to_fail=COMMITS_WITHIN_S, ending="hold after commit")
    program = harness.program(setup.client)
    if setup.client == "sdk":
        program.dies_at("producer.after_commit", order)
    else:
        program.kill_where_it_holds(order)
    harness.until(order, "succeed")
    assert harness.moved(order) == MOVED


@shared
def test_check_back_of_the_other_client_bars_a_killed_producer(harness: Harness, setup: Setup, service: str) -> None:
    order = harness.order(setup, service=service, timeout_to_fail=KILLED_IS_ASKED_AFTER_S, ending="hold before commit")
    harness.program(setup.client).kill_where_it_holds(order)
    harness.until(order, "failed")
    assert harness.moved(order) == NOTHING
