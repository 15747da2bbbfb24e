"""dtm's published clients, unchanged, with a token.

Over HTTP and JSON-RPC it stands in their base URL. The gRPC client has none: the program adds one interceptor, by the
client's own `AddUnaryInterceptor`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.clients.harness import MOVED, NOTHING, Harness, Setup
from tests.clients.orders import Order
from tests.support.identities import token_of

pytestmark = pytest.mark.timeout(
    600
)  # the first test of a run waits for servers, and for `go build` where none was done

SETUPS = (
    Setup("go", "http", "mysql"),
    Setup("go", "json-rpc", "mysql"),
    Setup("go", "grpc", "mysql"),
    Setup("dtmcli", "http", "mysql"),
)
driven = pytest.mark.parametrize("setup", SETUPS, ids=[setup.name for setup in SETUPS])
Given = tuple[Harness, Path]


def _order(harness: Harness, setup: Setup, **others: Any) -> Order:
    """Return a transfer, with the token in the metadata where there is no base URL."""
    return harness.order(setup, token=token_of("bank") if setup.protocol == "grpc" else "", **others)


@driven
def test_money_moves_once(harness_with_tokens: Given, setup: Setup) -> None:
    harness, log = harness_with_tokens
    order = _order(harness, setup)
    assert harness.transfer(setup, order).error == ""
    harness.until(order, "succeed")
    assert harness.moved(order) == MOVED
    assert token_of("bank") not in log.read_text()


@driven
def test_business_error_has_no_effect(harness_with_tokens: Given, setup: Setup) -> None:
    harness, log = harness_with_tokens
    order = _order(harness, setup, ending="business error")
    assert harness.transfer(setup, order).error
    harness.until(order, "failed")
    assert harness.moved(order) == NOTHING
    assert token_of("bank") not in log.read_text()


@pytest.mark.parametrize("setup", [one for one in SETUPS if one.protocol != "json-rpc"], ids=lambda one: one.name)
def test_gid_may_be_the_servers(harness_with_tokens: Given, setup: Setup) -> None:
    harness, _ = harness_with_tokens
    told = harness.transfer(setup, _order(harness, setup, gid=""))
    assert told.error == ""
    harness.until(_order(harness, setup, gid=told.gid), "succeed")


def test_a_request_without_the_token_is_refused(harness_with_tokens: Given) -> None:
    harness, _ = harness_with_tokens
    open_address = harness.coordinator.http.partition("/t/")[0]
    status, body = type(harness.coordinator)(open_address, "").get("/api/dtmsvr/newGid")
    refused: dict[str, Any] = body
    assert (status, refused["code"]) == (401, "TP-1101")


def test_a_grpc_client_without_the_token_is_refused_and_its_business_does_not_run(harness_with_tokens: Given) -> None:
    harness, _ = harness_with_tokens
    setup = Setup("go", "grpc", "mysql")
    order = harness.order(setup)
    assert "Unauthenticated" in harness.transfer(setup, order).error
    assert harness.moved(order) == NOTHING
