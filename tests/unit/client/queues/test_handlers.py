"""Functions that can be handlers, and those that cannot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from twophase.client.queues.handlers import handler_of
from twophase.client.queues.messages import Received
from twophase.core.errors import ConfigurationError, InvalidRequest, LimitExceeded
from twophase.queues import AsyncConsumer, Consumer, Retry


def typed(order: dict[str, int], message: Received, times: int = 3) -> None: ...
def whole(message: Received) -> None: ...
def untyped(payload) -> None: ...  # type: ignore[no-untyped-def]


class Billing:
    def bill(self, order: int) -> None: ...
    def __call__(self, message: Received, order: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "kinds"),
    [
        (typed, (dict[str, int], Received)),
        (whole, (Received,)),
        (untyped, (bytes,)),
        (Billing().bill, (int,)),
        (Billing(), (Received, int)),
        (lambda payload: None, (bytes,)),
    ],
)
def test_annotations_say_what_a_handler_takes(function: Any, kinds: Any) -> None:
    assert handler_of(function, is_async=False).kinds == kinds


def nothing() -> None: ...
def three(a: int, b: int, c: int) -> None: ...
def two(a: int, b: int) -> None: ...
def twice(a: Received, b: Received) -> None: ...
def named(a: int, *, b: int) -> None: ...
def unknown(a: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821
async def awaited(a: int) -> None: ...
def yielding(a: int) -> Iterator[int]:
    yield a


async def ayielding(a: int) -> AsyncIterator[int]:
    yield a


@pytest.mark.parametrize("make", [Consumer, AsyncConsumer])
def test_decorator_without_a_topic_is_refused(make: Any) -> None:
    """It would register nothing, and the messages would wait without a word."""
    with pytest.raises(ConfigurationError, match=r"not the function whole\. Write `@consumer\.handler\(\"topic\"\)`"):
        make("http://localhost:1", "billing").handler(whole)


@pytest.mark.parametrize("function", [nothing, three, two, twice, named, unknown, awaited, yielding, ayielding])
def test_a_function_that_cannot_be_called_with_a_message_is_refused(function: Any) -> None:
    with pytest.raises(ConfigurationError):
        Consumer("http://localhost:1", "billing").subscribe("orders", function)


def test_an_async_consumer_takes_no_plain_function() -> None:
    with pytest.raises(ConfigurationError, match="not async"):
        AsyncConsumer("http://localhost:1", "billing").subscribe("orders", whole)  # type: ignore[arg-type]


def test_a_topic_has_one_handler() -> None:
    consumer = Consumer("http://localhost:1", "billing")
    consumer.subscribe("orders", whole)
    with pytest.raises(ConfigurationError, match="already"):
        consumer.subscribe("orders", whole)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"group": "no group"}, InvalidRequest),
        ({"namespace": "no space"}, InvalidRequest),
        ({"concurrency": 0}, ConfigurationError),
        ({"concurrency": "8"}, ConfigurationError),
        ({"concurrency": 1.5}, ConfigurationError),
        ({"lease": 0.5}, InvalidRequest),
        ({"lease": 50_000}, LimitExceeded),
        ({"undecodable": "drop"}, ConfigurationError),
    ],
)
def test_a_consumer_that_cannot_be_is_refused(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        Consumer(**{"client": "http://localhost:1", "group": "billing", **arguments})


def test_a_pause_is_checked_where_it_is_asked_for() -> None:
    with pytest.raises(InvalidRequest):
        Retry(pause=-1)
