"""`Client` and `AsyncClient`: a coordinator as a producer knows it.

It has an address, a connection pool of its own, a retry policy, and defaults for its messages (decision 9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, Unpack

from twophase.client import many
from twophase.client.async_message import AsyncMessage
from twophase.client.base_client import BaseClient, channel_of
from twophase.client.channel import AsyncChannel, SyncChannel, speaks_grpc
from twophase.client.many import M, Outcome
from twophase.client.message import BaseMessage, Message
from twophase.client.options import MessageOptions
from twophase.core.errors import ConfigurationError, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from twophase.client.flow import FlowContext


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
        """Make a new message; arguments as `Message`, without the server."""
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
        flow = many.prepare(_contexts(self, asked), _check(self, check), explicit_verdict=not foreign_check)
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
        flow = many.submit(_contexts(self, asked))
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
        """Make a new message; arguments as `AsyncMessage`, without the server."""
        return AsyncMessage(self, gid, **options)

    async def prepare_many(
        self, messages: Iterable[AsyncMessage], check: str | None = None, *, foreign_check: bool = False
    ) -> list[Outcome[AsyncMessage]]:
        """`Client.prepare_many`, awaited."""
        asked = list(messages)
        flow = many.prepare(_contexts(self, asked), _check(self, check), explicit_verdict=not foreign_check)
        return _outcomes(asked, await self._channel.driver(flow).run())

    async def submit_many(self, messages: Iterable[AsyncMessage]) -> list[Outcome[AsyncMessage]]:
        """`Client.submit_many`, awaited."""
        asked = list(messages)
        return _outcomes(asked, await self._channel.driver(many.submit(_contexts(self, asked))).run())

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


def _contexts(client: BaseClient[Any], messages: Sequence[BaseMessage[Any]]) -> list[FlowContext]:
    """The contexts of messages that travel in one request.

    Raises:
        ConfigurationError: one is another client's, or this wire has no such request.
        InvalidRequest: one is there twice.
    """
    if speaks_grpc(client.url):
        raise ConfigurationError(
            "gRPC has no request for many messages.", remedy="Give the client the coordinator's http:// address."
        )
    for message in messages:
        if message._server is not client:  # noqa: SLF001 -- a message knows its client
            raise ConfigurationError(
                f"Message {message.gid} is not this client's.", remedy="Make it with client.message(…)."
            )
    contexts = [message._context(client._channel) for message in messages]  # noqa: SLF001 -- the same
    many.require_distinct([context.draft for context in contexts])
    return contexts


def _check(client: BaseClient[Any], check: str | None) -> str:
    check = client._channel.check if check is None else check  # noqa: SLF001 -- the same
    if check is None:
        raise InvalidRequest(
            "the messages have no check address.",
            remedy="Give `check=…`, the address of your check-back route; or once for all: Client(url, check=…).",
        )
    return check
