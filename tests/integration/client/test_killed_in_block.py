"""An open message whose producer dies after a commit inside its block.

The message never succeeds without its branches.
"""

from __future__ import annotations

import http.server
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from typer.testing import CliRunner

from tests.integration.client.banks import Bank
from tests.support.http_server import QuietHandler, served
from tests.support.waiting import blocked_until
from twophase.barrier.http_answer import CheckBackPolicy, answer_check_back
from twophase.barrier.signing import http_call
from twophase.cli.app import app
from twophase.client.horizons import agree
from twophase.testing import InProcessCoordinator, State

KILLED = pytest.mark.kinds(where=lambda kind: kind.name.endswith(" engine") and not kind.is_async)
GID = "killed-in-its-block"
POLICY = CheckBackPolicy("barrier", 1500, require_identity=True)


class _Service(QuietHandler):
    """A service with the producer's check-back route and one consumer.

    The consumer accepts every call.
    """

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        engine = self.server.engine  # type: ignore[attr-defined]
        call = http_call("GET", parts.path, parts.query, {}, bytes, peer="")
        status, headers, body = answer_check_back(engine, parse_qs(parts.query), POLICY, call)
        self._answer(status, headers, body)

    def do_POST(self) -> None:
        self.server.called.append(self.path)  # type: ignore[attr-defined]
        self._answer(200, {}, b"{}")

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def service(bank: Bank) -> Iterator[Any]:
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Service)
    server.engine, server.called = bank.engine, []
    with served(server):
        yield server


@pytest.fixture
def real_coordinator() -> Iterator[InProcessCoordinator]:
    with InProcessCoordinator() as coordinator:
        yield coordinator


def run_until_killed(bank: Bank, service: Any, coordinator: InProcessCoordinator) -> None:
    address = f"http://127.0.0.1:{service.server_port}"
    database = bank.engine.url.render_as_string(hide_password=False)
    words = (database, coordinator.url, f"{address}/check", f"{address}/in", GID)
    died = subprocess.run(
        [sys.executable, "-m", "tests.integration.client.killed_in_block", *words], capture_output=True, check=False
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    assert bank.ledger.balance() == 70, "its block committed"


def ask_once(coordinator: InProcessCoordinator) -> None:
    """Let the check-back become due, and wait until its answer is recorded."""
    before = coordinator.query(GID)
    assert before is not None
    coordinator.advance(3600)
    blocked_until(lambda: (view := coordinator.query(GID)) is not None and view.attempts > before.attempts)


@KILLED
async def test_a_message_whose_producer_died_behind_its_own_commit_stays_undecided(
    bank: Bank, service: Any, real_coordinator: InProcessCoordinator
) -> None:
    run_until_killed(bank, service, real_coordinator)
    for _ in range(3):
        ask_once(real_coordinator)
    assert real_coordinator.state(GID) is State.PREPARED
    assert service.called == []


@KILLED
async def test_explain_says_why_such_a_message_is_undecided(
    bank: Bank, service: Any, real_coordinator: InProcessCoordinator
) -> None:
    run_until_killed(bank, service, real_coordinator)
    ask_once(real_coordinator)
    said = CliRunner().invoke(app, ["explain", GID, "--server", real_coordinator.url]).output
    assert "TP-5013: the local transaction is committed" in said, said
    assert "before the branches added" in " ".join(said.split())


@KILLED
async def test_no_cleaner_may_take_the_row_of_such_a_message(
    bank: Bank, service: Any, real_coordinator: InProcessCoordinator
) -> None:
    run_until_killed(bank, service, real_coordinator)
    ask_once(real_coordinator)
    view = real_coordinator.query(GID)
    ((identity,),) = bank.ledger.run("select value from twophase_meta where name = 'identity'")
    now_ms = real_coordinator.clock.now_ms()
    assert view is not None
    assert agree([real_coordinator.url], identity=identity, now_ms=now_ms).oldest_undecided_ms == view.created_ms


@KILLED
async def test_an_operator_ends_such_a_message(
    bank: Bank, service: Any, real_coordinator: InProcessCoordinator
) -> None:
    run_until_killed(bank, service, real_coordinator)
    stopped = CliRunner().invoke(
        app, ["messages", "stop", GID, "--override", "--yes", "--server", real_coordinator.url]
    )
    assert stopped.exit_code == 0, stopped.output
    assert real_coordinator.wait_final(GID) is State.FAILED
    assert service.called == []
