"""`twophase import dtm`: what is copied, from each of dtm's databases, and what the services then see."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from tests.integration.moving.services import Service, until
from tests.integration.moving.stores import DtmStore, RedisStore
from twophase import Message
from twophase.cli.import_dtm import app
from twophase.core.lifecycle import State
from twophase.testing import InProcessCoordinator


def run(dtm: DtmStore, server: str, *options: str) -> Result:
    arguments = ["dtm", dtm.url, "--server", server, "--watch", "0", *dtm.options, *options]
    return CliRunner().invoke(app, arguments)


def report(dtm: DtmStore, server: str, *options: str) -> tuple[int, dict[str, Any]]:
    done = run(dtm, server, "--json", *options)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    # The coordinator of this process may log in between.
    (printed,) = (line for line in done.stdout.splitlines() if line.startswith('{"applied"'))
    return done.exit_code, json.loads(printed)


def test_a_dry_run_changes_nothing_and_says_what_would_be(
    dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    dtm.put("pending", "submitted", [("01", "prepared", branches.url("/in"), b"{}")])
    dtm.put("asked", "prepared", [("01", "prepared", branches.url("/in"), b"{}")], query_prepared=branches.url("/ask"))
    dtm.put_topic("paid", json.dumps([{"url": branches.url("/paid"), "remark": ""}]))
    before = dtm.everything()

    code, said = report(dtm, coordinator.url)

    assert (code, said["applied"]) == (0, False)
    assert said["counts"] == {"copied prepared": 1, "copied submitted": 1}
    assert [(one["name"], one["added"]) for one in said["topics"]] == [("paid", 1)]
    assert (coordinator.query("pending"), coordinator.query("asked"), branches.calls) == (None, None, [])
    assert dtm.everything() == before
    assert report(dtm, coordinator.url)[1] == said
    shown = run(dtm, coordinator.url).output
    assert "Would be copied (dry run)" in shown
    assert "Nothing was changed. Stop dtm, then run this again with --apply." in shown


def test_what_dtm_has_delivered_is_not_called_and_the_rest_keeps_its_number(
    dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    rows = [
        ("01", "succeed", branches.url("/one"), b'{"n":1}'),
        ("02", "prepared", branches.url("/two"), b'{"n":2}'),
        ("03", "succeed", branches.url("/three"), b'{"n":3}'),
        ("04", "prepared", branches.url("/four"), b'{"n":4}'),
    ]
    dtm.put("half", "submitted", rows, options='{"branch_headers":{"tenant":"7"},"concurrent":false}')
    before = dtm.everything()

    code, said = report(dtm, coordinator.url, "--apply")

    assert (code, said["counts"]) == (0, {"copied submitted": 1})
    assert coordinator.wait_final("half") is State.SUCCEEDED
    assert branches.branches("half") == [("/two", "02"), ("/four", "04")]
    assert [call.body for call in branches.calls] == [b'{"n":2}', b'{"n":4}']
    assert {call.headers["tenant"] for call in branches.calls} == {"7"}
    view = coordinator.query("half")
    assert view is not None
    assert [one.url for one in view.message.branches] == [url for _, _, url, _ in rows]
    assert dtm.everything() == before


def test_prepared_messages_are_decided_by_the_producers_barrier(
    dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    for gid, answer in (("kept", 200), ("undone", 409), ("open", 425)):
        branches.answers[f"/ask/{gid}"] = answer
        rows = [("01", "prepared", branches.url("/in"), b"{}")]
        dtm.put(gid, "prepared", rows, query_prepared=branches.url(f"/ask/{gid}"))

    assert report(dtm, coordinator.url, "--apply")[1]["counts"] == {"copied prepared": 3}

    assert coordinator.wait_final("kept") is State.SUCCEEDED
    assert coordinator.wait_final("undone") is State.FAILED
    until(lambda: any(call.gid == "open" for call in branches.calls))
    assert coordinator.state("open") is State.PREPARED
    assert branches.branches("kept") == [("/in", "01")]
    assert branches.branches("undone") == branches.branches("open") == []


def test_the_first_check_back_waits_for_what_is_left_of_its_time(
    dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    rows = [("01", "prepared", branches.url("/in"), b"{}")]
    dtm.put("new", "prepared", rows, query_prepared=branches.url("/ask"), created_s=-5, due_s=5)

    assert report(dtm, coordinator.url, "--apply")[0] == 0
    coordinator.advance(20_000)
    assert branches.calls == []
    coordinator.advance(15_000)

    assert coordinator.wait_final("new") is State.SUCCEEDED


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


def test_another_message_of_the_same_gid_is_told_and_left_alone(
    dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    branches.answers["/ours"] = 425
    Message(coordinator.url, gid="taken").add(branches.url("/ours"), {"a": 1}).submit()
    dtm.put("taken", "submitted", [("01", "prepared", branches.url("/theirs"), b"{}")])

    for options in ((), ("--apply",)):
        code, said = report(dtm, coordinator.url, *options)
        assert (code, said["counts"]) == (1, {"conflict submitted": 1})
        assert [(one["gid"], one["what"]) for one in said["told"]] == [("taken", "conflict")]
    assert not [call for call in branches.calls if call.path == "/theirs"]


def test_the_opposite_decision_is_told(dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service) -> None:
    rows = [("01", "prepared", branches.url("/in"), b"{}")]
    branches.answers["/ask"] = 409
    dtm.put("torn", "prepared", rows, query_prepared=branches.url("/ask"))
    report(dtm, coordinator.url, "--apply")
    assert coordinator.wait_final("torn") is State.FAILED
    assert report(dtm, coordinator.url, "--apply")[1]["counts"] == {"present prepared": 1}

    _submitted_there(dtm, "torn", rows, branches.url("/ask"))
    code, said = report(dtm, coordinator.url, "--apply")

    assert (code, said["counts"]) == (1, {"conflict submitted": 1})
    assert "the opposite was decided" in said["told"][0]["reason"]


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


def test_bytes_and_nothing_are_carried_as_they_are(
    dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    rows = [
        ("01", "prepared", branches.url("/bytes"), bytes(range(256))),
        ("02", "prepared", branches.url("/nothing"), None),
        ("03", "prepared", "", b"{}"),
    ]
    dtm.put("raw", "submitted", rows, protocol="", options=None)

    assert report(dtm, coordinator.url, "--apply")[0] == 0

    assert coordinator.wait_final("raw") is State.SUCCEEDED
    assert [(call.method, call.body) for call in branches.calls] == [("POST", bytes(range(256))), ("GET", b"")]


def test_a_delay_ends_when_it_would_have(dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service) -> None:
    rows = [("01", "prepared", branches.url("/in"), b"{}")]
    dtm.put("delayed", "submitted", rows, custom_data='{"delay":600}', created_s=-300, due_s=300)

    report(dtm, coordinator.url, "--apply")
    coordinator.advance(280_000)
    assert (coordinator.state("delayed"), branches.calls) == (State.SUBMITTED, [])
    coordinator.advance(40_000)

    assert coordinator.wait_final("delayed") is State.SUCCEEDED


def test_a_prepared_message_that_nobody_can_be_asked_about_is_parked(
    dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    """dtm would call it committed."""
    dtm.put("silent", "prepared", [("01", "prepared", branches.url("/in"), b"{}")])

    code, said = report(dtm, coordinator.url, "--apply")

    assert (code, [(one["gid"], one["what"]) for one in said["told"]]) == (0, [("silent", "note")])
    until(lambda: (view := coordinator.query("silent")) is not None and view.parked)
    assert branches.calls == []


def test_grpc_and_json_rpc_branches_come_as_they_are(
    mysql: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    method = "127.0.0.1:1/bank.Bank/TransferIn"
    rows = [("01", "succeed", method, bytes(range(256))), ("02", "prepared", method, bytes(range(256)))]
    mysql.put("rpc", "submitted", rows, protocol="grpc")
    rows = [("01", "prepared", branches.url("/rpc?method=transfer_in"), b'{"amount":30}')]
    mysql.put("json", "submitted", rows, protocol="json-rpc")

    assert report(mysql, coordinator.url, "--apply")[0] == 0

    view = coordinator.query("rpc")
    assert view is not None
    assert (view.message.protocol, view.state) == ("grpc", State.SUBMITTED)
    assert [(one.url, one.payload) for one in view.message.branches] == [(method, bytes(range(256)))] * 2
    until(lambda: bool(branches.calls))
    assert msgspec.json.decode(branches.calls[0].body)["params"] == {
        "amount": 30, "gid": "json", "branch_id": "01", "op": "action", "trans_type": "msg"
    }  # fmt: skip


def test_what_is_older_than_history_is_not_taken_for_new(mysql: DtmStore, branches: Service) -> None:
    """It was imported, delivered and forgotten; dtm's rows are still there."""
    rows = [("01", "prepared", branches.url("/in"), b"{}")]
    mysql.put("old", "submitted", rows)
    with InProcessCoordinator(retention_ms=2 * 3_600_000, retention_interval_ms=1_000) as coordinator:
        assert report(mysql, coordinator.url, "--apply")[0] == 0
        assert coordinator.wait_final("old") is State.SUCCEEDED
        coordinator.advance(3 * 3_600_000)
        until(lambda: coordinator.query("old") is None)

        for options in ((), ("--apply",)):
            code, said = report(mysql, coordinator.url, *options)
            assert (code, said["counts"]) == (1, {"refused submitted": 1})
            assert "--never-imported" in said["told"][0]["remedy"]
        assert branches.branches("old") == [("/in", "01")]

        assert report(mysql, coordinator.url, "--apply", "--never-imported")[1]["counts"] == {"copied submitted": 1}


def test_what_is_no_message_is_counted_and_named(
    dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    dtm.put("s1", "submitted", trans_type="saga")
    dtm.put("s2", "submitted", trans_type="saga")
    dtm.put("t1", "aborting", trans_type="tcc")
    dtm.put("m1", "submitted", [("01", "prepared", branches.url("/in"), b"{}")])

    code, said = report(dtm, coordinator.url, "--apply")

    assert (code, said["counts"]) == (0, {"copied submitted": 1})
    assert [(one["trans_type"], one["status"], one["count"]) for one in said["others"]] == [
        ("saga", "submitted", 2), ("tcc", "aborting", 1)
    ]  # fmt: skip
    shown = run(dtm, coordinator.url).output
    assert "Not copied, no messages: 2 saga (submitted), 1 tcc (aborting). Let dtm finish them" in shown
    assert (coordinator.query("s1"), coordinator.query("t1")) == (None, None)


def test_what_cannot_be_copied_does_not_keep_the_others_back(
    dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    good = [("01", "prepared", branches.url("/in"), b"{}")]
    dtm.put("a", "submitted", [("01", "prepared", "consul:///bank/in", b"{}")])
    dtm.put("b", "submitted", [("02", "prepared", branches.url("/in"), b"{}")])
    dtm.put("c", "submitted", good, custom_data="{")
    dtm.put("d", "submitted", good)

    code, said = report(dtm, coordinator.url, "--apply")

    assert code == 1
    assert said["counts"] == {"copied submitted": 1, "refused submitted": 1, "skipped msg submitted": 2}
    assert {one["gid"] for one in said["told"]} == {"a", "b", "c"}
    assert all(one["reason"] for one in said["told"])
    assert "no destination for 'consul'" in next(one["reason"] for one in said["told"] if one["gid"] == "a")
    assert coordinator.wait_final("d") is State.SUCCEEDED


def test_many_messages_come_over_whole(dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service) -> None:
    """More than a page of the source, and more than a request takes."""
    gids = [f"m-{number:03d}" for number in range(230)]
    for gid in gids:
        dtm.put(gid, "submitted", [("01", "prepared", branches.url("/in"), b"{}")])

    assert report(dtm, coordinator.url, "--apply")[1]["counts"] == {"copied submitted": 230}

    for gid in gids:
        assert coordinator.wait_final(gid) is State.SUCCEEDED
    assert sorted(call.gid for call in branches.calls) == gids


def test_nothing_there_is_not_an_error(dtm: DtmStore, coordinator: InProcessCoordinator) -> None:
    done = run(dtm, coordinator.url, "--apply")

    assert (done.exit_code, "no unfinished message" in done.output) == (0, True)


def test_finished_transactions_are_left_where_they_are(
    sql: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    sql.put("old", "succeed", [("01", "succeed", branches.url("/in"), b"{}")])
    sql.put("undone", "failed", [("01", "prepared", branches.url("/in"), b"{}")])

    assert report(sql, coordinator.url, "--apply")[1]["counts"] == {}


def test_all_topics_of_a_full_redis_are_found(
    keys: RedisStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    """dtm itself reads one page of a scan, and forgets most of them."""
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
    assert {one["gid"]: "expired in Redis" in one["reason"] for one in said["told"]} == {
        "gone": True, "bare": True, "torn": False
    }  # fmt: skip


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
    """dtm's machine is in Shanghai, its database thinks in UTC: what was written now is read as in eight hours."""
    eight_h = 8 * 3600
    rows = [("01", "prepared", branches.url("/in"), b"{}")]
    sql.put("far", "submitted", rows, created_s=eight_h - 60, due_s=eight_h - 30)

    said = report(sql, coordinator.url)[1]
    assert "--time-zone" in said["told"][0]["reason"]
    report(sql, coordinator.url, "--apply", "--time-zone", "Asia/Shanghai")

    assert coordinator.wait_final("far") is State.SUCCEEDED


def test_the_door_takes_no_nonsense(coordinator: InProcessCoordinator) -> None:
    def ask(body: bytes) -> tuple[int, dict[str, Any]]:
        import urllib.request
        from urllib.error import HTTPError

        request = urllib.request.Request(f"{coordinator.url}/api/twophase/import", body, method="POST")
        try:
            with urllib.request.urlopen(request) as response:
                return response.status, msgspec.json.decode(response.read())
        except HTTPError as error:
            with error:
                return error.code, msgspec.json.decode(error.read())

    def one(**changes: Any) -> bytes:
        return msgspec.json.encode({"messages": [{"gid": "g", "state": "submitted", **changes}]})

    def refused(body: bytes) -> str:
        status, said = ask(body)
        assert status == 200
        assert said["results"][0]["outcome"] == "refused", said
        return str(said["results"][0]["message"])

    assert ask(b"{")[0] == ask(b"null")[0] == ask(one(state="aborting"))[0] == 400
    many = [{"gid": str(number), "state": "submitted"} for number in range(101)]
    assert "at most 100" in ask(msgspec.json.encode({"messages": many}))[1]["message"]
    assert "twice" in ask(msgspec.json.encode({"messages": many[:1] * 2}))[1]["message"]
    assert "128" in refused(one(gid="x" * 129))
    assert "calls is empty" in refused(one(branches=[{"url": "http://b/in", "calls": []}]))
    assert "no destination" in refused(one(branches=[{"url": "http://b/in", "calls": ["ftp://b"]}]))
    assert "url is" in refused(one(branches=[{"url": "h" * 2049, "calls": [""]}]))
    large = base64.b64encode(bytes(1024 * 1024 + 1)).decode()
    assert "payload is" in refused(one(branches=[{"url": "http://b/in", "payload": large}]))
    assert coordinator.query("g") is None
