"""Half messages, their decisions, and the answers to questions about them.

Promises: nothing is decided that is not known. A commit is sent only when the listener says commit, a rollback only
when it says rollback or its transaction is known not to have committed; everything else waits for a check. What is
known here, because `execute` is under way or has ended here, is answered without asking the listener.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from twophase.client.payload import payload_bytes
from twophase.client.queue_address import queue_address
from twophase.client.queues.loops import is_cut
from twophase.client.queues.messages import Half, asked_about, half
from twophase.client.queues.requests import QueueRequests
from twophase.client.transport.exchange import not_prepared
from twophase.core.errors import (
    CommittedDespiteError,
    ContraryDecision,
    CoordinatorUnreachable,
    Fate,
    ServerFault,
    StoreError,
    TwophaseError,
    Unavailable,
)
from twophase.core.gid import fresh_gid
from twophase.core.queue_api import (
    DECIDE_PATH,
    HALF_PATH,
    LEAVE_PATH,
    QUESTIONS_PATH,
    WAIT_MS,
    Ask,
    Decide,
    Decision,
    HalfMessage,
    Kept,
    Leave,
    Noted,
    OneQuestion,
    Questions,
)
from twophase.core.queue_message import gid_of
from twophase.core.schedule import Schedule

log = logging.getLogger("twophase.client")

Check = Callable[[Half], Awaitable[Any]]
_PAUSES: Final = Schedule(first_ms=50, cap_ms=5_000)
_LEAVE_S_MAX: Final = 2.0
_KNOWN_MAX: Final = 10_000
"""Decisions that are remembered because they did not get through."""
_NODES_MAX: Final = 64
"""Nodes that are polled for questions."""
_NOT_COMMITTED: Final = frozenset({Fate.ROLLED_BACK, Fate.NOT_STARTED})


class Sent(msgspec.Struct, frozen=True):
    """A transactional message, as far as `send` got.

    Arguments:
        message_id: the consumers' name for it.
        transaction_id: its gid at the coordinator.
        decision: of `execute`; UNKNOWN: a check decides.
        acknowledged: the coordinator has the decision. Where it has not, a check brings it.
    """

    message_id: str
    transaction_id: str
    decision: Decision
    acknowledged: bool


class Asked(msgspec.Struct, frozen=True):
    """A message to be sent."""

    address: str
    body: bytes
    message_id: str


def message_to_send(
    topic: str,
    payload: Any,
    *,
    tag: str,
    keys: Iterable[str],
    properties: Mapping[str, str] | None,
    namespace: str,
) -> Asked:
    """Return a message under a new id.

    Raises:
        InvalidRequest, LimitExceeded: a name, or the payload, cannot be one.
    """
    message_id = fresh_gid(time.time_ns() // 1_000_000)
    address = queue_address(
        topic, tag=tag, keys=keys, properties=properties, namespace=namespace, message_id=message_id
    )
    return Asked(address, payload_bytes(payload, takes_bytes=True), message_id)


class Transactions:
    """See the module; for one event loop.

    Arguments:
        requests: to the coordinator.
        group, namespace: of the producers.
        check: asks the listener.
        concurrency: checks at a time.
    """

    def __init__(self, requests: QueueRequests, group: str, namespace: str, *, check: Check, concurrency: int) -> None:
        self._requests = requests
        self._group = group
        self._namespace = namespace
        self._check = check
        self._free = asyncio.Semaphore(concurrency)
        self._under_way: set[str] = set()
        """Transactions whose `execute` runs here."""
        self._known: OrderedDict[str, Decision] = OrderedDict()
        """Decisions that did not get through."""
        self._answers: dict[str, asyncio.Task[None]] = {}
        self._polls: dict[str | None, asyncio.Task[None]] = {}
        """One for each node that asks questions.

        None is the client's own URL, which names the others.
        """
        self._stopping = asyncio.Event()

    def start(self) -> None:
        """Answer questions from now on. Safe to call twice."""
        if None not in self._polls:
            self._polls[None] = asyncio.ensure_future(self._poll(None))

    async def stop(self, timeout_s: float) -> None:
        """Take no more questions, and end the checks under way within `timeout_s`."""
        self._stopping.set()
        polls = {at: poll for at, poll in self._polls.items() if not poll.done()}
        if polls:
            await asyncio.gather(*map(self._leave_node, polls))
            await asyncio.wait(polls.values(), timeout=_LEAVE_S_MAX)
            for poll in polls.values():
                poll.cancel()
            await asyncio.wait(polls.values())
        answers = list(self._answers.values())
        if answers:
            await asyncio.wait(answers, timeout=timeout_s)
        for answer in answers:
            answer.cancel()
        await asyncio.gather(*answers, return_exceptions=True)

    async def _leave_node(self, at: str | None) -> None:
        with contextlib.suppress(TwophaseError, TimeoutError):
            async with asyncio.timeout(_LEAVE_S_MAX):
                await self._requests.poll(LEAVE_PATH, Leave(client=self._requests.client_id), Noted, 0, at)

    async def begin(self, asked: Asked, check_after_ms: int | None) -> Half:
        """Keep a half message.

        From here to `end` or `leave`, questions about it are answered with unknown.

        Raises:
            NotPrepared, and what the coordinator refuses with; nothing was begun.
        """
        self.start()
        message = half(asked.address, asked.body, "")
        name = message.transaction_id = gid_of(message.namespace, message.topic, asked.message_id)
        wanted = HalfMessage(
            group=self._group,
            client=self._requests.client_id,
            address=asked.address,
            body=asked.body,
            namespace=self._namespace,
            check_after_ms=check_after_ms,
        )
        self._under_way.add(name)  # a question may come before the answer
        try:
            await self._requests.ask(HALF_PATH, wanted, Kept)
        except BaseException as error:
            self.not_begun(name)
            if isinstance(error, CoordinatorUnreachable | ServerFault):
                raise not_prepared(error, name) from error.__cause__
            if isinstance(error, Unavailable | StoreError):
                error.fate = Fate.NOT_STARTED
            raise
        return message

    def not_begun(self, transaction_id: str) -> None:
        """Roll a message back when it is asked about.

        It may be kept, and its transaction never began.
        """
        self._under_way.discard(transaction_id)
        self._remember(transaction_id, Decision.ROLLBACK)

    async def end(self, message: Half, decision: Decision) -> Sent:
        """Send a decision.

        Raises:
            ContraryDecision: a check has decided the opposite meanwhile.
            CommittedDespiteError: of a commit, from an exception that came from elsewhere.
        """
        sent = Sent(message.message_id, message.transaction_id, decision, decision is not Decision.UNKNOWN)
        try:
            if decision is not Decision.UNKNOWN:
                await self._decide(message.transaction_id, decision, checked=False)
        except ContraryDecision as error:
            raise ContraryDecision(
                f"execute said {decision.value}, but a check has decided the opposite: {error.message}",
                gid=message.transaction_id,
            ) from error
        except TwophaseError as error:
            self._remember(message.transaction_id, decision)
            return not_acknowledged(message, decision, error)
        except BaseException as error:  # a cancellation, or of a signal's handler
            self.interrupted(message, decision)
            if isinstance(error, Exception) and decision is Decision.COMMIT:
                raise committed_despite(message, error) from error
            raise
        finally:
            self.leave(message)
        return sent

    def interrupted(self, message: Half, decision: Decision) -> None:
        """Keep a decision that may not have got through, for the question about it."""
        self._remember(message.transaction_id, decision)
        self.leave(message)

    def leave(self, message: Half) -> None:
        """Leave a message to a check: its `execute` is over."""
        self._under_way.discard(message.transaction_id)

    async def _decide(self, transaction_id: str, decision: Decision, *, checked: bool) -> None:
        asked = Decide(
            transaction_id=transaction_id, decision=decision, client=self._requests.client_id, checked=checked
        )
        await self._requests.ask(DECIDE_PATH, asked, Noted)

    def _remember(self, transaction_id: str, decision: Decision) -> None:
        self._known[transaction_id] = decision
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)

    async def _poll(self, at: str | None) -> None:
        """Take questions of a node as long as checks are free.

        A node asks about the half messages that it has itself, so each node that is named is polled. The first poll of
        the client's own URL does not wait: its answer names the nodes.
        """
        tries = 0
        wait_ms = 0 if at is None else WAIT_MS
        while not self._stopping.is_set():
            async with self._free:  # one at least could be answered now
                pass
            try:
                asked = Ask(
                    group=self._group, client=self._requests.client_id, namespace=self._namespace, wait_ms=wait_ms
                )
                found = await self._requests.poll(QUESTIONS_PATH, asked, Questions, wait_ms, at)
            except TwophaseError as error:
                tries += 1
                if tries == 1:
                    where = "" if at is None else f" by {at}"
                    log.warning("the producers %s are not asked%s for now: %s", self._group, where, error)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_PAUSES.pause_ms(tries, 0.5) / 1000):
                        await self._stopping.wait()
                continue
            tries, wait_ms = 0, WAIT_MS
            if at is None:
                self._poll_nodes(found.nodes)
            for question in found.questions:
                self._begin_answer(question)

    def _poll_nodes(self, named: Iterable[str]) -> None:
        """Poll every node that is named now, and no other."""
        if self._stopping.is_set():
            return
        nodes = self._requests.nodes
        wanted = {url for url in map(nodes.named, tuple(named)[:_NODES_MAX]) if url not in {None, nodes.own}}
        for at in [at for at in self._polls if at is not None and at not in wanted]:
            self._polls.pop(at).cancel()
        for at in wanted - self._polls.keys():
            self._polls[at] = asyncio.ensure_future(self._poll(at))

    def _begin_answer(self, question: OneQuestion) -> None:
        """Answer a question, once at a time."""
        name = question.transaction_id
        if name not in self._answers and not self._stopping.is_set():
            self._answers[name] = asyncio.ensure_future(self._answer(question))
            self._answers[name].add_done_callback(lambda _: self._answers.pop(name, None))

    async def _answer(self, question: OneQuestion) -> None:
        name = question.transaction_id
        decision = await self._decision(question)
        try:
            await self._decide(name, decision, checked=True)
        except ContraryDecision:
            log.exception("a check answered %s, and the opposite was decided", decision.value, extra={"gid": name})
        except TwophaseError as error:
            log.warning("an answer did not get through; it is asked for again: %s", error, extra={"gid": name})
        else:
            self._known.pop(name, None)

    async def _decision(self, question: OneQuestion) -> Decision:
        name = question.transaction_id
        if name in self._under_way:
            return Decision.UNKNOWN
        if name in self._known:
            return self._known[name]
        async with self._free:
            try:
                return decision_of(await self._check(asked_about(question)), "check")
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and is_cut():
                    raise
                log.exception("check failed, which is answered with unknown", extra={"gid": name})
                return Decision.UNKNOWN


def not_acknowledged(message: Half, decision: Decision, error: TwophaseError) -> Sent:
    """Return what became of a message whose decision did not get through, and log it."""
    log.warning(
        "%s is decided, but that did not get through (%s); a check will bring it",
        message.message_id,
        error.message,
        extra={"gid": message.transaction_id},
    )
    return Sent(message.message_id, message.transaction_id, decision, acknowledged=False)


def committed_despite(message: Half, error: Exception) -> CommittedDespiteError:
    """Return the error of a commit during whose report `error` was raised."""
    return CommittedDespiteError(
        f"{type(error).__name__} was raised, but `execute` has committed; if the coordinator does not know it yet, "
        "a check will bring it.",
        gid=message.transaction_id,
    )


def decision_of(answer: Any, what: str) -> Decision:
    """Return a listener's decision; anything else is UNKNOWN, and logged."""
    if isinstance(answer, Decision):
        return answer
    log.error("%s returned %s and no Decision, which is unknown", what, type(answer).__name__)
    return Decision.UNKNOWN


def is_not_committed(error: BaseException, transaction_id: str) -> bool:
    """Return True for an error that proves that this transaction has not committed.

    It is rolled back, or never began. The same error about another message proves nothing: it may come behind a commit.
    """
    return isinstance(error, TwophaseError) and error.gid == transaction_id and error.fate in _NOT_COMMITTED
