"""The alerts: what the webhook receives, and when.

Nothing that the webhook does or fails to do affects a message.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.coordinator.harness import CHECK, HOOK, IN, Harness, ScriptedDestination, Watcher, message
from tests.unit.coordinator.test_attempts_max import MakeRig, limited, pass_time
from twophase.coordinator.dispatch.alerts import IN_FLIGHT_MAX, WAITING_MAX, AlertEvent, Alerts, Webhook, webhook_of
from twophase.coordinator.state.active_message import ActiveMessage
from twophase.core.lifecycle import State
from twophase.destinations.base import Answer, Call
from twophase.stores.rows import Attempt, AttemptKind

ALSO = "http://bank-c/in?card=4111"
SECRET = "4111-1111-1111-1111"


def told(harness: Harness) -> list[dict[str, Any]]:
    return [msgspec.json.decode(call.payload) for call in harness.hook.calls]


async def test_the_third_failure_in_a_row_is_reported_with_dtms_fields(harness: Harness) -> None:
    harness.destination.script[IN].extend([Answer(500, b"refused: " + SECRET.encode())] * 3)
    await harness.submit(message("g", payload=SECRET.encode()))
    await pass_time(harness)
    assert await harness.state("g") is State.SUCCEEDED
    [alert] = told(harness)
    assert {name: alert[name] for name in ("gid", "status", "branch", "error", "retry_count")} == {
        "gid": "g",
        "status": "submitted",
        "branch": "01",
        "error": "error: answered with status 500",
        "retry_count": 3,
    }
    assert (alert["event"], alert["target"]) == ("branch-failing", IN)
    assert alert["age_ms"] >= 60_000
    assert harness.hook.calls[0].url == HOOK
    assert SECRET not in harness.hook.calls[0].payload.decode()
    assert harness.watcher.alerts == ["sent"]


async def test_every_failure_from_then_on_is_reported(harness: Harness) -> None:
    harness.destination.script[IN].extend([Answer(0, error="connect: refused")] * 6)
    await harness.submit(message("g"))
    await pass_time(harness)
    assert [alert["retry_count"] for alert in told(harness)] == [3, 4, 5, 6]
    assert told(harness)[0]["error"] == "error: connect: refused"


async def test_a_branch_that_succeeds_makes_the_next_ones_failures_the_first(harness: Harness) -> None:
    for url in (IN, ALSO):
        harness.destination.script[url].extend([Answer(500)] * 2)
    await harness.submit(message("g", IN, ALSO))
    await pass_time(harness)
    assert await harness.state("g") is State.SUCCEEDED
    assert told(harness) == []


async def test_the_failing_branch_is_named_without_its_query(harness: Harness) -> None:
    harness.destination.script[ALSO].extend([Answer(409)] * 3)
    await harness.submit(message("g", IN, ALSO))
    await pass_time(harness)
    [alert] = told(harness)
    assert (alert["branch"], alert["target"]) == ("02", "http://bank-c/in")


async def test_patience_is_no_failure(harness: Harness) -> None:
    harness.destination.script[IN].extend([Answer(425)] * 6)
    harness.destination.script[CHECK].extend([Answer(425)] * 6)
    await harness.submit(message("branch"))
    await harness.prepare(message("check"))
    await pass_time(harness, rounds=10)
    assert told(harness) == []


async def test_a_check_back_that_keeps_failing_is_reported(harness: Harness) -> None:
    harness.destination.script[CHECK].extend([Answer(502, SECRET.encode())] * 4)
    await harness.prepare(message("g"))
    await pass_time(harness)
    assert await harness.state("g") is State.SUCCEEDED
    first, second = told(harness)
    assert (first["event"], first["status"], first["branch"]) == ("check-back-failing", "prepared", "00")
    assert (first["retry_count"], second["retry_count"]) == (3, 4)
    assert SECRET not in str(told(harness))


async def test_a_parked_message_is_reported_whatever_parked_it(make_harness: MakeRig) -> None:
    harness = await make_harness(limited(1))
    harness.destination.script[IN].append(Answer(500))
    await harness.submit(message("tried"))
    await harness.prepare(message("mute", check_url=""))
    await pass_time(harness)
    alerts = {alert["gid"]: alert for alert in told(harness)}
    assert {alert["event"] for alert in alerts.values()} == {"parked"}
    assert alerts["tried"]["error"].startswith("parked: its branches have failed")
    assert alerts["mute"]["error"] == "parked: the message has no check-back address"
    assert (alerts["tried"]["status"], alerts["mute"]["status"]) == ("submitted", "prepared")


@pytest.mark.parametrize("answer", [Answer(500), Answer(0, error="timeout: no answer"), Answer(302)])
async def test_a_webhook_that_fails_is_counted_and_breaks_nothing(harness: Harness, answer: Answer) -> None:
    harness.hook.script[HOOK].extend([answer] * 9)
    harness.destination.script[IN].extend([Answer(500)] * 5)
    await harness.submit(message("g"))
    await pass_time(harness)
    assert await harness.state("g") is State.SUCCEEDED
    assert harness.watcher.alerts == ["failed"] * 3


async def test_a_webhook_that_raises_breaks_nothing(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(harness.hook, "call", raises)
    harness.destination.script[IN].extend([Answer(500)] * 5)
    await harness.submit(message("g"))
    await pass_time(harness)
    assert await harness.state("g") is State.SUCCEEDED
    assert harness.watcher.alerts == ["failed"] * 3


class Hanging(ScriptedDestination):
    """A webhook that takes calls and never answers."""

    def call(self, call: Call, on_answer: Any) -> None:
        self.calls.append(call)


def failing(alerts: Alerts, gid: str, attempts: int = 3) -> None:
    active = ActiveMessage(message(gid))
    active.state, active.attempts = State.SUBMITTED, attempts
    attempt = Attempt(gid, AttemptKind.BRANCH, "01", IN, 9, 500, 1, "error", "text")
    alerts.failing(active, attempt, AlertEvent.BRANCH_FAILING)


async def test_a_webhook_that_hangs_has_few_calls_and_a_bounded_queue() -> None:
    hook, watcher = Hanging(), Watcher()
    alerts = Alerts(Webhook(HOOK), hook, after=3, timeout_ms=50, observer=watcher)
    for number in range(WAITING_MAX + 500):
        failing(alerts, f"g{number}")
    assert len(hook.calls) == IN_FLIGHT_MAX
    assert {call.timeout_ms for call in hook.calls} == {50}
    assert watcher.alerts == ["dropped"] * (500 - IN_FLIGHT_MAX)


async def test_of_one_message_only_the_newest_alert_waits() -> None:
    hook = ScriptedDestination()
    hook.hold(HOOK)
    alerts = Alerts(Webhook(HOOK), hook, after=3, timeout_ms=50, observer=Watcher())
    for number in range(IN_FLIGHT_MAX):
        failing(alerts, f"busy{number}")
    for attempts in (3, 4, 5):
        failing(alerts, "g", attempts)
    hook.release(HOOK)
    assert [msgspec.json.decode(call.payload)["retry_count"] for call in hook.calls[IN_FLIGHT_MAX:]] == [5]


async def test_after_the_stop_nothing_is_sent() -> None:
    hook = ScriptedDestination()
    alerts = Alerts(Webhook(HOOK), hook, after=3, timeout_ms=50, observer=Watcher())
    await alerts.stop()
    failing(alerts, "g")
    assert hook.calls == []


async def test_the_credentials_of_the_address_become_a_header_and_the_rest_is_not_shown() -> None:
    webhook = webhook_of("https://me:p%40ss@hooks.example:8443/services/T0/secret?token=x")
    assert webhook.url == "https://hooks.example:8443/services/T0/secret?token=x"
    assert webhook.headers == (("authorization", "Basic bWU6cEBzcw=="),)
    assert webhook.host == "https://hooks.example:8443"


async def test_what_a_grpc_service_says_with_unavailable_is_not_passed_on() -> None:
    hook = ScriptedDestination()
    alerts = Alerts(Webhook(HOOK), hook, after=1, timeout_ms=50, observer=Watcher())
    active = ActiveMessage(message("g"))
    active.state, active.attempts = State.SUBMITTED, 1
    attempt = Attempt("g", AttemptKind.BRANCH, "01", IN, 9, 0, 1, "error", f"gRPC UNAVAILABLE: no card {SECRET}")
    alerts.failing(active, attempt, AlertEvent.BRANCH_FAILING)
    assert msgspec.json.decode(hook.calls[0].payload)["error"] == "error: gRPC UNAVAILABLE"


async def test_without_a_webhook_nothing_happens() -> None:
    watcher = Watcher()
    alerts = Alerts(None, None, after=1, timeout_ms=1, observer=watcher)
    failing(alerts, "g")
    alerts.parked(ActiveMessage(message("g")), "why", 1)
    await alerts.stop()
    assert watcher.alerts == []
