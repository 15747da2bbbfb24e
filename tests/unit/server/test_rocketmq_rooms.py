"""The room for the messages of one address."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from twophase.core.errors import Overloaded
from twophase.server.identity.caller import UNLIMITED, Caller
from twophase.server.rocketmq.rooms import Rooms, sender_of


def _kept(_: int) -> bool:
    return True


class _Requests:
    """Requests, which stay in their room until `go`.

    `inside` has those that entered, in order.
    """

    def __init__(self, bytes_max: int) -> None:
        self.rooms = Rooms(bytes_max)
        self.inside: list[str] = []
        self._leave: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, name: str, size: int, address: str = "a") -> None:
        self._leave[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._stay(name, size, address))
        await self.settle()

    async def go(self, name: str) -> None:
        self._leave[name].set()
        await self.tasks[name]
        await self.settle()

    async def cancel(self, name: str) -> None:
        self.tasks[name].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.tasks[name]
        await self.settle()

    async def _stay(self, name: str, size: int, address: str) -> None:
        if not self.rooms.enter(address, size):
            await self.rooms.wait(address, size, _kept)
        self.inside.append(name)
        try:
            await self._leave[name].wait()
        finally:
            self.rooms.leave(address, size)

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


class _Connection:
    address = "10.0.0.1"


def test_a_sender_is_the_tokens_owner_or_else_the_address_or_behind_a_proxy_the_connection() -> None:
    one: Any = _Connection()
    other: Any = _Connection()
    assert sender_of(Caller("a"), one, shared=True) == sender_of(Caller("a"), other, shared=False)
    assert sender_of(Caller("a"), one, shared=True) != sender_of(Caller("b"), one, shared=True)
    assert sender_of(Caller(one.address), one, shared=True) != sender_of(UNLIMITED, one, shared=True)
    assert sender_of(UNLIMITED, one, shared=True) == sender_of(UNLIMITED, other, shared=True)
    assert sender_of(UNLIMITED, one, shared=False) != sender_of(UNLIMITED, other, shared=False)


async def test_requests_of_an_address_wait_for_room_in_their_order() -> None:
    requests = _Requests(10)
    await requests.come("1", 6)
    await requests.come("2", 6)
    await requests.come("3", 1)
    assert requests.inside == ["1"]
    await requests.go("1")
    assert requests.inside == ["1", "2", "3"]
    await requests.go("2")
    await requests.go("3")
    assert not requests.rooms._of


async def test_another_address_does_not_wait() -> None:
    requests = _Requests(10)
    await requests.come("1", 10, "a")
    await requests.come("2", 10, "b")
    assert requests.inside == ["1", "2"]
    await requests.go("1")
    await requests.go("2")


async def test_a_longer_request_than_the_room_goes_alone() -> None:
    requests = _Requests(10)
    await requests.come("1", 1)
    await requests.come("2", 100)
    await requests.come("3", 1)
    assert requests.inside == ["1"]
    await requests.go("1")
    assert requests.inside == ["1", "2"]
    await requests.go("2")
    assert requests.inside == ["1", "2", "3"]
    await requests.go("3")


async def test_a_caller_that_goes_while_it_waits_takes_no_room() -> None:
    requests = _Requests(10)
    await requests.come("1", 10)
    await requests.come("2", 10)
    await requests.come("3", 10)
    await requests.cancel("2")
    await requests.go("1")
    assert requests.inside == ["1", "3"]
    await requests.go("3")
    assert not requests.rooms._of


async def test_a_caller_that_goes_when_its_turn_has_come_leaves_it_to_the_next() -> None:
    requests = _Requests(10)
    await requests.come("1", 10)
    await requests.come("2", 10)
    await requests.come("3", 10)
    requests._leave["1"].set()
    await asyncio.sleep(0)  # the first leaves: the second has room, and has not begun
    assert requests.inside == ["1"]
    requests.tasks["2"].cancel()
    await requests.settle()
    assert requests.inside == ["1", "3"]
    await requests.go("3")
    assert not requests.rooms._of


async def test_a_request_that_may_not_wait_is_refused() -> None:
    requests = _Requests(10)
    await requests.come("1", 10)
    asked: list[int] = []

    def keep(size: int) -> bool:
        asked.append(size)
        return False

    assert not requests.rooms.enter("a", 7)
    with pytest.raises(Overloaded):
        await requests.rooms.wait("a", 7, keep)
    assert asked == [7]
    await requests.go("1")
    assert not requests.rooms._of
