"""`TransactionProducer`: messages that a listener's local transaction decides.

For a database that this library knows, `Message.transaction` needs no listener: its barrier answers. A producer of
this module is for what has no such database, and for code that comes from RocketMQ.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from twophase.client.base_client import BaseClient, achannel_of, channel_of
from twophase.client.draft import milliseconds
from twophase.client.queues.loops import LoopThread, in_thread
from twophase.client.queues.messages import Half
from twophase.client.queues.requests import QueueRequests
from twophase.client.queues.transactions import (
    Sent,
    Transactions,
    committed_despite,
    decision_of,
    is_not_committed,
    message_to_send,
    not_acknowledged,
)
from twophase.core import limits
from twophase.core.errors import ConfigurationError, CoordinatorUnreachable, Fate, TwophaseError
from twophase.core.queue_api import CHECK_AFTER_MS_MAX, Decision
from twophase.core.queue_message import full_name, gid_of

if TYPE_CHECKING:
    from twophase.client.channel import AsyncChannel, Channel, SyncChannel
    from twophase.client.queues.transactions import Check

CHECKS: Final = 8
CLOSE_S: Final = 30.0
_CHECK_AFTER: Final = limits.Limit("check_after", CHECK_AFTER_MS_MAX, "ms", "as RocketMQ's")


class TransactionListener(Protocol):
    """The local transaction of a message, and what is known about it."""

    def execute(self, message: Half, argument: Any) -> Decision:
        """Run the local transaction, and return what became of it.

        COMMIT: it has committed. ROLLBACK: it has not, and never will.

        UNKNOWN, or anything else, leaves the message to `check`. So does an exception, because a commit that raised
        may have happened; but one of `twophase.errors` that names this message (`gid=message.transaction_id`) and
        whose `fate` is ROLLED_BACK or NOT_STARTED rolls the message back. About another message it proves nothing.

        Arguments:
            message: as it is kept; `transaction_id` is what `check` is asked about.
            argument: of `send`.
        """
        ...

    def check(self, message: Half) -> Decision:
        """Return what became of a message's local transaction.

        Any process of the group may have run it. UNKNOWN is asked again later. An exception is UNKNOWN, and logged.
        ROLLBACK is final: it must be impossible that the transaction commits later, so a row that is not there (yet)
        is UNKNOWN.
        """
        ...


class AsyncTransactionListener(Protocol):
    """`TransactionListener` for asyncio."""

    async def execute(self, message: Half, argument: Any) -> Decision:
        """Run the local transaction, as `TransactionListener.execute`."""
        ...

    async def check(self, message: Half) -> Decision:
        """Return what became of it, as `TransactionListener.check`."""
        ...


class _Producer:
    """The part that both producers share, for one event loop."""

    def __init__(
        self, channel: Channel, group: str, namespace: str, check: Check, *, checks: int, check_after: Any
    ) -> None:
        full_name(namespace, group)
        if checks < 1:
            raise ConfigurationError("checks must be at least 1.")
        self.check_after_ms: int | None = None
        if check_after is not None:
            self.check_after_ms = max(1, milliseconds("check_after", check_after, _CHECK_AFTER))
        self._channel = channel
        self._names = (group, namespace)
        self._check = check
        self._checks = checks
        self._requests: QueueRequests | None = None
        self._work: Transactions | None = None

    @property
    def transactions(self) -> Transactions:
        """The work, in the loop of its first use."""
        if self._work is None:
            self._requests = QueueRequests(self._channel)
            self._work = Transactions(self._requests, *self._names, check=self._check, concurrency=self._checks)
        return self._work

    async def start(self) -> None:
        """Answer questions from now on."""
        self.transactions.start()

    def forked(self) -> None:
        """Forget what belongs to the event loop of a parent process."""
        self._requests = self._work = None

    async def stop(self, timeout: float | timedelta) -> None:  # noqa: ASYNC109 -- for checks, which go on
        """End the checks under way, and the connections."""
        work, self._work = self._work, None
        requests, self._requests = self._requests, None
        if work is not None:
            await work.stop(milliseconds("timeout", timeout, limits.REQUEST_TIMEOUT_MS_MAX) / 1000)
        if requests is not None:
            await requests.close()


class TransactionProducer:
    """Sends messages to queues if and only if a listener's transaction commits.

    The order is: the message is kept, `execute` runs in the caller's thread, its decision is sent. When no decision
    comes, because the process died or nothing was known, a producer of the group is asked: its `check` runs in a
    thread. Any process with a producer of the group may answer. Threads may share it, and a child of a fork.

    >>> from twophase import Client
    >>> class Orders:
    ...     def execute(self, message: Half, argument: Any) -> Decision:
    ...         return Decision.COMMIT  # the local transaction has committed
    ...     def check(self, message: Half) -> Decision:
    ...         return Decision.UNKNOWN
    >>> producer = TransactionProducer(Client("http://localhost:36789"), "shop", Orders())
    >>> producer
    <TransactionProducer shop>
    """

    def __init__(
        self,
        client: str | BaseClient[SyncChannel],
        group: str,
        listener: TransactionListener,
        *,
        namespace: str = "",
        checks: int = CHECKS,
        check_after: float | timedelta | None = None,
    ) -> None:
        """Describe a producer; it answers questions from `start` or its first `send` on.

        Arguments:
            client: a `Client`, or the coordinator's http address.
            group: of producers that can answer for each other. RocketMQ's clients belong to it when they name it as
                `producer.group` in their settings.
            listener: of local transactions.
            namespace: of the group.
            checks: checks that run at a time.
            check_after: seconds between keeping a message and the first question; the coordinator's default (35 s)
                without it. Up to an hour; longer than `execute` takes.

        Raises:
            InvalidRequest, LimitExceeded, ConfigurationError: one of these cannot be, and the message names it.
            EventLoopBlocked: an event loop runs in this thread.
        """
        self.group = group
        self._listener = listener
        self._checks = checks
        self._threads: ThreadPoolExecutor | None = None
        self._loop = LoopThread(f"twophase producer {group}", self._forked)
        self._closing = threading.Lock()
        channel = channel_of(client, "AsyncTransactionProducer(…)")
        self._producer = _Producer(channel, group, namespace, self._check, checks=checks, check_after=check_after)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.group}>"

    def start(self) -> None:
        """Answer questions from now on, in threads. Safe to call twice."""
        self._loop.call(self._producer.start())

    def close(self, timeout: float | timedelta = CLOSE_S) -> None:
        """Take no more questions, and end the checks in progress. Safe to call twice.

        What is undecided then is asked of other processes of the group, or of this one when it is back.
        """
        with self._closing:
            if self._loop.runs:
                self._loop.call(self._producer.stop(timeout))
                self._loop.close()
            threads, self._threads = self._threads, None
            if threads is not None:
                threads.shutdown(wait=False)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(
        self,
        topic: str,
        payload: Any,
        argument: Any = None,
        *,
        tag: str = "",
        keys: Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        namespace: str = "",
    ) -> Sent:
        """Store a message, run `execute`, and send its decision.

        Arguments:
            topic: 1 to 127 letters, digits, `%`, `|`, `_` and `-`.
            payload: bytes as they are, anything else as JSON; up to 1 MiB.
            argument: for `execute`.
            tag, keys, properties, namespace: as `queue_address`.

        Returns:
            The decision, and whether the coordinator has it. Nothing is raised where only the decision did not get
            through: a check brings it.

        Raises:
            NotPrepared, Overloaded, QueueNotFound, Forbidden, … : the message was not kept, and `execute` did not run.
            ContraryDecision: a check of another process has decided the opposite meanwhile.
            CommittedDespiteError: `execute` has committed, and then a signal's handler raised an exception.
            what `execute` raises: the message is left to `check`, or rolled back where `execute` says that it is.
        """
        asked = message_to_send(topic, payload, tag=tag, keys=keys, properties=properties, namespace=namespace)
        loop, transactions = self._loop.call(self._transactions())
        try:
            message = self._loop.call(transactions.begin(asked, self._producer.check_after_ms), loop)
        except CoordinatorUnreachable as error:
            error.fate = Fate.NOT_STARTED  # also where another thread has closed the producer meanwhile
            raise
        except BaseException:  # of a signal's handler: the message may be kept all the same
            self._loop.soon(lambda: transactions.not_begun(gid_of(namespace, topic, asked.message_id)))
            raise
        try:
            decision = decision_of(self._listener.execute(message, argument), "execute")
        except Exception as error:
            with contextlib.suppress(CoordinatorUnreachable):  # closed meanwhile: a check decides
                self._loop.call(_failed(transactions, message, error), loop)
            raise
        except BaseException:
            self._loop.soon(lambda: transactions.leave(message))
            raise
        try:
            return self._loop.call(transactions.end(message, decision), loop)
        except CoordinatorUnreachable as error:  # closed meanwhile; nothing is raised behind a commit
            return not_acknowledged(message, decision, error)
        except TwophaseError:
            raise
        except BaseException as error:  # of a signal's handler, such as a worker's time limit
            self._loop.soon(lambda: transactions.interrupted(message, decision))
            if isinstance(error, Exception) and decision is Decision.COMMIT:
                raise committed_despite(message, error) from error
            raise

    def _forked(self) -> None:
        """Begin anew in the child of a fork; it answers questions from its `send` on."""
        self._closing, self._threads = threading.Lock(), None
        self._producer.forked()

    async def _transactions(self) -> tuple[asyncio.AbstractEventLoop, Transactions]:
        return asyncio.get_running_loop(), self._producer.transactions

    async def _check(self, message: Half) -> Any:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._checks, f"twophase {self.group}")
        return await in_thread(self._threads, self._listener.check, message)


class AsyncTransactionProducer:
    """`TransactionProducer` for asyncio; its listener's methods are `async def`.

    >>> from twophase import AsyncClient
    >>> class Orders:
    ...     async def execute(self, message: Half, argument: Any) -> Decision:
    ...         return Decision.COMMIT
    ...     async def check(self, message: Half) -> Decision:
    ...         return Decision.UNKNOWN
    >>> AsyncTransactionProducer(AsyncClient("http://localhost:36789"), "shop", Orders())
    <AsyncTransactionProducer shop>
    """

    def __init__(
        self,
        client: str | BaseClient[AsyncChannel],
        group: str,
        listener: AsyncTransactionListener,
        *,
        namespace: str = "",
        checks: int = CHECKS,
        check_after: float | timedelta | None = None,
    ) -> None:
        """Describe a producer, as `TransactionProducer` does, of an `AsyncClient`."""
        self.group = group
        self._listener = listener
        channel = achannel_of(client)
        self._producer = _Producer(channel, group, namespace, listener.check, checks=checks, check_after=check_after)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.group}>"

    async def start(self) -> None:
        """Answer questions from now on. Safe to call twice."""
        await self._producer.start()

    async def aclose(self, timeout: float | timedelta = CLOSE_S) -> None:  # noqa: ASYNC109 -- for checks, which go on
        """`TransactionProducer.close` for asyncio."""
        await self._producer.stop(timeout)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def send(
        self,
        topic: str,
        payload: Any,
        argument: Any = None,
        *,
        tag: str = "",
        keys: Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        namespace: str = "",
    ) -> Sent:
        """`TransactionProducer.send`, awaited."""
        asked = message_to_send(topic, payload, tag=tag, keys=keys, properties=properties, namespace=namespace)
        transactions = self._producer.transactions
        message = await transactions.begin(asked, self._producer.check_after_ms)
        try:
            decision = decision_of(await self._listener.execute(message, argument), "execute")
        except Exception as error:
            await _failed(transactions, message, error)
            raise
        except BaseException:
            transactions.leave(message)
            raise
        return await transactions.end(message, decision)


async def _failed(transactions: Transactions, message: Half, error: Exception) -> None:
    """Roll back where the error proves that nothing was committed.

    Otherwise the message is left to a check.
    """
    if is_not_committed(error, message.transaction_id):
        await transactions.end(message, Decision.ROLLBACK)
    else:
        transactions.leave(message)
