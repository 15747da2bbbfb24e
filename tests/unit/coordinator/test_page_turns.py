"""Pages of many rows take turns, and requests beyond a few that wait are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.support.waiting import until
from tests.unit.coordinator.harness import Harness
from twophase.coordinator.operator import Act
from twophase.coordinator.page_turns import REQUESTS_MAX, WAITING_MAX
from twophase.core.audit_log import AuditSearch
from twophase.core.errors import Overloaded
from twophase.stores.search import Search

HOUR_MS = 3_600_000
Reading = Callable[[Harness], Awaitable[object]]
READINGS: dict[str, Reading] = {
    "search": lambda harness: harness.coordinator.search(Search(), "", 10),
    "audit_search": lambda harness: harness.coordinator.audit_search(AuditSearch(), 0, 10),
    "audit_chain": lambda harness: harness.coordinator.audit_chain(0, 10),
    "oldest_undecided": lambda harness: harness.coordinator.horizon("", ""),
    "later": lambda harness: harness.coordinator.operator.retry_later_ones(HOUR_MS, 10, Act()),
}


class Held:
    """A method of the store that answers when it is let go."""

    def __init__(self, harness: Harness, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = asyncio.Event()
        self.begun = self.most = self._under_way = 0
        self._method = getattr(harness.store, name)
        monkeypatch.setattr(harness.store, name, self._answer)

    async def _answer(self, *given: object) -> object:
        self.begun += 1
        self._under_way += 1
        self.most = max(self.most, self._under_way)
        await self.go.wait()
        self._under_way -= 1
        return await self._method(*given)


@pytest.mark.parametrize("name", READINGS)
async def test_one_page_is_read_at_a_time_a_few_wait_and_more_are_refused(
    harness: Harness, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await until(lambda: harness.coordinator._recovery._far is None)  # it reads later rows once
    held = Held(harness, name, monkeypatch)
    tasks = [asyncio.ensure_future(READINGS[name](harness)) for _ in range(1 + WAITING_MAX)]
    await until(lambda: held.begun == 1)

    with pytest.raises(Overloaded):
        await asyncio.wait_for(READINGS[name](harness), 60)
    assert await harness.coordinator.query("unknown") is None  # a look-up takes no turn
    held.go.set()
    await asyncio.gather(*tasks)

    assert held.begun == (1 + WAITING_MAX) * (2 if name == "oldest_undecided" else 1)
    assert held.most == 1


async def test_the_pages_of_one_client_delay_those_of_another_by_one(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(harness, "search", monkeypatch)
    ended: list[str] = []

    async def read(client: str) -> None:
        await harness.coordinator.search(Search(), "", 10, client)
        ended.append(client)

    tasks = [asyncio.ensure_future(read("many")) for _ in range(1 + WAITING_MAX)]
    await until(lambda: held.begun == 1)
    tasks += [asyncio.ensure_future(read("one")), asyncio.ensure_future(read("two"))]
    await asyncio.sleep(0)
    held.go.set()
    await asyncio.gather(*tasks)
    assert ended[:3] == ["many", "one", "two"]


async def test_the_pages_of_all_clients_together_are_bounded(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(harness, "search", monkeypatch)

    def read(number: int) -> asyncio.Future[object]:
        return asyncio.ensure_future(harness.coordinator.search(Search(), "", 10, f"client {number}"))

    tasks = [read(number) for number in range(REQUESTS_MAX)]
    await until(lambda: held.begun == 1)
    with pytest.raises(Overloaded):
        await asyncio.wait_for(read(REQUESTS_MAX), 10)
    held.go.set()
    await asyncio.gather(*tasks)
    await read(REQUESTS_MAX)


async def test_a_request_that_leaves_makes_room(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(harness, "search", monkeypatch)
    tasks = [asyncio.ensure_future(READINGS["search"](harness)) for _ in range(1 + WAITING_MAX)]
    await until(lambda: held.begun == 1)
    for task in tasks[:2]:  # one that reads, one that waits
        task.cancel()
    await asyncio.wait(tasks[:2])

    more = [asyncio.ensure_future(READINGS["search"](harness)) for _ in range(2)]
    held.go.set()
    found = await asyncio.gather(*tasks[2:], *more)

    assert found == [([], "")] * (1 + WAITING_MAX)


async def test_look_ups_are_made_one_at_a_time_and_none_is_refused(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(harness, "get", monkeypatch)
    ended: list[str] = []

    async def look_up(client: str) -> None:
        await harness.coordinator.query("unknown", client)
        ended.append(client)

    tasks = [asyncio.ensure_future(look_up("many")) for _ in range(REQUESTS_MAX)]
    await until(lambda: held.begun == 1)
    tasks.append(asyncio.ensure_future(look_up("one")))
    await asyncio.sleep(0)
    held.go.set()
    await asyncio.gather(*tasks)

    assert held.most == 1
    assert ended.index("one") <= 2
