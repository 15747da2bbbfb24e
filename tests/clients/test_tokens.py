"""dtm's published clients, unchanged, with a token in their base URL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.clients.harness import MOVED, NOTHING, Harness, Setup
from tests.support.identities import token_of

pytestmark = pytest.mark.timeout(
    600
)  # the first test of a run waits for servers, and for `go build` where none was done

SETUPS = (Setup("go", "http", "mysql"), Setup("go", "json-rpc", "mysql"), Setup("dtmcli", "http", "mysql"))
driven = pytest.mark.parametrize("setup", SETUPS, ids=[setup.name for setup in SETUPS])
Given = tuple[Harness, Path]


@driven
def test_money_moves_once(harness_with_tokens: Given, setup: Setup) -> None:
    harness, log = harness_with_tokens
    order = harness.order(setup)
    assert harness.transfer(setup, order).error == ""
    harness.until(order, "succeed")
    assert harness.moved(order) == MOVED
    assert token_of("bank") not in log.read_text()


@driven
def test_business_error_has_no_effect(harness_with_tokens: Given, setup: Setup) -> None:
    harness, log = harness_with_tokens
    order = harness.order(setup, ending="business error")
    assert harness.transfer(setup, order).error
    harness.until(order, "failed")
    assert harness.moved(order) == NOTHING
    assert token_of("bank") not in log.read_text()


@pytest.mark.parametrize("setup", [one for one in SETUPS if one.protocol == "http"], ids=lambda one: one.name)
def test_gid_may_be_the_servers(harness_with_tokens: Given, setup: Setup) -> None:
    harness, _ = harness_with_tokens
    told = harness.transfer(setup, harness.order(setup, gid=""))
    assert told.error == ""
    harness.until(harness.order(setup, gid=told.gid), "succeed")


def test_a_request_without_the_token_is_refused(harness_with_tokens: Given) -> None:
    harness, _ = harness_with_tokens
    open_address = harness.coordinator.http.partition("/t/")[0]
    status, body = type(harness.coordinator)(open_address, "").get("/api/dtmsvr/newGid")
    refused: dict[str, Any] = body
    assert (status, refused["code"]) == (401, "TP-1101")
