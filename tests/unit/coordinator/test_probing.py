"""Check addresses are probed beside the messages that bring them.

A check address that fails is reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import CHECK, IN, QUICK, Harness, message
from twophase.coordinator.maintenance.probing import ADDRESSES_MAX, AGAIN_MS, FIRST_MS, FRESH_MS
from twophase.coordinator.settings import CoordinatorSettings
from twophase.core.errors import Overloaded
from twophase.core.probe import PROBE_QUERY, ProbeState
from twophase.destinations.base import Answer, Call

MakeRig = Callable[[CoordinatorSettings | None], Awaitable[Harness]]
ASKED = f"{CHECK}?barrier=7f"
READY = Answer(200, b'{"probe":"ready"}', "probe")
REFUSED = Answer(0, error="connect: bank-a:80: connection refused")
SETTINGS = CoordinatorSettings(delivery=QUICK, check_back=QUICK, probe_check_addresses=True)


@pytest.fixture
async def probing(make_harness: MakeRig) -> Harness:
    """A harness whose coordinator probes."""
    return await make_harness(SETTINGS)


def probes(harness: Harness) -> list[Call]:
    return [call for call in harness.destination.calls if call.query == PROBE_QUERY]


async def pass_until(harness: Harness, ms: int, count: int) -> None:
    """Let time pass, and wait until `count` probes have been answered since the start."""
    harness.clock.advance(ms)
    await until(lambda: len(harness.watcher.probes) >= count)


def told(harness: Harness) -> list[dict[str, Any]]:
    return [msgspec.json.decode(call.payload) for call in harness.hook.calls]


async def bring(harness: Harness, gid: str, url: str = ASKED, **options: Any) -> None:
    fields: dict[str, Any] = {"explicit_verdict": True, "timeout_to_fail_ms": 10 * FRESH_MS} | options
    await harness.prepare(message(gid, check_url=url, **fields))


async def test_an_address_is_probed_once_however_many_messages_bring_it(probing: Harness) -> None:
    probing.destination.script[ASKED].extend([READY] * 3)
    for gid in ("a", "b", "c"):
        await bring(probing, gid, headers=(("authorization", "Bearer 7"),))
    await pass_until(probing, FIRST_MS, 1)
    await bring(probing, "d")
    probing.clock.advance(AGAIN_MS)
    await probing.settled()
    [probe] = probes(probing)
    assert (probe.url, probe.payload, probe.headers) == (ASKED, b"", (("authorization", "Bearer 7"),))
    assert probing.watcher.check_addresses == []
    assert probing.coordinator.gauges().check_addresses_failing == 0


async def test_an_address_that_cannot_answer_is_reported_once_and_again_when_it_can(probing: Harness) -> None:
    probing.destination.script[ASKED].extend([REFUSED, REFUSED, REFUSED, READY])
    await bring(probing, "a")
    await pass_until(probing, FIRST_MS, 1)
    assert probing.watcher.check_addresses == []
    await pass_until(probing, AGAIN_MS, 2)
    assert probing.coordinator.gauges().check_addresses_failing == 1
    await pass_until(probing, 2 * AGAIN_MS, 3)
    await pass_until(probing, 4 * AGAIN_MS, 4)
    assert probing.watcher.check_addresses == [(CHECK, "unreachable"), (CHECK, "well")]
    assert [(alert["event"], alert["target"], alert["gid"]) for alert in told(probing)] == [
        ("check-address-failing", CHECK, ""),
        ("check-address-well", CHECK, ""),
    ]
    assert "connection refused" in told(probing)[0]["error"]
    assert probing.coordinator.gauges().check_addresses_failing == 0


async def test_a_report_tells_the_log_and_the_webhook_nothing_that_an_answer_says(
    probing: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[tuple[str, ...]] = []
    monkeypatch.setattr(probing.watcher, "check_address_failing", lambda *told: logged.append(told))
    text = "TP-6001: Bearer 7 was sent"
    report = msgspec.json.encode({"probe": "no_barrier", "message": text, "remedy": text})
    probing.destination.script[ASKED].extend([Answer(200, report, "probe")] * 2)
    await bring(probing, "a")
    await pass_until(probing, FIRST_MS, 1)
    await pass_until(probing, AGAIN_MS, 2)
    [(target, state, what, remedy)], [alert] = logged, told(probing)
    assert (target, state) == (CHECK, "no_barrier")
    assert "twophase barrier install" in remedy
    assert alert["error"] == f"no_barrier: {what}"
    assert "Bearer" not in f"{what} {remedy} {alert}"


async def test_a_first_failure_alone_is_not_reported(probing: Harness) -> None:
    """One failure may come from a service that answers one request at a time.

    Such a service is still busy with the request whose handler prepared the message.
    """
    probing.destination.script[ASKED].extend([REFUSED, READY])
    await bring(probing, "a")
    await pass_until(probing, FIRST_MS, 1)
    await pass_until(probing, AGAIN_MS, 2)
    assert probing.watcher.check_addresses == []


async def test_another_reason_is_reported_again_without_a_second_alert(probing: Harness) -> None:
    missing = Answer(404, b"not found")
    probing.destination.script[ASKED].extend([REFUSED, REFUSED, missing, missing])
    await bring(probing, "a")
    for count, ms in enumerate((FIRST_MS, AGAIN_MS, 2 * AGAIN_MS, 4 * AGAIN_MS), 1):
        await pass_until(probing, ms, count)
    assert probing.watcher.check_addresses == [(CHECK, "unreachable"), (CHECK, "not_a_route")]
    assert len(told(probing)) == 1


async def test_databases_behind_one_route_are_probed_one_by_one(probing: Harness) -> None:
    for name in ("7f", "8a"):
        await bring(probing, name, f"{CHECK}?barrier={name}")
    await pass_until(probing, FIRST_MS, 2)
    assert sorted(call.url for call in probes(probing)) == [f"{CHECK}?barrier=7f", f"{CHECK}?barrier=8a"]


async def test_an_address_with_another_parameter_in_each_message_is_one_address(probing: Harness) -> None:
    for number in range(5):
        await bring(probing, str(number), f"{CHECK}?tenant={number}&barrier=7f")
    await pass_until(probing, FIRST_MS, 1)
    assert [call.url for call in probes(probing)] == [f"{CHECK}?tenant=4&barrier=7f"]


@pytest.mark.parametrize(
    ("url", "options"),
    [(ASKED, {"explicit_verdict": False}), ("queue://bank-a/check?barrier=7f", {})],
)
async def test_only_routes_of_our_sdk_are_probed(probing: Harness, url: str, options: dict[str, Any]) -> None:
    await bring(probing, "a", url, **options)
    probing.clock.advance(10 * FIRST_MS)
    await probing.settled()
    assert (probes(probing), probing.coordinator.gauges().check_addresses) == ([], 0)


async def test_nothing_is_probed_when_switched_off(harness: Harness) -> None:
    await bring(harness, "a")
    harness.clock.advance(10 * FIRST_MS)
    await harness.settled()
    assert probes(harness) == []


async def test_an_address_in_use_is_probed_every_hour_and_forgotten_when_unused(probing: Harness) -> None:
    probing.destination.script[ASKED].extend([READY] * 3)
    await bring(probing, "a")
    await pass_until(probing, FIRST_MS, 1)
    await bring(probing, "b")
    await pass_until(probing, FRESH_MS - 1, 1)
    await pass_until(probing, 1, 2)
    probing.clock.advance(FRESH_MS)
    await until(lambda: probing.coordinator.gauges().check_addresses == 0)
    assert len(probes(probing)) == 2


async def test_the_addresses_known_are_bounded(probing: Harness) -> None:
    for number in range(ADDRESSES_MAX + 5):
        probing.coordinator.probing.notice(
            message("g", check_url=f"http://bank-{number}/check?barrier=7f", explicit_verdict=True)
        )
    assert probing.coordinator.gauges().check_addresses == ADDRESSES_MAX


async def test_probes_under_way_are_bounded(probing: Harness) -> None:
    urls = [f"http://bank-{number}/check?barrier=7f" for number in range(40)]
    for url in urls:
        probing.destination.hold(url)
        probing.coordinator.probing.notice(message("g", check_url=url, explicit_verdict=True))
    probing.clock.advance(FIRST_MS)
    await until(lambda: len(probes(probing)) == 16)
    for url in urls:
        probing.destination.release(url)
    await until(lambda: len(probes(probing)) == 40)


async def test_a_failing_address_is_well_again_when_a_probe_on_request_says_so(probing: Harness) -> None:
    probing.destination.script[ASKED].extend([REFUSED, REFUSED, READY])
    await bring(probing, "a", headers=(("authorization", "Bearer 7"),))
    await pass_until(probing, FIRST_MS, 1)
    await pass_until(probing, AGAIN_MS, 2)
    probed, _ = await probing.coordinator.probing.probe(ASKED)
    assert (probed.state, probes(probing)[-1].headers) == (ProbeState.READY, (("authorization", "Bearer 7"),))
    assert probing.watcher.check_addresses == [(CHECK, "unreachable"), (CHECK, "well")]


async def test_probes_on_request_are_bounded(probing: Harness) -> None:
    probing.destination.hold(CHECK)
    under_way = [asyncio.ensure_future(probing.coordinator.probing.probe(CHECK)) for _ in range(4)]
    await until(lambda: len(probes(probing)) == 4)
    with pytest.raises(Overloaded):
        await probing.coordinator.probing.probe(CHECK)
    probing.destination.release(CHECK)
    await asyncio.gather(*under_way)


async def test_a_probe_on_request_tells_what_it_found(probing: Harness) -> None:
    probing.destination.script[CHECK].append(Answer(404))
    probed, _ = await probing.coordinator.probing.probe(CHECK)
    assert probed.state is ProbeState.NOT_A_ROUTE
    probed, _ = await probing.coordinator.probing.probe("queue://bank-a")
    assert probed.state is ProbeState.UNREACHABLE


async def test_a_message_is_delivered_whatever_its_check_address_is(probing: Harness) -> None:
    probing.destination.hold(ASKED)
    await bring(probing, "a")
    probing.clock.advance(FIRST_MS)
    await until(lambda: len(probes(probing)) == 1)
    await probing.submit(message("a", check_url=ASKED, explicit_verdict=True))
    await until(lambda: IN in probing.destination.urls())
