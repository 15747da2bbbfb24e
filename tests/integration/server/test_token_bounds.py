"""The bounds of a token hold at every door, and for answers as for requests."""

from __future__ import annotations

import asyncio
import json
from binascii import b2a_base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.integration.server.running import running
from tests.integration.server.test_identities import Api, body_of
from tests.support.fake_coordinator import Client, get, post
from tests.support.identities import bearer, token_of, write
from tests.support.scripted_server import answering, serving
from tests.support.waiting import until
from twophase.core.errors import Forbidden
from twophase.core.lifecycle import State
from twophase.core.message import Branch, encode_branches
from twophase.server.http_port.connection import Connection
from twophase.server.http_port.parser import BODY
from twophase.server.identity.scopes import Scope
from twophase.server.identity.tokens import changing

_SECRET = b'HTTP/1.1 404 X\r\nContent-Length: 24\r\n\r\n{"SecretAccessKey":"s3"}'


@pytest.mark.parametrize("path", ["/api/dtmsvr/query?gid=g", "/api/dtmsvr/all?gid=g", "/api/twophase/messages/g"])
async def test_texts_of_answers_need_the_scope_payload(tmp_path: Path, path: str) -> None:
    tokens = write(tmp_path, "produce", [Scope.PRODUCE, Scope.OBSERVE])
    write(tmp_path, "reader", [Scope.OBSERVE, Scope.PAYLOAD, Scope.OPERATE])
    answer = b"HTTP/1.1 500 X\r\nContent-Length: 13\r\n\r\nthe card 4111"
    async with serving(answering(answer)).running() as branch, running(tmp_path, tokens=tokens) as server:
        api = Api(server)
        await api.say("submit", "g", "produce", steps=[{"action": f"{branch.url}/in"}], query_prepared="")
        await server.until_logged("g")
        masked = await api.http(get(path, *bearer("produce")))
        shown = await api.http(get(path, *bearer("reader")))
    assert masked.status == shown.status == 200
    assert b"card" not in masked.body
    assert b"500" in masked.body
    assert b"card 4111" in shown.body


async def test_texts_of_a_probes_report_need_the_scope_payload(tmp_path: Path) -> None:
    tokens = write(tmp_path, "produce", [Scope.OBSERVE, Scope.OPERATE])
    write(tmp_path, "reader", [Scope.OBSERVE, Scope.OPERATE, Scope.PAYLOAD])
    body = b'{"probe":"no_barrier","message":"TP-6001: Bearer 7","remedy":"Bearer 7"}'
    answer = b"HTTP/1.1 200 X\r\nX-Twophase-Verdict: probe\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    async with serving(answering(answer)).running() as route, running(tmp_path, tokens=tokens) as server:
        api = Api(server)
        asked = json.dumps({"url": f"{route.url}/check"}).encode()
        masked, shown = [
            json.loads((await api.http(post("/api/twophase/check-addresses/probe", asked, *bearer(name)))).body)
            for name in ("produce", "reader")
        ]
    assert (masked["state"], shown["state"]) == ("no_barrier", "no_barrier")
    assert "Bearer" not in json.dumps(masked)
    assert masked["message"].startswith("TP-6001: ")
    assert (shown["message"], shown["remedy"]) == ("TP-6001: Bearer 7", "Bearer 7")


@pytest.mark.parametrize("door", ["http", "base url", "json-rpc", "grpc"])
async def test_a_refusal_of_wait_result_needs_the_scope_payload_too(tmp_path: Path, door: str) -> None:
    tokens = write(tmp_path, "produce", [Scope.PRODUCE])
    write(tmp_path, "reader", [Scope.PRODUCE, Scope.PAYLOAD])
    async with serving(answering(_SECRET)).running() as branch:
        async with running(tmp_path, tokens=tokens, grpc_port=0) as server:
            masked = await _refused(Api(server), door, "produce", f"{branch.url}/in")
            shown = "" if door == "base url" else await _refused(Api(server), door, "reader", f"{branch.url}/in")
        (tmp_path / "open").mkdir()
        async with running(tmp_path / "open", grpc_port=0) as server:
            anonymous = await _refused(Api(server), "http" if door == "base url" else door, None, f"{branch.url}/in")
    assert "wait result not return success: branch 01 answered 404" in masked
    assert "SecretAccessKey" not in masked
    for text in (shown, anonymous) if shown else (anonymous,):
        assert 'branch 01 answered 404: {"SecretAccessKey":"s3"}' in text


async def _refused(api: Api, door: str, name: str | None, action: str) -> str:
    """Submit with `wait_result`; return the text of the refusal."""
    gid = f"g-{name}"
    more: dict[str, Any] = {"steps": [{"action": action}], "query_prepared": "", "wait_result": True}
    match door:
        case "http":
            return str(json.loads((await api.say("submit", gid, name, **more)).body)["message"])
        case "base url":
            path = f"/t/{token_of(name or '')}/api/dtmsvr/submit"
            return str(json.loads((await api.http(post(path, body_of(gid, **more)))).body)["message"])
        case "json-rpc":
            return str((await api.json_rpc("submit", gid, name, **more))["message"])
        case _:
            return (await api.grpc("/dtmgimp.Dtm/Submit", gid, name, action, wait_result=True))[1]["details"]


async def test_a_check_back_adds_no_branch_that_the_token_may_not_call(tmp_path: Path) -> None:
    """Bind the answer as the requests: a producer writes both."""
    quick = {"timeout_to_fail_ms": 1}
    late = b2a_base64(encode_branches((Branch("http://127.0.0.1:1/other", b"{}"),)), newline=False).decode()
    answer = json.dumps({"dtm_result": "SUCCESS", "branches": late}).encode()
    head = b"HTTP/1.1 200 OK\r\nx-twophase-verdict: committed\r\nContent-Length: %d\r\n\r\n" % len(answer)
    async with serving(answering(head + answer)).running() as producer:
        tokens = write(tmp_path, "shop", [Scope.PRODUCE], destinations=(producer.url,))
        async with running(tmp_path, tokens=tokens, **quick) as server:
            prepared = await Api(server).say(
                "prepare", "g", "shop", steps=[], payloads=[], query_prepared=f"{producer.url}/check", open=True
            )
            assert prepared.status == 200, prepared.body
            view = await server.until_logged("g")
            assert (view.state.name, view.message.branches) == ("PREPARED", ())
            assert "the token of 'shop' does not allow" in view.log[-1].error
            # Allowed from now on: the next check-back decides.
            with changing(Path(tokens)) as entries:
                entries[:] = [msgspec.structs.replace(one, destinations=()) for one in entries]
            server.server.gate.reread()
            view = await server.until("g", State.SUBMITTED)
    assert [branch.url for branch in view.message.branches] == ["http://127.0.0.1:1/other"]


async def test_a_probe_and_an_import_stay_within_the_destinations_of_the_token(tmp_path: Path) -> None:
    tokens = write(
        tmp_path, "eve", [Scope.OPERATE, Scope.ADMIN], destinations=("http://127.0.0.1:1/in", "topic://known")
    )
    taken = {"gid": "g", "state": "submitted", "created_ms": 0}
    branch = {"url": "topic://known", "payload": "e30=", "calls": ["http://127.0.0.1:2/other"]}
    async with running(tmp_path, tokens=tokens) as server:
        api = Api(server)
        probe = json.dumps({"url": "http://127.0.0.1:2/check"}).encode()
        probed = await api.http(post("/api/twophase/check-addresses/probe", probe, *bearer("eve")))
        body = json.dumps({"messages": [taken | {"branches": [branch]}], "never_taken": True}).encode()
        imported = await api.http(post("/api/twophase/import", body, *bearer("eve")))
        assert await server.server.coordinator.query("g") is None
    assert probed.status == 403
    assert json.loads(imported.body)["results"][0]["code"] == Forbidden.code


async def test_a_request_under_way_is_refused_when_its_token_is_revoked(tmp_path: Path) -> None:
    tokens = write(tmp_path, "produce", [Scope.PRODUCE])
    async with running(tmp_path, tokens=tokens) as running_one:
        server = running_one.server
        client = Client(*await asyncio.open_connection("127.0.0.1", running_one.port))
        request = post("/api/dtmsvr/prepare", body_of("g"), *bearer("produce"))
        await client.send(request[:-5])
        await until(
            lambda: any(
                isinstance(one, Connection) and one.reading == BODY for one in server.listener.port.state.connections
            )
        )
        with changing(Path(tokens)) as entries:
            entries.clear()
        server.gate.reread()
        await client.send(request[-5:])
        refused = await client.response()
        client.close()
        assert refused.status == 401
        assert await server.coordinator.query("g") is None
