"""The due times of messages, compared with a naive model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.coordinator.harness import PATIENCE_S
from twophase.coordinator.settings import CoordinatorSettings
from twophase.coordinator.state.active_message import ActiveMessage
from twophase.coordinator.state.active_set import ActiveSet
from twophase.coordinator.state.times import Times
from twophase.core.message import Message

SLOT_MS = 32
START_MS = 1_700_000_000_000
ENTRIES = 6


class Steps:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        return self.ms


def _memory(clock: Steps, on_due: Callable[[ActiveMessage], None]) -> ActiveSet:
    settings = CoordinatorSettings()
    return ActiveSet(clock, on_due, Times(settings, clock), settings)


number = st.integers(0, ENTRIES - 1)
step = st.one_of(
    st.tuples(st.just("schedule"), number, st.integers(-100, 400)),
    st.tuples(st.just("cancel"), number, st.just(0)),
    st.tuples(st.just("advance"), st.just(0), st.integers(0, 150)),
)


@given(st.lists(step, max_size=60))
def test_it_calls_what_a_naive_list_of_times_would(steps: list[tuple[str, int, int]]) -> None:
    asyncio.run(_compare(steps))


async def _compare(steps: list[tuple[str, int, int]]) -> None:
    clock = Steps()
    called: list[ActiveMessage] = []
    memory = _memory(clock, called.append)
    messages = [ActiveMessage(Message(str(index), ())) for index in range(ENTRIES)]
    due: dict[ActiveMessage, int] = {}
    for what, index, ms in [*steps, ("advance", 0, 1_000)]:
        if what == "schedule":
            due[messages[index]] = clock.ms + ms
            memory.schedule(messages[index], clock.ms + ms)
        elif what == "cancel":
            due.pop(messages[index], None)
            memory.unschedule(messages[index])
        else:
            clock.ms += ms
            called.clear()
            memory.due_times.tick()
            assert len(called) == len(set(called))
            for active in called:
                assert due.pop(active) <= clock.ms
            assert all(due_ms > clock.ms - SLOT_MS for due_ms in due.values())
    assert due == {}
    memory.due_times.stop()


async def test_one_called_may_cancel_another_of_the_same_slot() -> None:
    clock = Steps()
    called: list[ActiveMessage] = []
    messages = [ActiveMessage(Message(str(index), ())) for index in range(3)]

    def on_due(active: ActiveMessage) -> None:
        called.append(active)
        for other in messages:
            memory.unschedule(other)

    memory = _memory(clock, on_due)
    for active in messages:
        memory.schedule(active, START_MS)
    clock.ms += 2 * SLOT_MS
    memory.due_times.tick()
    assert len(called) == 1
    memory.due_times.stop()


async def test_one_called_may_schedule_another_of_the_same_slot_for_later() -> None:
    clock = Steps()
    called: list[str] = []
    first, second = ActiveMessage(Message("first", ())), ActiveMessage(Message("second", ()))

    def on_due(active: ActiveMessage) -> None:
        called.append(active.message.gid)
        if len(called) == 1:
            memory.schedule(first if active is second else second, clock.ms + 500)

    memory = _memory(clock, on_due)
    memory.schedule(first, START_MS)
    memory.schedule(second, START_MS)
    clock.ms += 2 * SLOT_MS
    memory.due_times.tick()
    assert len(called) == 1
    clock.ms += 600
    memory.due_times.tick()
    assert sorted(called) == ["first", "second"]
    memory.due_times.stop()


async def test_one_that_fails_does_not_stop_the_others() -> None:
    clock = Steps()
    called: list[ActiveMessage] = []
    done = asyncio.Event()

    def on_due(active: ActiveMessage) -> None:
        called.append(active)
        if len(called) == 3:
            done.set()
        raise RuntimeError("a fault")

    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    memory = _memory(clock, on_due)
    for index in range(3):
        memory.schedule(ActiveMessage(Message(str(index), ())), START_MS)
    clock.ms += 2 * SLOT_MS
    with pytest.raises(RuntimeError):
        memory.due_times.tick()
    await asyncio.wait_for(done.wait(), PATIENCE_S)
    memory.due_times.stop()


async def test_stopped_it_calls_nothing() -> None:
    clock = Steps()
    called: list[ActiveMessage] = []
    memory = _memory(clock, called.append)
    memory.schedule(ActiveMessage(Message("before", ())), START_MS)
    memory.due_times.stop()
    memory.schedule(ActiveMessage(Message("after", ())), START_MS)
    clock.ms += 1_000
    memory.due_times.tick()
    assert called == []
