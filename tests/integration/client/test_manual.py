"""Messages by hand, blocking and on asyncio: the same requests, the same end."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.recording_coordinator import RecordingCoordinator
from twophase import AsyncClient, AsyncMessage, Client, Message, Progress
from twophase.errors import ContraryDecision, MessageUsedTwice
from twophase.testing import InProcessCoordinator

CHECK = "http://bank-a/check"


class Hand:
    """The calls on a message, blocking or on asyncio."""

    def __init__(self, url: str, *, asyncio_is_used: bool) -> None:
        self._awaits = asyncio_is_used
        client = AsyncClient(url) if asyncio_is_used else Client(url)
        self.message = client.message().add("http://bank-b/in", {})

    async def do(self, name: str, *given: str) -> Message | AsyncMessage:
        """Prepare, submit or abort."""
        if self._awaits:
            done: AsyncMessage = await getattr(self.message, name)(*given)
            return done
        return await asyncio.to_thread(getattr(self.message, name), *given)


@pytest.fixture(params=["blocking", "asyncio"])
def hand(request: pytest.FixtureRequest, coordinator: RecordingCoordinator) -> Hand:
    return Hand(coordinator.url, asyncio_is_used=request.param == "asyncio")


async def test_a_message_prepared_by_hand_is_aborted(hand: Hand, coordinator: RecordingCoordinator) -> None:
    assert await hand.do("prepare", CHECK) is hand.message
    assert await hand.do("abort") is hand.message
    assert coordinator.operations == ["prepare", "abort"]
    assert coordinator.last("abort") == {"gid": hand.message.gid, "trans_type": "msg"}
    assert hand.message.state is Progress.ROLLED_BACK
    with pytest.raises(MessageUsedTwice):
        await hand.do("submit")


async def test_a_message_prepared_by_hand_is_submitted(hand: Hand, coordinator: RecordingCoordinator) -> None:
    await hand.do("prepare", CHECK)
    assert await hand.do("submit") is hand.message
    assert coordinator.operations == ["prepare", "submit"]
    assert hand.message.submitted


@pytest.mark.parametrize("asyncio_is_used", [False, True])
async def test_an_abort_after_the_submit_is_a_contrary_decision(*, asyncio_is_used: bool) -> None:
    with InProcessCoordinator() as coordinator:
        hand = Hand(coordinator.url, asyncio_is_used=asyncio_is_used)
        await hand.do("submit")
        with pytest.raises(ContraryDecision):
            await hand.do("abort")
