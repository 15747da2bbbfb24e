"""A strict server: no word in an answer decides anything.

It prepares nothing that it could not check back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import grpc
import grpc.aio
import msgspec
import pytest

from tests.integration.server.running import Running, running
from tests.integration.server.test_grpc import Code, Dtm, grpc_url, message
from tests.support.fake_coordinator import Client, post
from twophase import AsyncClient
from twophase.core.lifecycle import State

CHECK_DUE_MS = 35_064


class Speaker:
    """A service that answers each path with the test's status and body."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.calls: list[tuple[str, str]] = []
        self.port = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                for line in head.lower().split("\r\n"):
                    if line.startswith("content-length:"):
                        await reader.readexactly(int(line.split(":")[1]))
                target = urlsplit(head.split()[1])
                self.calls.append((target.path, parse_qs(target.query).get("gid", [""])[0]))
                status, body = self.answers.get(target.path, (200, b""))
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))


@pytest.fixture
async def speaker() -> AsyncIterator[Speaker]:
    one = Speaker()
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.port = server.sockets[0].getsockname()[1]
    yield one
    server.close()


async def _post(server: Running, path: str, body: Any) -> tuple[int, Any]:
    client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
    try:
        response = await client.ask(post(path, msgspec.json.encode(body)))
        return response.status, msgspec.json.decode(response.body)
    finally:
        client.close()


def _message(gid: str, branch: str, check: str = "", **fields: Any) -> dict[str, Any]:
    said = {"gid": gid, "trans_type": "msg", "steps": [{"action": branch}], "payloads": ["{}"]}
    return said | ({"query_prepared": check} if check else {}) | fields


@pytest.mark.parametrize(("strict", "state"), [(True, State.SUCCEEDED), (False, State.FAILED)])
async def test_a_check_backs_200_commits_whatever_words_it_has(
    tmp_path: Path, speaker: Speaker, strict: bool, state: State
) -> None:
    speaker.answers["/check"] = (200, b'{"note":"no FAILURE so far"}')
    async with running(tmp_path, strict=strict) as server:
        said = _message("g", speaker.url("/in"), speaker.url("/check"))
        assert (await _post(server, "/api/dtmsvr/prepare", said))[0] == 200
        server.advance(CHECK_DUE_MS)
        await server.until("g", state)


@pytest.mark.parametrize(("strict", "status"), [(True, 200), (False, 409)])
async def test_a_branchs_200_is_success_whatever_words_it_has(
    tmp_path: Path, speaker: Speaker, strict: bool, status: int
) -> None:
    speaker.answers["/in"] = (200, b"ONGOING projects: 3, FAILURE rate: 0")
    async with running(tmp_path, strict=strict) as server:
        said = _message("g", speaker.url("/in"), wait_result=True)
        assert (await _post(server, "/api/dtmsvr/submit", said))[0] == status


@pytest.mark.parametrize("status", [201, 204, 302, 404, 500, 502])
async def test_no_other_status_commits_or_succeeds(tmp_path: Path, speaker: Speaker, status: int) -> None:
    speaker.answers |= {"/check": (status, b"SUCCESS" if status != 204 else b""), "/in": (status, b"")}
    async with running(tmp_path, strict=True) as server:
        await _post(server, "/api/dtmsvr/prepare", _message("asked", speaker.url("/in"), speaker.url("/check")))
        await _post(server, "/api/dtmsvr/submit", _message("called", speaker.url("/in")))
        server.advance(CHECK_DUE_MS)
        assert (await server.until_logged("asked")).state is State.PREPARED
        assert (await server.until_logged("called")).state is State.SUBMITTED


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ((200, b'{"jsonrpc":"2.0","result":"FAILURE"}'), State.SUCCEEDED),
        ((200, b'{"jsonrpc":"2.0","error":{"code":-32901,"message":"ONGOING"}}'), State.FAILED),
        ((409, b"<html>Conflict</html>"), State.PREPARED),
        ((200, b"SUCCESS"), State.PREPARED),
    ],
)
async def test_json_rpc_counts_by_its_codes_only(
    tmp_path: Path, speaker: Speaker, answer: tuple[int, bytes], state: State
) -> None:
    speaker.answers["/rpc"] = answer
    async with running(tmp_path, strict=True) as server:
        check = speaker.url("/rpc?method=check")
        said = _message("g", speaker.url("/in"), check, protocol="json-rpc")
        assert (await _post(server, "/api/dtmsvr/prepare", said))[0] == 200
        server.advance(CHECK_DUE_MS)
        if state is State.PREPARED:
            assert (await server.until_logged("g")).state is State.PREPARED
        else:
            await server.until("g", state)


async def test_prepare_without_an_address_to_check_back_is_refused_by_every_api(tmp_path: Path) -> None:
    async with running(tmp_path, strict=True, grpc_port=0) as server:
        said = _message("g", "http://127.0.0.1:1/in")
        status, answer = await _post(server, "/api/dtmsvr/prepare", said)
        assert (status, answer["code"]) == (400, "TP-1000")
        assert "query_prepared is missing" in answer["message"]
        assert "Give the address" in answer["remedy"]
        call = {"jsonrpc": "2.0", "id": "1", "method": "prepare", "params": said}
        _, rpc = await _post(server, "/api/json-rpc", call)
        assert "query_prepared is missing" in rpc["error"]["message"]
        async with grpc.aio.insecure_channel(grpc_url(server).removeprefix("grpc://")) as channel:
            refused = await Dtm(channel).refused("Prepare", **message("g"))
        assert refused.code is Code.INVALID_ARGUMENT
        assert "query_prepared is missing" in refused.text
        assert await server.server.coordinator.query("g") is None
        assert (await _post(server, "/api/dtmsvr/submit", said))[0] == 200


async def test_a_server_that_is_not_strict_takes_it_as_dtm_does(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        assert (await _post(server, "/api/dtmsvr/prepare", _message("g", "http://127.0.0.1:1/in")))[0] == 200


@pytest.mark.parametrize("scheme", ["http", "grpc"])
async def test_a_message_of_our_client_is_judged_by_status_whatever_the_server_is_set_to(
    tmp_path: Path, speaker: Speaker, scheme: str
) -> None:
    speaker.answers["/in"] = (200, b'{"customer":"FAILURE"}')
    async with running(tmp_path, grpc_port=0) as server:
        url = next(url for url in server.server.urls if url.startswith(scheme))
        async with AsyncClient(url) as coordinator:
            await coordinator.message("ours", wait_result=True).add(speaker.url("/in"), {}).submit()
            await coordinator.message("as dtm", strict=False).add(speaker.url("/in"), {}).submit()
        view = await server.until_logged("as dtm")
    assert (view.state, view.log[0].result) == (State.SUBMITTED, "failed")
