"""The requests of operators to a real server over a socket.

dtm's requests get dtm's answers; twophase's own get their own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.integration.server.running import Running, running
from tests.support.fake_coordinator import Client, Response, get, post
from tests.support.server_process import BranchService, branch_service
from twophase.coordinator.dispatch.limiter import UNPROVEN
from twophase.core.lifecycle import State

DTM = "/api/dtmsvr"
OURS = "/api/twophase/messages"
SUCCESS = b'{"dtm_result":"SUCCESS"}'


class Api:
    """A server, the service that its messages call, and a client."""

    def __init__(self, server: Running, branch: BranchService) -> None:
        self.server = server
        self.branch = branch

    async def ask(self, request: bytes) -> Response:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.server.port))
        try:
            return await client.ask(request)
        finally:
            client.close()

    async def get(self, path: str) -> Any:
        response = await self.ask(get(path))
        assert response.status == 200, response.body
        return json.loads(response.body)

    async def post(self, path: str, **body: Any) -> Response:
        return await self.ask(post(path, json.dumps(body).encode()))

    async def say(self, what: str, gid: str, *, path: str = "/in", **more: Any) -> Response:
        """Post a prepare or submit with one branch."""
        steps = [{"action": self.branch.url(path)}]
        check = {"query_prepared": self.branch.url("/check")}
        return await self.post(
            f"{DTM}/{what}", **({"gid": gid, "trans_type": "msg", "steps": steps, "payloads": ["{}"]} | check | more)
        )

    async def finished(self, *gids: str) -> None:
        """Deliver messages, one after the other."""
        for gid in gids:
            await self.say("submit", gid)
            await self.server.until(gid, State.SUCCEEDED)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with branch_service() as branch, running(tmp_path) as server:
        branch.answers |= {"/down": 500, "/check": 200}
        yield Api(server, branch)


def said(response: Response) -> tuple[int, Any]:
    return response.status, json.loads(response.body)


async def test_all_of_nothing_is_as_recorded(api: Api) -> None:
    assert (await api.ask(get(f"{DTM}/all"))).body == b'{"next_position":"","transactions":[]}'
    unknown = await api.ask(get(f"{DTM}/all?gid=tv-unknown"))
    assert unknown.body == b'{"next_position":"","transactions":null}'
    for query in ("transType=saga", "status=nosuch&limit=1000", "createTimeStart=4102444800000", "createTimeEnd=1000"):
        assert (await api.ask(get(f"{DTM}/all?{query}"))).body == b'{"next_position":"","transactions":[]}', query


async def test_all_pages_through_everything_and_ends_with_no_position(api: Api) -> None:
    await api.finished("done-1", "done-2")
    for gid in ("live-1", "live-2"):
        await api.say("prepare", gid)

    seen: list[str] = []
    position = ""
    for _ in range(10):
        page = await api.get(f"{DTM}/all?limit=1&position={quote(position)}")
        seen += [one["gid"] for one in page["transactions"]]
        position = page["next_position"]
        if not position:
            break
    assert seen == ["live-2", "live-1", "done-2", "done-1"]
    whole = await api.get(f"{DTM}/all?limit=1000")
    assert ([one["gid"] for one in whole["transactions"]], whole["next_position"]) == (seen, "")


async def test_all_filters_by_gid_status_and_time(api: Api) -> None:
    await api.finished("done")
    await api.say("prepare", "live")

    async def gids(query: str) -> list[str]:
        return [one["gid"] for one in (await api.get(f"{DTM}/all?{query}"))["transactions"]]

    born_ms = (await api.server.view("live")).created_ms
    assert await gids("gid=done") == ["done"]
    assert await gids("status=succeed&transType=msg") == ["done"]
    assert await gids("status=prepared") == ["live"]
    assert await gids("status=failed") == []
    assert await gids(f"createTimeStart={born_ms}&createTimeEnd={born_ms}") == ["live"]
    assert await gids(f"createTimeEnd={born_ms}") == ["live", "done"]
    assert await gids(f"createTimeStart={born_ms + 1}") == []
    one = (await api.get(f"{DTM}/all?gid=done"))["transactions"][0]
    assert (one["trans_type"], one["status"], one["concurrent"]) == ("msg", "succeed", False)


@pytest.mark.parametrize("query", ["limit=abc", "position=abc", "createTimeStart=abc"])
async def test_all_answers_what_is_no_number_as_dtm_does(api: Api, query: str) -> None:
    status, body = said(await api.ask(get(f"{DTM}/all?{query}")))
    assert (status, body["message"]) == (500, "convert to int error: abc")


async def test_a_forced_stop_of_an_unknown_gid_is_dtms_500(api: Api) -> None:
    status, body = said(await api.post(f"{DTM}/forceStop", gid="tv-none"))
    assert (status, body["message"]) == (500, "no TransGlobal with gid: tv-none found")


async def test_a_forced_stop_of_a_submitted_message_and_of_one_that_is_final(api: Api) -> None:
    await api.say("submit", "g", path="/down")
    await api.server.until_logged("g")

    assert (await api.post(f"{DTM}/forceStop", gid="g")).body == SUCCESS
    assert (await api.server.view("g")).state is State.FAILED
    again = said(await api.post(f"{DTM}/forceStop", gid="g"))
    await api.finished("done")
    done = said(await api.post(f"{DTM}/forceStop", gid="done"))

    for (status, body), state in ((again, "failed"), (done, "succeed")):
        assert status == 409
        assert body["dtm_result"] == "FAILURE"
        assert body["message"] == f"global transaction force stop error. status: {state}. error: FAILURE"


async def test_a_forced_stop_of_a_prepared_message_asks_its_producer(api: Api) -> None:
    api.branch.answers["/check"] = 409
    await api.say("prepare", "rolled-back")
    assert (await api.post(f"{DTM}/forceStop", gid="rolled-back")).body == SUCCESS

    api.branch.answers["/check"] = 200
    await api.say("prepare", "committed")
    status, body = said(await api.post(f"{DTM}/forceStop", gid="committed"))
    assert (status, body["dtm_result"]) == (409, "FAILURE")
    await api.server.until("committed", State.SUCCEEDED)

    api.branch.answers["/check"] = 500
    await api.say("prepare", "silent")
    status, body = said(await api.post(f"{DTM}/forceStop", gid="silent"))
    assert (status, body["dtm_result"], body["state"]) == (409, "FAILURE", "prepared")
    assert "--override" in body["remedy"]
    assert (await api.server.view("silent")).state is State.PREPARED


async def test_a_stop_without_a_verdict_is_refused_unless_it_is_overridden(api: Api) -> None:
    api.branch.answers["/check"] = 500
    await api.say("prepare", "silent")

    status, body = said(await api.post("/api/twophase/messages/silent/stop", by="eve"))
    assert (status, body["code"], body["state"]) == (409, "TP-2001", "prepared")
    assert "--override" in body["remedy"]
    assert (await api.server.view("silent")).state is State.PREPARED

    assert (await api.post("/api/twophase/messages/silent/stop", by="eve", override=True)).status == 200
    view = await api.server.view("silent")
    assert (view.state, view.decided_by) == (State.FAILED, "operator")
    assert view.reason.startswith("stopped by eve; the producer, asked first, answered unknown")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"gid":7}', b'{"gid":""}', b"null"])
@pytest.mark.parametrize("path", ["forceStop", "resetNextCronTime"])
async def test_a_body_without_a_gid_is_refused_at_the_api(api: Api, path: str, body: bytes) -> None:
    status, answer = said(await api.ask(post(f"{DTM}/{path}", body)))
    assert (status, answer["code"][:4]) == (400, "TP-1")


async def test_a_reset_tries_now_and_is_success_for_what_is_final(api: Api) -> None:
    unknown = said(await api.post(f"{DTM}/resetNextCronTime", gid="tv-none"))
    assert (unknown[0], unknown[1]["message"]) == (500, "no TransGlobal with gid: tv-none found")
    await api.say("submit", "g", path="/down", retry_interval=3600)
    await api.server.until_logged("g")
    api.branch.answers["/down"] = 200

    assert (await api.post(f"{DTM}/resetNextCronTime", gid="g")).body == SUCCESS
    api.server.advance(100)
    await api.server.until("g", State.SUCCEEDED)
    assert (await api.post(f"{DTM}/resetNextCronTime", gid="g")).body == SUCCESS


async def test_a_quote_in_a_gid_is_a_letter(api: Api) -> None:
    await api.say("submit", "tv-q'uote", path="/down")
    await api.say("submit", "untouched", path="/down")
    await api.server.until_logged("tv-q'uote")
    await api.server.until_logged("untouched")
    evil = "x' or '1'='1"

    assert (await api.post(f"{DTM}/resetNextCronTime", gid="tv-q'uote")).body == SUCCESS
    assert (await api.post(f"{DTM}/forceStop", gid=evil)).status == 500
    assert (await api.post(f"{OURS}/{quote(evil, safe='')}/stop")).status == 404
    assert (await api.post(f"{DTM}/forceStop", gid="tv-q'uote")).body == SUCCESS
    found = await api.get(f"{DTM}/all?gid=tv-q%27uote")
    assert [one["status"] for one in found["transactions"]] == ["failed"]
    assert (await api.server.view("untouched")).state is State.SUBMITTED


async def test_a_reset_of_all_counts_and_says_whether_more_wait(api: Api) -> None:
    assert await api.get(f"{DTM}/resetCronTime") == {"has_remaining": False, "succeed_count": 0}
    for number in range(3):
        await api.say("submit", f"g{number}", path="/down", retry_interval=3600)
        await api.server.until_logged(f"g{number}")
    api.branch.answers["/down"] = 200

    assert await api.get(f"{DTM}/resetCronTime?timeout=4000") == {"has_remaining": False, "succeed_count": 0}
    assert await api.get(f"{DTM}/resetCronTime?limit=2") == {"has_remaining": True, "succeed_count": 2}
    assert await api.get(f"{DTM}/resetCronTime?limit=2") == {"has_remaining": False, "succeed_count": 1}
    api.server.advance(100)
    for number in range(3):
        await api.server.until(f"g{number}", State.SUCCEEDED)


@pytest.mark.parametrize("query", ["timeout=abc", "limit=abc"])
async def test_a_reset_of_all_answers_what_is_no_number_as_dtm_does(api: Api, query: str) -> None:
    status, body = said(await api.ask(get(f"{DTM}/resetCronTime?{query}")))
    assert (status, body["message"]) == (500, "convert to int error: abc")


async def test_numbers_beyond_all_bounds_are_no_server_error(api: Api) -> None:
    many = "9" * 30
    for path in ("resetCronTime?timeout=", "resetCronTime?timeout=-", "resetCronTime?limit=", "all?limit="):
        assert (await api.ask(get(f"{DTM}/{path}{many}"))).status == 200, path
    for name in ("createTimeStart", "createTimeEnd"):
        assert (await api.ask(get(f"{DTM}/all?{name}={many}"))).status == 200
        assert (await api.ask(get(f"{DTM}/all?{name}=-{many}"))).status == 200
    assert (await api.ask(get(f"{OURS}?created_before={many}"))).status == 400


async def test_a_submit_that_races_the_check_back_is_answered_200(api: Api) -> None:
    for number in range(UNPROVEN):
        gid = f"race-{number}"
        await api.say("prepare", gid, path="/down", timeout_to_fail=1)
    api.branch.open.clear()
    api.server.advance(1_100)
    for number in range(UNPROVEN):
        await api.branch.until_called("/check", f"race-{number}")
    submits = [asyncio.ensure_future(api.say("submit", f"race-{number}", path="/down")) for number in range(UNPROVEN)]
    api.branch.open.set()

    answers = await asyncio.gather(*submits)

    assert [one.status for one in answers] == [200] * UNPROVEN
    for number in range(UNPROVEN):
        await api.server.until(f"race-{number}", State.SUBMITTED)


async def test_two_stops_and_a_submit_at_once_are_no_server_error(api: Api) -> None:
    api.branch.answers["/check"] = 500
    for number in range(10):
        gid = f"race-{number}"
        await api.say("prepare", gid)
        answers = await asyncio.gather(
            api.post(f"{DTM}/forceStop", gid=gid), api.say("submit", gid), api.post(f"{DTM}/forceStop", gid=gid)
        )
        assert {one.status for one in answers} <= {200, 409}


async def test_messages_are_listed_with_filters_and_without_payloads(api: Api) -> None:
    await api.finished("order-1")
    await api.say("submit", "order-2", path="/down")
    await api.server.until_logged("order-2")
    await api.post(f"{OURS}/order-2/park", by="eve", reason="a fault")
    await api.say("prepare", "other", payloads=['"secret"'])

    async def gids(query: str = "") -> list[str]:
        return [one["gid"] for one in (await api.get(f"{OURS}?{query}"))["messages"]]

    assert await gids() == ["other", "order-2", "order-1"]
    assert await gids("state=prepared,succeed") == ["other", "order-1"]
    assert await gids("parked=true") == ["order-2"]
    assert await gids("gid=order-") == ["order-2", "order-1"]
    assert await gids(f"destination={quote(api.branch.url('/down'))}") == ["order-2"]
    assert await gids("created_before=1000") == []
    page = await api.get(f"{OURS}?limit=1")
    rest = await api.get(f"{OURS}?position={quote(page['position'])}")
    assert [one["gid"] for one in rest["messages"]] == ["order-2", "order-1"]
    whole = (await api.ask(get(OURS))).body
    assert b"secret" not in whole


@pytest.mark.parametrize(
    "query", ["state=nosuch", "parked=perhaps", "limit=0", "limit=1001", "limit=x", "created_after=-1", "position=abc"]
)
async def test_a_question_that_makes_no_sense_names_its_field(api: Api, query: str) -> None:
    status, body = said(await api.ask(get(f"{OURS}?{query}")))
    assert (status, body["code"]) == (400, "TP-1000")
    assert body["message"].startswith(query.partition("=")[0])


async def test_one_message_shows_what_went_wrong_and_who_did_what(api: Api) -> None:
    gid = "order/7 é"
    await api.say("submit", gid, path="/down")
    await api.server.until_logged(gid)
    where = f"{OURS}/{quote(gid, safe='')}"

    assert said(await api.post(f"{where}/park", by="eve", reason="a fault")) == (
        200,
        {"gid": gid, "state": "submitted"},
    )
    await api.server.until_logged(gid, 2)
    message = (await api.get(where))["message"]

    assert (message["gid"], message["state"], message["parked"]) == (gid, "submitted", True)
    assert message["branches"] == [{"branch_id": "01", "url": api.branch.url("/down"), "payload_bytes": 2}]
    acts = [one["error"] for one in message["log"] if one["kind"] == "operator"]
    assert acts == ["parked by eve: a fault"]
    api.branch.answers["/down"] = 200
    assert (await api.post(f"{where}/redrive")).status == 200
    api.server.advance(100)
    await api.server.until(gid, State.SUCCEEDED)


async def test_acts_on_what_is_not_there_or_final_are_404_and_409(api: Api) -> None:
    await api.finished("done")
    for act in ("stop", "park", "redrive", "retry-now"):
        status, body = said(await api.post(f"{OURS}/nobody/{act}"))
        assert (status, body["code"]) == (404, "TP-2004")
        status, body = said(await api.post(f"{OURS}/done/{act}"))
        assert (status, body["code"], body["state"]) == (409, "TP-2001", "succeed")
    assert (await api.ask(get(f"{OURS}/nobody"))).status == 404


async def test_who_acts_says_so_in_a_body_that_can_be_read(api: Api) -> None:
    await api.say("submit", "g", path="/down")
    for body in (b"{", b"[]", b'{"by":7}', b'{"reason":"%b"}' % (b"x" * 201)):
        status, answer = said(await api.ask(post(f"{OURS}/g/stop", body)))
        assert (status, answer["code"]) == (400, "TP-1000"), body
    assert (await api.server.view("g")).state is State.SUBMITTED
