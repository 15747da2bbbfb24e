"""The part of a consumer that blocking code and asyncio share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal

from twophase.client.draft import milliseconds
from twophase.client.queues.consuming import Consuming, Run
from twophase.client.queues.handlers import (
    TO_ADD,
    Handler,
    Subscription,
    lease_ms_of,
    pause_ms_of,
    require_concurrency,
    subscription_of,
    tags_of,
)
from twophase.client.queues.messages import Received
from twophase.client.queues.requests import QueueRequests
from twophase.core import limits
from twophase.core.errors import ConfigurationError, InvalidRequest, TwophaseError
from twophase.core.queue_api import BATCH_MAX, WAIT_MS_MAX
from twophase.core.queue_message import full_name

if TYPE_CHECKING:
    from twophase.client.channel import Channel

CONCURRENCY: Final = 16
LEASE_S: Final = 60.0
WAIT_S: Final = 20.0
STOP_S: Final = 30.0
HANDLING: Final[ContextVar[Handling | None]] = ContextVar("twophase handler", default=None)
"""The handler of the present task, and of the tasks that it starts."""


class Handling:
    """One call of a consumer's handler."""

    __slots__ = ("consumer", "runs")

    def __init__(self, consumer: object) -> None:
        self.consumer = consumer
        self.runs = True


def stop_s(timeout: float | timedelta) -> float:
    """Return the seconds of a `stop`.

    Raises:
        InvalidRequest, LimitExceeded: as `milliseconds`.
    """
    return milliseconds("timeout", timeout, limits.REQUEST_TIMEOUT_MS_MAX) / 1000


class BaseConsumer:
    """See the module; all of it is for one event loop.

    Arguments:
        channel: of the client.
        group, namespace, concurrency, lease, undecodable: as `AsyncConsumer`.
        run: calls a handler.
        cuts: a handler that does not end in time can be cancelled.
    """

    def __init__(
        self,
        channel: Channel,
        group: str,
        *,
        namespace: str,
        concurrency: int,
        lease: float | timedelta,
        undecodable: Literal["dead-letter", "nack"],
        run: Run,
        cuts: bool,
    ) -> None:
        full_name(namespace, group)
        if undecodable not in {"dead-letter", "nack"}:
            raise ConfigurationError(f"undecodable is {undecodable!r}; give 'dead-letter' or 'nack'.")
        require_concurrency(concurrency)
        self.group = group
        self.namespace = namespace
        self._channel = channel
        self._concurrency = concurrency
        self._lease_ms = lease_ms_of(lease)
        self._dead_letters = undecodable == "dead-letter"
        self._run = run
        self._cuts = cuts
        self._subscriptions: list[Subscription] = []
        self._requests: QueueRequests | None = None
        self._consuming: Consuming | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._started = False
        self._end: asyncio.Future[TwophaseError | None] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.described}>"

    @property
    def described(self) -> str:
        """The group and its topics, for people."""
        return f"{self.group}: {', '.join(one.topic for one in self._subscriptions)}"

    @property
    def has_handlers(self) -> bool:
        """True when there is something to push to."""
        return bool(self._subscriptions)

    @property
    def concurrency(self) -> int:
        """The number of handlers that may run at a time, of all topics together."""
        return sum(one.concurrency for one in self._subscriptions)

    def add(self, topic: str, handler: Handler, tags: str | Iterable[str], concurrency: int | None) -> None:
        """Add the handler of a topic. Raises as `AsyncConsumer.handler`."""
        if self._started:
            raise ConfigurationError("the consumer is started; give it its handlers before.")
        if any(one.topic == topic for one in self._subscriptions):
            raise ConfigurationError(f"topic {topic!r} has a handler in this consumer already.")
        wanted = self._concurrency if concurrency is None else concurrency
        self._subscriptions.append(subscription_of(topic, self.namespace, tags, handler, wanted))

    # Push.

    async def start(self) -> None:
        """Start receiving.

        Raises:
            ConfigurationError: it was started before, or has no handler.
        """
        if self._started:
            raise ConfigurationError("a consumer is started once; make another one.")
        if not self._subscriptions:
            raise ConfigurationError("the consumer has no handler.", remedy=TO_ADD)
        self._started = True
        self._ending()
        self._work().start(self._subscriptions)

    async def stop(self, timeout: float | timedelta = STOP_S) -> None:  # noqa: ASYNC109 -- for handlers, which go on
        """Fetch nothing more, let the handlers end, and give back messages not begun.

        A handler that does not end within `timeout` seconds is cancelled, and its message comes again at once. Called
        by a handler that runs, or in a task that it has started, it does not wait for its end. Safe to call twice.
        """
        stopping = self.stop_soon(timeout)
        handling = HANDLING.get()
        if handling is None or handling.consumer is not self or not handling.runs:
            await asyncio.shield(stopping)

    def stop_soon(self, timeout: float | timedelta) -> asyncio.Task[None]:
        """Begin to stop; return the task that does it. Later ones get the same."""
        timeout_s = stop_s(timeout)
        if self._consuming is not None or self._stopping is None or self._stopping.done():
            consuming, self._consuming = self._consuming, None
            requests, self._requests = self._requests, None
            self._stopping = asyncio.ensure_future(self._stop(consuming, requests, timeout_s))
        return self._stopping

    async def _stop(self, consuming: Consuming | None, requests: QueueRequests | None, timeout_s: float) -> None:
        try:
            if consuming is not None:
                await consuming.stop(timeout_s)
        finally:
            if requests is not None:
                await requests.close()
            self.end_soon()

    def forked(self) -> None:
        """Forget what belongs to the event loop of a parent process."""
        self._requests = self._consuming = self._stopping = self._end = None
        self._started = False

    async def ended(self) -> TwophaseError | None:
        """Wait for the end; return the refusal that was its reason, if any."""
        return await self._ending()

    def end_soon(self) -> None:
        """Let `ended` return; the consumer is to be stopped then."""
        self._ended(None)

    def _ended(self, why: TwophaseError | None) -> None:
        end = self._ending()
        if not end.done():
            end.set_result(why)

    def _ending(self) -> asyncio.Future[TwophaseError | None]:
        if self._end is None:
            self._end = asyncio.get_running_loop().create_future()
        return self._end

    # Pull.

    async def receive(
        self,
        topic: str,
        *,
        limit: int = 1,
        wait: float | timedelta = WAIT_S,
        lease: float | timedelta | None = None,
        tags: str | Iterable[str] = "*",
    ) -> list[Received]:
        """Take up to `limit` messages, waiting for the first; none if none came.

        Arguments:
            topic: without namespace.
            limit: up to 32; bodies have 4 MiB together.
            wait: seconds, up to a minute.
            lease: seconds for which they are the consumer's; its own by default. Nothing extends it but `extend`.
            tags: as `handler`.

        Raises:
            InvalidRequest, LimitExceeded: an argument that cannot be.
            CoordinatorUnreachable, QueuesUnavailable, Overloaded, ShuttingDown: come again.
            Unauthenticated, Forbidden, QueueNotFound: what the coordinator refuses with.
        """
        if not 1 <= limit <= BATCH_MAX:
            raise InvalidRequest(f"limit is {limit}; give 1 to {BATCH_MAX}.")
        return await self._work().receive(
            topic,
            tags=tags_of(tags),
            limit=limit,
            lease_ms=self._lease_ms if lease is None else lease_ms_of(lease),
            wait_ms=milliseconds("wait", wait, limits.Limit("wait", WAIT_MS_MAX, "ms", "proxies cut longer ones")),
        )

    async def ack(self, message: Received) -> bool:
        """Acknowledge a message; when this returns, that is durable.

        Returns False where it comes too late: the message is done, or was delivered again, and that delivery counts.

        Raises:
            CoordinatorUnreachable and its kin: not known whether it arrived; repeating is safe.
        """
        return await self._work().holding.ack(message)

    async def nack(self, message: Received, pause: float | timedelta | None = None) -> bool:
        """Let a message be delivered again, after `pause` seconds or the group's backoff.

        Returns and raises as `ack`.
        """
        return await self._work().holding.nack(message, None if pause is None else pause_ms_of(pause))

    async def extend(self, message: Received, lease: float | timedelta) -> bool:
        """Extend a message's lease to `lease` seconds from now.

        Returns False where it is not the consumer's any more. Raises as `ack`.
        """
        return await self._work().holding.extend(message, lease_ms_of(lease))

    async def give_back(self, message: Received) -> bool:
        """Give back a message that was not begun; the delivery does not count.

        Returns and raises as `ack`.
        """
        return await self._work().holding.give_back(message)

    async def dead_letter(self, message: Received, reason: str = "") -> bool:
        """Move a message into the group's dead letters, the topic `%DLQ%` and its name.

        Arguments:
            reason: for people, up to 500 characters; the letter's property `DLQ_REASON`.

        Returns and raises as `ack`.
        """
        return await self._work().holding.give_up(message, reason)

    def _work(self) -> Consuming:
        if self._consuming is None:
            self._requests = QueueRequests(self._channel)
            self._consuming = Consuming(
                self._requests,
                self.group,
                self.namespace,
                lease_ms=self._lease_ms,
                run=self._run,
                cuts=self._cuts,
                dead_letters=self._dead_letters,
                on_failed=self._ended,
            )
        return self._consuming
