"""Retention through the whole server.

The wire, the store, the metrics, and a clock that the test owns take part.
"""

from __future__ import annotations

import http.server
import json
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.http_server import QuietHandler, served
from twophase import Message
from twophase.core.errors import ConfigurationError
from twophase.core.gid import RANDOM_BYTES, make_gid
from twophase.errors import ForgottenMessage, StateConflict
from twophase.server.setting_sources import load
from twophase.testing import InProcessCoordinator, State

DAY_S = 24 * 3600
DAY_MS = DAY_S * 1000


class _Branch(QuietHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append(dict(self.headers))  # type: ignore[attr-defined]
        self.send_response(self.server.answers)  # type: ignore[attr-defined]
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def branch() -> Iterator[Any]:
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Branch)
    server.seen, server.answers = [], 200
    server.url = f"http://127.0.0.1:{server.server_port}/in"
    with served(server):
        yield server


def get(coordinator: InProcessCoordinator, path: str) -> str:
    with urllib.request.urlopen(coordinator.url + path, timeout=60) as response:
        text: str = response.read().decode()
        return text


def metrics(coordinator: InProcessCoordinator) -> dict[str, float]:
    lines = [line for line in get(coordinator, "/metrics").splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def until_counted(coordinator: InProcessCoordinator) -> dict[str, float]:
    """Return the metrics with the removed row.

    It is counted after the commit that removes it.
    """
    ends_s = time.monotonic() + 60
    while (seen := metrics(coordinator))['twophase_rows_removed_total{table="history"}'] != 1:
        assert time.monotonic() < ends_s, "the removed row is counted"
    return seen


def until_absent(coordinator: InProcessCoordinator, gid: str) -> None:
    coordinator.wait_state(gid, State.ABSENT)


def message(coordinator: InProcessCoordinator, branch: Any) -> Message:
    gid = make_gid(coordinator.clock.now_ms(), bytes(RANDOM_BYTES))
    return Message(coordinator.url, gid=gid).add(branch.url, {"amount": 1})


def again(coordinator: InProcessCoordinator, gid: str, branch: Any) -> Message:
    """Return the same message, by a producer that does not know of the first one."""
    return Message(coordinator.url, gid=gid).add(branch.url, {"amount": 1})


def test_a_gid_s_duplicates_are_known_for_35_days_and_refused_for_ever_after(branch: Any) -> None:
    with InProcessCoordinator(retention_interval_ms=60_000, request_timeout_ms=60_000) as coordinator:
        first = message(coordinator, branch)
        first.submit()
        coordinator.wait_final(first.gid)

        coordinator.advance(35 * DAY_S - 120)
        again(coordinator, first.gid, branch).submit()
        with pytest.raises(StateConflict):
            again(coordinator, first.gid, branch).prepare("http://127.0.0.1:1/check")

        coordinator.advance(240)
        until_absent(coordinator, first.gid)
        with pytest.raises(ForgottenMessage):
            again(coordinator, first.gid, branch).submit()
        with pytest.raises(ForgottenMessage):
            again(coordinator, first.gid, branch).prepare("http://127.0.0.1:1/check")
    assert len(branch.seen) == 1


def test_what_was_removed_and_how_far_history_reaches_can_be_seen(branch: Any) -> None:
    with InProcessCoordinator(retention_interval_ms=60_000, request_timeout_ms=60_000) as coordinator:
        old = message(coordinator, branch)
        old.submit()
        coordinator.wait_final(old.gid)
        coordinator.advance(30 * DAY_S)
        young = message(coordinator, branch)
        young.submit()
        coordinator.wait_final(young.gid)
        coordinator.advance(6 * DAY_S)
        until_absent(coordinator, old.gid)

        seen = until_counted(coordinator)

        assert seen["twophase_oldest_history_seconds"] == pytest.approx(6 * 86_400, abs=120)
        ended_s = coordinator.clock.now_ms() / 1000 - 36 * 86_400
        assert seen["twophase_history_horizon_seconds"] == pytest.approx(ended_s, abs=120)


def test_a_branch_call_tells_the_oldest_unfinished_time(branch: Any) -> None:
    ends_s = time.monotonic() + 60
    with InProcessCoordinator() as coordinator:
        before_ms = coordinator.clock.now_ms()
        # The store is asked for it in the background: the first calls after a start may come earlier.
        while not branch.seen or "x-twophase-oldest" not in branch.seen[-1]:
            assert time.monotonic() < ends_s, "calls tell it soon"
            submitted = message(coordinator, branch)
            submitted.submit()
            coordinator.wait_final(submitted.gid)
        after_ms = coordinator.clock.now_ms()
    headers = branch.seen[-1]

    assert before_ms - 60_000 < int(headers["x-twophase-oldest"]) <= after_ms


def test_the_horizon_route_tells_what_cleaners_must_know(branch: Any) -> None:
    branch.answers = 409
    with InProcessCoordinator(timeout_to_fail_ms=DAY_MS, check_back_first_ms=3_600_000,
                              check_back_cap_ms=DAY_MS) as coordinator:  # fmt: skip
        begun_ms = coordinator.clock.now_ms()
        undelivered = message(coordinator, branch)
        undelivered.submit()
        for check in ("http://bank-a/check?barrier=a1", "http://bank-z/check?barrier=z1"):
            Message(coordinator.url).add(branch.url, {}).prepare(check)
            coordinator.advance(60)
        coordinator.advance(2 * 3600)

        def ask(query: str = "") -> dict[str, int]:
            found: dict[str, int] = json.loads(get(coordinator, f"/api/twophase/horizon{query}"))
            return found

        everything = ask()
        assert abs(everything["now_ms"] - coordinator.clock.now_ms()) < 30_000
        assert everything["oldest_unfinished_ms"] == pytest.approx(begun_ms, abs=30_000)
        assert everything["oldest_undecided_ms"] == pytest.approx(begun_ms, abs=30_000)
        for query in ("?check=http://bank-z/", "?barrier=z1", "?check=http://bank&barrier=z1"):
            assert ask(query)["oldest_undecided_ms"] == pytest.approx(begun_ms + 60_000, abs=30_000), query
        for query in ("?check=http://bank-q/", "?barrier=q1", "?check=http://bank-a/&barrier=z1"):
            asked = ask(query)
            assert asked["oldest_undecided_ms"] == asked["now_ms"] - 3_600_000, query


@pytest.mark.parametrize("value", ["1", "7199999", "-1"])
def test_a_retention_shorter_than_what_may_be_on_its_way_is_refused(value: str) -> None:
    with pytest.raises(ConfigurationError, match="retention_ms"):
        load({"retention_ms": value}, {})


def test_retention_is_35_days_by_default() -> None:
    assert load({}, {}).coordinator().retention_ms == 3_024_000_000
    assert load({}, {"TWOPHASE_RETENTION_MS": "0"}).coordinator().retention_ms == 0
