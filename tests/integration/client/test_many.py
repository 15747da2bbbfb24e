"""`prepare_many` and `submit_many`: blocking and on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.recording_coordinator import RecordingCoordinator, Told
from twophase import AsyncClient, Client, Message, MessageOptions, Outcome, Progress, State
from twophase.errors import ConfigurationError, ContentConflict, EventLoopBlocked, InvalidRequest
from twophase.testing import InProcessCoordinator

CHECK = "http://127.0.0.1:9/check"


@pytest.fixture
def service() -> Iterator[RecordingCoordinator]:
    """Answers every branch with 200."""
    with RecordingCoordinator().running() as running:
        yield running


class Both:
    """A client's requests for many messages, blocking or on asyncio."""

    def __init__(self, url: str, *, asyncio_is_used: bool, **options: Any) -> None:
        self._awaits = asyncio_is_used
        self.client: Any = (AsyncClient if asyncio_is_used else Client)(url, **options)

    async def do(self, name: str, *given: Any, **options: Any) -> list[Outcome[Any]]:
        method = getattr(self.client, name)
        if self._awaits:
            outcomes: list[Outcome[Any]] = await method(*given, **options)
            return outcomes
        return await asyncio.to_thread(method, *given, **options)

    async def one(self, message: Any) -> None:
        """Submit one message by itself."""
        if self._awaits:
            await message.submit()
        else:
            await asyncio.to_thread(message.submit)


pytestmark = pytest.mark.parametrize("asyncio_is_used", [False, True], ids=["blocking", "asyncio"])


async def test_a_thousand_messages_are_prepared_and_submitted(*, asyncio_is_used: bool) -> None:
    with InProcessCoordinator() as coordinator:
        later = MessageOptions(delay=3600)
        both = Both(coordinator.url, asyncio_is_used=asyncio_is_used, check=CHECK, options=later)
        messages = [both.client.message(f"m{number}").add("http://b/in", {"n": number}) for number in range(1001)]

        prepared = await both.do("prepare_many", messages)
        assert [outcome.message for outcome in prepared] == messages
        assert {outcome.error for outcome in prepared} == {None}
        assert {message.state for message in messages} == {Progress.PREPARED}
        assert coordinator.state("m1000") is State.PREPARED

        submitted = await both.do("submit_many", messages)
        assert {outcome.error for outcome in submitted} == {None}
        assert all(message.submitted for message in messages)
        assert {coordinator.state(message.gid) for message in messages} == {State.SUBMITTED}


async def test_messages_are_delivered_after_both_requests(
    service: RecordingCoordinator, *, asyncio_is_used: bool
) -> None:
    with InProcessCoordinator() as coordinator:
        both = Both(coordinator.url, asyncio_is_used=asyncio_is_used, check=CHECK)
        messages = [both.client.message(gid).add(f"{service.url}/in", {"gid": gid}) for gid in "ab"]
        await both.do("prepare_many", messages)
        assert service.requests == []
        await both.do("submit_many", messages)
        assert await asyncio.to_thread(coordinator.settled) == {"a": State.SUCCEEDED, "b": State.SUCCEEDED}
        assert {request.body["gid"] for request in service.requests} == {"a", "b"}


async def test_plain_messages_need_no_prepare(service: RecordingCoordinator, *, asyncio_is_used: bool) -> None:
    with InProcessCoordinator() as coordinator:
        both = Both(coordinator.url, asyncio_is_used=asyncio_is_used)
        messages = [both.client.message(gid).add(f"{service.url}/in", {}) for gid in "ab"]
        assert {outcome.error for outcome in await both.do("submit_many", messages)} == {None}
        assert {outcome.error for outcome in await both.do("submit_many", messages)} == {None}, "repeating is safe"
        assert await asyncio.to_thread(coordinator.settled) == {"a": State.SUCCEEDED, "b": State.SUCCEEDED}
        assert {outcome.error for outcome in await both.do("submit_many", messages)} == {None}, "also when it is done"


async def test_other_content_under_the_gid_of_a_succeeded_message_is_no_success(
    service: RecordingCoordinator, *, asyncio_is_used: bool
) -> None:
    """Otherwise it would be lost: nothing calls its branches."""
    with InProcessCoordinator() as coordinator:
        both = Both(coordinator.url, asyncio_is_used=asyncio_is_used)

        def reminder(text: str) -> Any:
            return both.client.message("reminder-7").add(f"{service.url}/in", {"text": text})

        await both.one(reminder("pay"))
        assert await asyncio.to_thread(coordinator.settled) == {"reminder-7": State.SUCCEEDED}
        await both.one(reminder("pay"))
        with pytest.raises(ContentConflict):
            await both.one(reminder("pay again"))
        (outcome,) = await both.do("submit_many", [reminder("pay again")])
        assert isinstance(outcome.error, ContentConflict)
        assert [request.body["text"] for request in service.requests] == ["pay"]


async def test_messages_that_cannot_travel_together_are_refused_before_any_is_sent(
    coordinator: RecordingCoordinator, *, asyncio_is_used: bool
) -> None:
    both = Both(coordinator.url, asyncio_is_used=asyncio_is_used)
    others = Both(coordinator.url, asyncio_is_used=asyncio_is_used)
    ours, theirs = (one.client.message("a").add("http://b/in", {}) for one in (both, others))
    with pytest.raises(ConfigurationError, match="not this client's"):
        await both.do("submit_many", [ours, theirs])
    with pytest.raises(InvalidRequest, match="twice"):
        await both.do("submit_many", [ours, ours])
    with pytest.raises(InvalidRequest, match="no check address"):
        await both.do("prepare_many", [ours])
    assert coordinator.requests == []
    assert ours.state is Progress.NEW


async def test_a_wire_without_the_request_is_named(coordinator: RecordingCoordinator, *, asyncio_is_used: bool) -> None:
    dtm = Told(404, b"404 page not found")
    coordinator.tell("prepare-many", dtm)
    both = Both(f"{coordinator.url}/api/dtmsvr", asyncio_is_used=asyncio_is_used, check=CHECK)
    with pytest.raises(ConfigurationError, match="no prepare-many"):
        await both.do("prepare_many", [both.client.message().add("http://b/in", {})])
    assert [request.path for request in coordinator.requests] == ["/api/twophase/prepare-many"]
    grpc = Both("grpc://127.0.0.1:9", asyncio_is_used=asyncio_is_used)
    with pytest.raises(ConfigurationError, match="gRPC"):
        await grpc.do("submit_many", [])


async def test_a_blocking_call_in_an_event_loop_is_refused(
    coordinator: RecordingCoordinator, *, asyncio_is_used: bool
) -> None:
    client = Client(coordinator.url, allow_event_loop=asyncio_is_used)
    message: Message = client.message().add("http://b/in", {})
    coordinator.tell("submit-many", Told(body=b'{"results":[{}]}'))
    if asyncio_is_used:
        assert client.submit_many([message]) == [Outcome(message, None)]
    else:
        with pytest.raises(EventLoopBlocked, match="submit_many"):
            client.submit_many([message])
