"""dtm's client for Node: what keeps it from being driven, said at the end of every run."""

from __future__ import annotations

from tests.servers.missing import not_to_be_had


def test_node_client_makes_transfers() -> None:
    not_to_be_had("Node client of dtm", "the npm registry answers 404 for the package dtmcli")
