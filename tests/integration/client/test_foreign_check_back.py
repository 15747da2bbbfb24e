"""A check-back route of another library.

It does not know twophase's header, and reads the same barrier table.
"""

from __future__ import annotations

import http.server
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.http_server import QuietHandler, served
from tests.support.recording_coordinator import RecordingCoordinator
from tests.support.waiting import blocked_until
from twophase import Message
from twophase.barrier.installing import install
from twophase.client import flow
from twophase.errors import InvalidRequest
from twophase.testing import InProcessCoordinator, State

ASKED_ONCE: dict[str, Any] = {
    "request_timeout_ms": 60_000,
    "check_back_first_ms": 600_000,
    "check_back_cap_ms": 600_000,
}
QUERY_PREPARED = (
    "insert or ignore into barrier (trans_type, gid, branch_id, op, barrier_id, reason)"
    " values ('msg', ?, '00', 'msg', '01', 'rollback')"
)


class _Foreign(QuietHandler):
    """dtm's QueryPrepared and its answers."""

    def do_GET(self) -> None:
        path, query = urlsplit(self.path)[2:4]
        if path == "/check":
            gid = parse_qs(query)["gid"][0]
            with closing(sqlite3.connect(self.server.bank)) as bank, bank:  # type: ignore[attr-defined]
                bank.execute(QUERY_PREPARED, (gid,))
                (reason,) = bank.execute("select reason from barrier where gid = ?", (gid,)).fetchone()
            self.server.asked.append(reason)  # type: ignore[attr-defined]
            self._answer(*((409, b'{"dtm_result":"FAILURE"}') if reason == "rollback" else (200, b"{}")))
        else:
            self._answer(200, b"{}")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    path = tmp_path / "bank.db"
    with closing(sqlite3.connect(path)) as connection:
        install(connection)
    return path


@pytest.fixture
def foreign(bank: Path) -> Iterator[http.server.ThreadingHTTPServer]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Foreign)
    server.bank, server.asked = bank, []  # type: ignore[attr-defined]
    with served(server):
        yield server


def _state_after_check_back(coordinator: InProcessCoordinator, gid: str) -> State:
    """Return the state after the check-back; ABSENT when none was answered."""
    view = coordinator.query(gid)
    assert view is not None
    return view.state if view.attempts or view.state is not State.PREPARED else State.ABSENT


def _lost(_: flow.Attempt) -> flow.Flow:
    """Let the producer die before its submit."""
    yield from ()


@pytest.mark.parametrize(("explicit", "final"), [(False, State.SUCCEEDED), (True, State.PREPARED)])
def test_its_word_is_taken_where_the_message_says_so(
    foreign: http.server.ThreadingHTTPServer, bank: Path, monkeypatch: pytest.MonkeyPatch, explicit: bool, final: State
) -> None:
    monkeypatch.setattr(flow.Attempt, "committed", _lost)
    address = f"http://127.0.0.1:{foreign.server_port}"
    with InProcessCoordinator(**ASKED_ONCE) as coordinator, closing(sqlite3.connect(bank)) as connection:
        message = Message(coordinator.url).add(f"{address}/in")
        with message.transaction(connection, check=f"{address}/check", foreign_check=not explicit):
            pass
        coordinator.advance(36)
        blocked_until(lambda: _state_after_check_back(coordinator, message.gid) is final)
    assert foreign.asked == ["msg"]  # type: ignore[attr-defined]


def test_its_word_is_taken_of_a_transaction_that_never_began(
    foreign: http.server.ThreadingHTTPServer, bank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow.Attempt, "begin", _killed)
    address = f"http://127.0.0.1:{foreign.server_port}"
    with InProcessCoordinator() as coordinator, closing(sqlite3.connect(bank)) as connection:
        message = Message(coordinator.url).add(f"{address}/in")
        with pytest.raises(KeyboardInterrupt):
            message.do_and_submit(connection, lambda _: None, f"{address}/check", foreign_check=True)
        coordinator.advance(36)

        assert coordinator.wait_final(message.gid) is State.FAILED


def _killed(_: flow.Attempt) -> flow.Flow:
    yield from ()
    raise KeyboardInterrupt


def test_branches_added_inside_need_our_route(bank: Path) -> None:
    with RecordingCoordinator().running() as coordinator, closing(sqlite3.connect(bank)) as connection:
        message = Message(coordinator.url, allow_late_branches=True)
        with (
            pytest.raises(InvalidRequest, match="foreign_check"),
            message.transaction(connection, check="http://bank-a/check", foreign_check=True),
        ):
            raise AssertionError("not reached")
        assert coordinator.operations == []
