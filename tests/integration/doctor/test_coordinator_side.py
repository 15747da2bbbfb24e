"""`twophase doctor --check`: a real coordinator probes a real application.

Each planted fault is found.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import sqlalchemy
from flask import Flask
from typer.testing import CliRunner

from tests.integration.server.test_check_addresses import running, transfer
from tests.support.waiting import blocked_until
from twophase.barrier import install
from twophase.cli.doctor.command import app
from twophase.cli.doctor.coordinator_side import examine_coordinator
from twophase.cli.doctor.database_side import Database
from twophase.cli.findings import Finding, Level
from twophase.cli.operating.http_api import Api
from twophase.cli.token import app as token_app
from twophase.coordinator.coordinator import Coordinator
from twophase.coordinator.maintenance.probing import AGAIN_MS, FIRST_MS
from twophase.core.errors import StoreUnavailable
from twophase.integrations.flask import check_blueprint
from twophase.stores.sqlite.store import SqliteStore
from twophase.testing import InProcessCoordinator

ROUTE_LOCK_TIMEOUT_MS = 30_000


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[sqlalchemy.Engine]:
    """The producer's database."""
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'bank.db'}")
    install(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def service(bank: sqlalchemy.Engine) -> Iterator[str]:
    """A service with a check-back route."""
    flask = Flask("a service")
    flask.register_blueprint(check_blueprint(bank, lock_timeout=ROUTE_LOCK_TIMEOUT_MS / 1000))
    with running(flask) as address:
        yield address


@pytest.fixture
def coordinator(request: pytest.FixtureRequest) -> Iterator[InProcessCoordinator]:
    """A coordinator that probes, with the settings of the test's parameter."""
    settings: dict[str, Any] = {"probe_check_addresses": True, "request_timeout_ms": 60_000} | getattr(
        request, "param", {}
    )
    with InProcessCoordinator(**settings) as one:
        yield one


def findings(server: str, check: str | None = None, identity: str | None = None) -> dict[str, Finding]:
    return {finding.what: finding for finding in examine_coordinator(server, check, identity)}


def identity_of(engine: sqlalchemy.Engine) -> str:
    database = Database(engine.url.render_as_string(), "barrier")
    assert all(finding.level is Level.OK for finding in database.examine())
    assert database.identity is not None
    return database.identity


def test_a_sound_set_up_has_nothing_to_mend(
    coordinator: InProcessCoordinator, service: str, bank: sqlalchemy.Engine
) -> None:
    found = findings(coordinator.url, f"{service}/twophase/check", identity_of(bank))
    assert {finding.level for finding in found.values()} == {Level.OK}
    assert {"coordinator", "clock", "addresses", "check address", "timeouts"} == set(found)


def test_another_database_behind_the_route_is_found(
    coordinator: InProcessCoordinator, service: str, tmp_path: Path
) -> None:
    other = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    install(other)
    found = findings(coordinator.url, f"{service}/twophase/check", identity_of(other))
    other.dispose()
    assert (found["check address"].level, "TP-6002" in found["check address"].found) == (Level.BAD, True)


def test_a_database_that_was_not_compared_is_reported(coordinator: InProcessCoordinator, service: str) -> None:
    found = findings(coordinator.url, f"{service}/twophase/check")
    assert (found["check address"].level, "--database" in found["check address"].remedy) == (Level.WARNING, True)


def test_a_given_database_without_a_barrier_is_not_asked_for_again(
    coordinator: InProcessCoordinator, service: str, tmp_path: Path
) -> None:
    (tmp_path / "empty.db").touch()
    words = ["--check", f"{service}/twophase/check", "--database", f"sqlite:///{tmp_path / 'empty.db'}"]
    told = CliRunner().invoke(app, [*words, "--server", coordinator.url]).stdout
    assert "Repair the database first" in told
    assert "Add --database" not in told


@pytest.mark.parametrize(("path", "said"), [("/twophase/chek", "status 404"), (":1/twophase/check", "unreachable")])
def test_an_address_that_cannot_answer_is_found(
    coordinator: InProcessCoordinator, service: str, path: str, said: str
) -> None:
    check = f"{service}{path}" if path.startswith("/") else f"http://127.0.0.1{path}"
    found = findings(coordinator.url, check, "7f")["check address"]
    assert (found.level, said in found.found) == (Level.BAD, True)
    assert found.remedy


@pytest.mark.parametrize("coordinator", [{"request_timeout_ms": ROUTE_LOCK_TIMEOUT_MS}], indirect=True)
def test_a_route_that_waits_longer_than_the_coordinator_is_found(
    coordinator: InProcessCoordinator, service: str
) -> None:
    assert findings(coordinator.url, f"{service}/twophase/check")["timeouts"].level is Level.BAD


@pytest.mark.parametrize(("check", "identity"), [("queue://bank/check", None), ("bank:8000/check", "7f")])
def test_an_address_no_coordinator_can_call_is_found(
    coordinator: InProcessCoordinator, check: str, identity: str | None
) -> None:
    found = findings(coordinator.url, check, identity)["check address"]
    assert (found.level, "TP-1000" in found.found) == (Level.BAD, True)


def test_addresses_that_messages_bring_and_that_fail_are_found(
    coordinator: InProcessCoordinator, bank: sqlalchemy.Engine
) -> None:
    transfer(coordinator.url, "http://127.0.0.1:1", bank)
    for ms in (FIRST_MS, AGAIN_MS):
        coordinator.advance(ms / 1000)
        _until_probed(coordinator, coordinator.clock.now_ms() - FIRST_MS)
    found = findings(coordinator.url)["addresses"]
    assert (found.level, "http://127.0.0.1:1/twophase/check" in found.found) == (Level.BAD, True)


def test_a_failing_address_of_another_worker_is_found(
    coordinator: InProcessCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "twophase_check_addresses_failing 0.0\n" in Api(coordinator.url).get_text("/metrics")
    monkeypatch.setattr(Api, "get_text", lambda *_: "# HELP\ntwophase_check_addresses_failing 2.0\n")
    found = findings(coordinator.url)["addresses"]
    assert (found.level, found.found) == (Level.BAD, "2 fail at other workers of this server")


def test_one_wrong_address_of_two_databases_is_one_finding(
    coordinator: InProcessCoordinator, bank: sqlalchemy.Engine, tmp_path: Path
) -> None:
    other = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    install(other)
    for engine in (bank, other):
        transfer(coordinator.url, "http://127.0.0.1:1", engine)
    other.dispose()
    assert coordinator._server is not None
    deadline_s = time.monotonic() + 60
    probing = coordinator._server.coordinator.probing
    while sum(one.failing for one in probing.addresses()) < 2:
        assert time.monotonic() < deadline_s
        coordinator.advance(FIRST_MS / 1000)
        time.sleep(0.01)

    shown = [
        finding.found for finding in examine_coordinator(coordinator.url, None, None) if finding.level is Level.BAD
    ]
    assert (len(shown), "http://127.0.0.1:1/twophase/check" in shown[0]) == (1, True), shown


def _until_probed(coordinator: InProcessCoordinator, after_ms: int) -> None:
    assert coordinator._server is not None
    probing = coordinator._server.coordinator.probing
    blocked_until(lambda: any(one.probed_ms >= after_ms for one in probing.addresses()))


def test_a_check_address_that_is_not_probed_is_not_denied(coordinator: InProcessCoordinator) -> None:
    """A route of dtm's client would take a probe for a question about a message."""
    message = {"gid": "g", "trans_type": "msg", "query_prepared": "http://127.0.0.1:1/check"}
    Api(coordinator.url).post("/api/dtmsvr/prepare", message, dict)
    found = findings(coordinator.url)["addresses"]
    assert found.level is Level.OK
    assert found.found.startswith("this node probes none: in the last hour, or since its start, no message")


@pytest.mark.parametrize("coordinator", [{"probe_check_addresses": False}], indirect=True)
def test_a_coordinator_that_does_not_probe_is_reported(coordinator: InProcessCoordinator) -> None:
    assert findings(coordinator.url)["addresses"].level is Level.WARNING


def test_a_coordinator_that_does_not_answer_is_found() -> None:
    [found] = examine_coordinator("http://127.0.0.1:1", None, None)
    assert (found.level, found.what) == (Level.BAD, "coordinator")
    assert "twophase server" in found.remedy


def test_a_coordinator_whose_store_is_away_is_found(
    coordinator: InProcessCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> NoReturn:
        raise StoreUnavailable("postgresql://db/twophase: connecting failed")

    monkeypatch.setattr(SqliteStore, "overview", away)
    [found] = examine_coordinator(coordinator.url, None, None)

    assert (found.level, found.what) == (Level.BAD, "coordinator")
    assert found.found.startswith("TP-4009: postgresql://db/twophase: connecting failed. Make sure that the database")
    assert not found.remedy


def test_a_coordinator_that_takes_no_requests_is_found(
    coordinator: InProcessCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Coordinator, "ready", False)

    found = findings(coordinator.url)["coordinator"]

    assert (found.level, found.found) == (Level.BAD, f"answers at {coordinator.url}, and takes no requests now")


def test_a_coordinator_that_needs_a_token_is_not_to_be_started(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    assert CliRunner().invoke(token_app, ["add", "desk", "--scope", "observe", "--tokens", str(file)]).exit_code == 0
    with InProcessCoordinator(tokens=str(file)) as coordinator:
        [found] = examine_coordinator(coordinator.url, None, None)

    assert (found.level, found.found[:7]) == (Level.BAD, "TP-1101")
    assert found.remedy == "Give a token that may do this, by --token-file or TWOPHASE_TOKEN."


def test_another_server_than_a_coordinator_is_found(service: str) -> None:
    [found] = examine_coordinator(service, None, None)
    assert (found.level, found.what) == (Level.BAD, "coordinator")
