"""`AsyncConsumer`: a member of a group of consumers, on asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from twophase.client.base_client import BaseClient, achannel_of
from twophase.client.queues.base_consumer import CONCURRENCY, HANDLING, LEASE_S, STOP_S, BaseConsumer, Handling
from twophase.client.queues.handlers import Handler, handler_of, require_done, require_topic

if TYPE_CHECKING:
    from twophase.client.channel import AsyncChannel

F = TypeVar("F", bound=Callable[..., Awaitable[None]])


class AsyncConsumer(BaseConsumer):
    """A member of a group of consumers; each message goes to one member of a group.

    Push: give it handlers, and `run` it or use it as a context manager. Pull: `receive`, and `ack` what is done.

    >>> from twophase import AsyncClient
    >>> consumer = AsyncConsumer(AsyncClient("http://localhost:36789"), "billing")
    >>> @consumer.handler("orders", tags="paid")
    ... async def bill(order: dict[str, int]) -> None: ...
    >>> consumer
    <AsyncConsumer billing: orders>
    """

    def __init__(
        self,
        client: str | BaseClient[AsyncChannel],
        group: str,
        *,
        namespace: str = "",
        concurrency: int = CONCURRENCY,
        lease: float | timedelta = LEASE_S,
        undecodable: Literal["dead-letter", "nack"] = "dead-letter",
    ) -> None:
        """Describe a consumer.

        Nothing is received before it is started, or `receive` is called.

        Arguments:
            client: an `AsyncClient`, or the coordinator's http address.
            group: of consumers; made by its first use, where the server makes groups.
            namespace: of the group and its topics.
            concurrency: messages of one topic that are handled at a time, where its handler says nothing else.
            lease: seconds for which a message is the consumer's; extended while a handler works on it. When a process
                dies, others get what it had after this time.
            undecodable: what becomes of a message whose body cannot be read as the type that the handler takes: a
                dead letter with the reason, or a delivery after the group's backoff.

        Raises:
            InvalidRequest, LimitExceeded, ConfigurationError: one of these cannot be, and the message names it.
        """
        super().__init__(
            achannel_of(client),
            group,
            namespace=namespace,
            concurrency=concurrency,
            lease=lease,
            undecodable=undecodable,
            run=self._call,
            cuts=True,
        )

    def handler(
        self, topic: str, *, tags: str | Iterable[str] = "*", concurrency: int | None = None
    ) -> Callable[[F], F]:
        """Return a decorator that makes a function the handler of a topic.

        A parameter of type `Received` takes the message, the other one the payload as a value of its type: a
        dataclass, a msgspec Struct, a pydantic model, `str`, `dict` …; `bytes` where it has none. When the function
        returns, its message is done. When it raises, the message comes again after the group's backoff, and is a
        dead letter after as many deliveries as the group allows (17); `Retry` and `GiveUp` choose.

        Arguments:
            topic: without namespace.
            tags: those that are wanted, as a list or `a || b`. Messages with others are done for the whole group, so
                all of its members want the same.
            concurrency: messages that are handled at a time.

        Raises:
            ConfigurationError: the function cannot be a handler. InvalidRequest: a wrong name.
        """
        require_topic(topic)

        def decorate(function: F) -> F:
            self.subscribe(topic, function, tags=tags, concurrency=concurrency)
            return function

        return decorate

    def subscribe(
        self,
        topic: str,
        function: Callable[..., Awaitable[None]],
        *,
        tags: str | Iterable[str] = "*",
        concurrency: int | None = None,
    ) -> None:
        """Make a function the handler of a topic; arguments and errors as `handler`."""
        self.add(topic, handler_of(function, is_async=True), tags, concurrency)

    async def run(self, *, signals: bool = True, timeout: float | timedelta = STOP_S) -> None:  # noqa: ASYNC109
        """Start, consume until `stop` is called or SIGTERM or SIGINT comes, and stop.

        Arguments:
            signals: stop by these, in the main thread.
            timeout: of `stop`.

        Raises:
            TwophaseError: the coordinator refuses the first request for a reason that lasts, such as a wrong token.
        """
        await self.start()
        try:
            with _ended_by_signals(self) if signals else contextlib.nullcontext():
                failure = await self.ended()
        finally:
            await self.stop(timeout)
        if failure is not None:
            raise failure

    async def __aenter__(self) -> Self:
        if self.has_handlers:
            await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _call(self, handler: Handler, arguments: list[Any]) -> None:
        handling = Handling(self)
        HANDLING.set(handling)  # in the task of this message alone
        try:
            require_done(await handler.function(*arguments))
        finally:
            handling.runs = False


@contextlib.contextmanager
def _ended_by_signals(consumer: BaseConsumer) -> Iterator[None]:
    """End at SIGTERM and SIGINT; in another thread than the main one, do nothing."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
    for number in numbers:
        loop.add_signal_handler(number, consumer.end_soon)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
