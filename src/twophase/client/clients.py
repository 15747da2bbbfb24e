"""`Client` and `AsyncClient`: a coordinator as a producer knows it.

It has an address, a connection pool of its own, a retry policy, and defaults for its messages (decision 9).
"""

from __future__ import annotations

import functools
import ssl
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, Unpack, cast

from twophase.barrier.dialect import DEFAULT_TABLE, validate_table
from twophase.client import many
from twophase.client.channel import AsyncChannel, Channel, SyncChannel, speaks_grpc
from twophase.client.draft import checked_url
from twophase.client.many import M, Outcome
from twophase.client.options import USUAL, MessageOptions, read_options
from twophase.client.retry import RetryPolicy
from twophase.client.transport.exchange import RequestBounds
from twophase.core.errors import ConfigurationError, EventLoopBlocked, InvalidRequest
from twophase.core.options import Options
from twophase.core.spans import as_ms, as_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta

    from twophase.client.async_message import AsyncMessage
    from twophase.client.flow import FlowContext
    from twophase.client.message import BaseMessage, Message

C = TypeVar("C", bound=Channel)


class BaseClient(Generic[C]):
    """The part that `Client` and `AsyncClient` share."""

    _kind: ClassVar[type[Channel]]

    def __init__(
        self,
        url: str,
        *,
        check: str | None = None,
        options: MessageOptions | None = None,
        timeout: float | timedelta = 5.0,
        retry: RetryPolicy | None = None,
        barrier_table: str = DEFAULT_TABLE,
        allow_unsafe_database: bool = False,
        allow_event_loop: bool = False,
        authorization: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """Describe a coordinator; it is connected on first use.

        Arguments:
            url: `http://host:port` or `https://…`; dtm's `/api/dtmsvr` behind it is allowed. Or `grpc://host:port`
                or `grpcs://…`, by which payloads may be any bytes; needs the `grpc` extra.
            check: the address of the check-back route, for messages that name none.
            options: for messages that ask for no others.
            timeout: for one try of one request, in seconds or as a timedelta.
            retry: how often and how long a request is repeated.
            barrier_table: the barrier's name in the business databases, `name` or `schema.name`.
            allow_unsafe_database: take business databases whose crash may undo a commit they have confirmed, for tests
                and for data that may be lost; refused with UnsafeDatabase otherwise.
            allow_event_loop: take blocking calls where an event loop runs, as in a notebook; the loop stands still
                meanwhile. Refused with EventLoopBlocked otherwise.
            authorization: sent as the `Authorization` header of every request.
            ssl_context: for https; the system's trusted roots by default. For grpcs only its trusted roots count.

        Raises:
            ConfigurationError: one of these cannot work.
            InvalidRequest, LimitExceeded: `check` is no address, or an option cannot have its value.
        """
        if not as_seconds(timeout) > 0:
            raise ConfigurationError("timeout must be above zero.")
        if authorization is not None and not (authorization.isascii() and authorization.isprintable()):
            raise ConfigurationError("authorization contains a control or non-ASCII character.")
        retry = retry or RetryPolicy()
        self._channel: C = cast(
            "C",
            self._kind(
                url,
                RequestBounds(timeout_ms=max(1, as_ms(timeout)), attempts=retry.attempts, total_ms=retry.total_ms),
                check=None if check is None else checked_url("check", check),
                options=read_options(options or {}),
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

    def _contexts(self, messages: Sequence[BaseMessage[Any]]) -> list[FlowContext]:
        """The contexts of messages that travel in one request.

        Raises:
            ConfigurationError: one is another client's, or this wire has no such request.
            InvalidRequest: one is there twice.
        """
        if speaks_grpc(self.url):
            raise ConfigurationError(
                "gRPC has no request for many messages.", remedy="Give the client the coordinator's http:// address."
            )
        for message in messages:
            if message._server is not self:  # noqa: SLF001 -- a message knows its client
                raise ConfigurationError(
                    f"Message {message.gid} is not this client's.", remedy="Make it with client.message(…)."
                )
        contexts = [message._context(self._channel) for message in messages]  # noqa: SLF001 -- the same
        many.require_distinct([context.draft for context in contexts])
        return contexts

    def _check(self, check: str | None) -> str:
        check = self._channel.check if check is None else check
        if check is None:
            raise InvalidRequest(
                "the messages have no check address.",
                remedy="Give `check=…`, the address of your check-back route; or once for all: Client(url, check=…).",
            )
        return check


class Client(BaseClient[SyncChannel]):
    """A coordinator for blocking code.

    Threads may share it; a child may use it after a fork.

    >>> options = MessageOptions(branch_timeout=5)
    >>> with Client("http://localhost:36789", check="http://bank-a/twophase/check", options=options) as client:
    ...     message = client.message("order-17").add("http://bank-b/transfer-in", {"amount": 30})
    >>> message.gid
    'order-17'
    """

    _kind = SyncChannel

    def message(self, gid: str | None = None, **options: Unpack[MessageOptions]) -> Message:
        """A new message; arguments as `Message`, without the server."""
        from twophase.client.message import Message  # noqa: PLC0415 -- Message knows its client, and this makes one

        return Message(self, gid, **options)

    def prepare_many(
        self, messages: Iterable[Message], check: str | None = None, *, foreign_check: bool = False
    ) -> list[Outcome[Message]]:
        """Prepare messages manually, up to 500 in one request.

        Each has an outcome of its own.

        Arguments:
            messages: of this client. All of them are in memory, so give long streams in parts.
            check, foreign_check: as `Message.prepare`, for all of them.

        Returns:
            the outcomes, in the order of `messages`; `error` is what `Message.prepare` would have raised.

        Raises:
            InvalidRequest: a message is there twice, or there is no check address. Nothing was sent.
            ConfigurationError: a message is another client's, or the coordinator takes no such request.
        """
        asked = list(messages)
        flow = many.prepare(self._contexts(asked), self._check(check), explicit_verdict=not foreign_check)
        return _outcomes(asked, channel_of(self, "await AsyncClient(…).prepare_many(…)").driver(flow).run())

    def submit_many(self, messages: Iterable[Message]) -> list[Outcome[Message]]:
        """Submit messages manually, up to 500 in one request.

        Each has an outcome of its own. The messages are plain, or were prepared manually; `wait_result` is refused.

        Arguments, returns and raises: as `prepare_many`; `error` is what `Message.submit` would have raised.

        >>> with Client("http://localhost:36789") as client:
        ...     client.submit_many([])
        []
        """
        asked = list(messages)
        flow = many.submit(self._contexts(asked))
        return _outcomes(asked, channel_of(self, "await AsyncClient(…).submit_many(…)").driver(flow).run())

    def close(self) -> None:
        """Close the idle connections. Messages may still be sent: it connects again."""
        self._channel.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(BaseClient[AsyncChannel]):
    """A coordinator for asyncio.

    Every event loop that uses it gets its own connections.

    >>> import asyncio
    >>> async def main():
    ...     async with AsyncClient("http://localhost:36789") as client:
    ...         return client.message("order-17").gid
    >>> asyncio.run(main())
    'order-17'
    """

    _kind = AsyncChannel

    def message(self, gid: str | None = None, **options: Unpack[MessageOptions]) -> AsyncMessage:
        """A new message; arguments as `AsyncMessage`, without the server."""
        from twophase.client.async_message import AsyncMessage  # noqa: PLC0415 -- the same

        return AsyncMessage(self, gid, **options)

    async def prepare_many(
        self, messages: Iterable[AsyncMessage], check: str | None = None, *, foreign_check: bool = False
    ) -> list[Outcome[AsyncMessage]]:
        """`Client.prepare_many`, awaited."""
        asked = list(messages)
        flow = many.prepare(self._contexts(asked), self._check(check), explicit_verdict=not foreign_check)
        return _outcomes(asked, await self._channel.driver(flow).run())

    async def submit_many(self, messages: Iterable[AsyncMessage]) -> list[Outcome[AsyncMessage]]:
        """`Client.submit_many`, awaited."""
        asked = list(messages)
        return _outcomes(asked, await self._channel.driver(many.submit(self._contexts(asked))).run())

    async def aclose(self) -> None:
        """Close this event loop's connections.

        Messages may still be sent: it connects again.
        """
        await self._channel.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _outcomes(messages: list[M], errors: many.Errors) -> list[Outcome[M]]:
    return [Outcome(message, errors[message.gid]) for message in messages]


def default_options(server: str | BaseClient[Any]) -> Options:
    """The options of a message of this server that asks for none."""
    return USUAL if isinstance(server, str) else server._channel.options  # noqa: SLF001 -- of this module


def channel_of(server: str | Client, instead: str) -> SyncChannel:
    """The channel of blocking calls to a message's coordinator.

    Arguments:
        instead: what to write where an event loop runs.

    Raises:
        EventLoopBlocked: an event loop runs in this thread.
    """
    channel = _shared(server) if isinstance(server, str) else server._channel  # noqa: SLF001 -- of this module
    # Where asyncio was never imported no loop runs, and importing it would cost more than all the rest.
    asyncio = sys.modules.get("asyncio")
    running = asyncio._get_running_loop() if asyncio is not None else None  # noqa: SLF001 -- the public one raises
    if running is not None and not channel.allow_event_loop:
        raise EventLoopBlocked(
            remedy=f"Write `{instead}`, or run the blocking call in a thread (`asyncio.to_thread`, "
            "`run_in_threadpool`); in a notebook, Client(url, allow_event_loop=True) takes it."
        )
    return channel


def achannel_of(server: str | BaseClient[Any]) -> AsyncChannel:
    """`channel_of` for asyncio."""
    if isinstance(server, str):
        return _ashared(server)
    if isinstance(server, AsyncClient):
        return server._channel  # noqa: SLF001 -- the same
    raise ConfigurationError("This message's Client makes blocking calls: take an AsyncClient or an address.")


@functools.lru_cache(maxsize=128)
def _shared(url: str) -> SyncChannel:
    """The channel behind every `Message(url)` of this process."""
    return Client(url)._channel  # noqa: SLF001 -- the same


@functools.lru_cache(maxsize=128)
def _ashared(url: str) -> AsyncChannel:
    """The channel behind every `AsyncMessage(url)` of this process."""
    return AsyncClient(url)._channel  # noqa: SLF001 -- the same
