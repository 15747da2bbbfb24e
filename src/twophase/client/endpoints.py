"""A coordinator as a producer knows it.

It has an address, a retry policy, defaults and its own connection pool (decision 9).
"""

from __future__ import annotations

import functools
import ssl
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypedDict, TypeVar, Unpack, cast

from twophase.barrier.dialect import DEFAULT_TABLE, validate_table
from twophase.client.channel import AsyncChannel, Channel, SyncChannel
from twophase.client.draft import as_seconds
from twophase.client.transport.exchange import Patience
from twophase.core.errors import ConfigurationError, EventLoopBlocked

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from twophase.client.message import Message

L = TypeVar("L", bound=Channel)


class MessageOptions(TypedDict, total=False):
    """The options of `TwoPhase.message` beside the gid; `Message` describes each."""

    wait_result: bool
    delay: float | timedelta
    deliver_at: datetime | None
    headers: Mapping[str, str] | None
    request_timeout: float | timedelta
    retry_interval: float | timedelta
    timeout_to_fail: float | timedelta
    attempts_max: int
    concurrent: bool
    open: bool
    durability: Literal["submit", "check-back"]
    strict: bool


class Endpoint(Generic[L]):
    """The part that `TwoPhase` and `AsyncTwoPhase` share."""

    _kind: ClassVar[type[Channel]]

    def __init__(
        self,
        url: str,
        *,
        request_timeout: float | timedelta = 5.0,
        attempts: int = 4,
        patience: float | timedelta = 10.0,
        barrier_table: str = DEFAULT_TABLE,
        allow_unsafe_database: bool = False,
        allow_event_loop: bool = False,
        authorization: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """Describe a coordinator; it is connected on first use.

        An argument in seconds may be a timedelta, too.

        Arguments:
            url: `http://host:port` or `https://…`; dtm's `/api/dtmsvr` behind it is allowed. Or `grpc://host:port`
                or `grpcs://…`, by which payloads may be any bytes; needs the `grpc` extra.
            request_timeout: seconds for one try of one request.
            attempts: tries of one request that the coordinator leaves unanswered for `request_timeout` or is too busy
                for, from 1. A refused or broken connection is not counted: it is tried again until `patience` ends,
                so that a restart of the coordinator loses nothing. Repeating is safe: requests are idempotent.
            patience: seconds for all tries of one request and their pauses.
            barrier_table: the barrier's name in the business databases, `name` or `schema.name`.
            allow_unsafe_database: take business databases whose crash may undo a commit they have confirmed, for tests
                and for data that may be lost; refused with UnsafeDatabase otherwise.
            allow_event_loop: take blocking calls where an event loop runs, as in a notebook; the loop stands still
                meanwhile. Refused with EventLoopBlocked otherwise.
            authorization: sent as the `Authorization` header of every request.
            ssl_context: for https; the system's trusted roots by default. For grpcs only its trusted roots count.

        Raises:
            ConfigurationError: one of these cannot work.
        """
        timeout_seconds, patience_seconds = as_seconds(request_timeout), as_seconds(patience)
        if not timeout_seconds > 0 or not patience_seconds > 0 or attempts < 1:
            raise ConfigurationError("request_timeout, patience and attempts must be above zero.")
        if authorization is not None and not (authorization.isascii() and authorization.isprintable()):
            raise ConfigurationError("authorization contains a control or non-ASCII character.")
        self._channel: L = cast(
            "L",
            self._kind(
                url,
                Patience(
                    request_timeout_ms=max(1, round(timeout_seconds * 1000)),
                    attempts=attempts,
                    patience_ms=max(1, round(patience_seconds * 1000)),
                ),
                barrier_table=validate_table(barrier_table),
                allow_unsafe_database=allow_unsafe_database,
                allow_event_loop=allow_event_loop,
                authorization=authorization,
                ssl_context=ssl_context,
            ),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        """The coordinator's address."""
        return self._channel.url

    def message(self, gid: str | None = None, **options: Unpack[MessageOptions]) -> Message:
        """A new message for this coordinator; arguments as `Message`, without the server."""
        from twophase.client.message import Message  # noqa: PLC0415 -- Message knows its endpoint, and this makes one

        return Message(self, gid, **options)


class TwoPhase(Endpoint[SyncChannel]):
    """A coordinator for blocking code.

    Threads may share it; a child may use it after a fork.

    >>> with TwoPhase("http://localhost:36789", patience=3) as coordinator:
    ...     message = coordinator.message("order-17").add("http://bank-b/transfer-in", {"amount": 30})
    >>> message.gid
    'order-17'
    """

    _kind = SyncChannel

    def close(self) -> None:
        """Close the idle connections. Messages may still be sent: it connects again."""
        self._channel.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncTwoPhase(Endpoint[AsyncChannel]):
    """A coordinator for asyncio.

    Every event loop that uses it gets its own connections.

    >>> import asyncio
    >>> async def main():
    ...     async with AsyncTwoPhase("http://localhost:36789") as coordinator:
    ...         return coordinator.message("order-17").gid
    >>> asyncio.run(main())
    'order-17'
    """

    _kind = AsyncChannel

    async def aclose(self) -> None:
        """Close this event loop's connections.

        Messages may still be sent: it connects again.
        """
        await self._channel.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def channel_of(server: str | Endpoint[Any], instead: str) -> SyncChannel:
    """The channel of blocking calls to a message's coordinator.

    Arguments:
        instead: what to write where an event loop runs.

    Raises:
        ConfigurationError: it is an `AsyncTwoPhase`.
        EventLoopBlocked: an event loop runs in this thread.
    """
    if isinstance(server, str):
        channel = _shared(server)
    elif isinstance(server, TwoPhase):
        channel = server._channel  # noqa: SLF001 -- of this module
    else:
        raise ConfigurationError("This message was made for AsyncTwoPhase: use the a… methods, or a TwoPhase.")
    # Where asyncio was never imported no loop runs, and importing it would cost more than all the rest.
    asyncio = sys.modules.get("asyncio")
    running = asyncio._get_running_loop() if asyncio is not None else None  # noqa: SLF001 -- the public one raises
    if running is not None and not channel.allow_event_loop:
        raise EventLoopBlocked(
            remedy=f"Write `{instead}`, or run the blocking call in a thread (`asyncio.to_thread`, "
            "`run_in_threadpool`); in a notebook, TwoPhase(url, allow_event_loop=True) takes it."
        )
    return channel


def achannel_of(server: str | Endpoint[Any]) -> AsyncChannel:
    """`channel_of` for asyncio."""
    if isinstance(server, str):
        return _ashared(server)
    if isinstance(server, AsyncTwoPhase):
        return server._channel  # noqa: SLF001 -- the same
    raise ConfigurationError("This message was made for TwoPhase: use the methods without a…, or an AsyncTwoPhase.")


@functools.lru_cache(maxsize=128)
def _shared(url: str) -> SyncChannel:
    """The channel behind every `Message(url)` of this process."""
    return TwoPhase(url)._channel  # noqa: SLF001 -- the same


@functools.lru_cache(maxsize=128)
def _ashared(url: str) -> AsyncChannel:
    """The channel behind every `Message(url)` of this process on asyncio."""
    return AsyncTwoPhase(url)._channel  # noqa: SLF001 -- the same
