"""An operator's act leaves one row in the audit log, with the change that it made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import CHECK, IN, OK, Harness, message
from twophase.coordinator.operator import Act
from twophase.core.audit_log import Actor, AuditRow
from twophase.core.errors import StateConflict, StoreError
from twophase.core.lifecycle import State
from twophase.core.options import Durability
from twophase.core.redirect import Redirection
from twophase.destinations.base import Answer
from twophase.stores.batch import Batch, FlushResult, Park

DESK = Actor("desk", "192.0.2.7")
EVE = Act("eve", "cancelled", actor=DESK)
LATER = "http://b/other"


async def rows(harness: Harness) -> list[AuditRow]:
    return list(await harness.store.audit_chain(0, 100))


async def acts(harness: Harness) -> list[tuple[str, str, str, str]]:
    return [(row.act, row.target, row.before, row.after) for row in await rows(harness)]


async def waiting(harness: Harness, gid: str = "g") -> None:
    """Submit a message that waits for a day."""
    assert (await harness.submit(message(gid, delay_ms=86_400_000))).error is None
    await harness.settled()


async def test_each_act_is_a_row_with_who_why_and_both_states(harness: Harness) -> None:
    operator = harness.coordinator.operator
    await waiting(harness)
    await operator.park("g", EVE)
    await operator.redrive("g", EVE)
    await operator.retry_now("g", EVE)
    await operator.redirect("g", Redirection(LATER), EVE, lambda *_: None)
    await operator.stop("g", EVE)
    first = (await rows(harness))[0]
    assert (first.who, first.peer, first.reason) == ("desk", "192.0.2.7", "eve: cancelled")
    assert await acts(harness) == [
        ("park", "g", "submitted", "submitted, parked"),
        ("redrive", "g", "submitted, parked", "submitted"),
        ("retry-now", "g", "submitted", "submitted"),
        ("redirect", "g", f"submitted; 01 {IN}", f"submitted; 01 {LATER}"),
        ("stop", "g", "submitted", "failed"),
    ]


async def test_an_override_is_told_from_a_stop(harness: Harness) -> None:
    await harness.prepare(message("g"))
    harness.destination.script[CHECK].append(Answer(500, b"down"))
    reply = await harness.coordinator.operator.stop("g", msgspec.structs.replace(EVE, override=True))
    assert reply.state is State.FAILED
    assert await acts(harness) == [("stop-override", "g", "prepared", "failed")]


async def test_a_stop_whose_producer_has_committed_is_a_row_of_what_became_of_it(harness: Harness) -> None:
    await harness.prepare(message("g"))
    harness.destination.script[CHECK].append(OK)
    reply = await harness.coordinator.operator.stop("g", EVE)
    assert isinstance(reply.error, StateConflict)
    assert (await acts(harness))[0] == ("stop", "g", "prepared", "submitted")


async def test_a_stop_whose_producer_has_committed_leaves_its_row_where_the_check_back_is_the_durability(
    harness: Harness,
) -> None:
    await harness.prepare(message("g", durability=Durability.CHECK_BACK))
    harness.destination.script[CHECK].append(OK)
    harness.destination.hold(IN)
    reply = await harness.coordinator.operator.stop("g", EVE)
    assert isinstance(reply.error, StateConflict)
    row = await harness.store.get("g")
    assert row is not None
    assert row.state is State.SUBMITTED
    assert await acts(harness) == [("stop", "g", "prepared", "submitted")]


async def test_an_act_that_changes_nothing_is_a_row_all_the_same(harness: Harness) -> None:
    await waiting(harness)
    await harness.coordinator.operator.redrive("g", EVE)
    await harness.coordinator.operator.redrive("g", EVE)
    assert [act for act, *_ in await acts(harness)] == ["redrive", "redrive"]


async def test_a_refused_act_is_no_row(harness: Harness) -> None:
    await harness.prepare(message("g"))
    harness.destination.script[CHECK].append(Answer(500, b"down"))
    assert (await harness.coordinator.operator.stop("g", EVE)).error is not None
    assert (await harness.coordinator.operator.stop("unknown", EVE)).error is not None
    assert await acts(harness) == []


async def test_many_messages_tried_at_once_are_a_row_each(harness: Harness) -> None:
    for gid in "abc":
        harness.destination.script[IN].append(Answer(500, b"down"))
        await harness.submit(message(gid, retry_interval_ms=3_600_000))
    await until(lambda: len(harness.destination.urls()) == 3)
    await harness.settled()
    count, _ = await harness.coordinator.operator.retry_later_ones(0, 10, EVE)
    assert count == 3
    assert sorted(target for _, target, *_ in await acts(harness)) == ["a", "b", "c"]


async def test_the_row_goes_with_the_flush_of_the_change(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    await waiting(harness)
    await waiting(harness, "h")
    batches: list[Batch] = []
    flush: Callable[[Batch], Awaitable[FlushResult]] = harness.store.flush

    async def watched(batch: Batch) -> FlushResult:
        batches.append(batch)
        return await flush(batch)

    monkeypatch.setattr(harness.store, "flush", watched)
    await asyncio.gather(harness.prepare(message("other")), harness.coordinator.operator.park("g", EVE))
    audited = [batch for batch in batches if batch.audited]
    assert [[type(batch.items[index]) for index in batch.audited] for batch in audited] == [[Park]]
    assert harness.coordinator._machine.group_commit.acts == 0


async def test_an_act_that_ends_leaves_the_row_of_another_with_its_change(harness: Harness) -> None:
    await harness.prepare(message("g"))
    await waiting(harness, "h")
    harness.destination.hold(CHECK)
    harness.destination.script[CHECK].append(Answer(409, b"FAILURE"))
    stop = asyncio.create_task(harness.coordinator.operator.stop("g", EVE))
    await until(lambda: CHECK in harness.destination.urls())
    await harness.coordinator.operator.park("h", EVE)
    harness.destination.release(CHECK)
    assert (await stop).state is State.FAILED
    assert await acts(harness) == [("park", "h", "submitted", "submitted, parked"), ("stop", "g", "prepared", "failed")]


async def test_an_act_whose_flush_fails_is_no_row(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    await waiting(harness)

    async def fails(batch: Batch) -> FlushResult:
        raise StoreError("the disk is full")

    with monkeypatch.context() as failing:
        failing.setattr(harness.store, "flush", fails)
        assert (await harness.coordinator.operator.park("g", EVE)).error is not None
    assert await acts(harness) == []
    assert harness.coordinator._machine.group_commit.acts == 0


async def test_a_change_of_a_topic_names_its_addresses_before_and_after(harness: Harness) -> None:
    topics = harness.coordinator.topics
    await topics.subscribe("rates", IN, actor=DESK)
    await topics.subscribe("rates", LATER, actor=DESK)
    await topics.unsubscribe("rates", IN, DESK)
    await topics.delete("rates", DESK)
    assert await acts(harness) == [
        ("subscribe", "rates", "", f"[{IN}]"),
        ("subscribe", "rates", f"[{IN}]", f"[{IN}, {LATER}]"),
        ("unsubscribe", "rates", f"[{IN}, {LATER}]", f"[{LATER}]"),
        ("delete-topic", "rates", f"[{LATER}]", ""),
    ]
    assert {row.who for row in await rows(harness)} == {"desk"}
