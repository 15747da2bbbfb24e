"""The cases of dtm's own tests of 2-phase messages, one by one, through every API.

A real server answers over its sockets; only time is the test's, so that what dtm's tests wait for is due at once. Names
begin with the number of the case in dtm-wire §7.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import msgspec
import pytest

from tests.wire.apis import Api, End, GrpcApi, HttpApi, JsonRpcApi, wire
from tests.wire.bank import Bank, bank
from twophase.core.lifecycle import State
from twophase.grpc_wire.messages import Request, encode_request
from twophase.testing import InProcessCoordinator

DOORS: list[Any] = [HttpApi, JsonRpcApi, GrpcApi]
UNHURRIED: dict[str, Any] = {"request_timeout_ms": 60_000, "retry_first_ms": 30_000, "check_back_first_ms": 30_000}
"""Settings with long timeouts.

However long the machine takes between two steps of a test, no call is given up and none repeated meanwhile.
"""
every_api = pytest.mark.parametrize("api", DOORS, indirect=True, ids=["http", "json-rpc", "grpc"])


@pytest.fixture
def branches() -> Iterator[Bank]:
    with bank() as one:
        yield one


@pytest.fixture
def coordinator() -> Iterator[InProcessCoordinator]:
    with InProcessCoordinator(grpc_port=0, **UNHURRIED) as one:
        yield one


@pytest.fixture
def http(coordinator: InProcessCoordinator) -> HttpApi:
    return HttpApi(coordinator)


@pytest.fixture
def api(request: pytest.FixtureRequest, coordinator: InProcessCoordinator) -> Api:
    made: Api = request.param(coordinator)
    return made


def shown(http: HttpApi, gid: str) -> tuple[str, list[str]]:
    """Return a message's status and its branches', as a query shows them."""
    found = http.get(f"query?gid={gid}")
    return found["transaction"]["status"], [branch["status"] for branch in found["branches"]]


@every_api
def test_01_a_submit_is_seen_as_submitted_then_every_branch_succeeds(
    api: Api, http: HttpApi, branches: Bank, coordinator: InProcessCoordinator
) -> None:
    branches.answers["/in"] = ["late"]
    assert api.ask("submit", "g", [branches.url("/out"), branches.url("/in")]).end is End.SUCCESS
    branches.until_called("/in")
    assert shown(http, "g")[0] == "submitted"
    branches.release.set()
    coordinator.wait_final("g")
    assert shown(http, "g") == ("succeed", ["succeed", "succeed"])


@every_api
def test_02_a_check_back_that_is_ongoing_is_asked_again_and_a_branch_that_is_ongoing_called_again(
    api: Api, http: HttpApi, branches: Bank, coordinator: InProcessCoordinator
) -> None:
    branches.answers |= {"/check": [425, 200], "/in": [425, 200]}
    assert api.ask("prepare", "g", [branches.url("/in")], query_prepared=branches.url("/check")).end is End.SUCCESS
    coordinator.advance(35)
    branches.until_called("/check")
    _until_next_call(coordinator, "g")
    coordinator.advance(60)
    branches.until_called("/in")
    assert shown(http, "g") == ("submitted", ["prepared"])
    while coordinator.state("g") is not State.SUCCEEDED:
        coordinator.advance(1)
    assert branches.times("/check") == 2
    assert branches.times("/in") == 2


@every_api
def test_03_a_check_back_that_says_failure_ends_it_and_no_branch_is_called(
    api: Api, http: HttpApi, branches: Bank, coordinator: InProcessCoordinator
) -> None:
    branches.answers["/check"] = [409]
    api.ask("prepare", "g", [branches.url("/in")], query_prepared=branches.url("/check"))
    coordinator.advance(35)
    coordinator.wait_final("g")
    assert shown(http, "g") == ("failed", ["prepared"])
    assert branches.times("/in") == 0


@every_api
def test_04_prepare_twice_then_submit_then_prepare_is_refused(api: Api, branches: Bank) -> None:
    urls = [branches.url("/in")]
    ends = [api.ask(what, "g", urls, query_prepared=branches.url("/check")).end for what in ("prepare", "prepare")]
    assert ends == [End.SUCCESS, End.SUCCESS]
    assert api.ask("submit", "g", urls).end is End.SUCCESS
    assert api.ask("prepare", "g", urls, query_prepared=branches.url("/check")).end is End.FAILURE


@every_api
def test_05_submit_after_succeed_is_refused(api: Api, branches: Bank, coordinator: InProcessCoordinator) -> None:
    api.ask("submit", "g", [branches.url("/in")])
    coordinator.wait_final("g")
    said = api.ask("submit", "g", [branches.url("/in")])
    assert said.end is End.FAILURE
    assert "current status 'succeed'" in said.text


@every_api
def test_06_a_topic_that_is_not_there_is_reported(api: Api) -> None:
    said = api.ask("submit", "g", ["topic://nowhere"])
    assert said.end is End.ERROR
    assert "topic not found" in said.text


@every_api
@pytest.mark.parametrize("answer", [500, 425, 409, "FAILURE", "ONGOING"])
def test_07_whatever_a_branch_answers_it_stays_submitted_until_it_succeeds(
    api: Api, http: HttpApi, branches: Bank, coordinator: InProcessCoordinator, answer: int | str
) -> None:
    branches.answers["/in"] = [answer, 200]
    api.ask("submit", "g", [branches.url("/in")])
    branches.until_called("/in")
    assert shown(http, "g") == ("submitted", ["prepared"])
    while coordinator.state("g") is not State.SUCCEEDED:
        coordinator.advance(1)
    assert branches.times("/in") == 2


@every_api
@pytest.mark.parametrize(("options", "due_ms"), [({}, 35_000), ({"timeout_to_fail": 120}, 120_000)])
def test_08_a_prepared_message_is_asked_about_after_its_own_time_and_not_before(
    api: Api, branches: Bank, coordinator: InProcessCoordinator, options: dict[str, Any], due_ms: int
) -> None:
    api.ask("prepare", "g", [branches.url("/in")], query_prepared=branches.url("/check"), **options)
    coordinator.advance(due_ms / 1000 - 5)
    assert coordinator.state("g") is State.PREPARED
    assert branches.times("/check") == 0
    coordinator.advance(5)
    assert coordinator.wait_final("g") is State.SUCCEEDED


@every_api
def test_09_concurrent_branches_are_all_called_though_the_first_has_not_answered(
    api: Api, branches: Bank, coordinator: InProcessCoordinator
) -> None:
    branches.answers["/first"] = ["late"]
    api.ask("submit", "g", [branches.url("/first"), branches.url("/second")], concurrent=True)
    branches.until_called("/second")
    branches.release.set()
    assert coordinator.wait_final("g") is State.SUCCEEDED


@every_api
def test_10_a_delayed_message_is_not_called_before(
    api: Api, http: HttpApi, branches: Bank, coordinator: InProcessCoordinator
) -> None:
    assert api.ask("submit", "g", [branches.url("/in")], custom_data='{"delay":100}').end is End.SUCCESS
    coordinator.advance(80)
    assert shown(http, "g")[0] == "submitted"
    assert branches.times("/in") == 0
    coordinator.advance(40)
    assert coordinator.wait_final("g") is State.SUCCEEDED


@pytest.mark.parametrize("answer", [200, 500])
def test_11_the_webhook_hears_of_the_third_failure_in_a_row_and_its_own_failure_stops_nothing(
    branches: Bank, answer: int
) -> None:
    branches.answers |= {"/alert": [answer], "/in": [500, 500, 500, 200]}
    with InProcessCoordinator(alert_webhook=branches.url("/alert"), **UNHURRIED) as coordinator:
        HttpApi(coordinator).ask("submit", "g", [branches.url("/in")])
        for times in (1, 2, 3):
            branches.until_called("/in", times)
            assert branches.times("/alert") == 0 or times == 3
            _until_next_call(coordinator, "g")
            coordinator.advance(60)
        assert '"gid":"g"' in branches.until_called("/alert").body
        while coordinator.state("g") is not State.SUCCEEDED:
            coordinator.advance(1)


@every_api
def test_16_a_commit_that_happened_though_it_was_not_heard_of_is_delivered(
    api: Api, branches: Bank, coordinator: InProcessCoordinator
) -> None:
    """The published clients in tests/clients play rows 12 to 16.

    There they have their barriers and databases.
    """
    api.ask("prepare", "g", [branches.url("/in")], query_prepared=branches.url("/check"))
    coordinator.advance(35)
    assert coordinator.wait_final("g") is State.SUCCEEDED
    asked, called = branches.until_called("/check"), branches.until_called("/in")
    assert {name: asked.query[name] for name in ("branch_id", "gid", "op", "trans_type")} == {
        "branch_id": "00",
        "gid": "g",
        "op": "msg",
        "trans_type": "msg",
    }
    assert called.query == {"branch_id": "01", "gid": "g", "op": "action", "trans_type": "msg"}
    assert api.ask("abort", "g", [branches.url("/in")]).end is End.FAILURE


def test_15_a_wrong_path_is_an_error_so_that_a_producer_does_not_go_on(http: HttpApi) -> None:
    status, _ = http.raw("POST", "/no/such/prepare", wire("g", [], {}))
    assert status == 404


def test_17_json_rpc_codes(coordinator: InProcessCoordinator) -> None:
    api = JsonRpcApi(coordinator)
    status, body = api.http.raw("POST", "/api/json-rpc", b"{bad")
    assert (status, body["error"]["code"]) == (400, -32700)
    assert api.call("newGid", None, jsonrpc="1.0")["error"]["code"] == -32600
    assert api.call("newGid", None, id="")["error"]["code"] == -32600
    assert api.call("no", None)["error"]["code"] == -32601
    assert api.call("submit", "text")["error"]["code"] == -32603
    assert api.call("newGid", "")["result"]["gid"]


def test_18_topics_are_subscribed_to_and_left(http: HttpApi, branches: Bank) -> None:
    url = branches.url("/in")
    for path, told in (
        (f"subscribe?topic=&url={url}", "empty topic"),
        ("subscribe?topic=t&url=", "empty url"),
        ("unsubscribe?topic=t&url=x", "no such a topic"),
    ):
        assert _error(http, path)["message"] == told
    for number in range(3):
        http.get(f"subscribe?topic=t&url={url}{number}&remark=r")
    assert _error(http, f"subscribe?topic=t&url={url}0")["message"] == "this url exists"
    http.get(f"unsubscribe?topic=t&url={url}2")
    (kept,) = http.get("queryKV?cat=topics&key=t")["kv"]
    assert kept["version"] == 4, "one for every change that was made"
    assert http.raw("DELETE", "/api/dtmsvr/topic/t")[0] == 200
    assert _error(http, "topic/t", "DELETE")["message"] == "storage: NotFound"


def test_18_changes_of_one_topic_at_once_are_all_made(http: HttpApi, branches: Bank) -> None:
    urls = [branches.url(f"/{number}") for number in range(8)]
    with ThreadPoolExecutor(8) as callers:
        list(callers.map(lambda url: http.get(f"subscribe?topic=t&url={url}"), urls))
    (kept,) = http.get("queryKV?cat=topics&key=t")["kv"]
    assert kept["version"] == 8
    assert sorted(one["url"] for one in msgspec.json.decode(kept["v"])) == urls


def _error(http: HttpApi, path: str, method: str = "GET") -> Any:
    """Return the body of a 500."""
    status, body = http.raw(method, f"/api/dtmsvr/{path}")
    assert status == 500
    return body


def test_18_a_message_for_a_topic_reaches_every_subscriber_under_ids_of_their_own(
    http: HttpApi, branches: Bank, coordinator: InProcessCoordinator
) -> None:
    for path in ("/a", "/b"):
        http.get(f"subscribe?topic=t&url={branches.url(path)}")
    http.ask("submit", "g", ["topic://t", branches.url("/c")])
    assert coordinator.wait_final("g") is State.SUCCEEDED
    ids = [branches.until_called(path).query["branch_id"] for path in ("/a", "/b", "/c")]
    assert ids == ["01-01", "01-02", "02"]


def test_19_questions_have_dtms_shapes(http: HttpApi, branches: Bank, coordinator: InProcessCoordinator) -> None:
    assert http.get("version")["version"].startswith("v")
    assert _error(http, "query")["message"] == "no gid specified"
    assert http.get("query?gid=unknown") == {"branches": [], "transaction": None}
    for number in range(5):
        http.ask("submit", f"g{number}", [branches.url("/in")])
        coordinator.wait_final(f"g{number}")
    seen, position = [], ""
    while True:
        page = http.get(f"all?limit=2&position={position}")
        seen += [one["gid"] for one in page["transactions"]]
        position = page["next_position"]
        if not position:
            break
        assert len(page["transactions"]) <= 2
    assert sorted(seen) == [f"g{number}" for number in range(5)]
    assert http.get("all?status=failed") == {"next_position": "", "transactions": []}
    assert http.get("scanKV?cat=topics")["kv"] == []
    assert http.raw("GET", "/api/metrics")[0] == 200


def test_20_cron_times_are_reset_and_messages_stopped_by_force(
    http: HttpApi, branches: Bank, coordinator: InProcessCoordinator
) -> None:
    branches.answers["/in"] = [500]
    for times, gid in enumerate(("late", "later"), 1):
        http.ask("submit", gid, [branches.url("/in")], retry_interval=3600)
        branches.until_called("/in", times)
        _until_next_call(coordinator, gid)
    branches.answers["/in"] = ["late"]  # what is called again does not come back to wait for its hour
    assert http.get("resetCronTime?timeout=600&limit=1") == {"has_remaining": True, "succeed_count": 1}
    assert http.get("resetCronTime?timeout=600&limit=1") == {"has_remaining": False, "succeed_count": 1}
    http.ask("submit", "one", [branches.url("/in")], custom_data='{"delay":3600}')
    assert http.raw("POST", "/api/dtmsvr/resetNextCronTime", {"gid": "one"})[0] == 200
    assert http.raw("POST", "/api/dtmsvr/forceStop", {"gid": "one"})[0] == 200
    status, body = http.raw("POST", "/api/dtmsvr/forceStop", {"gid": "one"})
    assert status == 409
    assert body["message"].endswith("FAILURE")
    assert http.raw("POST", "/api/dtmsvr/forceStop", {"gid": "none"})[0] == 500
    branches.release.set()


@every_api
def test_21_of_contrary_decisions_at_one_moment_one_counts_and_each_requester_learns_which(
    api: Api, http: HttpApi, branches: Bank, coordinator: InProcessCoordinator
) -> None:
    """Rows of dtm's store tests, seen from outside.

    A state changes from its last state, or not at all.
    """
    branches.answers["/in"] = ["late"]
    urls = [branches.url("/in")]
    api.ask("prepare", "g", urls, query_prepared=branches.url("/check"))
    with ThreadPoolExecutor(8) as callers:
        said = list(callers.map(lambda what: (what, api.ask(what, "g", urls).end), ["submit", "abort"] * 8))
    ends = {what: {end for asked, end in said if asked == what} for what in ("submit", "abort")}
    submitted = ends["submit"] == {End.SUCCESS}
    assert ends == {
        "submit": {End.SUCCESS if submitted else End.FAILURE},
        "abort": {End.FAILURE if submitted else End.SUCCESS},
    }
    branches.release.set()
    assert coordinator.wait_final("g") is (State.SUCCEEDED if submitted else State.FAILED)
    assert branches.times("/in") == int(submitted)
    assert shown(http, "g")[0] == ("succeed" if submitted else "failed")


def test_21_what_is_called_at_this_moment_or_finished_is_not_taken_up_and_what_is_unknown_is_reported(
    http: HttpApi, branches: Bank, coordinator: InProcessCoordinator
) -> None:
    branches.answers["/in"] = ["late"]
    http.ask("submit", "g", [branches.url("/in")])
    branches.until_called("/in")
    assert http.raw("POST", "/api/dtmsvr/resetNextCronTime", {"gid": "g"})[0] == 200
    assert http.get("resetCronTime?timeout=0&limit=100")["succeed_count"] == 0, "it is called at this moment"
    branches.release.set()
    coordinator.wait_final("g")
    assert http.raw("POST", "/api/dtmsvr/resetNextCronTime", {"gid": "g"})[0] == 200
    assert http.get("resetCronTime?timeout=0&limit=100") == {"has_remaining": False, "succeed_count": 0}
    coordinator.advance(3600)
    assert shown(http, "g") == ("succeed", ["succeed"])
    assert branches.times("/in") == 1
    for path in ("resetNextCronTime", "forceStop", "abort"):
        status, body = http.raw("POST", f"/api/dtmsvr/{path}", {"gid": "none", "trans_type": "msg"})
        assert (status, body["message"]) == (500, "no TransGlobal with gid: none found")


def test_22_a_grpc_request_without_a_type_is_an_error_and_the_server_lives(coordinator: InProcessCoordinator) -> None:
    api = GrpcApi(coordinator)
    for request, named in ((b"", ""), (encode_request(Request(gid="g")), "trans_type is missing")):
        code, text = api.call("Submit", request)
        assert code not in {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN}
        assert named in text
    assert api.call("NewGid", b"")[0] is grpc.StatusCode.OK


def test_23_a_payload_may_stand_in_its_step(http: HttpApi, branches: Bank, coordinator: InProcessCoordinator) -> None:
    step = {"action": branches.url("/in"), "data": '{"amount":30}'}
    status, _ = http.raw("POST", "/api/dtmsvr/submit", {"gid": "g", "trans_type": "msg", "steps": [step]})
    assert status == 200
    coordinator.wait_final("g")
    assert branches.until_called("/in").body == '{"amount":30}'


@every_api
def test_24_branch_headers_reach_every_call_and_the_check_back_and_a_request_timeout_is_kept(
    api: Api, branches: Bank, coordinator: InProcessCoordinator
) -> None:
    branches.answers["/in"] = [500, "late", 200]
    options = {"branch_headers": {"tenant": "7"}, "request_timeout": 1, "query_prepared": branches.url("/check")}
    api.ask("prepare", "g", [branches.url("/in")], **options)
    coordinator.advance(35)
    for times in (1, 2):
        assert branches.until_called("/in", times).headers["tenant"] == "7"
        _until_next_call(coordinator, "g")
        coordinator.advance(60)
    while coordinator.state("g") is not State.SUCCEEDED:
        coordinator.advance(1)
    assert branches.until_called("/check").headers["tenant"] == "7"


def test_25_ongoing_keeps_the_pause_and_an_error_doubles_it(
    http: HttpApi, branches: Bank, coordinator: InProcessCoordinator
) -> None:
    pauses = {}
    for name, answer in (("ongoing", 425), ("error", 500)):
        branches.answers[f"/{name}"] = [answer]
        http.ask("submit", name, [branches.url(f"/{name}")], retry_interval=10)
        pauses[name] = [_pause_ms(coordinator, branches, name, times) for times in (1, 2, 3)]
    assert max(pauses["ongoing"]) <= 10_000
    assert 10_000 < pauses["error"][1] <= 20_000
    assert 20_000 < pauses["error"][2] <= 40_000


def _pause_ms(coordinator: InProcessCoordinator, branches: Bank, gid: str, times: int) -> int:
    """Return the pause after the call of this number, and let its time come."""
    branches.until_called(f"/{gid}", times)
    due_ms = _until_next_call(coordinator, gid)
    left_ms = due_ms - coordinator.clock.now_ms()  # the call has failed by now, so this is no more than the pause
    coordinator.advance((left_ms + 1) / 1000)
    return left_ms


def _until_next_call(coordinator: InProcessCoordinator, gid: str) -> int:
    """Wait until a failed call is on record; return when the next one is due."""
    while True:
        now_ms = coordinator.clock.now_ms()
        view = coordinator.query(gid)
        if view is not None and view.due_ms is not None and view.due_ms > now_ms:
            return view.due_ms


@every_api
def test_26_wait_result_tells_success_and_the_reason_of_its_absence(api: Api, branches: Bank) -> None:
    assert api.ask("submit", "good", [branches.url("/in")], wait_result=True).end is End.SUCCESS
    branches.answers["/out"] = [425, 409, 500]
    said = [api.ask("submit", f"g{number}", [branches.url("/out")], wait_result=True) for number in range(3)]
    assert [one.end for one in said] == [End.FAILURE, End.FAILURE, End.ERROR]
    assert "answered 500" in said[2].text
