"""The routes beside prepare, submit and abort, with dtm's statuses and bodies.

They were recorded from dtm 1.19.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.fake_coordinator import Wire, get, post, prepare
from twophase.coordinator.state.active_message import Reply
from twophase.coordinator.view import MessageView
from twophase.core.errors import ConfigurationError, Overloaded, StateConflict, StoreFull, UnknownMessage
from twophase.core.gid import born_ms
from twophase.core.lifecycle import State
from twophase.core.message import Branch, Message
from twophase.core.options import Options

JSON = "application/json; charset=utf-8"

# name, request, status, body
RECORDED: list[tuple[str, bytes, int, str]] = [
    ("ping", get("/api/ping"), 200, '{"msg":"pong"}'),
    ("ping by post", post("/api/ping", b"{}"), 200, '{"msg":"pong"}'),
    ("unknown path", get("/api/dtmsvr/nosuch"), 404, "404 page not found"),
    ("prepare by get", get("/api/dtmsvr/prepare"), 404, "404 page not found"),
    ("query by post", post("/api/dtmsvr/query?gid=x", b"{}"), 404, "404 page not found"),
    ("query of an unknown gid", get("/api/dtmsvr/query?gid=tv-unknown"), 200, '{"branches":[],"transaction":null}'),
    ("live", get("/health/live"), 200, '{"status":"live"}'),
    ("ready", get("/health/ready"), 200, '{"status":"ready"}'),
]


@pytest.mark.parametrize(("request_", "status", "body"), [row[1:] for row in RECORDED], ids=[r[0] for r in RECORDED])
async def test_answers_are_as_recorded(wire: Wire, request_: bytes, status: int, body: str) -> None:
    client = await wire.connect()
    response = await client.ask(request_)
    assert (response.status, response.body.decode()) == (status, body)


async def test_query_without_a_gid_is_dtms_500(wire: Wire) -> None:
    client = await wire.connect()
    response = await client.ask(get("/api/dtmsvr/query"))
    assert response.status == 500
    assert json.loads(response.body)["message"] == "no gid specified"


async def test_new_gids_are_ours_and_different(wire: Wire) -> None:
    client = await wire.connect()
    answers = [json.loads((await client.ask(get("/api/dtmsvr/newGid"))).body) for _ in range(2)]
    assert {one["dtm_result"] for one in answers} == {"SUCCESS"}
    assert answers[0]["gid"] != answers[1]["gid"]
    assert born_ms(answers[0]["gid"]) == 1_700_000_000_000


async def test_version_names_one(wire: Wire) -> None:
    client = await wire.connect()
    assert json.loads((await client.ask(get("/api/dtmsvr/version"))).body)["version"].startswith("v")


@pytest.mark.parametrize("name", ["registerBranch", "registerTccBranch", "registerXaBranch", "prepareWorkflow"])
async def test_other_kinds_of_transaction_are_refused_by_name(wire: Wire, name: str) -> None:
    client = await wire.connect()
    response = await client.ask(post(f"/api/dtmsvr/{name}", b'{"gid":"g1"}'))
    assert response.status == 400
    assert json.loads(response.body)["code"] == "TP-1002"


async def test_a_refused_submit_is_409_on_the_wire(wire: Wire) -> None:
    wire.coordinator.answer = lambda gid: Reply(StateConflict(gid=gid), State.SUCCEEDED)
    client = await wire.connect()
    response = await client.ask(prepare("g1").replace(b"/prepare ", b"/submit "))
    assert response.status == 409
    assert json.loads(response.body)["message"] == "current status 'succeed', cannot sumbmit. FAILURE"


async def test_an_abort_of_an_unknown_gid_is_500_on_the_wire(wire: Wire) -> None:
    wire.coordinator.answer = lambda gid: Reply(UnknownMessage(gid=gid), State.ABSENT)
    client = await wire.connect()
    response = await client.ask(post("/api/dtmsvr/abort", b'{"gid":"tv-none"}'))
    assert response.status == 500
    assert json.loads(response.body)["message"] == "no TransGlobal with gid: tv-none found"


async def test_an_overloaded_coordinator_says_when_to_come_back(wire: Wire) -> None:
    wire.coordinator.answer = lambda gid: Reply(Overloaded(gid=gid), State.ABSENT)
    client = await wire.connect()
    response = await client.ask(prepare("g1"))
    assert (response.status, response.headers["retry-after"]) == (503, "1")


async def test_not_ready_while_draining(wire: Wire) -> None:
    wire.coordinator.ready = False
    client = await wire.connect()
    assert (await client.ask(get("/health/ready"))).status == 503
    assert (await client.ask(get("/health/live"))).status == 200


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (StoreFull("the disk is full."), b"the disk is full."),
        (ConfigurationError("a certificate has expired.", remedy="Renew it."), b"Renew it."),
        (RuntimeError("no idea"), b"RuntimeError"),
    ],
)
async def test_not_ready_while_the_store_fails(wire: Wire, fault: Exception, told: bytes) -> None:
    wire.coordinator.store_fault = fault
    client = await wire.connect()
    ready = await client.ask(get("/health/ready"))
    assert (ready.status, ready.headers["retry-after"]) == (503, "1")
    assert told in ready.body
    metrics = await client.ask(get("/metrics"))
    assert metrics.status == 200
    assert b"twophase_store_up 0.0" in metrics.body


async def test_a_setting_that_works_no_more_is_a_503_with_its_remedy(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_gid: str, _client: str = "") -> None:
        raise ConfigurationError("a certificate has expired.", remedy="Renew it.")

    monkeypatch.setattr(wire.coordinator, "query", fails)
    client = await wire.connect()
    asked = await client.ask(get("/api/dtmsvr/query?gid=g"))
    assert asked.status == 503
    assert b"has expired" in asked.body
    assert b"Renew it." in asked.body


@pytest.mark.parametrize("path", ["/metrics", "/api/metrics"])
async def test_metrics_are_prometheus_text(wire: Wire, path: str) -> None:
    client = await wire.connect()
    response = await client.ask(get(path))
    assert response.headers["content-type"].startswith("text/plain; version=")
    for name in (
        b'twophase_messages{state="prepared"}',
        b"twophase_oldest_prepared_seconds",
        b"twophase_oldest_undelivered_seconds",
        b"twophase_flush_seconds_bucket",
        b"twophase_branch_calls_in_flight",
        b"twophase_waiting_for_store",
        b"twophase_connections 1.0",
    ):
        assert name in response.body


async def test_requests_refused_here_are_counted_by_code(wire: Wire) -> None:
    client = await wire.connect()
    await client.ask(post("/api/dtmsvr/prepare", b"{bad"))
    await client.ask(post("/api/dtmsvr/prepare", b'{"gid":"g","trans_type":"saga"}'))
    body = (await client.ask(get("/metrics"))).body
    assert b'twophase_refused_total{code="TP-1000"} 1.0' in body
    assert b'twophase_refused_total{code="TP-1002"} 1.0' in body


def _view(**changes: Any) -> MessageView:
    message = Message("g1", (Branch("http://b/FAILURE", b'{"a":1}'), Branch("http://c/2")), "http://a/check", Options())
    fields: dict[str, Any] = {
        "message": message,
        "state": State.SUBMITTED,
        "created_ms": 1_700_000_000_000,
        "decided_ms": 1_700_000_001_000,
        "finished_ms": None,
        "due_ms": 1_700_000_002_000,
        "decided_by": "submit",
        "reason": "",
        "attempts": 1,
        "parked": False,
        "done": 0b01,
        "log": (),
    }
    return MessageView(**(fields | changes))


async def test_a_query_shows_the_message_as_dtm_does(wire: Wire) -> None:
    wire.coordinator.views["g1"] = _view()
    client = await wire.connect()
    response = await client.ask(get("/api/dtmsvr/query?gid=g1"))
    assert response.status == 200
    assert b"FAILURE" not in response.body
    found = json.loads(response.body)
    transaction = found["transaction"]
    assert transaction["gid"] == "g1"
    assert (transaction["trans_type"], transaction["status"]) == ("msg", "submitted")
    assert transaction["create_time"] == "2023-11-14T22:13:20.000Z"
    assert transaction["next_cron_time"] == "2023-11-14T22:13:22.000Z"
    assert transaction["concurrent"] is False
    assert 0 < transaction["id"] < 2**31
    assert [(b["branch_id"], b["op"], b["status"]) for b in found["branches"]] == [
        ("01", "action", "succeed"),
        ("02", "action", "prepared"),
    ]
    assert found["branches"][0]["url"] == "http://b/FAILURE"
    assert found["branches"][0]["bin_data"] == "eyJhIjoxfQ=="


async def test_a_query_leaves_out_what_has_no_value_and_never_says_null(wire: Wire) -> None:
    wire.coordinator.views["g1"] = _view(decided_ms=0, due_ms=None, decided_by="", attempts=0)
    client = await wire.connect()
    response = await client.ask(get("/api/dtmsvr/query?gid=g1"))
    assert b"null" not in response.body
    transaction = json.loads(response.body)["transaction"]
    assert not {"finish_time", "rollback_time", "next_cron_time", "reason", "custom_data"} & set(transaction)


@pytest.mark.parametrize(
    ("state", "spelled", "field"),
    [(State.SUCCEEDED, "succeed", "finish_time"), (State.FAILED, "failed", "rollback_time")],
)
async def test_a_query_of_a_finished_message_says_when(wire: Wire, state: State, spelled: str, field: str) -> None:
    wire.coordinator.views["g1"] = _view(state=state, finished_ms=1_700_000_009_000, due_ms=None, reason="because")
    client = await wire.connect()
    transaction = json.loads((await client.ask(get("/api/dtmsvr/query?gid=g1"))).body)["transaction"]
    assert (transaction["status"], transaction[field]) == (spelled, "2023-11-14T22:13:29.000Z")


async def test_a_query_of_a_bad_gid_is_400(wire: Wire) -> None:
    client = await wire.connect()
    assert (await client.ask(get("/api/dtmsvr/query?gid=" + "g" * 129))).status == 400
    assert (await client.ask(get("/api/dtmsvr/query?gid=a%0Ab"))).status == 400
