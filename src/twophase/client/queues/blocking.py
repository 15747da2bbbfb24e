"""`Consumer`: a member of a group of consumers, for blocking code.

It is an `AsyncConsumer` on an event loop in a thread; handlers run in threads of a pool.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from twophase.client.base_client import BaseClient, channel_of
from twophase.client.queues.base_consumer import CONCURRENCY, LEASE_S, STOP_S, WAIT_S, BaseConsumer, stop_s
from twophase.client.queues.handlers import Handler, handler_of, require_done, require_topic
from twophase.client.queues.loops import LoopThread, in_thread
from twophase.client.queues.messages import Received

if TYPE_CHECKING:
    from twophase.client.channel import SyncChannel

F = TypeVar("F", bound=Callable[..., None])


class Consumer:
    """A member of a group of consumers; each message goes to one member of a group.

    Push: give it handlers, which run in threads, and `run` it or use it as a context manager. Pull: `receive`, and
    `ack` what is done. Threads may share it; in a child of a fork it is one that was not started.

    >>> from twophase import Client
    >>> consumer = Consumer(Client("http://localhost:36789"), "billing")
    >>> @consumer.handler("orders", tags="paid")
    ... def bill(order: dict[str, int]) -> None: ...
    >>> consumer
    <Consumer billing: orders>
    """

    def __init__(
        self,
        client: str | BaseClient[SyncChannel],
        group: str,
        *,
        namespace: str = "",
        concurrency: int = CONCURRENCY,
        lease: float | timedelta = LEASE_S,
        undecodable: Literal["dead-letter", "nack"] = "dead-letter",
    ) -> None:
        """Describe a consumer.

        Nothing is received before it is started, or `receive` is called.

        Arguments and errors: as `AsyncConsumer`, with a `Client`.

        Raises, too:
            EventLoopBlocked: an event loop runs in this thread.
        """
        self._threads: ThreadPoolExecutor | None = None
        self._loop = LoopThread(f"twophase consumer {group}", self._forked)
        self._stopping = threading.Lock()
        """Held by the one thread that stops: `run` stops, too, when another thread does."""
        self._handling = threading.local()
        """Has the attribute `is_on` in the threads of handlers."""
        self._consumer = BaseConsumer(
            channel_of(client, "AsyncConsumer(…)"),
            group,
            namespace=namespace,
            concurrency=concurrency,
            lease=lease,
            undecodable=undecodable,
            run=self._call,
            cuts=False,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._consumer.described}>"

    def handler(
        self, topic: str, *, tags: str | Iterable[str] = "*", concurrency: int | None = None
    ) -> Callable[[F], F]:
        """`AsyncConsumer.handler` for a plain function, which runs in a thread."""
        require_topic(topic)

        def decorate(function: F) -> F:
            self.subscribe(topic, function, tags=tags, concurrency=concurrency)
            return function

        return decorate

    def subscribe(
        self,
        topic: str,
        function: Callable[..., None],
        *,
        tags: str | Iterable[str] = "*",
        concurrency: int | None = None,
    ) -> None:
        """Make a function the handler of a topic, as `AsyncConsumer.handler`."""
        self._consumer.add(topic, handler_of(function, is_async=False), tags, concurrency)

    def start(self) -> None:
        """Start receiving, in threads. Raises as `AsyncConsumer.start`."""
        self._loop.call(self._consumer.start())

    def stop(self, timeout: float | timedelta = STOP_S) -> None:
        """Fetch nothing more, let the handlers end, and give back messages not begun.

        A handler that does not end within `timeout` seconds goes on in its thread; its message comes again when its
        lease is over. Called by a handler, it does not wait for its end; `run`, the context manager or a second call
        ends the threads. Safe to call twice.
        """
        if getattr(self._handling, "is_on", False):
            timeout = stop_s(timeout)  # refused here, not in the loop
            self._loop.soon(lambda: self._consumer.stop_soon(timeout))
            return
        with self._stopping:
            if self._loop.runs:
                self._loop.call(self._consumer.stop(timeout))
                self._loop.close()
            threads, self._threads = self._threads, None
            if threads is not None:
                threads.shutdown(wait=False)

    def run(self, *, signals: bool = True, timeout: float | timedelta = STOP_S) -> None:
        """Start, consume until `stop`, SIGTERM or SIGINT, and stop.

        Arguments and errors: as `AsyncConsumer.run`.
        """
        self.start()
        try:
            with _called_by_signals(self._end_soon) if signals else contextlib.nullcontext():
                failure = self._loop.call(self._consumer.ended())
        finally:
            self.stop(timeout)
        if failure is not None:
            raise failure

    def __enter__(self) -> Self:
        if self._consumer.has_handlers:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def receive(
        self,
        topic: str,
        *,
        limit: int = 1,
        wait: float | timedelta = WAIT_S,
        lease: float | timedelta | None = None,
        tags: str | Iterable[str] = "*",
    ) -> list[Received]:
        """Take up to `limit` messages, waiting for the first; none if none came.

        Arguments and errors: as `AsyncConsumer.receive`.
        """
        return self._loop.call(self._consumer.receive(topic, limit=limit, wait=wait, lease=lease, tags=tags))

    def ack(self, message: Received) -> bool:
        """Acknowledge a message, durably. As `AsyncConsumer.ack`."""
        return self._loop.call(self._consumer.ack(message))

    def nack(self, message: Received, pause: float | timedelta | None = None) -> bool:
        """Let a message be delivered again. As `AsyncConsumer.nack`."""
        return self._loop.call(self._consumer.nack(message, pause))

    def extend(self, message: Received, lease: float | timedelta) -> bool:
        """Extend a message's lease to `lease` seconds from now. As `AsyncConsumer.extend`."""
        return self._loop.call(self._consumer.extend(message, lease))

    def give_back(self, message: Received) -> bool:
        """Give back a message that was not begun. As `AsyncConsumer.give_back`."""
        return self._loop.call(self._consumer.give_back(message))

    def dead_letter(self, message: Received, reason: str = "") -> bool:
        """Move a message into the group's dead letters. As `AsyncConsumer.dead_letter`."""
        return self._loop.call(self._consumer.dead_letter(message, reason))

    def _forked(self) -> None:
        """Begin anew in the child of a fork: its consumer is not started."""
        self._stopping, self._handling, self._threads = threading.Lock(), threading.local(), None
        self._consumer.forked()

    def _end_soon(self) -> None:
        self._loop.soon(self._consumer.end_soon)

    async def _call(self, handler: Handler, arguments: list[Any]) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(
                self._consumer.concurrency,
                f"twophase {self._consumer.group}",
                initializer=setattr,
                initargs=(self._handling, "is_on", True),
            )
        require_done(await in_thread(self._threads, handler.function, *arguments))


@contextlib.contextmanager
def _called_by_signals(function: Callable[[], None]) -> Iterator[None]:
    """Call a function at SIGTERM and SIGINT.

    In another thread than the main one, do nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: function()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
