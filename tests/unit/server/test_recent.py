"""Answers of the store that are asked for once a second at most."""

from __future__ import annotations

import asyncio

import pytest

from twophase.server.api.recent import FRESH_S, Recent


class _Question:
    """A question that waits until it is let go, and counts."""

    def __init__(self) -> None:
        self.asked = 0
        self.now_s = 100.0
        self.answers = asyncio.Event()
        self.recent = Recent(self._ask, lambda: self.now_s)

    async def _ask(self) -> int:
        self.asked += 1
        await self.answers.wait()
        if self.asked == 2:
            raise OSError("the store is away")
        return self.asked


async def test_those_who_come_while_it_is_asked_share_the_question_however_long_it_takes() -> None:
    question = _Question()
    first = [asyncio.create_task(question.recent.get()) for _ in range(5)]
    await asyncio.sleep(0)
    first[0].cancel()
    question.now_s += 10 * FRESH_S
    later = asyncio.create_task(question.recent.get())
    await asyncio.sleep(0)
    question.answers.set()
    assert await asyncio.gather(*first[1:], later) == [1] * 5
    assert question.asked == 1


async def test_an_answer_counts_for_a_second_and_so_does_a_failure() -> None:
    question = _Question()
    question.answers.set()
    assert [await question.recent.get() for _ in range(3)] == [1] * 3
    question.now_s += 1.1 * FRESH_S
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            await question.recent.get()
    question.now_s += 1.1 * FRESH_S
    assert await question.recent.get() == 3
