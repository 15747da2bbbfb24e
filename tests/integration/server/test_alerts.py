"""A real server alerts a real webhook, and works on whatever the webhook does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.integration.server.test_observability import _scrape
from tests.integration.server.webhook import Sink, sink
from tests.support.server_process import BranchService, ServerProcess, branch_service, serving
from twophase.coordinator.dispatch.alerts import IN_FLIGHT_MAX
from twophase.server.app import EXIT_CONFIGURATION

QUICK = ("retry_first_ms=20", "retry_cap_ms=40", "check_back_first_ms=20", "check_back_cap_ms=40")
PAYLOAD = "4111-1111-1111-1111"
HEADER = "Bearer header-secret"


def _settings(*settings: str) -> list[str]:
    return [argument for one in (*QUICK, *settings) for argument in ("--set", one)]


async def _submit(server: ServerProcess, service: BranchService, gid: str, **fields: object) -> None:
    message = {
        "steps": [{"action": service.url("/in")}],
        "payloads": [PAYLOAD],
        "branch_headers": {"Authorization": HEADER},
    }
    assert (await server.post("submit", gid=gid, **message | fields)).status == 200


async def _until_counted(server: ServerProcess, result: str, count: int) -> dict[str, float]:
    """Wait until `count` alerts had this result; return the samples of that scrape."""
    async with asyncio.timeout(60):
        while (seen := await _scrape(server)).get(f"twophase_alerts_total{{result={result}}}", 0) < count:
            await asyncio.sleep(0.02)
    return seen


def _first(hook: Sink, event: str) -> dict[str, Any]:
    """Return the first of these alerts that was sent.

    Each has a connection of its own, and may overtake the one before.
    """
    return min((alert for alert in hook.alerts if alert["event"] == event), key=lambda alert: int(alert["retry_count"]))


async def test_a_branch_that_keeps_failing_is_reported_until_it_succeeds(tmp_path: Path) -> None:
    async with branch_service() as service, sink() as hook:
        service.answers["/in"] = 500
        settings = _settings(f"alert_webhook={hook.url('me:login-secret@')}", "alert_after=3")
        async with serving(tmp_path, *settings, "--log-level", "debug") as server:
            await _submit(server, service, "g")
            alert = await hook.until(lambda alert: alert["retry_count"] >= 4)
            service.answers["/in"] = 200
            await server.until_state("g", "succeed")
            await _until_counted(server, "sent", 2)
            _, errors = await server.terminate()
    assert _first(hook, "branch-failing") | {"age_ms": 0} == {
        "gid": "g",
        "status": "submitted",
        "branch": "01",
        "error": "error: answered with status 500",
        "retry_count": 3,
        "event": "branch-failing",
        "target": service.url("/in"),
        "age_ms": 0,
    }
    assert alert["gid"] == "g"
    assert "authorization: basic" in hook.heads[0].lower()
    assert "path-secret?token=query-secret" in hook.heads[0]
    secrets = (PAYLOAD, HEADER, "login-secret", "path-secret", "query-secret")
    assert [secret for secret in secrets if secret in errors] == []
    assert [secret for secret in secrets if secret in str(hook.alerts)] == []


async def test_a_check_back_that_keeps_failing_and_a_parked_message_are_reported(tmp_path: Path) -> None:
    async with branch_service() as service, sink() as hook:
        service.answers |= {"/in": 409, "/check": 500}
        async with serving(tmp_path, *_settings(f"alert_webhook={hook.url()}", "attempts_max=2")) as server:
            asked = {"query_prepared": service.url("/check"), "timeout_to_fail_ms": 1}
            steps = {"steps": [{"action": service.url("/in")}], "payloads": ["{}"]}
            assert (await server.post("prepare", gid="asked", **steps, **asked)).status == 200
            await _submit(server, service, "given-up")
            await hook.until(lambda alert: alert["event"] == "check-back-failing" and alert["retry_count"] == 3)
            parked = await hook.until(lambda alert: alert["event"] == "parked")
            async with asyncio.timeout(60):  # the store is read once a second, and may have been before
                while (seen := await _scrape(server))["twophase_messages{state=parked}"] != 1:
                    await asyncio.sleep(0.02)
            calls = service.calls.count(("/in", "given-up"))
    check = _first(hook, "check-back-failing")
    assert (check["gid"], check["status"], check["branch"], check["retry_count"]) == ("asked", "prepared", "00", 3)
    assert (parked["gid"], parked["retry_count"], calls) == ("given-up", 2, 2)
    assert seen["twophase_parked_total{}"] == 1
    assert seen["twophase_messages{state=parked}"] == 1


async def test_a_webhook_that_hangs_holds_up_nothing(tmp_path: Path) -> None:
    async with branch_service() as service, sink() as hook:
        hook.hangs = True
        service.answers["/in"] = 500
        settings = _settings(f"alert_webhook={hook.url()}", "alert_after=1", "alert_timeout_ms=4000")
        async with serving(tmp_path, *settings) as server:
            for number in range(40):
                await _submit(server, service, f"g{number}")
            await service.until_called("/in", "g39", times=5)
            service.answers["/in"] = 200
            async with asyncio.timeout(60):  # waiting for the webhook, four alerts at a time, would take 200 s
                for number in range(40):
                    await server.until_state(f"g{number}", "succeed")
            await _until_counted(server, "failed", 1)
            _, errors = await server.terminate()
    assert 0 < hook.connected_most <= IN_FLIGHT_MAX
    assert "an alert did not reach the webhook" in errors
    assert errors.count("an alert did not reach the webhook") <= 100, "the lines are bounded"


async def test_a_webhook_that_refuses_is_counted(tmp_path: Path) -> None:
    async with branch_service() as service, sink() as hook:
        hook.status = 500
        service.answers["/in"] = 500
        async with serving(tmp_path, *_settings(f"alert_webhook={hook.url()}", "alert_after=1")) as server:
            await _submit(server, service, "g")
            await hook.until(lambda alert: alert["retry_count"] >= 3)
            service.answers["/in"] = 200
            await server.until_state("g", "succeed")
            seen = await _until_counted(server, "failed", 2)
    assert "twophase_alerts_total{result=sent}" not in seen


@pytest.mark.parametrize("url", ["ftp://hook/in", "hook", "http://", "http://me:pw-secret@hook:99999/", "http://[::1"])
async def test_an_address_that_cannot_be_called_is_refused_at_the_start(tmp_path: Path, url: str) -> None:
    server = await ServerProcess.spawn("--port", "0", "--set", f"alert_webhook={url}", cwd=tmp_path)
    code, errors = await server.ended()
    assert code == EXIT_CONFIGURATION
    *warned, refused = errors.splitlines()
    assert refused.startswith("TP-7000: alert_webhook: the address cannot be called")
    assert all(line.startswith("warning: every user of this machine may read the secret") for line in warned)
    assert "pw-secret" not in errors
