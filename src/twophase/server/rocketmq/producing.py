"""SendMessage, EndTransaction and RecallMessage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twophase.coordinator.queues import Decision, QueueApi, Sent
from twophase.core.errors import ContentConflict, StateConflict, TwophaseError, UnknownMessage
from twophase.core.hooks import Clock
from twophase.core.queue_message import QueueMessage, gid_of
from twophase.rocketmq_wire.answers import encode_recalled, encode_sent, encode_status
from twophase.rocketmq_wire.codes import Code, MessageType, Resolution, Source
from twophase.rocketmq_wire.requests import parse_end, parse_recall, parse_send
from twophase.rocketmq_wire.values import Resource, SendResult, Status, WireMessage
from twophase.server.rocketmq.caller import Client
from twophase.server.rocketmq.checking import check_after_ms, message_in, topic_in
from twophase.server.rocketmq.refusals import OK, Refused, status_of
from twophase.server.rocketmq.routing import Handler
from twophase.server.sessions import producers_of

_DECISIONS: Final[dict[int, Decision]] = {
    Resolution.COMMIT: Decision.COMMIT,
    Resolution.ROLLBACK: Decision.ROLLBACK,
    Resolution.UNSPECIFIED: Decision.UNKNOWN,
}
_BETWEEN: Final = ":"
"""Stands in a recall handle between the transaction id and the message id."""


class Producing:
    """The requests of producers."""

    def __init__(self, queues: QueueApi, clock: Clock) -> None:
        self._queues = queues
        self._clock = clock

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers by the names of their methods."""
        return {"SendMessage": self._send, "EndTransaction": self._end, "RecallMessage": self._recall}

    async def _send(self, client: Client, raw: bytes) -> bytes:
        messages = parse_send(raw)
        if not messages:
            raise Refused(Code.MESSAGE_CORRUPTED, "messages: there is none.")
        client.caller.count(len(messages) - 1, counted=1)
        if any(message.kind == MessageType.TRANSACTION for message in messages):
            results = [await self._half(client, messages)]
        else:
            results = await self._batch(client, messages)
        return encode_sent(_together(results), results)

    async def _half(self, client: Client, messages: Sequence[WireMessage]) -> SendResult:
        if len(messages) > 1:
            raise Refused(Code.INTERNAL_SERVER_ERROR, "messages: a transactional one is sent alone.")
        (sent,) = messages
        message = self._taken(client, sent)
        session, topic = client.session, Resource(message.topic, message.namespace)
        session.answers_for({producers_of(client.caller, topic.namespace, topic.name)})
        transaction_id = await self._queues.half(
            message,
            producers=client.peculiar.producers_for(session, topic),
            client_id=session.client_id,
            check_after_ms=check_after_ms(sent),
            caller=client.caller.owner,
            peer=client.peer,
        )
        return SendResult(OK, message.message_id, transaction_id)

    async def _batch(self, client: Client, messages: Sequence[WireMessage]) -> list[SendResult]:
        """Send messages; one that is refused does not hold back the others."""
        results: dict[int, SendResult] = {}
        taken: dict[int, QueueMessage] = {}
        for index, message in enumerate(messages):
            try:
                taken[index] = self._taken(client, message)
            except TwophaseError as error:
                results[index] = SendResult(status_of(error), message.message_id)
        if taken:
            answers = await self._queues.send(list(taken.values()), client.caller.owner, client.peer)
            for (index, one), answer in zip(taken.items(), answers, strict=True):
                results[index] = _sent(one, answer)
        return [results[index] for index in range(len(messages))]

    def _taken(self, client: Client, message: WireMessage) -> QueueMessage:
        """Return what is sent, if it may be; raises TwophaseError."""
        taken = message_in(message, self._clock.now_ms())
        client.require_topic(message.topic)
        if client.caller.gid_prefix:
            client.caller.require_gid(gid_of(taken.namespace, taken.topic, taken.message_id))
        return taken

    async def _end(self, client: Client, raw: bytes) -> bytes:
        request = parse_end(raw)
        topic = topic_in(request.topic)
        client.require_topic(topic)
        decision = _DECISIONS.get(request.resolution)
        if decision is None:
            raise Refused(Code.BAD_REQUEST, "resolution: it is neither COMMIT nor ROLLBACK.")
        if not request.transaction_id:
            raise Refused(Code.INVALID_TRANSACTION_ID, "transaction_id: it is missing.")
        client.caller.require_gid(request.transaction_id)
        # As a rule the ids show the topic, and the message is not looked for.
        spaces = (topic.namespace, client.namespace)
        is_named = any(request.transaction_id == gid_of(space, topic.name, request.message_id) for space in spaces)
        try:
            await self._queues.end(
                request.transaction_id,
                decision,
                checked=request.source == Source.SERVER_CHECK,
                client_id=client.session.client_id,
                caller=client.caller.owner,
                topic=None if is_named else (topic.namespace, topic.name),
            )
        except ContentConflict as error:  # it is another owner's
            raise Refused(Code.INVALID_TRANSACTION_ID, error.message) from error
        return encode_status("EndTransactionResponse", OK)

    async def _recall(self, client: Client, raw: bytes) -> bytes:
        request = parse_recall(raw)
        topic = topic_in(request.topic)
        client.require_topic(topic)
        transaction_id, between, message_id = request.handle.partition(_BETWEEN)
        if not between:
            raise Refused(Code.BAD_REQUEST, "recall_handle: it is none that this server gave.")
        client.caller.require_gid(transaction_id)
        try:
            await self._queues.recall(topic.namespace, topic.name, transaction_id, client.caller.owner)
        except UnknownMessage as error:  # Python's client takes MESSAGE_NOT_FOUND for a success
            raise Refused(Code.NOT_FOUND, error.message) from error
        except StateConflict as error:
            raise Refused(Code.BAD_REQUEST, error.message) from error
        return encode_recalled(message_id)


def _sent(message: QueueMessage, answer: Sent | TwophaseError) -> SendResult:
    if isinstance(answer, TwophaseError):
        return SendResult(status_of(answer), message.message_id)
    handle = f"{answer.transaction_id}{_BETWEEN}{message.message_id}" if message.kind == "delay" else ""
    return SendResult(OK, message.message_id, answer.transaction_id, max(answer.offset, 0), handle)


def _together(results: Sequence[SendResult]) -> Status:
    """Return the status of a call with several results."""
    first = results[0].status
    if all(result.status.code == first.code for result in results):
        return first
    return Status(Code.MULTIPLE_RESULTS, "some of the messages were refused; each entry has its own status.")
