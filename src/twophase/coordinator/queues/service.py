"""Queues on the engine: sends, half messages, decisions, and consumers.

It implements `QueueApi`. A message of a queue is a message of the coordinator, so the promises of those hold here: I1
to I3, I7 and I8. Repeating a send or a half is recognised by the gid, which comes from the message id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from twophase.coordinator.admission import Admission
from twophase.coordinator.background import end
from twophase.coordinator.cluster.lease import Lease
from twophase.coordinator.dispatch.producers import Client, Producers, check_address
from twophase.coordinator.queues.contract import Decision, Delivered, GroupInfo, Sent, Servers, TopicInfo
from twophase.coordinator.queues.cursor import Dead
from twophase.coordinator.queues.definitions import Definitions
from twophase.coordinator.queues.letters import letter_of, sent_again_as
from twophase.coordinator.queues.moving import Moving
from twophase.coordinator.queues.placement import owner_of
from twophase.coordinator.queues.repeats import gids_of_letter, id_taken, is_of_topic, is_same
from twophase.coordinator.queues.serving import Serving
from twophase.coordinator.queues.topic_owners import TopicOwners
from twophase.coordinator.runtime import Runtime
from twophase.coordinator.state.active_message import Audited, OnReply, Owner, Reply, Trigger, answers
from twophase.coordinator.state.appends import waits_for_its_time
from twophase.coordinator.state.machine import StateMachine
from twophase.core.audit_log import Actor
from twophase.core.errors import (
    ContentConflict,
    ContraryDecision,
    InvalidRequest,
    ServerFault,
    ShuttingDown,
    StateConflict,
    StoreFenced,
    TwophaseError,
    UnknownMessage,
)
from twophase.core.lifecycle import Event, State
from twophase.core.message import Branch, Message, decode
from twophase.core.options import Options
from twophase.core.queue_message import (
    GID_PREFIX,
    QUEUE_PREFIX,
    QueueMessage,
    address_of,
    full_name,
    gid_of,
)
from twophase.core.verdict import Verdict
from twophase.stores.rows import DecidedBy, HistoryRow, LiveRow

_EVENTS: Final = {
    Decision.COMMIT: Event.CHECK_COMMITTED,
    Decision.ROLLBACK: Event.CHECK_ROLLED_BACK,
    Decision.UNKNOWN: Event.CHECK_UNDECIDED,
}
_VERDICTS: Final = {
    Decision.COMMIT: Verdict.COMMITTED,
    Decision.ROLLBACK: Verdict.ROLLED_BACK,
    Decision.UNKNOWN: Verdict.UNKNOWN,
}
_DECIDED: Final = frozenset({State.SUBMITTED, State.SUCCEEDED})
_BURIALS_MAX: Final = 1_000
_RECALLED: Final = "its producer recalled it"


class Queues:
    """See the module.

    Arguments:
        runtime: the node's store, clock, settings and observer.
        admission, machine: of the coordinator.
        producers: asks over connections.
        lease: of this node.
    """

    def __init__(
        self, runtime: Runtime, admission: Admission, machine: StateMachine, producers: Producers, lease: Lease
    ) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._admission = admission
        self._machine = machine
        self._producers = producers
        self.definitions = self._definitions = admission.queue_topics = Definitions(runtime)
        self._owners = TopicOwners(runtime, lease)
        self.serving = Serving(runtime, machine.group_commit, self._owners)
        self._moving = Moving(runtime, self._owners, self.serving, producers, self._definitions)
        self._burials: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Read the topics and groups."""
        await self._definitions.load()
        self._moving.start()

    async def stop(self) -> None:
        """Give out nothing more. A second call is safe."""
        self._owners.stop()
        self.serving.stop()
        await self._moving.stop()
        await self._definitions.stop()
        for task in list(self._burials):
            await end(task)

    async def topic(self, namespace: str, name: str, caller: Owner | None = None, peer: str = "") -> TopicInfo:
        """See `QueueApi.topic`."""
        return await self._definitions.topic(namespace, name, _actor(caller, peer))

    def why_not(self, url: str) -> str | None:
        """Return the reason why no message may name an address of a queue.

        None when a message may, and for every other address.
        """
        return self._definitions.why_not(url) if url.startswith(QUEUE_PREFIX) else None

    async def group(self, namespace: str, name: str, caller: Owner | None = None, peer: str = "") -> GroupInfo:
        """See `QueueApi.group`."""
        return await self._definitions.group(namespace, name, _actor(caller, peer))

    async def servers(self, namespace: str, topic: str) -> Servers:
        """See `QueueApi.servers`."""
        if not self._store.shared:
            return Servers(None)
        nodes = await self._owners.nodes()
        if not nodes:
            return Servers(None)
        owner = owner_of(full_name(namespace, topic), nodes)
        return Servers(owner, tuple([one for one in nodes if one != owner]))

    async def announce(self, addresses: Mapping[str, str]) -> int | None:
        """See `QueueApi.announce`."""
        return await self._moving.announce(addresses)

    async def http_urls(self) -> list[str]:
        """See `QueueApi.http_urls`."""
        return await self._owners.http_urls() if self._store.shared else []

    # Producers.

    async def send(
        self, messages: Sequence[QueueMessage], caller: Owner | None, peer: str = ""
    ) -> list[Sent | TwophaseError]:
        """See `QueueApi.send`."""
        begun = [await self._send_one(message, caller, peer) for message in messages]
        return [
            one if isinstance(one, TwophaseError) else await self._sent(*one, message)
            for message, one in zip(messages, begun, strict=True)
        ]

    async def _send_one(
        self, message: QueueMessage, caller: Owner | None, peer: str
    ) -> tuple[Trigger, asyncio.Future[Reply]] | TwophaseError:
        try:
            await self._require(message, caller, peer)
        except TwophaseError as error:
            return error
        return self._submit(message, gid_of(message.namespace, message.topic, message.message_id), caller)

    async def _require(self, message: QueueMessage, caller: Owner | None, peer: str) -> None:
        if not message.message_id:
            raise InvalidRequest("a message of a queue has a message id, by which a repeated one is recognised.")
        await self._definitions.require(message.namespace, message.topic, message.kind, _actor(caller, peer))

    def _submit(self, message: QueueMessage, gid: str, caller: Owner | None) -> tuple[Trigger, asyncio.Future[Reply]]:
        replied: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        return self.append(message, gid, answers(replied), caller), replied

    def append(
        self,
        message: QueueMessage,
        gid: str,
        on_reply: OnReply,
        caller: Owner | None = None,
        audited: Audited | None = None,
    ) -> Trigger:
        """Submit a message under a gid; `on_reply` is called once.

        The trigger shows its entries and their numbers. `audited`: the operator's act behind it.
        """
        branch = Branch(address_of(message), message.body)
        whole = Message(gid, (branch,), options=Options(not_before_ms=message.deliver_at_ms))
        trigger = Trigger(Event.SUBMIT, whole, on_reply, DecidedBy.SUBMIT, owner=caller, audited=audited)
        active = self._admission.admit(whole, on_reply, is_submit=True, owner=caller)
        if active is not None:
            self._machine.handle(active, trigger)
        return trigger

    async def _sent(
        self, trigger: Trigger, replied: asyncio.Future[Reply], message: QueueMessage
    ) -> Sent | TwophaseError:
        """Return where a message is; an earlier one of its gid must be the same."""
        reply = await replied
        assert trigger.request is not None, "it is sent"
        gid = trigger.request.gid
        if reply.error is not None and not _is_repeated(reply, _DECIDED):
            return reply.error
        if reply.error is not None and not await self._is_same(gid, message):
            return id_taken(message, gid)
        place = await self._store.queue_place(gid, 0) if reply.error is not None or not trigger.numbers else None
        if place is not None:
            return Sent(place.queue, place.number, gid)
        queue = trigger.appended[0].queue if trigger.appended else 0
        return Sent(queue, trigger.numbers[0] if trigger.numbers else -1, gid)

    async def half(
        self,
        message: QueueMessage,
        *,
        producers: str,
        client_id: str,
        check_after_ms: int | None,
        caller: Owner | None,
        peer: str = "",
    ) -> str:
        """See `QueueApi.half`."""
        await self._require(message, caller, peer)
        gid = gid_of(message.namespace, message.topic, message.message_id)
        whole = Message(
            gid,
            (Branch(address_of(message), message.body),),
            check_address(producers, client_id),
            Options(timeout_to_fail_ms=check_after_ms or 0),
        )
        replied: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        on_reply = answers(replied)
        active = self._admission.admit(whole, on_reply, owner=caller)
        if active is not None:
            self._machine.handle(active, Trigger(Event.PREPARE, whole, on_reply, owner=caller))
        reply = await replied
        if reply.error is not None and not _is_repeated(reply, {*_DECIDED, State.PREPARED, State.FAILED}):
            raise reply.error
        if reply.error is not None and not await self._is_same(gid, message, producers):
            raise id_taken(message, gid)
        return gid

    async def _is_same(self, gid: str, message: QueueMessage, producers: str = "") -> bool:
        """Return True when a gid names this message; `producers`: of a half one."""
        row = await self._store.get(gid)
        return row is None or is_same(message, decode(row.body), producers)

    async def end(
        self,
        transaction_id: str,
        decision: Decision,
        *,
        checked: bool,
        client_id: str,  # noqa: ARG002 -- any producer may answer; the wire knows who did
        caller: Owner | None,
        topic: tuple[str, str] | None = None,
    ) -> None:
        """See `QueueApi.end`."""
        if decision is Decision.UNKNOWN and not checked:
            return
        if topic is not None:
            row = await self._store.get(transaction_id)
            # Another owner's is refused below, whatever its topic is.
            if row is not None and not (_is_of_another(row, caller) or is_of_topic(decode(row.body), *topic)):
                raise UnknownMessage(f"no message {transaction_id!r} found in {topic[1]!r}.", gid=transaction_id)
        if decision is Decision.UNKNOWN and not self._producers.begin_unknown(transaction_id, caller):
            return  # no question is open, or one such answer is being stored, so this one counts as no try
        try:
            state = await self._decide(transaction_id, decision, checked=checked, caller=caller)
        except ContentConflict:  # it is another owner's
            if decision is Decision.UNKNOWN:
                return  # the answer must not tell another owner that a question is open
            raise
        finally:
            if decision is Decision.UNKNOWN:
                self._producers.end_unknown(transaction_id, caller)
        took_ms = self._producers.answered(transaction_id)
        if checked and took_ms is not None:
            self._runtime.observer.check_back_answered(_VERDICTS[decision].value, took_ms / 1000)
        if state <= State.FORGOTTEN:
            raise UnknownMessage(f"no message {transaction_id!r} found.", gid=transaction_id)
        contrary = state is State.FAILED if decision is Decision.COMMIT else state in _DECIDED
        if contrary and decision is not Decision.UNKNOWN:
            raise ContraryDecision(f"it is {state}: the opposite was decided before.", gid=transaction_id)

    async def _decide(self, gid: str, decision: Decision, *, checked: bool, caller: Owner | None) -> State:
        """Return the state behind the decision; ABSENT where there is no such message."""
        if not gid.startswith(GID_PREFIX):
            return State.ABSENT
        by = DecidedBy.ABORT if decision is Decision.ROLLBACK else DecidedBy.SUBMIT
        by, reason = (DecidedBy.CHECK_BACK, f"the producer answered {decision.value}") if checked else (by, "")
        event, answered = _EVENTS[decision], decision is Decision.UNKNOWN
        reply = await self._handle(
            gid, lambda on_reply: Trigger(event, None, on_reply, by, reason, owner=caller, answered=answered)
        )
        if reply.error is not None:
            raise reply.error
        return reply.state

    async def _handle(self, gid: str, trigger: Callable[[OnReply], Trigger]) -> Reply:
        replied: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        on_reply = answers(replied)
        active = self._admission.find(gid, on_reply)
        if active is not None:
            self._machine.handle(active, trigger(on_reply))
        return await replied

    async def recall(self, namespace: str, topic: str, transaction_id: str, caller: Owner | None) -> None:
        """See `QueueApi.recall`."""
        full_name(namespace, topic)
        row = await self._store.get(transaction_id) if transaction_id.startswith(GID_PREFIX) else None
        if row is None or _is_of_another(row, caller):
            raise UnknownMessage(f"no message {transaction_id!r} found, cannot recall.", gid=transaction_id)
        if not is_of_topic(decode(row.body), namespace, topic):
            raise UnknownMessage(f"no message {transaction_id!r} found in {topic!r}.", gid=transaction_id)
        if isinstance(row, HistoryRow) and (row.state, row.reason) == (State.FAILED, _RECALLED):
            return  # the answer to the first request may have been lost
        waits = isinstance(row, LiveRow) and row.state is State.SUBMITTED and waits_for_its_time(decode(row.body))
        if not waits:
            raise StateConflict(f"it is {row.state}, cannot recall.", gid=transaction_id)
        reply = await self._handle(
            transaction_id,
            lambda on_reply: Trigger(Event.FORCE_STOP, None, on_reply, DecidedBy.ABORT, _RECALLED, owner=caller),
        )
        if reply.error is not None:
            raise reply.error

    def attach(self, client: Client) -> Callable[[], None]:
        """See `QueueApi.attach`."""
        self.serving.attach(client)
        detach = self._producers.attach(client)

        def leave() -> None:
            detach()
            self.serving.detach(client)

        return leave

    # Consumers.

    async def receive(
        self,
        namespace: str,
        group: str,
        topic: str,
        *,
        expression: str,
        limit: int,
        invisible_ms: int,
        wait_ms: int,
        client_id: str,
        auto_renew: bool,
        bytes_max: int | None = None,
        caller: Owner | None = None,
        peer: str = "",
    ) -> list[Delivered]:
        """See `QueueApi.receive`."""
        if not self._admission.is_open:
            raise ShuttingDown if self._admission.draining else StoreFenced
        queues = (await self.topic(namespace, topic, caller, peer)).queues
        attempts_max = (await self.group(namespace, group, caller, peer)).attempts_max
        found, dead = await self.serving.receive(
            full_name(namespace, group),
            full_name(namespace, topic),
            queues,
            expression=expression,
            limit=limit,
            invisible_ms=0 if auto_renew else invisible_ms,
            wait_ms=wait_ms,
            client_id=client_id,
            attempts_max=attempts_max,
            bytes_max=bytes_max,
        )
        for one in dead:
            self._bury_soon(namespace, group, one)
        return found

    async def ack(self, namespace: str, group: str, topic: str, handle: str) -> None:
        """See `QueueApi.ack`."""
        await self.serving.ack(full_name(namespace, group), full_name(namespace, topic), handle)

    async def extend(
        self, namespace: str, group: str, topic: str, handle: str, invisible_ms: int, *, rests: bool = False
    ) -> str:
        """See `QueueApi.extend`."""
        names = full_name(namespace, group), full_name(namespace, topic)
        return await self.serving.extend(*names, handle, invisible_ms, rests=rests)

    async def give_back(self, namespace: str, group: str, topic: str, handle: str) -> None:
        """See `QueueApi.give_back`."""
        await self.serving.give_back(full_name(namespace, group), full_name(namespace, topic), handle)

    async def dead_letter(self, namespace: str, group: str, topic: str, handle: str, reason: str = "") -> None:
        """See `QueueApi.dead_letter`."""
        dead = await self.serving.dead(full_name(namespace, group), full_name(namespace, topic), handle)
        await self._bury(namespace, group, dead, reason)

    def _bury_soon(self, namespace: str, group: str, dead: Dead) -> None:
        if len(self._burials) >= _BURIALS_MAX:
            return  # it waits for a consumer again in a minute
        task = asyncio.get_running_loop().create_task(self._bury(namespace, group, dead), name="twophase burial")
        self._burials.add(task)
        task.add_done_callback(partial(self._buried, full_name(namespace, group)))

    def _buried(self, group: str, task: asyncio.Task[None]) -> None:
        """Forget a burial, and report one that failed.

        It is tried again when the message waits for a consumer the next time.
        """
        self._burials.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, TwophaseError):
            self._runtime.observer.burial_failed(group, error.code, f"{error.message} {error.remedy}")
        elif error is not None:
            self._runtime.observer.burial_failed(group, ServerFault.code, type(error).__name__)

    async def _bury(self, namespace: str, group: str, dead: Dead, reason: str = "") -> None:
        """Move a message into the group's dead letters.

        It is there once: its gid comes from the entry's place. One that was sent again or removed since does not count.

        Raises:
            TwophaseError: it stays where it is.
        """
        message = dead.held.message
        letter = letter_of(message, namespace, group, reason)
        await self._definitions.topic(namespace, letter.topic)
        _, topic, queue = dead.cursor.key
        sent: Sent | TwophaseError = StateConflict()
        for gid in gids_of_letter(letter, dead.held.gid, topic, queue, dead.number):
            sent = await self._sent(*self._submit(letter, gid, None), letter)
            if isinstance(sent, Sent) and sent.offset >= 0 and not await self._store.get(sent_again_as(letter, gid)):
                break
            if not isinstance(sent, (Sent, StateConflict, ContentConflict, ContraryDecision)):
                break  # otherwise the gid names another message
        if isinstance(sent, TwophaseError):
            raise sent
        await self.serving.buried(dead)


def _actor(caller: Owner | None, peer: str) -> Actor:
    return Actor("" if caller is None else caller.name, peer)


def _is_of_another(row: LiveRow | HistoryRow, caller: Owner | None) -> bool:
    """Return True for a message of another owner than the caller."""
    return caller is not None and row.owner not in {"", caller.name}


def _is_repeated(reply: Reply, states: frozenset[State] | set[State]) -> bool:
    """Return True when a request was refused because its message is there already."""
    return isinstance(reply.error, (StateConflict, ContentConflict)) and reply.state in states
