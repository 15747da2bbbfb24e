"""`twophase import dtm` run again, and messages that the server knows already."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

import msgspec
import pytest

from tests.integration.dtm_import.command import report
from tests.integration.dtm_import.services import Service
from tests.integration.dtm_import.stores import DtmStore, RedisStore
from tests.support.waiting import blocked_until
from twophase import Message
from twophase.core.errors import ContentConflict
from twophase.core.lifecycle import State
from twophase.testing import InProcessCoordinator


def test_running_twice_changes_nothing_twice(
    dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    branches.answers["/down"] = 500
    dtm.put("done", "submitted", [("01", "prepared", branches.url("/in"), b"{}")])
    dtm.put("down", "submitted", [("01", "prepared", branches.url("/down"), b"{}")])
    dtm.put("asked", "prepared", [("01", "prepared", branches.url("/in"), b"{}")], query_prepared=branches.url("/ask"))

    report(dtm, coordinator.url, "--apply")
    assert coordinator.wait_final("done") is State.SUCCEEDED
    assert coordinator.wait_final("asked") is State.SUCCEEDED
    code, said = report(dtm, coordinator.url, "--apply")

    assert (code, said["counts"]) == (0, {"present prepared": 1, "present submitted": 2})
    assert branches.branches("done") == branches.branches("asked") == [("/in", "01")]
    assert report(dtm, coordinator.url)[1]["counts"] == said["counts"]


def test_a_submit_that_came_to_dtm_after_the_first_copy_decides(
    dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    rows = [("01", "prepared", branches.url("/in"), b"{}")]
    branches.answers["/ask"] = 425
    dtm.put("late", "prepared", rows, query_prepared=branches.url("/ask"))
    report(dtm, coordinator.url, "--apply")

    _submitted_there(dtm, "late", rows, branches.url("/ask"))
    code, said = report(dtm, coordinator.url, "--apply")

    assert (code, said["counts"]) == (0, {"copied submitted": 1})
    assert coordinator.wait_final("late") is State.SUCCEEDED
    assert branches.branches("late") == [("/in", "01")]


def _submitted_there(dtm: DtmStore, gid: str, rows: Any, check: str) -> None:
    if isinstance(dtm, RedisStore):
        dtm.run("DEL", f"{dtm.database.name}_b_{gid}")
        dtm.put(gid, "submitted", rows, query_prepared=check)
    else:
        dtm.execute("update trans_global set status = 'submitted' where gid = %s", gid)  # type: ignore[attr-defined]


def test_another_message_of_the_same_gid_is_reported_and_left_alone(
    dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    branches.answers["/ours"] = 425
    Message(coordinator.url, gid="taken").add(branches.url("/ours"), {"a": 1}).submit()
    dtm.put("taken", "submitted", [("01", "prepared", branches.url("/theirs"), b"{}")])

    for options in ((), ("--apply",)):
        code, said = report(dtm, coordinator.url, *options)
        assert (code, said["counts"]) == (1, {"conflict submitted": 1})
        assert [(one["gid"], one["what"]) for one in said["remarks"]] == [("taken", "conflict")]
    assert not [call for call in branches.calls if call.path == "/theirs"]


def test_the_opposite_decision_is_reported(dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service) -> None:
    rows = [("01", "prepared", branches.url("/in"), b"{}")]
    branches.answers["/ask"] = 409
    dtm.put("torn", "prepared", rows, query_prepared=branches.url("/ask"))
    report(dtm, coordinator.url, "--apply")
    assert coordinator.wait_final("torn") is State.FAILED
    assert report(dtm, coordinator.url, "--apply")[1]["counts"] == {"present prepared": 1}

    _submitted_there(dtm, "torn", rows, branches.url("/ask"))
    code, said = report(dtm, coordinator.url, "--apply")

    assert (code, said["counts"]) == (1, {"conflict submitted": 1})
    assert "the opposite was decided" in said["remarks"][0]["reason"]


def test_a_message_the_producer_sent_here_already_is_the_same_one(
    dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    Message(coordinator.url, gid="both").add(branches.url("/in"), {"a": 1}).submit()
    dtm.put("both", "submitted", [("01", "prepared", branches.url("/in"), b'{"a":1}')])

    assert report(dtm, coordinator.url, "--apply")[1]["counts"] == {"present submitted": 1}
    assert coordinator.wait_final("both") is State.SUCCEEDED
    assert branches.branches("both") == [("/in", "01")]


def test_a_producer_that_submits_after_the_move_is_understood(
    dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    branches.answers["/ask"] = 425
    rows = [("01", "prepared", branches.url("/in"), b'{"a":1}')]
    dtm.put("mine", "prepared", rows, query_prepared=branches.url("/ask"))
    report(dtm, coordinator.url, "--apply")

    Message(coordinator.url, gid="mine").add(branches.url("/in"), {"a": 1}).submit()

    assert coordinator.wait_final("mine") is State.SUCCEEDED
    assert branches.branches("mine") == [("/in", "01")]


@pytest.mark.mariadb
@pytest.mark.postgres
def test_a_producer_that_submits_to_a_topic_after_the_move_is_understood(
    sql: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    """dtm's tables hold the subscribers' addresses only.

    The subscribers of the topic have changed since the prepare.
    """
    branches.answers["/ask"] = 425
    a, b = branches.url("/a"), branches.url("/b")
    one = [("01", "prepared", a, b'{"n":1}'), ("02", "prepared", b, b'{"n":2}')]
    two = [("01-01", "prepared", a, b'{"n":1}'), ("01-02", "prepared", b, b'{"n":1}')]
    sql.put("one", "prepared", one, query_prepared=branches.url("/ask"))
    sql.put("two", "prepared", two, query_prepared=branches.url("/ask"))
    sql.put_topic("paid", json.dumps([{"url": b, "remark": ""}]))
    assert report(sql, coordinator.url, "--apply")[0] == 0

    with pytest.raises(ContentConflict):
        Message(coordinator.url, gid="one").add("topic://paid", {"n": 2}).add(b, {"n": 2}).submit()
    Message(coordinator.url, gid="one").add("topic://paid", {"n": 1}).add(b, {"n": 2}).submit()
    Message(coordinator.url, gid="two").add("topic://paid", {"n": 1}).submit()

    assert [coordinator.wait_final(gid) for gid in ("one", "two")] == [State.SUCCEEDED] * 2
    assert branches.branches("one") == [("/a", "01"), ("/b", "02")]
    assert branches.branches("two") == [("/a", "01-01"), ("/b", "01-02")]
    assert report(sql, coordinator.url, "--apply")[1]["counts"] == {"present prepared": 2}


def test_what_is_older_than_history_is_not_taken_for_new(mysql: DtmStore, branches: Service) -> None:
    """The message was imported, delivered and forgotten; dtm's rows still exist."""
    rows = [("01", "prepared", branches.url("/in"), b"{}")]
    mysql.put("old", "submitted", rows)
    with InProcessCoordinator(retention_ms=2 * 3_600_000, retention_interval_ms=1_000) as coordinator:
        assert report(mysql, coordinator.url, "--apply")[0] == 0
        assert coordinator.wait_final("old") is State.SUCCEEDED
        coordinator.advance(3 * 3600)
        blocked_until(lambda: coordinator.query("old") is None)

        for options in ((), ("--apply",)):
            code, said = report(mysql, coordinator.url, *options)
            assert (code, said["counts"]) == (1, {"refused submitted": 1})
            assert "--never-imported" in said["remarks"][0]["remedy"]
        assert branches.branches("old") == [("/in", "01")]

        assert report(mysql, coordinator.url, "--apply", "--never-imported")[1]["counts"] == {"copied submitted": 1}


def test_what_may_be_older_than_history_by_another_clock_is_not_taken_for_new(branches: Service) -> None:
    """The other coordinator's clock may be some minutes ahead."""
    with InProcessCoordinator(retention_ms=2 * 3_600_000, retention_interval_ms=1_000) as coordinator:
        taken = {"gid": "first", "state": "submitted", "branches": [{"url": branches.url("/in")}]}
        assert outcome_of(coordinator, taken | {"created_ms": 1}) == "copied"
        assert coordinator.wait_final("first") is State.SUCCEEDED
        finished_ms = time.time_ns() // 1_000_000
        coordinator.advance(3 * 3600)
        blocked_until(lambda: coordinator.query("first") is None)

        outcomes = [
            outcome_of(coordinator, taken | {"gid": f"{minutes}", "created_ms": finished_ms + minutes * 60_000})
            for minutes in (1, 60)
        ]
    assert outcomes == ["refused", "copied"]


def outcome_of(coordinator: InProcessCoordinator, taken: dict[str, Any]) -> str:
    body = msgspec.json.encode({"messages": [taken]})
    with urllib.request.urlopen(f"{coordinator.url}/api/twophase/import", body, timeout=20) as answer:
        outcome: str = msgspec.json.decode(answer.read())["results"][0]["outcome"]
    return outcome
