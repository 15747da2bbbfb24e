"""Pages of messages delay neither look-ups nor the end; a few may wait."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.integration.server.running import Running, running
from tests.support.fake_coordinator import Client, Response, get, post, prepare
from tests.support.identities import bearer, write
from twophase.coordinator.page_turns import WAITING_MAX
from twophase.core.errors import Overloaded
from twophase.core.many import SUBMIT_PATH
from twophase.server.identity.scopes import Scope
from twophase.stores import search

PATHS = [
    "/api/twophase/messages?limit=1000",
    "/api/dtmsvr/all?limit=1000",
    "/api/twophase/log",
]
ADMITTED = 1 + WAITING_MAX


class HeldPages:
    """The store's readings of many rows, held until `go`."""

    def __init__(self, server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = asyncio.Event()
        self._store = server.server.coordinator._runtime.store
        for name in ("search", "audit_search", "oldest_undecided"):
            monkeypatch.setattr(self._store, name, self._held(name))

    def _held(self, name: str) -> object:
        method = getattr(self._store, name)

        async def answer(*given: object) -> object:
            await self.go.wait()
            return await method(*given)

        return answer


async def _ask(server: Running, path: str) -> Response:
    client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
    try:
        return await client.ask(get(path))
    finally:
        client.close()


async def _refused(asked: list[asyncio.Task[Response]]) -> list[Response]:
    """Wait until all but those that are admitted have an answer."""
    async with asyncio.timeout(60):
        while len(done := [one for one in asked if one.done()]) < len(asked) - ADMITTED:
            await asyncio.sleep(0.01)
    return [one.result() for one in done]


@pytest.mark.parametrize("path", PATHS)
async def test_pages_beyond_a_few_are_refused_and_a_look_up_goes_before_them(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as server:
        held = HeldPages(server, monkeypatch)
        asked = [asyncio.ensure_future(_ask(server, path)) for _ in range(3 * ADMITTED)]
        for refused in await _refused(asked):
            assert (refused.status, json.loads(refused.body)["code"]) == (503, Overloaded.code)
            assert int(refused.headers["retry-after"]) >= 1
        assert (await _ask(server, "/api/dtmsvr/query?gid=unknown")).status == 200
        held.go.set()
        answers = [one.status for one in await asyncio.gather(*asked)]
    assert answers.count(200) == ADMITTED


async def test_requests_that_are_cut_at_the_end_are_no_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, drain_timeout_ms=100) as server:
        HeldPages(server, monkeypatch)
        asked = [asyncio.ensure_future(_ask(server, PATHS[0])) for _ in range(2 * ADMITTED)]
        await _refused(asked)
    cut = await asyncio.gather(*asked, return_exceptions=True)
    assert len([one for one in cut if isinstance(one, OSError)]) == ADMITTED
    assert [record.getMessage() for record in caplog.records if record.name.startswith("uvicorn")] == []


@pytest.mark.parametrize("limit", [1, 2, 100])
@pytest.mark.parametrize("path", ["/api/twophase/messages", "/api/dtmsvr/all"])
async def test_a_position_names_no_message_of_another_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, limit: int
) -> None:
    monkeypatch.setattr(search, "EXAMINED_MAX", 3)
    write(tmp_path, "other", [Scope.PRODUCE])
    tokens = write(tmp_path, "own", [Scope.PRODUCE, Scope.OBSERVE])
    async with running(tmp_path, tokens=tokens) as server:
        client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        for number in range(30):
            owner = "own" if number in {4, 5, 17} else "other"
            asked = prepare(f"{owner}-{number:02}", *bearer(owner))
            assert (await client.ask(asked)).status == 200
        found: list[str] = []
        position = ""
        for _ in range(20):
            asked_path = f"{path}?limit={limit}&position={position}"
            page = json.loads((await client.ask(get(asked_path, *bearer("own")))).body)
            found += [one["gid"] for one in page.get("messages", page.get("transactions"))]
            position = page.get("position", page.get("next_position"))
            assert not position or position[0] == "h" or position[1:] in found
            if not position:
                break
        client.close()
    assert (found, position) == (["own-17", "own-05", "own-04"], "")


async def test_a_page_of_messages_with_long_headers_ends_early_and_the_next_ones_have_the_rest(tmp_path: Path) -> None:
    headers = {f"x-{number:02d}": 'v"' * 120 for number in range(64)}
    gids = [f"g{number:03d}" for number in range(120)]
    steps = [{"action": "http://127.0.0.1:9/in"}]
    wanted = {"trans_type": "msg", "delay_ms": 3_600_000, "steps": steps, "payloads": ["{}"], "branch_headers": headers}
    async with running(tmp_path) as server:
        client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
        for at in range(0, len(gids), 40):
            many = [{"gid": gid, **wanted} for gid in gids[at : at + 40]]
            assert (await client.ask(post(SUBMIT_PATH, json.dumps({"messages": many}).encode()))).status == 200
        found, position, pages = list[str](), "", 0
        while position or not pages:
            answer = await client.ask(get(f"/api/dtmsvr/all?limit=1000&position={position}"))
            assert len(answer.body) < 4_000_000
            page = json.loads(answer.body)
            found += [one["gid"] for one in page["transactions"]]
            position, pages = page["next_position"], pages + 1
        client.close()
    assert sorted(found) == gids
    assert pages > 1
