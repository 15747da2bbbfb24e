"""A blocking call in a coroutine would stop its event loop.

It is refused, and the error names the asynchronous call.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.recording_coordinator import RecordingCoordinator
from twophase import Client, Message
from twophase.barrier import install
from twophase.errors import EventLoopBlocked, Fate

CHECK = "http://bank-a/check"


def database() -> sqlite3.Connection:
    bank = sqlite3.connect(":memory:")
    install(bank)
    return bank


def enter_transaction(message: Message) -> None:
    with message.transaction(database(), CHECK):
        pass


CALLS: dict[str, tuple[Callable[[Message], Any], str]] = {
    "submit": (lambda message: message.submit(), "await AsyncMessage(…).submit(…)"),
    "prepare": (lambda message: message.prepare(CHECK), "await AsyncMessage(…).prepare(…)"),
    "abort": (lambda message: message.abort(), "await AsyncMessage(…).abort(…)"),
    "join": (lambda message: message.join(object(), CHECK), "await AsyncMessage(…).join(…)"),
    "transaction": (enter_transaction, "async with message.transaction(…)"),
    "do_and_submit": (lambda message: message.do_and_submit(database(), print, CHECK), "async with"),
}


@pytest.mark.parametrize("call", CALLS)
async def test_a_blocking_call_in_a_coroutine_is_refused_before_anything_is_sent(
    call: str, coordinator: RecordingCoordinator
) -> None:
    make, remedy = CALLS[call]
    with pytest.raises(EventLoopBlocked) as refused:
        make(Message(coordinator.url).add("http://b/in", {}))

    assert (refused.value.code, refused.value.fate) == ("TP-5012", Fate.NOT_STARTED)
    assert remedy in refused.value.remedy
    assert coordinator.operations == []


async def test_a_thread_of_a_coroutine_may_block(coordinator: RecordingCoordinator) -> None:
    message = await asyncio.to_thread(Message(coordinator.url).add("http://b/in", {}).submit)
    assert message.submitted


async def test_a_notebook_may_allow_it(coordinator: RecordingCoordinator) -> None:
    with Client(coordinator.url, allow_event_loop=True) as endpoint:
        assert endpoint.message().add("http://b/in", {}).submit().submitted
