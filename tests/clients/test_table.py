"""The page of driven clients claims every driven scenario, and no other."""

from __future__ import annotations

from pathlib import Path

from tests.clients import test_published_clients
from tests.clients.setups import LANES, SCENARIOS, scenarios_table, versions

PAGE = Path(__file__).parents[2] / "docs/reference/dtm-clients.md"


def test_every_scenario_has_its_test() -> None:
    tests = {name.removeprefix("test_") for name in vars(test_published_clients) if name.startswith("test_")}
    assert tests == set(SCENARIOS)


def test_table_names_every_client() -> None:
    heads, rows = scenarios_table()
    assert len(heads) == 1 + len({(setup.client, setup.protocol) for setup in LANES})
    assert rows[0][1:] == ("MariaDB, PostgreSQL, Redis",) * 3 + ("MariaDB",)


def test_page_says_which_languages_are_not_tested() -> None:
    _, _, rest = PAGE.read_text().partition("Not tested:")
    not_tested, _, _ = rest.partition("\n## ")
    tested = {language for language, *_ in versions()}
    for language in ("Go", "Python", "Node", "C#", "PHP", "Java"):
        assert (language in not_tested) is (language not in tested)


def test_versions_are_those_that_are_pinned() -> None:
    assert versions() == [("Go", "`github.com/dtm-labs/client`", "1.18.7"), ("Python", "`dtmcli`", "1.7.7.0")]
