"""Handlers of messages: functions, and what their parameters take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final, get_type_hints

import msgspec

from twophase.barrier.effect import require_ended
from twophase.client.draft import milliseconds
from twophase.client.queues.messages import Received
from twophase.client.queues.payloads import require_readable
from twophase.core import limits
from twophase.core.errors import ConfigurationError, InvalidRequest
from twophase.core.queue_api import LEASE_MS_LEAST, LEASE_MS_MAX
from twophase.core.queue_message import full_name

TO_ADD: Final = 'Write `@consumer.handler("topic")` above the function.'
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Retry(Exception):
    """Raised by a handler to have its message delivered again; nothing is logged.

    Arguments:
        pause: seconds before, or a timedelta; the group's backoff by default.
    """

    def __init__(self, pause: Any = None) -> None:
        self.pause_ms = None if pause is None else pause_ms_of(pause)
        super().__init__("deliver it again")


class GiveUp(Exception):
    """Raised by a handler to move its message into the group's dead letters.

    Arguments:
        reason: for people, up to 500 characters; the letter's property `DLQ_REASON`.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Handler(msgspec.Struct, frozen=True):
    """A function, and what it is called with: types of the payload, and `Received`."""

    function: Callable[..., Any]
    kinds: tuple[Any, ...]

    def arguments(self, message: Received) -> list[Any]:
        """Return what the function is called with.

        Raises:
            PayloadUnreadable: the body is not of the payload's type.
        """
        return [message if kind is Received else message.decode(kind) for kind in self.kinds]


class Subscription(msgspec.Struct, frozen=True):
    """A topic, with the handler of its messages.

    `concurrency`: how many are handled at a time.
    """

    topic: str
    tags: str
    handler: Handler
    concurrency: int


def require_topic(topic: object) -> None:
    """Refuse a function in place of a topic: `@consumer.handler` without brackets."""
    if not isinstance(topic, str):
        shown = f"the function {_name(topic)}" if callable(topic) else repr(topic)[:45]
        raise ConfigurationError(f"handler takes a topic, not {shown}.", remedy=TO_ADD)


def handler_of(function: Callable[..., Any], *, is_async: bool) -> Handler:
    """Return a handler, by the annotations of a function.

    A parameter of type `Received` takes the message; the other one takes the payload, as a value of its type, or as
    bytes where it has none.

    Raises:
        ConfigurationError: it is async and should not be, or the other way round; or its parameters cannot be what a
            message has.
    """
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004 -- its hints
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise ConfigurationError(f"{_name(function)} is a generator function: calling it does not run it.")
    if inspect.iscoroutinefunction(called) is not is_async:
        raise ConfigurationError(
            f"{_name(function)} is {'not ' if is_async else ''}async.",
            remedy="An AsyncConsumer takes `async def`, a Consumer takes `def`.",
        )
    try:
        hints = get_type_hints(called)
        parameters = list(inspect.signature(function).parameters.values())
    except (NameError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{_name(function)}: its annotations cannot be read: {error}.") from error
    needed = [one for one in parameters if one.default is one.empty and one.kind in _POSITIONAL]
    kinds = tuple(hints.get(one.name, bytes) for one in needed)
    if any(one.default is one.empty and one.kind is one.KEYWORD_ONLY for one in parameters):
        raise ConfigurationError(f"{_name(function)} needs an argument by name, and a message has none.")
    if not 1 <= len(kinds) <= 2 or (len(kinds) == 2 and kinds.count(Received) != 1):
        raise ConfigurationError(
            f"{_name(function)} takes {len(kinds)} arguments.",
            remedy="Take the payload, a `Received`, or both; give every other parameter a default.",
        )
    for kind in kinds:
        if kind is not Received:
            require_readable(kind)
    return Handler(function, kinds)


def require_done(result: object) -> None:
    """Refuse what a handler returns that has not run to its end, or that says no.

    Raises:
        FunctionRefused: it waits to be awaited or iterated. The exception that is returned instead of raised, also as
            a class.
    """
    require_ended(result, "write `await` in front of it, in an AsyncConsumer")
    if isinstance(result, Exception) or (isinstance(result, type) and issubclass(result, Exception)):
        raise result


def tags_of(tags: str | Iterable[str]) -> str:
    """Return a filter expression.

    >>> tags_of(["paid", "sent"]), tags_of("paid || sent")
    ('paid || sent', 'paid || sent')
    """
    return tags if isinstance(tags, str) else " || ".join(tags)


def require_concurrency(concurrency: Any) -> None:
    """Refuse what is no number of handlers.

    Raises:
        ConfigurationError: it is no whole number of at least one.
    """
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise ConfigurationError(f"concurrency must be a whole number of at least 1, not {concurrency!r}.")


def subscription_of(
    topic: str, namespace: str, tags: str | Iterable[str], handler: Handler, concurrency: int
) -> Subscription:
    """Return a subscription, if it can be one.

    Raises:
        InvalidRequest: no topic has such a name. ConfigurationError: `concurrency` is no number above zero.
    """
    full_name(namespace, topic)
    require_concurrency(concurrency)
    return Subscription(topic, tags_of(tags), handler, concurrency)


def lease_ms_of(lease: Any) -> int:
    """Return a lease in ms.

    Raises:
        InvalidRequest: below a second. LimitExceeded: above twelve hours.
    """
    lease_ms = milliseconds("lease", lease, limits.Limit("lease", LEASE_MS_MAX, "ms", "as RocketMQ's"))
    if lease_ms < LEASE_MS_LEAST:
        raise InvalidRequest(f"lease is {lease_ms} ms; the least is {LEASE_MS_LEAST} ms.")
    return lease_ms


def pause_ms_of(pause: Any) -> int:
    """Return a pause in ms. Raises as `lease_ms_of`; none is allowed."""
    return milliseconds("pause", pause, limits.Limit("pause", LEASE_MS_MAX, "ms", "as a lease"))


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)
