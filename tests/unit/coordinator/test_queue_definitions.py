"""The first use of topics and groups."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from twophase.coordinator.queues.definitions import Definitions, TopicSettings, definition
from twophase.coordinator.runtime import Runtime
from twophase.core.audit_log import Actor, AuditEntry
from twophase.core.hooks import WallClock
from twophase.stores.queue_rows import Definition


class _Store:
    shared = False

    def __init__(self) -> None:
        self.made: list[Definition] = []
        self.rows: list[AuditEntry] = []

    async def queue_definitions(self) -> list[Definition]:
        await asyncio.sleep(0)
        return list(self.made)

    async def define_queue(self, wanted: Definition, entry: AuditEntry) -> Definition:
        await asyncio.sleep(0)
        self.made.append(wanted)
        self.rows.append(entry)
        return wanted


def _definitions(store: Any) -> Definitions:
    settings = SimpleNamespace(queues_made_on_use=True, queue_retention_bytes=0)
    runtime = SimpleNamespace(store=store, settings=settings, queue_counts={}, clock=WallClock())
    return Definitions(cast("Runtime", runtime))


async def test_calls_that_name_a_new_group_together_make_it_once() -> None:
    store: Any = _Store()
    definitions = _definitions(store)

    await asyncio.gather(*(definitions.group("", "billing") for _ in range(50)))

    assert [one.name for one in store.made] == ["billing"]


async def test_a_first_use_is_a_row_with_its_client_and_no_other_use_is() -> None:
    store: Any = _Store()
    definitions = _definitions(store)
    for name in ("shop", "other"):
        await definitions.topic("", "orders", Actor(name, "10.0.0.7"))

    (made,) = store.made
    assert store.rows == [
        AuditEntry("shop", "10.0.0.7", "define-topic", "orders", "made by its first use", after=made.text)
    ]


async def test_what_changes_while_all_are_read_is_not_undone_by_what_was_read() -> None:
    store: Any = _Store()
    definitions = _definitions(store)
    old = definition("topic", "old", TopicSettings(queues=2))
    store.made = [old]
    await definitions.load()
    reading = asyncio.ensure_future(definitions.load())
    await asyncio.sleep(0)  # the store is asked
    definitions.forget("topic", "old")
    definitions.take(definition("topic", "new", TopicSettings(queues=4)))
    await reading

    assert definitions.names("topic") == ["new"]
    assert definitions.topic_settings("new").queues == 4

    await definitions.load()
    assert definitions.names("topic") == ["old"], "the next reading counts"
