"""Counts of waiting messages are right behind a long reading of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from tests.unit.coordinator.harness import PATIENCE_S, Harness, message
from twophase.coordinator.state.active_message import Reply
from twophase.core.lifecycle import State
from twophase.server.identity.caller import Caller
from twophase.server.identity.quotas import Meter
from twophase.server.identity.tokens import Quota

OWNER = "orders"


class Reading:
    """A reading that has its answer from the store, and takes until `end`."""

    def __init__(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        self._counting = harness.coordinator._counting
        self._read = harness.store.waiting_by_owner
        self._answered, self._goes_on = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(harness.store, "waiting_by_owner", self._slowly)

    async def begin(self) -> None:
        self._reading = asyncio.ensure_future(self._counting.read())
        await asyncio.wait_for(self._answered.wait(), PATIENCE_S)

    async def end(self) -> None:
        self._goes_on.set()
        await asyncio.wait_for(self._reading, PATIENCE_S)

    async def _slowly(self) -> Mapping[str, tuple[int, int]]:
        found = await self._read()
        self._answered.set()
        await self._goes_on.wait()
        return found


@pytest.fixture
def caller(harness: Harness) -> Caller:
    owners = harness.coordinator.owners
    owners.wanted = True
    return Caller(OWNER, meter=Meter(OWNER, Quota(waiting_messages=1), owners))


async def prepare(harness: Harness, gid: str, caller: Caller) -> Reply:
    return await asyncio.wait_for(harness.prepare_soon(message(gid), caller), PATIENCE_S)


async def test_what_ends_while_the_store_is_read_waits_no_more(
    harness: Harness, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await prepare(harness, "g", caller)).error is None
    reading = Reading(harness, monkeypatch)
    await reading.begin()
    assert (await harness.submit(message("g"))).error is None
    await harness.until_state("g", State.SUCCEEDED)

    await reading.end()

    assert harness.coordinator.owners.waiting(OWNER) == (0, 0)
    assert (await prepare(harness, "next", caller)).error is None


async def test_what_comes_while_the_store_is_read_counts(
    harness: Harness, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = Reading(harness, monkeypatch)
    await reading.begin()
    assert (await prepare(harness, "g", caller)).error is None

    await reading.end()

    refused = (await prepare(harness, "next", caller)).error
    assert refused is not None
    assert refused.code == "TP-3006"
