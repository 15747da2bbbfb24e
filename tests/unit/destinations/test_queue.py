"""The destination of queues: "done" for a branch that was appended, no more."""

from __future__ import annotations

import asyncio

import pytest

from twophase.destinations.base import Answer, Call
from twophase.destinations.queue import QueueDestination


async def _answer(*query: tuple[str, str]) -> Answer:
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    QueueDestination().call(Call("queue://orders", query, b"", (), 1_000), answered.set_result)
    assert not answered.done(), "never before the call returns"
    return await answered


async def test_a_branch_is_done() -> None:
    assert (await _answer(("gid", "g"), ("op", "action"))).status == 200


@pytest.mark.parametrize("op", ["msg", "probe"])
async def test_a_check_back_has_no_answer(op: str) -> None:
    assert (await _answer(("gid", "g"), ("op", op))).status == 0


@pytest.mark.parametrize("url", ["queue://", "QUEUE://orders", "queue://orders?at=soon", "queue://a b"])
def test_what_no_flush_would_append_is_not_accepted(url: str) -> None:
    assert str(QueueDestination().accepts(url)).startswith("bad_url: ")


def test_all_queues_share_their_limits() -> None:
    assert QueueDestination().accepts("queue://orders?tag=paid") is None
    assert QueueDestination().key("queue://orders") == QueueDestination().key("queue://bills")


async def test_there_is_nothing_to_stop() -> None:
    await QueueDestination().stop()
