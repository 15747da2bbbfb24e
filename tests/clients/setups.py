"""The published clients that are driven: protocols, databases and scenarios.

The tests take their parameters from here, and `docs/reference/dtm-clients.md` its tables (`make docs`), so the page
claims what the tests do and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.clients.harness import Setup

_GO_MODULE: Final = "github.com/dtm-labs/client"
_CLIENTS: Final = {"go": "Go", "dtmcli": "Python", "sdk": "twophase"}
_PROTOCOLS: Final = {"http": "HTTP", "json-rpc": "JSON-RPC", "grpc": "gRPC"}
_STORES: Final = {"mysql": "MariaDB", "postgres": "PostgreSQL", "redis": "Redis"}

LANES: Final = (
    *(Setup("go", protocol, store) for protocol in _PROTOCOLS for store in _STORES),
    Setup("dtmcli", "http", "mysql"),
)
_WITH_TRANSACTIONS: Final = tuple(setup for setup in LANES if setup.store != "redis")
_WITH_GIDS: Final = tuple(setup for setup in _WITH_TRANSACTIONS if setup.protocol != "json-rpc")
_WITH_CONCURRENCY: Final = tuple(setup for setup in LANES if setup.protocol != "grpc")

SHARED: Final = (
    *((Setup("sdk", protocol, store), "go") for protocol in ("http", "grpc") for store in ("mysql", "postgres")),
    *((Setup("go", protocol, store), "sdk") for protocol in ("http", "grpc") for store in ("mysql", "postgres")),
    (Setup("sdk", "http", "mysql"), "dtmcli"),
    (Setup("dtmcli", "http", "mysql"), "sdk"),
)
"""A producer's combination, and the client whose service answers for it.

That service answers its check-backs and branches on the same barrier table.
"""


class Scenario(msgspec.Struct, frozen=True):
    """The title of `test_NAME` for people, and the combinations that it drives."""

    title: str
    setups: tuple[Setup, ...] = LANES


SCENARIOS: Final = {
    "money_moves_once": Scenario("happy path: both accounts change, once"),
    "gid_may_be_the_servers": Scenario("gid made by the server", _WITH_GIDS),
    "business_error_has_no_effect": Scenario("business error, and business refusal"),
    "producer_killed_after_its_commit_is_made_up_for_by_the_check_back": Scenario("`kill -9` after the commit"),
    "producer_killed_before_its_commit_is_rolled_back_by_the_check_back": Scenario("`kill -9` before the commit"),
    "producer_that_comes_after_the_check_back_is_refused_as_a_duplicate": Scenario("checked back before it began"),
    "commit_that_fails_has_no_effect": Scenario("the commit fails", _WITH_TRANSACTIONS),
    "error_after_the_commit_is_reported_and_the_message_delivered": Scenario("committed, yet an error is reported"),
    "wait_result_returns_when_the_money_has_moved": Scenario("`wait_result`, success"),
    "wait_result_tells_of_a_refusal_and_the_branch_is_called_again": Scenario("`wait_result`, a branch refuses"),
    "delayed_message_waits": Scenario("delay"),
    "concurrent_branches_are_called_at_once": Scenario("concurrent branches", _WITH_CONCURRENCY),
    "business_does_not_run_when_prepare_does_not_get_through": Scenario("prepare does not get through"),
    "topic_reaches_every_subscriber": Scenario(
        "topic with two subscribers, one of them by twophase's barrier; on Redis with one"
    ),
    "unknown_topic_stops_the_business": Scenario("unknown topic"),
}


def driven(test: Callable[..., Any]) -> Any:
    """Run the test once for each combination of its scenario."""
    setups = SCENARIOS[test.__name__.removeprefix("test_")].setups
    return pytest.mark.parametrize("setup", setups, ids=[setup.name for setup in setups])(test)


def versions() -> list[tuple[str, str, str]]:
    """Return language, package and version of each client that is driven."""
    lines = (Path(__file__).parent / "go" / "go.mod").read_text().splitlines()
    go = next(line.split()[1] for line in lines if line.strip().startswith(_GO_MODULE))
    return [("Go", f"`{_GO_MODULE}`", go.removeprefix("v")), ("Python", "`dtmcli`", version("dtmcli"))]


def scenarios_table() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heads and rows: the databases of each scenario.

    Each client and protocol has a column.
    """
    ways = list(dict.fromkeys((setup.client, setup.protocol) for setup in LANES))
    heads = ("Scenario", *(f"{_CLIENTS[client]}, {_PROTOCOLS[protocol]}" for client, protocol in ways))
    rows = []
    for scenario in SCENARIOS.values():
        stores = {
            way: [_STORES[setup.store] for setup in scenario.setups if (setup.client, setup.protocol) == way]
            for way in ways
        }
        rows.append((scenario.title, *(", ".join(stores[way]) or "–" for way in ways)))
    return heads, rows


def shared_table() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heads and rows: the clients driven together on one barrier table."""
    pairs: dict[tuple[str, str, str], list[str]] = {}
    for setup, service in SHARED:
        pairs.setdefault((setup.client, service, setup.protocol), []).append(_STORES[setup.store])
    rows: list[tuple[str, ...]] = [
        (_CLIENTS[client], _CLIENTS[service], _PROTOCOLS[protocol], ", ".join(stores))
        for (client, service, protocol), stores in pairs.items()
    ]
    return ("Producer", "Who answers check-backs and branches", "Protocol", "Barrier table in"), rows
