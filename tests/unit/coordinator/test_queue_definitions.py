"""The first use of topics and groups."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from twophase.coordinator.queues.definitions import Definitions
from twophase.coordinator.runtime import Runtime
from twophase.core.hooks import WallClock
from twophase.stores.queue_rows import Definition


class _Store:
    shared = False

    def __init__(self) -> None:
        self.made: list[Definition] = []

    async def queue_definitions(self) -> list[Definition]:
        await asyncio.sleep(0)
        return list(self.made)

    async def define_queue(self, wanted: Definition) -> Definition:
        await asyncio.sleep(0)
        self.made.append(wanted)
        return wanted


async def test_calls_that_name_a_new_group_together_make_it_once() -> None:
    store: Any = _Store()
    runtime = SimpleNamespace(
        store=store, settings=SimpleNamespace(queues_made_on_use=True), queue_counts={}, clock=WallClock()
    )
    definitions = Definitions(cast("Runtime", runtime))

    await asyncio.gather(*(definitions.group("", "billing") for _ in range(50)))

    assert [one.name for one in store.made] == ["billing"]
