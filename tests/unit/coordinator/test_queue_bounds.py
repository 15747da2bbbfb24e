"""Topics with a bound of bytes are cleaned, and nothing goes that is needed."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import PATIENCE_S, QUICK, Harness
from tests.unit.coordinator.queueing import GROUP, TOPIC, Queueing, order
from twophase.coordinator.gauges import KeptGauge
from twophase.coordinator.operator import Act
from twophase.coordinator.queues import QueueMessage
from twophase.coordinator.queues.bounds import Bounds
from twophase.coordinator.runtime import Runtime
from twophase.coordinator.settings import CoordinatorSettings
from twophase.core.errors import InvalidRequest
from twophase.core.queue_message import gid_of
from twophase.core.queue_operating import DefineTopic

HOUR_MS = 3_600_000
ACT = Act("eve", "the disk is small")
BODY = bytes(10_000)
KEPT = CoordinatorSettings(
    delivery=QUICK,
    check_back=QUICK,
    retention_ms=2 * HOUR_MS,
    retention_interval_ms=10_000 * HOUR_MS,
    purge_rows=2,
    purge_share=1.0,
)
"""Only the tests clean, once the node has started."""
BOUNDED = DefineTopic(retention_ms=1_000 * HOUR_MS, retention_bytes=35_000)
"""Four messages of the tests, with their addresses, are more."""

MakeRig = Callable[[CoordinatorSettings], Awaitable[Harness]]


class Rig:
    """A topic with a bound, and messages that are an hour apart."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.queueing = Queueing(harness)

    async def define(self, asked: DefineTopic) -> None:
        await self.harness.coordinator.queue_operator.define_topic(TOPIC, asked, ACT)

    async def send(self, number: int, begin: int = 0) -> None:
        for one in range(begin, begin + number):
            await self.queueing.send(msgspec.structs.replace(order(f"{one}"), body=BODY))
            self.harness.clock.advance(HOUR_MS)

    async def do_all(self) -> None:
        await self.queueing.ack(*await self.queueing.receive(100))

    async def clean(self) -> None:
        """Wait for the end of one cleaning."""
        await self.harness.coordinator._retention._run()

    async def there(self) -> list[int]:
        entries = await self.harness.store.queue_page(TOPIC, 0, 0, 100)
        return [entry.number for entry in entries]

    def kept(self) -> KeptGauge:
        (found,) = self.harness.coordinator.gauges().kept
        return found

    def archive_until(self, until_ms: int) -> None:
        with sqlite3.connect(self.harness.path) as connection:
            connection.execute(
                "insert into store_meta (name, value) values ('archived_until_ms', ?1)"
                " on conflict (name) do update set value = ?1",
                (until_ms,),
            )
        connection.close()


async def started(make_harness: MakeRig, settings: CoordinatorSettings) -> Rig:
    """Return a rig whose node has done the cleaning with which it starts."""
    harness = await make_harness(settings)
    await until(lambda: harness.watcher.steps)
    return Rig(harness)


@pytest.fixture
async def rig(make_harness: MakeRig) -> Rig:
    return await started(make_harness, KEPT)


async def test_the_oldest_messages_beyond_the_bound_go_with_their_bodies(rig: Rig) -> None:
    await rig.define(BOUNDED)
    await rig.send(10)
    await rig.do_all()

    await rig.clean()

    assert await rig.there() == [6, 7, 8, 9]
    assert await rig.harness.store.get(gid_of("", TOPIC, "5")) is None
    assert await rig.harness.store.get(gid_of("", TOPIC, "6")) is not None
    kept = rig.kept()
    assert (kept.topic, kept.messages, kept.bytes_max) == (TOPIC, 4, 35_000)
    assert 40_000 < kept.bytes < 44_000
    assert not any(kept.held.values())
    assert rig.harness.watcher.topics == []


async def test_the_cleaning_comes_by_itself(make_harness: MakeRig) -> None:
    rig = await started(make_harness, msgspec.structs.replace(KEPT, retention_interval_ms=24 * HOUR_MS))
    await rig.define(BOUNDED)
    await rig.send(10)
    await rig.do_all()
    rig.harness.clock.advance(24 * HOUR_MS)

    async with asyncio.timeout(PATIENCE_S):
        while await rig.there() != [6, 7, 8, 9]:
            await asyncio.sleep(0.005)


async def test_what_a_group_has_not_done_stays_and_is_reported_with_its_remedy(rig: Rig) -> None:
    await rig.define(BOUNDED)
    await rig.send(10)
    first, second, *rest = await rig.queueing.receive(100)
    await rig.queueing.ack(first, second, *rest[3:])

    await rig.clean()

    assert await rig.there() == [2, 3, 4, 5, 6, 7, 8, 9]
    held = rig.kept().held
    assert 40_000 < held["group"] < 44_000
    assert (held["history"], held["archive"]) == (0, 0)
    ((topic, why, remedy),) = rig.harness.watcher.topics
    assert (topic, why.split(" has")[0]) == (TOPIC, f"group {GROUP!r}")
    assert f"twophase groups remove {GROUP}" in remedy

    await rig.clean()
    assert len(rig.harness.watcher.topics) == 1, "it is reported once"
    await rig.queueing.ack(*rest[:3])
    await rig.clean()

    assert await rig.there() == [6, 7, 8, 9]
    assert rig.harness.watcher.topics[1:] == [(TOPIC, "", "")]


async def test_what_a_group_has_begun_to_read_stays_before_its_first_acknowledgement(rig: Rig) -> None:
    await rig.define(BOUNDED)
    await rig.send(10)
    await rig.queueing.receive(1)
    await rig.harness.coordinator._machine.group_commit.drained()

    await rig.clean()

    assert len(await rig.there()) == 10


async def test_what_history_keeps_stays_as_its_body_would(make_harness: MakeRig) -> None:
    rig = await started(make_harness, msgspec.structs.replace(KEPT, retention_ms=8 * HOUR_MS + HOUR_MS // 2))
    await rig.define(BOUNDED)
    await rig.send(10)
    await rig.do_all()

    await rig.clean()

    assert await rig.there() == list(range(2, 10))
    ((_, why, remedy),) = rig.harness.watcher.topics
    assert why.startswith("history keeps")
    assert "retention_ms" in remedy


async def test_what_the_archive_has_not_got_stays(rig: Rig) -> None:
    await rig.define(BOUNDED)
    began_ms = rig.harness.clock.now_ms()
    await rig.send(10)
    await rig.do_all()
    rig.archive_until(began_ms + 3 * HOUR_MS)

    await rig.clean()

    assert await rig.there() == list(range(3, 10))
    ((_, why, remedy),) = rig.harness.watcher.topics
    assert why.startswith("the archive has not got")
    assert "twophase spark archive" in remedy


async def test_a_bound_counts_also_after_a_crash(rig: Rig) -> None:
    await rig.define(BOUNDED)
    await rig.send(6)
    await rig.do_all()
    await rig.clean()
    await rig.harness.restart()
    again = Rig(rig.harness)
    await again.send(2, begin=6)
    await again.do_all()

    await again.clean()

    assert await again.there() == [4, 5, 6, 7]


async def test_the_server_s_bound_counts_for_topics_with_a_retention_and_none_of_their_own(
    make_harness: MakeRig,
) -> None:
    rig = await started(make_harness, msgspec.structs.replace(KEPT, queue_retention_bytes=15_000))
    await rig.define(DefineTopic(retention_ms=1_000 * HOUR_MS))
    await rig.send(10)
    await rig.do_all()

    await rig.clean()

    assert await rig.there() == [8, 9]
    shown = (await rig.harness.coordinator.queue_operator.topic(TOPIC, "")).topic
    assert (shown.retention_bytes, shown.over_bytes, shown.why_over) == (15_000, 0, "")
    assert 20_000 < shown.bytes < 22_000
    await rig.define(BOUNDED)
    assert (await rig.harness.coordinator.queue_operator.topic(TOPIC, "")).topic.retention_bytes == 35_000


async def test_a_bound_that_is_raised_during_a_cleaning_counts_at_once(rig: Rig) -> None:
    await rig.define(BOUNDED)
    await rig.send(10)
    await rig.do_all()
    coordinator, now_ms = rig.harness.coordinator, rig.harness.clock.now_ms()
    runtime: Runtime = coordinator._runtime
    bounds = Bounds(runtime, coordinator.queues.definitions)
    await bounds.begin(now_ms)
    cut_ms = bounds.before_ms(now_ms)[TOPIC]

    await rig.define(DefineTopic(retention_bytes=90_000))

    assert bounds.before_ms(now_ms)[TOPIC] == now_ms - 1_000 * HOUR_MS < cut_ms


@pytest.mark.parametrize(
    "wrong",
    [
        DefineTopic(retention_bytes=35_000),
        DefineTopic(retention_ms=2 * HOUR_MS, retention_bytes=35_000),
        DefineTopic(retention_ms=3 * HOUR_MS, retention_bytes=1_023),
        DefineTopic(retention_ms=3 * HOUR_MS, retention_bytes=2**50 + 1),
        DefineTopic(retention_ms=3 * HOUR_MS, retention_bytes=-1),
    ],
)
async def test_a_bound_that_could_remove_nothing_or_cannot_be_is_refused(rig: Rig, wrong: DefineTopic) -> None:
    with pytest.raises(InvalidRequest, match="retention_bytes"):
        await rig.define(wrong)


async def test_a_topic_with_a_bound_cannot_lose_its_retention(rig: Rig) -> None:
    await rig.define(BOUNDED)

    with pytest.raises(InvalidRequest, match="retention_bytes"):
        await rig.define(DefineTopic(retention_ms=0))
    await rig.define(DefineTopic(retention_ms=0, retention_bytes=0))


async def test_a_topic_with_more_messages_than_are_looked_at_is_near_its_bound(rig: Rig) -> None:
    await rig.define(msgspec.structs.replace(BOUNDED, retention_bytes=200_000))
    messages = [QueueMessage(TOPIC, "", f"{number}", bytes(700 + number % 600)) for number in range(1_500)]
    for begin in range(0, len(messages), 100):
        await rig.queueing.send(*messages[begin : begin + 100])
        rig.harness.clock.advance(HOUR_MS // 4)
    rig.harness.clock.advance(3 * HOUR_MS)

    await rig.clean()

    kept = sum(len(entry.body) for entry in await rig.harness.store.queue_page(TOPIC, 0, 0, 1_500))
    assert 200_000 <= kept < 330_000, "a hundred messages of one moment are kept or removed together"
