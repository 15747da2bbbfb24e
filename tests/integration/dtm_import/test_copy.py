"""`twophase import dtm`: the copy from each of dtm's databases.

The services receive the calls that follow from it.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import msgspec

from tests.integration.dtm_import.command import report, run
from tests.integration.dtm_import.services import Service
from tests.integration.dtm_import.stores import DtmStore, RedisStore
from tests.support.waiting import blocked_until
from twophase.core.lifecycle import State
from twophase.testing import InProcessCoordinator


def taken_over_ms(coordinator: InProcessCoordinator) -> int | None:
    """Return the noted time of the last move, as an audit reads it."""
    assert coordinator._store is not None
    with closing(sqlite3.connect(coordinator._store.removeprefix("sqlite:///"))) as connection:
        found = connection.execute("select value from store_meta where name = 'taken_over_ms'").fetchone()
    return found[0] if found else None


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


def test_the_time_of_the_move_is_noted_even_of_nothing(
    dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    assert report(dtm, coordinator.url)[0] == 0
    assert taken_over_ms(coordinator) is None

    assert report(dtm, coordinator.url, "--apply")[0] == 0
    moved_ms = taken_over_ms(coordinator)
    assert moved_ms
    assert report(dtm, coordinator.url, "--apply")[0] == 0
    assert taken_over_ms(coordinator) == moved_ms, "nothing was copied, so nothing more may have ended there"

    dtm.put("late", "submitted", [("01", "prepared", branches.url("/in"), b"{}")])
    assert report(dtm, coordinator.url, "--apply")[0] == 0
    assert (taken_over_ms(coordinator) or 0) > moved_ms


def test_headers_that_an_older_dtm_passed_on_go_with_each_call(
    dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    """A dtm of today still sends those in `ext_data`.

    A header of the message itself wins.
    """
    rows = [("01", "prepared", branches.url("/in"), b"{}")]
    options = '{"branch_headers":{"tenant":"7"},"concurrent":false}'
    dtm.put("passed", "submitted", rows, options=options, ext_data='{"headers":{"Authorization":"me","Tenant":"8"}}')
    dtm.put("plain", "submitted", rows, ext_data='{"headers":null}')
    dtm.put("torn", "submitted", rows, ext_data="{")

    code, said = report(dtm, coordinator.url, "--apply")

    assert (code, said["counts"]) == (1, {"copied submitted": 2, "skipped msg submitted": 1})
    assert [(one["gid"], one["reason"]) for one in said["remarks"]] == [("torn", "its ext_data cannot be read")]
    for gid in ("passed", "plain"):
        assert coordinator.wait_final(gid) is State.SUCCEEDED
    (call,) = (call for call in branches.calls if call.gid == "passed")
    assert (call.headers["authorization"], call.headers["tenant"]) == ("me", "7")


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
    blocked_until(lambda: any(call.gid == "open" for call in branches.calls))
    assert coordinator.state("open") is State.PREPARED
    assert branches.branches("kept") == [("/in", "01")]
    assert branches.branches("undone") == branches.branches("open") == []


def test_the_first_check_back_waits_for_what_is_left_of_its_time(
    dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    rows = [("01", "prepared", branches.url("/in"), b"{}")]
    dtm.put("new", "prepared", rows, query_prepared=branches.url("/ask"), created_s=-5, due_s=5)

    assert report(dtm, coordinator.url, "--apply")[0] == 0
    coordinator.advance(20)
    assert branches.calls == []
    coordinator.advance(15)

    assert coordinator.wait_final("new") is State.SUCCEEDED


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
    coordinator.advance(280)
    assert (coordinator.state("delayed"), branches.calls) == (State.SUBMITTED, [])
    coordinator.advance(40)

    assert coordinator.wait_final("delayed") is State.SUCCEEDED


def test_a_prepared_message_without_a_callable_check_is_parked(
    dtm: DtmStore, coordinator: InProcessCoordinator, branches: Service
) -> None:
    """dtm would call it committed."""
    dtm.put("silent", "prepared", [("01", "prepared", branches.url("/in"), b"{}")])

    code, said = report(dtm, coordinator.url, "--apply")

    assert (code, [(one["gid"], one["what"]) for one in said["remarks"]]) == (0, [("silent", "note")])
    blocked_until(lambda: (view := coordinator.query("silent")) is not None and view.parked)
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
    blocked_until(lambda: bool(branches.calls))
    assert msgspec.json.decode(branches.calls[0].body)["params"] == {
        "amount": 30, "gid": "json", "branch_id": "01", "op": "action", "trans_type": "msg"
    }  # fmt: skip


def test_a_terminal_obeys_no_kind_in_dtms_store(dtm: DtmStore, coordinator: InProcessCoordinator) -> None:
    dtm.put("s1", "submitted", trans_type="saga\x1b[2J")
    shown = run(dtm, coordinator.url).output
    assert r"Not copied, no messages: 1 saga\x1b[2J (submitted)" in shown
    assert "\x1b" not in shown


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
    assert {one["gid"] for one in said["remarks"]} == {"a", "b", "c"}
    assert all(one["reason"] for one in said["remarks"])
    # Not "send it again": a producer who did would repeat what dtm has delivered of it.
    assert next(one["remedy"] for one in said["remarks"] if one["gid"] == "a").startswith("Let dtm finish it before")
    assert "no destination for 'consul'" in next(one["reason"] for one in said["remarks"] if one["gid"] == "a")
    assert coordinator.wait_final("d") is State.SUCCEEDED


def test_nothing_there_is_not_an_error(dtm: DtmStore, coordinator: InProcessCoordinator) -> None:
    done = run(dtm, coordinator.url, "--apply")

    assert (done.exit_code, "no unfinished message" in done.output) == (0, True)
    assert ("Nothing of dtm is in this database of Redis" in done.output) == isinstance(dtm, RedisStore)


def test_a_wrong_prefix_is_doubted(keys: RedisStore, coordinator: InProcessCoordinator) -> None:
    keys.put("there", "submitted", [("01", "prepared", "http://127.0.0.1:1/in", b"{}")])

    assert "give --prefix" not in run(keys, coordinator.url).output
    wrong = run(keys, coordinator.url, "--prefix", "{b}")
    assert (wrong.exit_code, "under the prefix '{b}'" in wrong.output) == (0, True), wrong.output
