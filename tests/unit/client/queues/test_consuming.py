"""The work of a push consumer, with a coordinator in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.waiting import until
from tests.unit.client.queues.stub import AWAY, StubRequests, delivery
from twophase.client.queues.consuming import Consuming
from twophase.client.queues.handlers import handler_of, subscription_of
from twophase.core.errors import Forbidden, QueuesElsewhere, StoreUnavailable, TwophaseError
from twophase.core.queue_api import EXTEND_PATH, NACK_PATH, RECEIVE_PATH, Deliveries

PATIENCE_S = 60


def consuming(requests: Any, failures: list[TwophaseError] | None = None) -> Consuming:
    async def run(handler: Any, arguments: list[Any]) -> None:
        await handler.function(*arguments)

    kept: list[TwophaseError] = [] if failures is None else failures
    return Consuming(
        requests, "billing", "", lease_ms=60_000, run=run, cuts=True, dead_letters=True, on_failed=kept.append
    )


def subscription(function: Any, concurrency: int = 2) -> Any:
    return subscription_of("orders", "", "*", handler_of(function, is_async=True), concurrency)


async def test_what_comes_while_it_stops_is_given_back_and_not_begun() -> None:
    begun: list[int] = []
    polled, answer = asyncio.Event(), asyncio.Event()

    def coordinator(path: str, request: Any) -> Any:
        async def late() -> Deliveries:
            polled.set()
            await answer.wait()
            return Deliveries((delivery(1), delivery(2)))

        if path == RECEIVE_PATH:
            return late()
        answer.set()  # the coordinator answers its polls
        return TwophaseError("none of its business")

    async def handle(number: int) -> None:
        begun.append(number)

    requests = StubRequests(coordinator)
    work = consuming(requests)
    work.start([subscription(handle)])
    await polled.wait()
    await work.stop(PATIENCE_S)
    assert requests.paths() == ["receive", "leave", "give-back", "give-back"]
    assert begun == []


async def test_it_asks_for_as_many_messages_as_it_can_begin() -> None:
    found = [Deliveries((delivery(1), delivery(2))), Deliveries((delivery(3),))]
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def handle(number: int) -> None:
        begun.set()
        await go_on.wait()

    requests = StubRequests(lambda path, request: found.pop(0) if path == RECEIVE_PATH and found else None)
    work = consuming(requests)
    work.start([subscription(handle, 3)])
    await asyncio.wait_for(begun.wait(), PATIENCE_S)
    for _ in range(20):
        await asyncio.sleep(0)
    assert [request.limit for path, request in requests.asked if path == RECEIVE_PATH] == [3, 1]
    assert work.running == 3
    go_on.set()
    await work.stop(PATIENCE_S)
    assert requests.paths().count("ack") == 3


@pytest.mark.parametrize("failure", [AWAY, StoreUnavailable(), QueuesElsewhere()])
async def test_it_goes_on_when_the_coordinator_is_away_at_first(
    monkeypatch: pytest.MonkeyPatch, failure: TwophaseError
) -> None:
    answers: list[Any] = [failure, failure, Deliveries((delivery(1),))]
    done = asyncio.Event()

    async def handle(number: int) -> None:
        done.set()

    failures: list[TwophaseError] = []
    work = consuming(StubRequests(lambda *_: answers.pop(0) if answers else None), failures)
    work.start([subscription(handle)])
    await asyncio.wait_for(done.wait(), PATIENCE_S)
    await work.stop(PATIENCE_S)
    assert failures == []


async def test_a_refusal_ends_it_only_before_it_has_received() -> None:
    async def handle(number: int) -> None:
        raise AssertionError("there is none")

    for answers, ends in ([Forbidden()], True), ([Deliveries(), Forbidden(), Deliveries()], False):
        failures: list[TwophaseError] = []
        left = list(answers)
        work = consuming(StubRequests(lambda *_, left=left: left.pop(0) if left else None), failures)
        work.start([subscription(handle)])
        await until(lambda left=left, ends=ends, failures=failures: not left and (failures or not ends))  # type: ignore[misc]
        await work.stop(PATIENCE_S)
        assert bool(failures) is ends


async def test_an_extension_under_way_ends_before_the_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its receipt is the one that counts."""
    extending, answer, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Slow(StubRequests):
        async def ask(self, path: str, request: Any, answer_kind: Any, at: str | None = None) -> Any:
            if path == EXTEND_PATH:
                extending.set()
                await answer.wait()
            return await super().ask(path, request, answer_kind, at)

    async def handle(number: int) -> None:
        await go_on.wait()

    found = [Deliveries((delivery(1),))]
    requests = Slow(lambda path, _: found.pop(0) if path == RECEIVE_PATH and found else None)
    work = consuming(requests)
    work._lease_ms = 30
    work.start([subscription(handle)])
    await asyncio.wait_for(extending.wait(), PATIENCE_S)
    go_on.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert "ack" not in requests.paths()
    answer.set()
    await work.stop(PATIENCE_S)
    (acknowledged,) = [request.receipts for path, request in requests.asked if path.endswith("/ack")]
    assert acknowledged == ("new",)


async def test_what_a_handler_waits_for_may_be_cancelled_and_its_message_rests_before_it_comes_again() -> None:
    async def handle(number: int) -> None:
        waited_for = asyncio.ensure_future(asyncio.sleep(PATIENCE_S))
        waited_for.cancel()
        await waited_for

    found = [Deliveries((delivery(1),))]
    requests = StubRequests(lambda path, _: found.pop(0) if path == RECEIVE_PATH and found else None)
    work = consuming(requests)
    work.start([subscription(handle)])
    async with asyncio.timeout(PATIENCE_S):
        while "nack" not in requests.paths():
            await asyncio.sleep(0.01)
    await work.stop(PATIENCE_S)
    assert [request.pause_ms for path, request in requests.asked if path == NACK_PATH] == [None]
