"""A push consumer on one event loop: it receives, and handlers work.

Promises: no more handlers run at a time than a subscription allows, and no message is taken that none would begin. A
message is acknowledged when its handler has returned, so what a process had that dies is delivered again. As long as a
handler runs, its message's lease is extended. A body that a handler's type cannot be read from is a dead letter with
the reason, or comes again; it is never lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from twophase.client.queues.handlers import GiveUp, Handler, Retry, Subscription
from twophase.client.queues.holding import Holding
from twophase.client.queues.loops import is_cut
from twophase.client.queues.messages import Received, received
from twophase.client.queues.requests import QueueRequests
from twophase.core.errors import (
    ConfigurationError,
    InvalidRequest,
    PayloadUnreadable,
    Refused,
    TlsFailed,
    TwophaseError,
)
from twophase.core.queue_api import BATCH_MAX, LEAVE_PATH, RECEIVE_PATH, WAIT_MS, Deliveries, Leave, Noted, Receive
from twophase.core.schedule import Schedule

log = logging.getLogger("twophase.client")

Run = Callable[[Handler, list[Any]], Awaitable[Any]]
Report = Callable[[], Awaitable[bool]]
_PAUSES: Final = Schedule(first_ms=50, cap_ms=5_000)
_LEAVE_S_MAX: Final = 2.0
_CUT_S_MAX: Final = 5.0
"""Time for what a cancelled handler does last, and for giving its message back."""


class Consuming:
    """See the module.

    Arguments:
        requests: to the coordinator.
        group, namespace: of the consumer.
        lease_ms: for which messages are taken, and kept again.
        run: calls a handler.
        cuts: a handler that does not end in time can be cancelled.
        dead_letters: what cannot be read is a dead letter at once.
        on_failed: called when the coordinator refuses the first request for a reason that lasts.
    """

    def __init__(
        self,
        requests: QueueRequests,
        group: str,
        namespace: str,
        *,
        lease_ms: int,
        run: Run,
        cuts: bool,
        dead_letters: bool,
        on_failed: Callable[[TwophaseError], None],
    ) -> None:
        self.holding = Holding(requests)
        self._requests = requests
        self._group = group
        self._namespace = namespace
        self._lease_ms = lease_ms
        self._run = run
        self._cuts = cuts
        self._dead_letters = dead_letters
        self._on_failed = on_failed
        self._polls: list[asyncio.Task[None]] = []
        self._works: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    def start(self, subscriptions: list[Subscription]) -> None:
        """Receive from now on."""
        self._polls = [asyncio.ensure_future(self._receive(one)) for one in subscriptions]

    @property
    def running(self) -> int:
        """The number of handlers that run."""
        return len(self._works)

    async def stop(self, timeout_s: float) -> None:
        """Take nothing more, let handlers end within `timeout_s`, give back the rest."""
        self._stopping.set()
        if any(not poll.done() for poll in self._polls):
            with contextlib.suppress(TwophaseError, TimeoutError):
                async with asyncio.timeout(_LEAVE_S_MAX):
                    await self._requests.poll(LEAVE_PATH, Leave(client=self._requests.client_id), Noted, 0)
            await asyncio.wait(self._polls, timeout=_LEAVE_S_MAX)
        await _end(self._polls)
        if self._works:
            await asyncio.wait(self._works, timeout=timeout_s)
        if self._works:
            log.warning("%d handlers did not end in %s s; their messages come again", len(self._works), timeout_s)
            await _end(list(self._works))

    async def receive(self, topic: str, *, tags: str, limit: int, lease_ms: int, wait_ms: int) -> list[Received]:
        """Take messages, waiting for the first."""
        asked = Receive(
            group=self._group,
            topic=topic,
            client=self._requests.client_id,
            namespace=self._namespace,
            tags=tags,
            limit=limit,
            lease_ms=lease_ms,
            wait_ms=wait_ms,
        )
        found = await self._requests.poll(RECEIVE_PATH, asked, Deliveries, wait_ms)
        url = self._requests.nodes.url((self._namespace, topic))  # that has just answered
        return [self.holding.taken(received(one, self._group), url) for one in found.messages]

    async def _receive(self, subscription: Subscription) -> None:
        """Receive for one handler, as many messages as it can begin."""
        free = asyncio.Semaphore(subscription.concurrency)
        tries = 0
        has_received = False
        while not self._stopping.is_set():
            await free.acquire()
            if self._stopping.is_set():
                return
            limit = 1
            while limit < BATCH_MAX and not free.locked():
                await free.acquire()  # at once: it is not locked
                limit += 1
            taken: list[Received] = []
            try:
                taken = await self.receive(
                    subscription.topic,
                    tags=subscription.tags,
                    limit=limit,
                    lease_ms=self._lease_ms,
                    wait_ms=WAIT_MS,
                )
                tries, has_received = 0, True
            except TwophaseError as error:
                tries += 1
                if not has_received and _is_lasting(error):
                    self._fail(error)
                    return
                await self._pause(subscription, error, tries)
            finally:
                for _ in range(limit - len(taken)):
                    free.release()
            for message in taken:
                if self._stopping.is_set():
                    await self._give_back(message)
                else:
                    self._begin(subscription, message, free)

    def _begin(self, subscription: Subscription, message: Received, free: asyncio.Semaphore) -> None:
        work = asyncio.ensure_future(self._work(subscription, message))
        self._works.add(work)

        def ended(work: asyncio.Task[None]) -> None:
            self._works.discard(work)
            free.release()

        work.add_done_callback(ended)

    def _fail(self, error: TwophaseError) -> None:
        log.error("the consumer ends: %s", error)
        self._on_failed(error)

    async def _pause(self, subscription: Subscription, error: TwophaseError, tries: int) -> None:
        if tries == 1:
            log.warning("no messages of %s are received for now: %s", subscription.topic, error)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PAUSES.pause_ms(tries, 0.5) / 1000):
                await self._stopping.wait()

    async def _give_back(self, message: Received) -> None:
        with contextlib.suppress(TwophaseError):  # then it comes again when its lease is over
            await self.holding.give_back(message)

    async def _work(self, subscription: Subscription, message: Received) -> None:
        """Have one message handled, and report what became of it."""
        keeping = asyncio.ensure_future(self.holding.keep(message, self._lease_ms))
        try:
            report = await self._handled(subscription.handler, message)
        except BaseException:
            await _end([keeping])
            if self._cuts and is_cut():
                with contextlib.suppress(TwophaseError, TimeoutError):
                    async with asyncio.timeout(_CUT_S_MAX):
                        await self.holding.nack(message, 0)
            raise
        lost = await _end([keeping])
        await self._report(message, report, lost=lost)

    async def _handled(self, handler: Handler, message: Received) -> Report:
        """Call a handler; return how its end is reported.

        Raises:
            CancelledError: it was cut. KeyboardInterrupt, SystemExit: by an async handler, which ends its loop.
        """
        try:
            await self._run(handler, handler.arguments(message))
        except PayloadUnreadable as error:
            log.error("%s %s cannot be read: %s", message.topic, message.message_id, error.message)  # noqa: TRY400 -- no value of it
            return self._of_unreadable(message, error)
        except Retry as asked:
            return partial(self.holding.nack, message, asked.pause_ms)
        except GiveUp as asked:
            return partial(self.holding.give_up, message, asked.reason)
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and is_cut():
                raise
            log.exception("the handler of %s failed at %s", message.topic, message.message_id)
            return partial(self.holding.nack, message, None)
        return partial(self.holding.ack, message)

    def _of_unreadable(self, message: Received, error: PayloadUnreadable) -> Report:
        if self._dead_letters:
            return partial(self.holding.give_up, message, f"{error.code}: {error.message}")
        return partial(self.holding.nack, message, None)

    async def _report(self, message: Received, report: Report, *, lost: object) -> None:
        """Report to the coordinator.

        What does not get through comes again when its lease is over.
        """
        try:
            is_taken = await report()
        except TwophaseError as error:
            log.warning("%s %s comes again: %s", message.topic, message.message_id, error)
            return
        if not is_taken:
            log.warning(
                "%s %s was not this delivery's any more%s",
                message.topic,
                message.message_id,
                f": {lost}" if lost is not None else "",
            )


async def _end(tasks: list[asyncio.Task[Any]]) -> Any:
    """Cancel tasks and wait for their ends; return the first result, if any."""
    for task in tasks:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    return next((end for end in ends if not isinstance(end, asyncio.CancelledError)), None)


def _is_lasting(error: TwophaseError) -> bool:
    """Return True for a refusal that no repeat changes."""
    return isinstance(error, InvalidRequest | Refused | ConfigurationError | TlsFailed)
