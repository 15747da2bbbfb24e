"""The page of driven clients claims every scenario that is driven, and none that is not."""

from __future__ import annotations

from tests.clients import test_published_clients
from tests.clients.lanes import LANES, SCENARIOS, scenarios_table, versions


def test_every_scenario_has_its_test() -> None:
    tests = {name.removeprefix("test_") for name in vars(test_published_clients) if name.startswith("test_")}
    assert tests == set(SCENARIOS)


def test_table_names_every_lane() -> None:
    heads, rows = scenarios_table()
    assert len(heads) == 1 + len({(lane.client, lane.protocol) for lane in LANES})
    assert rows[0][1:] == ("MariaDB, PostgreSQL, Redis",) * 3 + ("MariaDB",)


def test_versions_are_those_that_are_pinned() -> None:
    assert versions() == [("Go", "`github.com/dtm-labs/client`", "1.18.7"), ("Python", "`dtmcli`", "1.7.7.0")]
