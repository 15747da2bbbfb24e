"""Decisions that do not get through, with a coordinator in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.waiting import until
from tests.unit.client.queues.stub import AWAY, StubRequests
from twophase.client.queues.messages import Half
from twophase.client.queues.transactions import Transactions, message_to_send
from twophase.core.errors import CommittedDespiteError, Fate, NotPrepared, Overloaded
from twophase.core.queue_api import DECIDE_PATH, HALF_PATH, LEAVE_PATH, Decision, OneQuestion, Questions
from twophase.core.queue_message import gid_of, message_of

PATIENCE_S = 60


class Coordinator(StubRequests):
    """Asks about one message when the test says so."""

    def __init__(self) -> None:
        self.about: asyncio.Queue[str] = asyncio.Queue()
        self.decided: asyncio.Queue[tuple[str, Decision, bool]] = asyncio.Queue()
        super().__init__(self._question)

    def _question(self, path: str, request: Any) -> Any:
        async def question() -> Questions:
            name = await self.about.get()
            if not name:
                return Questions()
            one = OneQuestion(address="queue://orders?id=1", body=b"", transaction_id=name, asked=0)
            return Questions((one,))

        if path == LEAVE_PATH:
            self.about.put_nowait("")
            return AWAY
        return question()

    async def ask(self, path: str, request: Any, answer: Any, at: str | None = None) -> Any:
        if path == DECIDE_PATH:
            self.decided.put_nowait((request.transaction_id, request.decision, request.checked))
        return await super().ask(path, request, answer, at)


def asked() -> Any:
    return message_to_send("orders", 1, tag="", keys=(), properties=None, namespace="")


async def never(_: Half) -> Decision:
    raise AssertionError("the listener is not asked about what is known")


@pytest.mark.parametrize("decision", [Decision.COMMIT, Decision.ROLLBACK])
async def test_a_decision_that_did_not_get_through_answers_the_question(decision: Decision) -> None:
    coordinator = Coordinator()
    work = Transactions(coordinator, "shop", "", check=never, concurrency=1)  # type: ignore[arg-type]
    message = await work.begin(asked(), None)
    coordinator.answers[DECIDE_PATH] = AWAY
    sent = await work.end(message, decision)
    assert (sent.decision, sent.acknowledged) == (decision, False)
    assert await coordinator.decided.get() == (message.transaction_id, decision, False)
    del coordinator.answers[DECIDE_PATH]
    coordinator.about.put_nowait(message.transaction_id)
    answered = await asyncio.wait_for(coordinator.decided.get(), PATIENCE_S)
    assert answered == (message.transaction_id, decision, True)
    await work.stop(PATIENCE_S)


@pytest.mark.parametrize(
    ("decision", "raised", "seen"),
    [
        (Decision.COMMIT, asyncio.CancelledError(), asyncio.CancelledError),
        (Decision.ROLLBACK, asyncio.CancelledError(), asyncio.CancelledError),
        (Decision.COMMIT, ValueError("of a signal's handler"), CommittedDespiteError),
        (Decision.ROLLBACK, ValueError("of a signal's handler"), ValueError),
    ],
)
async def test_a_decision_whose_sending_is_interrupted_answers_the_question(
    decision: Decision, raised: BaseException, seen: type[BaseException]
) -> None:
    coordinator = Coordinator()
    work = Transactions(coordinator, "shop", "", check=never, concurrency=1)  # type: ignore[arg-type]
    message = await work.begin(asked(), None)
    coordinator.answers[DECIDE_PATH] = raised
    with pytest.raises(seen):
        await work.end(message, decision)
    assert await coordinator.decided.get() == (message.transaction_id, decision, False)
    del coordinator.answers[DECIDE_PATH]
    coordinator.about.put_nowait(message.transaction_id)
    answered = await asyncio.wait_for(coordinator.decided.get(), PATIENCE_S)
    assert answered == (message.transaction_id, decision, True)
    await work.stop(PATIENCE_S)


@pytest.mark.parametrize(("failure", "error"), [(AWAY, NotPrepared), (Overloaded(), Overloaded)])
async def test_a_message_that_may_be_kept_and_was_not_begun_is_rolled_back_when_asked_about(
    failure: Exception, error: type[Exception]
) -> None:
    coordinator = Coordinator()
    work = Transactions(coordinator, "shop", "", check=never, concurrency=1)  # type: ignore[arg-type]
    coordinator.answers[HALF_PATH] = failure
    with pytest.raises(error) as caught:
        await work.begin(asked(), None)
    assert caught.value.fate is Fate.NOT_STARTED  # type: ignore[attr-defined]
    (half,) = [request for path, request in coordinator.asked if path == HALF_PATH]
    message_id = message_of(half.address, b"").message_id
    coordinator.about.put_nowait(gid_of("", "orders", message_id))
    _, decision, checked = await asyncio.wait_for(coordinator.decided.get(), PATIENCE_S)
    assert (decision, checked) == (Decision.ROLLBACK, True)
    await work.stop(PATIENCE_S)


async def test_a_check_under_way_is_not_begun_again_and_ends_before_the_stop() -> None:
    coordinator = Coordinator()
    checks, go_on = 0, asyncio.Event()

    async def check(_: Half) -> Decision:
        nonlocal checks
        checks += 1
        await go_on.wait()
        return Decision.COMMIT

    work = Transactions(coordinator, "shop", "", check=check, concurrency=2)  # type: ignore[arg-type]
    work.start()
    for _ in range(2):
        coordinator.about.put_nowait("queue-1")
    await until(lambda: coordinator.about.empty() and checks)
    stopping = asyncio.ensure_future(work.stop(PATIENCE_S))
    go_on.set()
    await stopping
    assert checks == 1
    assert coordinator.decided.get_nowait() == ("queue-1", Decision.COMMIT, True)


async def test_a_check_that_waits_for_something_cancelled_is_answered_with_unknown() -> None:
    coordinator = Coordinator()

    async def check(_: Half) -> Decision:
        waited_for = asyncio.ensure_future(asyncio.sleep(PATIENCE_S))
        waited_for.cancel()
        await waited_for
        return Decision.COMMIT

    work = Transactions(coordinator, "shop", "", check=check, concurrency=1)  # type: ignore[arg-type]
    work.start()
    coordinator.about.put_nowait("queue-1")
    answered = await asyncio.wait_for(coordinator.decided.get(), PATIENCE_S)
    assert answered == ("queue-1", Decision.UNKNOWN, True)
    await work.stop(PATIENCE_S)
