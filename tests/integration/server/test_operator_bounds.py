"""The gid prefix and the destinations of a token bind its acts as an operator.

Each act is tried by three clients: `eve`, whose gids begin with `bank-`, `ann`, who may name one address, and
`operate`, who is bound by nothing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.server.running import running
from tests.integration.server.test_identities import Api
from tests.support.fake_coordinator import Response, get, post
from tests.support.identities import bearer, write
from twophase.core.errors import Forbidden
from twophase.server.identity.scopes import Scope

IN, OTHER = "http://127.0.0.1:1/in", "http://127.0.0.1:1/other"
OURS, DTM = "/api/twophase/messages/{gid}/", "/api/dtmsvr/"
ACTS: dict[str, tuple[str, dict[str, Any]]] = {
    "stop": (f"{OURS}stop", {"override": True}),
    "park": (f"{OURS}park", {}),
    "redrive": (f"{OURS}redrive", {}),
    "retry-now": (f"{OURS}retry-now", {}),
    "redirect": (f"{OURS}redirect", {"to": OTHER}),
    "redirect, dry run": (f"{OURS}redirect", {"to": OTHER, "dry_run": True}),
    "forceStop": (f"{DTM}forceStop", {"gid": "{gid}"}),
    "resetNextCronTime": (f"{DTM}resetNextCronTime", {"gid": "{gid}"}),
}
NAMING_AN_ADDRESS = {"redirect", "redirect, dry run"}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    tokens = write(tmp_path, "produce", [Scope.PRODUCE])
    write(tmp_path, "operate", [Scope.OPERATE, Scope.ADMIN])
    write(tmp_path, "eve", [Scope.OPERATE, Scope.ADMIN], gid_prefix="bank-")
    write(tmp_path, "ann", [Scope.OPERATE, Scope.ADMIN], destinations=(IN,))
    slow = {"timeout_to_fail_ms": 86_400_000, "retry_first_ms": 3_600_000, "retry_cap_ms": 3_600_000}
    async with running(tmp_path, tokens=tokens, **slow) as server:
        yield Api(server)


async def _message(api: Api, gid: str, act: str) -> None:
    """Bring a message into the state in which the act is allowed."""
    what = "prepare" if "stop" in act.lower() else "submit"
    assert (await api.say(what, gid, "produce", query_prepared=IN)).status == 200
    if what == "submit":
        await api.server.until_logged(gid)
    if act == "redrive":
        assert (await api.http(post(f"{OURS}park".format(gid=gid), b"", *bearer("operate")))).status == 200


async def _act(api: Api, act: str, gid: str, name: str) -> Response:
    path, fields = ACTS[act]
    body = json.dumps(fields).replace("{gid}", gid).encode()
    return await api.http(post(path.format(gid=gid), body, *bearer(name)))


@pytest.mark.parametrize("act", ACTS)
async def test_an_act_on_a_gid_that_begins_otherwise_is_refused_as_on_an_unknown_one(api: Api, act: str) -> None:
    for gid in ("shop-1", "bank-1"):
        await _message(api, gid, act)
    before = await api.server.view("shop-1")

    refused = await _act(api, act, "shop-1", "eve")
    unknown = await _act(api, act, "shop-9", "eve")
    within = await _act(api, act, "bank-1", "eve")

    assert (refused.status, refused.body) == (unknown.status, unknown.body.replace(b"shop-9", b"shop-1"))
    assert refused.status == (await _act(api, act, "bank-9", "eve")).status, "as within the prefix"
    assert await api.server.view("shop-1") == before
    assert within.status == (409 if act == "forceStop" else 200), within.body
    assert (await _act(api, act, "shop-1", "operate")).status == within.status


@pytest.mark.parametrize("act", ACTS)
async def test_an_act_that_names_an_address_stays_within_the_destinations(api: Api, act: str) -> None:
    await _message(api, "shop-1", act)
    before = await api.server.view("shop-1")

    response = await _act(api, act, "shop-1", "ann")

    if act in NAMING_AN_ADDRESS:
        assert (response.status, json.loads(response.body)["code"]) == (403, Forbidden.code)
        assert await api.server.view("shop-1") == before
    assert (await _act(api, act, "shop-1", "operate")).status in {200, 409}


async def test_a_reset_of_all_tries_only_messages_whose_gid_begins_as_the_tokens(api: Api) -> None:
    for gid in ("shop-1", "bank-1", "bank-2"):
        await _message(api, gid, "retry-now")
    path = f"{DTM}resetCronTime?timeout=1&limit=100"
    tried = [(await api.http(get(path, *bearer(name)))).body for name in ("eve", "operate")]
    assert json.loads(tried[0])["succeed_count"] == 2, tried


@pytest.mark.parametrize(
    ("name", "taken"), [("eve", ["bank-7"]), ("ann", ["shop-7"]), ("operate", ["bank-7", "shop-7"])]
)
async def test_an_import_stays_within_prefix_and_destinations(api: Api, name: str, taken: list[str]) -> None:
    messages: list[dict[str, Any]] = [
        {"gid": gid, "state": "submitted", "created_ms": 0, "branches": [{"url": url, "payload": "e30="}]}
        for gid, url in (("bank-7", OTHER), ("shop-7", IN))
    ]
    body = json.dumps({"messages": messages, "never_taken": True}).encode()
    results = json.loads((await api.http(post("/api/twophase/import", body, *bearer(name)))).body)["results"]
    codes = {message["gid"]: result.get("code", "") for message, result in zip(messages, results, strict=True)}
    assert {gid: code for gid, code in codes.items() if code} == {
        gid: Forbidden.code for gid in codes if gid not in taken
    }
    for gid in codes:
        assert (await api.server.server.coordinator.query(gid) is not None) is (gid in taken)
