"""The view of an operator on the real process.

Metrics carry real numbers, and log lines give nothing away.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from tests.docs.pages import ROOT
from tests.support.fake_coordinator import get, post
from tests.support.server_process import ServerProcess, branch_service, serving

SECRET = "hunter2-and-a-card-number"


async def _scrape(server: ServerProcess) -> dict[str, float]:
    """Return every sample of twophase's, as `name{label=value}` without the quotes."""
    text = (await server.ask(get("/metrics"))).body.decode()
    return {
        f"{sample.name}{{{','.join(f'{name}={value}' for name, value in sorted(sample.labels.items()))}}}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("twophase_")
    }


async def test_a_real_scrape_tells_what_happened(tmp_path: Path) -> None:
    async with branch_service() as service, serving(tmp_path, "--set", "retry_first_ms=60000") as server:
        service.answers |= {"/refuses": 409, "/busy": 425}
        delivered = {"steps": [{"action": service.url("/in")}], "payloads": ["{}"]}
        stuck = {"steps": [{"action": service.url("/refuses")}], "payloads": ["{}"]}
        asked = {"query_prepared": service.url("/busy"), "timeout_to_fail_ms": 1}
        assert (await server.post("submit", gid="delivered", **delivered)).status == 200
        assert (await server.post("submit", gid="stuck", wait_result=True, **stuck)).status == 409
        assert (await server.post("prepare", gid="asked", **delivered, **asked)).status == 200
        assert (await server.post("prepare", gid="waits", **delivered)).status == 200
        assert (await server.post("prepare", gid="no", trans_type="saga")).status == 400
        await server.until_state("delivered", "succeed")
        async with asyncio.timeout(60):  # what happened is counted after its commit, which a query may see before
            while (
                not {
                    "twophase_check_backs_total{verdict=in_progress}",
                    "twophase_messages_finished_total{decided_by=submit,state=succeeded}",
                }
                <= (seen := await _scrape(server)).keys()
            ):
                await asyncio.sleep(0.02)

    destination = f"http://127.0.0.1:{service.port}"
    assert seen["twophase_messages{state=prepared}"] == 2
    assert seen["twophase_messages{state=submitted}"] == 1
    assert seen["twophase_messages{state=parked}"] == 0
    assert 0 < seen["twophase_oldest_prepared_seconds{}"] < 60
    assert 0 < seen["twophase_oldest_undelivered_seconds{}"] < 60
    assert seen["twophase_messages_finished_total{decided_by=submit,state=succeeded}"] == 1
    assert seen["twophase_check_backs_total{verdict=in_progress}"] >= 1
    assert seen["twophase_check_back_seconds_count{}"] >= 1
    assert seen[f"twophase_branch_calls_total{{destination={destination},result=succeeded}}"] == 1
    assert seen[f"twophase_branch_calls_total{{destination={destination},result=failed}}"] == 1
    assert seen["twophase_branch_seconds_count{result=succeeded}"] == 1
    assert seen["twophase_branch_seconds_sum{result=succeeded}"] > 0
    assert seen["twophase_flush_items_sum{}"] >= 5
    assert seen["twophase_flush_seconds_count{}"] == seen["twophase_flush_items_count{}"] > 0
    assert seen["twophase_flush_seconds_sum{}"] > 0
    assert seen["twophase_refused_total{code=TP-1002}"] == 1
    assert seen["twophase_store_up{}"] == seen["twophase_ready{}"] == 1


async def test_a_call_under_way_and_a_check_back_under_way_are_counted_in_flight(tmp_path: Path) -> None:
    async with branch_service() as service, serving(tmp_path, "--set", "request_timeout_ms=60000") as server:
        service.open.clear()
        steps = {"steps": [{"action": service.url("/in")}], "payloads": ["{}"]}
        asked = {"query_prepared": service.url("/check"), "timeout_to_fail_ms": 1}
        assert (await server.post("submit", gid="called", **steps)).status == 200
        assert (await server.post("prepare", gid="asked", **steps, **asked)).status == 200
        await service.until_called("/in", "called")
        await service.until_called("/check", "asked")
        seen = await _scrape(server)
    assert seen["twophase_branch_calls_in_flight{}"] == 1
    assert seen["twophase_check_backs_in_flight{}"] == 1
    assert seen["twophase_active{}"] == 2
    assert seen["twophase_active_bytes{}"] > 0


async def test_every_documented_metric_is_in_a_real_scrape(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    documented = re.findall(r"^\| `(twophase_\w+)`", page, re.MULTILINE)
    async with serving(tmp_path) as server:
        text = (await server.ask(get("/metrics"))).body.decode()
    described = set(re.findall(r"^# HELP (twophase_\w+)", text, re.MULTILINE))
    assert set(documented) == described


async def test_log_lines_are_json_and_hold_no_payload(tmp_path: Path) -> None:
    async with branch_service() as service, serving(tmp_path, "--log-level", "debug") as server:
        service.answers |= {"/breaks": 500, "/check": 409}
        message = {
            "steps": [{"action": service.url("/breaks")}],
            "payloads": [SECRET],
            "branch_headers": {"Authorization": SECRET},
            "query_prepared": service.url("/check"),
        }
        assert (await server.post("submit", gid="breaks", wait_result=True, **message)).status == 500
        assert (await server.post("prepare", gid="breaks", **message | {"payloads": [SECRET * 2]})).status == 409
        assert (await server.ask(post("/api/dtmsvr/prepare", f'{{"payloads": "{SECRET}'.encode()))).status == 400
        refused = await server.post("prepare", gid="g", trans_type="msg", steps=[{"action": 1}], payloads=[SECRET])
        assert refused.status == 400
        assert SECRET.encode() not in refused.body
        _, errors = await server.terminate()

    lines = [msgspec.json.decode(line) for line in errors.splitlines()]
    assert {"ready", "draining", "stopped"} <= {line["event"] for line in lines}
    assert all({"at", "level"} <= line.keys() for line in lines)
    assert SECRET not in errors
