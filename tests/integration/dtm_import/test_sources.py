"""`twophase import dtm`: topics, and the details of each of dtm's databases."""

from __future__ import annotations

import contextlib
import json
import urllib.request
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from tests.integration.dtm_import.command import report
from tests.integration.dtm_import.services import Service
from tests.integration.dtm_import.stores import DtmStore, RedisStore, SqlStore
from twophase import Message
from twophase.core.lifecycle import State
from twophase.dtm_import.found import Found
from twophase.dtm_import.redis import RedisSource
from twophase.dtm_import.source import open_source
from twophase.testing import InProcessCoordinator


def test_finished_transactions_are_left_where_they_are(
    sql: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    sql.put("old", "succeed", [("01", "succeed", branches.url("/in"), b"{}")])
    sql.put("undone", "failed", [("01", "prepared", branches.url("/in"), b"{}")])

    assert report(sql, coordinator.url, "--apply")[1]["counts"] == {}


def test_all_topics_of_a_full_redis_are_found(
    keys: RedisStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    """dtm itself reads one page of a scan, and misses most of them."""
    others = [word for number in range(3_000) for word in (f"{keys.database.name}_g_x{number}", "{}")]
    keys.run("MSET", *others)
    for number in range(12):
        keys.put_topic(f"topic-{number}", json.dumps([{"url": branches.url(f"/{number}"), "remark": ""}]))

    code, said = report(keys, coordinator.url)

    assert (code, sum(one["added"] for one in said["topics"])) == (0, 12)


def test_what_redis_has_let_expire_is_named(
    keys: RedisStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    rows = [("01", "prepared", branches.url("/in"), b"{}")]
    keys.put("whole", "submitted", rows)
    keys.put("gone", "submitted", rows)
    keys.put("bare", "submitted", rows, steps=[branches.url("/in")])
    keys.put("torn", "submitted", rows)
    keys.run("DEL", f"{keys.database.name}_g_gone", f"{keys.database.name}_b_bare")
    keys.run("SET", f"{keys.database.name}_g_torn", '{"gid":')

    code, said = report(keys, coordinator.url, "--apply")

    assert (code, said["counts"]) == (1, {"copied submitted": 1, "skipped msg": 3})
    assert {one["gid"]: "expired in Redis" in one["reason"] for one in said["remarks"]} == {
        "gone": True, "bare": True, "torn": False
    }  # fmt: skip


def test_what_dtm_finishes_while_its_redis_is_read_is_no_finding(
    keys: RedisStore, coordinator: InProcessCoordinator, branches: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dtm delivers a message, or its producer aborts it, when its name has been read."""
    rows = [("01", "prepared", branches.url("/in"), b"{}")]
    for gid in ("waits", "delivered", "aborted"):
        keys.put(gid, "submitted", rows)
    found = RedisSource._found

    def finished(self: RedisSource, name: bytes, score: float) -> Found:
        keys.run("SET", f"{keys.database.name}_s_delivered", "succeed")
        keys.run("SET", f"{keys.database.name}_s_aborted", "failed")
        return found(self, name, score)

    monkeypatch.setattr(RedisSource, "_found", finished)

    code, said = report(keys, coordinator.url)

    assert (code, said["counts"], said["remarks"]) == (0, {"copied submitted": 1}, [])


def test_steps_in_redis_name_the_topic(keys: RedisStore, coordinator: InProcessCoordinator, branches: Service) -> None:
    branches.answers["/in"] = 425
    keys.put("named", "submitted", [("01", "prepared", branches.url("/in"), b"{}")], steps=["topic://paid"])

    assert report(keys, coordinator.url, "--apply")[0] == 0

    view = coordinator.query("named")
    assert view is not None
    assert (view.message.branches[0].url, view.message.branches[0].subscribers) == (
        "topic://paid", (branches.url("/in"),)
    )  # fmt: skip


@pytest.mark.mariadb
@pytest.mark.postgres
def test_a_time_zone_that_is_not_the_databases(
    sql: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    """dtm's machine is in Shanghai, and its database works in UTC.

    A time written now is read as eight hours ahead.
    """
    eight_h = 8 * 3600
    rows = [("01", "prepared", branches.url("/in"), b"{}")]
    sql.put("far", "submitted", rows, created_s=eight_h - 60, due_s=eight_h - 30)

    said = report(sql, coordinator.url)[1]
    assert "--time-zone" in said["remarks"][0]["reason"]
    report(sql, coordinator.url, "--apply", "--time-zone", "Asia/Shanghai")

    assert coordinator.wait_final("far") is State.SUCCEEDED


@pytest.mark.mariadb
@pytest.mark.postgres
def test_a_local_time_is_that_of_its_season(sql: SqlStore) -> None:
    for gid, local in (("summer", "2026-07-01 12:00:00"), ("winter", "2026-01-01 12:00:00")):
        sql.put(gid, "submitted", [])
        sql.execute("update trans_global set create_time = %s, next_cron_time = %s where gid = %s", local, local, gid)

    with contextlib.closing(open_source(sql.url, prefix="", zone=ZoneInfo("Europe/Berlin"))) as source:
        found = {one.gid: (one.created_ms, one.due_ms) for page in source.pages() for one in page}

    summer, winter = (
        int(datetime.fromisoformat(text).timestamp() * 1000)
        for text in ("2026-07-01T12:00+02:00", "2026-01-01T12:00+01:00")
    )
    assert found == {"summer": (summer, summer), "winter": (winter, winter)}


def test_subscribers_of_a_topic_keep_their_ids(
    dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    rows = [
        ("01", "succeed", branches.url("/first"), b"{}"),
        ("02-01", "succeed", branches.url("/a"), b"{}"),
        ("02-02", "prepared", branches.url("/b"), b"{}"),
        ("02-03", "prepared", branches.url("/c"), b"{}"),
        ("03", "prepared", branches.url("/last"), b"{}"),
    ]
    dtm.put("topical", "submitted", rows)

    assert report(dtm, coordinator.url, "--apply")[0] == 0

    assert coordinator.wait_final("topical") is State.SUCCEEDED
    assert branches.branches("topical") == [("/b", "02-02"), ("/c", "02-03"), ("/last", "03")]


def test_topics_are_copied_once_with_their_remarks(
    dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    subscribers = [{"url": branches.url("/b"), "remark": "bank b"}, {"url": branches.url("/a"), "remark": ""}]
    dtm.put_topic("paid", json.dumps(subscribers))
    dtm.put_topic("empty", "[]")
    dtm.put_topic("broken", "[{")

    code, said = report(dtm, coordinator.url, "--apply")

    assert code == 1
    assert {one["name"]: (one["added"], bool(one["wrong"])) for one in said["topics"]} == {
        "paid": (2, False), "empty": (0, False), "broken": (0, True)
    }  # fmt: skip
    again = report(dtm, coordinator.url, "--apply")[1]["topics"]
    assert {one["name"]: (one["added"], one["present"]) for one in again}["paid"] == (0, 2)
    Message(coordinator.url, gid="told").add("topic://paid", {}).submit()
    assert coordinator.wait_final("told") is State.SUCCEEDED
    assert branches.branches("told") == [("/b", "01-01"), ("/a", "01-02")]
    with urllib.request.urlopen(f"{coordinator.url}/api/dtmsvr/unsubscribe?topic=paid&url={branches.url('/b')}"):
        pass  # a transaction that is gone here is still dtm's
    third = report(dtm, coordinator.url, "--apply")[1]["topics"]
    assert {one["name"]: (one["added"], one["present"]) for one in third}["paid"] == (1, 1)


def test_many_messages_come_over_whole(dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service) -> None:
    """The messages fill more than a page of the source, and more than a request."""
    gids = [f"m-{number:03d}" for number in range(230)]
    for gid in gids:
        dtm.put(gid, "submitted", [("01", "prepared", branches.url("/in"), b"{}")])

    assert report(dtm, coordinator.url, "--apply")[1]["counts"] == {"copied submitted": 230}

    for gid in gids:
        assert coordinator.wait_final(gid) is State.SUCCEEDED
    assert sorted({call.gid for call in branches.calls}) == gids  # a call that was slow to be answered is repeated
