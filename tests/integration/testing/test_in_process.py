"""The test tools for users of twophase.

They have a coordinator in their own process, and move its time.
"""

from __future__ import annotations

import asyncio
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text

from tests.support.http_server import QuietHandler, served
from twophase import Message
from twophase.barrier.installing import install
from twophase.core.errors import ConfigurationError
from twophase.testing import InProcessCoordinator, State

PATIENT: dict[str, Any] = {"request_timeout_ms": 60_000}
PATIENCE_S = 60


class _Branch(QuietHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append(self.path)  # type: ignore[attr-defined]
        self.server.gate.wait(30)  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()


@pytest.fixture
def branch() -> Iterator[http.server.ThreadingHTTPServer]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Branch)
    server.seen = []  # type: ignore[attr-defined]
    server.gate = threading.Event()  # type: ignore[attr-defined]
    server.gate.set()  # type: ignore[attr-defined]
    with served(server):
        yield server


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path / 'business.db'}")
    install(engine)
    with engine.begin() as connection:
        connection.execute(text("create table account(balance integer)"))
    yield engine
    engine.dispose()


@pytest.fixture
def patient() -> Iterator[InProcessCoordinator]:
    """A coordinator that makes each call once, also on a slow machine."""
    with InProcessCoordinator(**PATIENT) as coordinator:
        yield coordinator


def test_a_message_is_delivered(
    patient: InProcessCoordinator, engine: Engine, branch: http.server.ThreadingHTTPServer
) -> None:
    address = f"http://127.0.0.1:{branch.server_port}/in"
    message = Message(patient.url).add(address, {"amount": 1})
    with message.transaction(engine, check="http://127.0.0.1:1/check") as connection:
        connection.execute(text("insert into account values (1)"))
    assert patient.wait_final(message.gid, PATIENCE_S) is State.SUCCEEDED
    assert branch.seen == [f"/in?branch_id=01&gid={message.gid}&op=action&trans_type=msg"]  # type: ignore[attr-defined]


def test_time_passes_when_the_test_says_so(
    patient: InProcessCoordinator, branch: http.server.ThreadingHTTPServer
) -> None:
    message = Message(patient.url, delay=3600).add(f"http://127.0.0.1:{branch.server_port}/in", {})
    message.submit()
    assert patient.state(message.gid) is State.SUBMITTED
    patient.advance(3600.1)
    assert patient.wait_final(message.gid, PATIENCE_S) is State.SUCCEEDED


def test_messages_outlive_a_restart_on_the_same_store(tmp_path: Path, branch: http.server.ThreadingHTTPServer) -> None:
    store = f"sqlite:///{tmp_path / 'kept.db'}"
    with InProcessCoordinator(store, **PATIENT) as first:
        message = Message(first.url, delay=3600).add(f"http://127.0.0.1:{branch.server_port}/in", {})
        message.submit()
    with InProcessCoordinator(store, **PATIENT) as second:
        assert second.state(message.gid) is State.SUBMITTED
        second.advance(3600.1)
        assert second.wait_final(message.gid, PATIENCE_S) is State.SUCCEEDED


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"retry_frist_ms: there is no such setting \(from the test\)"):
        InProcessCoordinator(retry_frist_ms=1)


@pytest.mark.parametrize("taken", [{"host": "0.0.0.0"}, {"http_port": 8080}])
def test_the_address_is_not_the_tests_to_choose(taken: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(taken))}: a test's coordinator listens on a free port"):
        InProcessCoordinator(**taken)


def test_settings_are_read_as_the_servers_are() -> None:
    with pytest.raises(ConfigurationError, match="retry_first_ms: is greater than retry_cap_ms"):
        InProcessCoordinator(retry_first_ms=100, retry_cap_ms=10)
    with pytest.raises(ConfigurationError, match="retry_first_ms: expected"):
        InProcessCoordinator(retry_first_ms=0)
    with InProcessCoordinator(grpc_port="0") as coordinator:
        assert coordinator.grpc_url.startswith("grpc://127.0.0.1:")


def test_waiting_in_vain_says_what_the_message_is(
    twophase_coordinator: InProcessCoordinator,
) -> None:
    message = Message(twophase_coordinator.url, delay=3600).add("http://127.0.0.1:1/in", {})
    message.submit()
    with pytest.raises(TimeoutError, match=r"submitted after 0\.05 s: a branch fails .* advance\(seconds\)"):
        twophase_coordinator.wait_final(message.gid, timeout=0.05)


def test_waiting_for_a_prepared_message_says_whose_the_clock_is(twophase_coordinator: InProcessCoordinator) -> None:
    message = Message(twophase_coordinator.url).add("http://127.0.0.1:1/in", {}).prepare("http://127.0.0.1:1/check")
    with pytest.raises(
        TimeoutError, match=r"is prepared after .* the test owns the clock: advance\(35\) makes its check-back due$"
    ):
        twophase_coordinator.wait_final(message.gid, timeout=0.05)


@pytest.mark.parametrize("wait", ["wait_final", "settled"])
def test_waiting_in_vain_in_an_event_loop_says_that_it_stands_still(
    patient: InProcessCoordinator, branch: http.server.ThreadingHTTPServer, wait: str
) -> None:
    async def waiting() -> None:
        gids = (message.gid,) if wait == "wait_final" else ()
        getattr(patient, wait)(*gids, timeout=0.05)

    branch.gate.clear()  # type: ignore[attr-defined]
    message = Message(patient.url).add(f"http://127.0.0.1:{branch.server_port}/in", {}).submit()
    with pytest.raises(TimeoutError, match=r"event loop stood still: .*`await asyncio\.to_thread\(…\)`"):
        asyncio.run(waiting())
    branch.gate.set()  # type: ignore[attr-defined]


def test_waiting_for_an_unknown_gid_says_that_it_is_unknown(twophase_coordinator: InProcessCoordinator) -> None:
    with pytest.raises(TimeoutError, match=r"is absent after .*: no such gid here"):
        twophase_coordinator.wait_final("nobody", timeout=0.05)


def test_settled_waits_for_the_calls_that_are_due(
    patient: InProcessCoordinator, branch: http.server.ThreadingHTTPServer
) -> None:
    branch.gate.clear()  # type: ignore[attr-defined]
    coordinator, address = patient, f"http://127.0.0.1:{branch.server_port}/in"
    now = Message(coordinator.url).add(address, {}).submit()
    later = Message(coordinator.url, delay=3600).add(address, {}).submit()
    with pytest.raises(TimeoutError, match=rf"1 of 2 messages are still due after 0\.05 s, such as '{now.gid}'"):
        coordinator.settled(timeout=0.05)
    branch.gate.set()  # type: ignore[attr-defined]
    assert coordinator.settled(PATIENCE_S) == {now.gid: State.SUCCEEDED, later.gid: State.SUBMITTED}


def test_settled_holds_a_failed_call_for_answered(twophase_coordinator: InProcessCoordinator) -> None:
    message = Message(twophase_coordinator.url).add("http://127.0.0.1:1/in", {}).submit()
    assert twophase_coordinator.settled(PATIENCE_S) == {message.gid: State.SUBMITTED}
    view = twophase_coordinator.query(message.gid)
    assert view is not None
    assert view.attempts >= 1


@pytest.mark.parametrize("asks", [lambda it: it.state("g"), lambda it: it.settled(), lambda it: it.wait_final("g")])
def test_a_coordinator_that_does_not_run_says_so(asks: Callable[[InProcessCoordinator], object]) -> None:
    coordinator = InProcessCoordinator()
    with pytest.raises(ConfigurationError, match="not running"):
        asks(coordinator)
    with coordinator:
        assert coordinator.settled() == {}
    with pytest.raises(ConfigurationError, match="not running"):
        asks(coordinator)
