"""The protocol as a client of the real process sees it.

The tests cover the lifecycle's table and the options that a message may ask for.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.server_process import BranchService, ServerProcess, branch_service, serving
from twophase.core.gid import RANDOM_BYTES, make_gid

# The requests for a gid before; the request now; the status and the state that the answer names.
TABLE: list[tuple[str, str, int, str]] = [
    ("", "prepare", 200, ""),
    ("", "submit", 200, ""),
    ("", "abort", 500, ""),
    ("prepare", "prepare", 200, ""),
    ("prepare", "submit", 200, ""),
    ("prepare", "abort", 200, ""),
    ("submit", "prepare", 409, "submitted"),
    ("submit", "submit", 200, ""),
    ("submit", "abort", 409, "submitted"),
    ("prepare submit", "prepare", 409, "submitted"),
    ("prepare submit", "submit", 200, ""),
    ("prepare submit", "abort", 409, "submitted"),
    ("prepare abort", "prepare", 409, "failed"),
    ("prepare abort", "submit", 409, "failed"),
    ("prepare abort", "abort", 200, ""),
]


def _steps(url: str) -> dict[str, Any]:
    return {"steps": [{"action": url}], "payloads": ["{}"]}


async def _ask_in_turn(server: ServerProcess, gid: str, requests: Sequence[str], message: dict[str, Any]) -> Any:
    """Make these requests; return the last answer."""
    for request in requests:
        response = await server.post(request, gid=gid, **message)
    return response


@pytest.mark.parametrize("restarted", [False, True], ids=["in memory", "after a restart"])
async def test_the_table_holds_on_the_wire(tmp_path: Path, restarted: bool) -> None:
    message = _steps("http://127.0.0.1:1/nobody")
    async with serving(tmp_path) as server:
        for number, (before, _, _, _) in enumerate(TABLE):
            if before:
                assert (await _ask_in_turn(server, f"g{number}", before.split(), message)).status == 200
        if not restarted:
            await _expect_the_table(server, message)
    if restarted:
        async with serving(tmp_path) as server:
            await _expect_the_table(server, message)


async def _expect_the_table(server: ServerProcess, message: dict[str, Any]) -> None:
    for number, (before, request, status, state) in enumerate(TABLE):
        response = await server.post(request, gid=f"g{number}", **message)
        said = msgspec.json.decode(response.body)
        assert (before, request, response.status, said.get("state", "")) == (before, request, status, state)


async def test_a_succeeded_message_refuses_everything_and_stays(tmp_path: Path) -> None:
    async with branch_service() as service, serving(tmp_path) as server:
        message = _steps(service.url("/in"))
        assert (await server.post("submit", gid="g", wait_result=True, **message)).status == 200
        for request in ("prepare", "submit", "abort"):
            response = await server.post(request, gid="g", **message)
            assert (response.status, msgspec.json.decode(response.body)["state"]) == (409, "succeed")
        other = message | {"payloads": ['{"other":1}']}
        response = await server.post("submit", gid="g", **other)
        said = msgspec.json.decode(response.body)
        assert (response.status, said["code"], said["state"]) == (409, "TP-2002", "succeed")
        assert await server.state("g") == "succeed"
        assert service.calls == [("/in", "g")]


async def test_a_forgotten_gid_gets_no_second_life(tmp_path: Path) -> None:
    """A message purged from history would be decided or delivered anew.

    Correctness rule 15 forbids that.
    """
    now_ms = time.time_ns() // 1_000_000
    old, young = (make_gid(born_ms, bytes(RANDOM_BYTES)) for born_ms in (now_ms - 7_200_000, now_ms))
    async with serving(tmp_path) as server:
        await server.terminate()
    with sqlite3.connect(tmp_path / "twophase.db") as database:
        database.execute(
            "insert or replace into store_meta (name, value) values ('history_horizon_ms', ?)", (now_ms - 3_600_000,)
        )
    database.close()
    async with branch_service() as service, serving(tmp_path) as server:
        for request in ("prepare", "submit"):
            response = await server.post(request, gid=old, **_steps(service.url("/in")))
            assert (request, response.status, msgspec.json.decode(response.body)["code"]) == (request, 410, "TP-2005")
        assert (await server.post("abort", gid=old)).status == 500
        assert await server.state(old) is None
        assert (await server.post("submit", gid=young, wait_result=True, **_steps(service.url("/in")))).status == 200
        assert [gid for _, gid in service.calls] == [young]


async def test_a_messages_own_times_and_headers_reach_its_branch(tmp_path: Path) -> None:
    """The first call hangs beyond `request_timeout`.

    The second comes after `retry_interval`, not after an hour.
    """
    async with (
        branch_service() as service,
        serving(tmp_path, "--set", "request_timeout_ms=3600000", "--set", "retry_first_ms=3600000",
                "--set", "retry_cap_ms=3600000") as server,
    ):  # fmt: skip
        service.open.clear()
        asked = {"request_timeout_ms": 200, "retry_interval_ms": 50, "branch_headers": {"X-Tenant": "blue"}}
        assert (await server.post("submit", gid="g", **asked, **_steps(service.url("/in")))).status == 200
        await service.until_called("/in", "g", times=2)
        service.open.set()
        await server.until_state("g", "succeed")
        assert all("x-tenant: blue" in head for head in service.heads)


async def test_a_delay_survives_the_check_back(tmp_path: Path) -> None:
    async with branch_service() as service, serving(tmp_path) as server:
        asked = {"query_prepared": service.url("/check"), "timeout_to_fail_ms": 1, "delay_ms": 1_500}
        began_s = time.monotonic()
        assert (await server.post("prepare", gid="g", **asked, **_steps(service.url("/in")))).status == 200
        await service.until_called("/check", "g")
        service.open.clear()  # so that it stays submitted, however late the test looks
        await server.until_state("g", "submitted")
        service.open.set()
        await service.until_called("/in", "g")
        assert time.monotonic() - began_s >= 1.5
        assert _paths(service)[:2] == ["/check", "/in"]


def _paths(service: BranchService) -> list[str]:
    return [path for path, _ in service.calls]
