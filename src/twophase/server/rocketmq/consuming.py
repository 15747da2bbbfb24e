"""The requests of consumers.

They are ReceiveMessage, AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Final

from twophase.coordinator.queues import Delivered, QueueApi
from twophase.core.errors import (
    InvalidRequest,
    Overloaded,
    QueueNotFound,
    QueuesUnavailable,
    ReceiptStale,
    TooManyTopics,
    TwophaseError,
)
from twophase.core.hooks import Clock
from twophase.grpc_server.streaming import StreamingCall
from twophase.rocketmq_wire.answers import (
    encode_acknowledged,
    encode_delivered_at,
    encode_delivery,
    encode_extended,
    encode_received_status,
    encode_status,
)
from twophase.rocketmq_wire.codes import Code, Filter
from twophase.rocketmq_wire.descriptors import SERVICE
from twophase.rocketmq_wire.requests import parse_ack, parse_dead_letter, parse_extend, parse_receive
from twophase.rocketmq_wire.values import Receipt, ReceiveRequest, Resource, Status
from twophase.server.identity.scopes import scopes_of
from twophase.server.rocketmq.caller import Client
from twophase.server.rocketmq.checking import delivered, group_in, topic_in
from twophase.server.rocketmq.refusals import OK, Refused, status_of
from twophase.server.rocketmq.routing import Handler

RECEIVE: Final = f"/{SERVICE}/ReceiveMessage"
BATCH_MAX: Final = 32
_BODY_BYTES: Final = 4 * 1024 * 1024
"""Bodies of one answer together; one message may have more."""
_BESIDE_BODY: Final = 512
"""Bytes of a message that has neither body nor properties."""
WAIT_MS: Final = 20_000
"""Length of a long poll that names none."""
WAIT_MS_MAX: Final = 60_000
INVISIBLE_MS_LEAST: Final = 10_000
INVISIBLE_MS_MAX: Final = 12 * 3600 * 1000
_EXTENDED_MS_LEAST: Final = 1_000
"""The official Node.js client gives a message back with 0."""
_WITHOUT_STREAM_MS: Final = 60_000
"""Time for which a client without a stream has a message that it wants to keep.

The end of its stream would show that it is gone.
"""
_ELSEWHERE_S: Final = 1.0
"""Pause before a consumer is refused whose topic another node serves."""
_MARGIN_MS: Final = 500
"""Time before the client's deadline at which a long poll is answered."""
_EMPTY: Final = Status(Code.MESSAGE_NOT_FOUND, "no message arrived in time.")


class Consuming:
    """The requests of consumers."""

    def __init__(self, queues: QueueApi, clock: Clock) -> None:
        self._queues = queues
        self._clock = clock

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers by the names of their methods, but for `receive`."""
        return {
            "AckMessage": self._ack,
            "ChangeInvisibleDuration": self._extend,
            "ForwardMessageToDeadLetterQueue": self._dead_letter,
        }

    async def receive(self, client: Client, raw: bytes, call: StreamingCall) -> None:
        """Answer a ReceiveMessage: a status, the messages, and the time of delivery.

        The messages count in the budget until each has left.

        Raises:
            TwophaseError, BrokenMessage: it is refused; nothing was sent.
        """
        request = parse_receive(raw)
        found = await self._received(client, request)
        kept = sum(map(_bytes_of, found))
        if not call.keep(kept):
            await self._return(request, found)
            raise Overloaded("too many bytes of messages wait for clients that do not read them.")
        handles, waiting = [one.handle for one in found], deque(found)
        del found  # each message is let go of as soon as it has left
        try:
            await call.send(encode_received_status(OK if waiting else _EMPTY))
            while waiting:
                kept -= _bytes_of(waiting[0])
                await call.send(encode_delivery(*delivered(waiting.popleft())))
                call.keep(kept)
            await self.end(call)
        except BaseException:
            waiting.clear()  # as `_return` says
            await self._give_back(request, handles)
            raise

    async def _return(self, request: ReceiveRequest, found: list[Delivered]) -> None:
        """Let others have at once what is not sent; the delivery does not count.

        The list is empty afterwards: the traceback of the refusal keeps it until the garbage collector comes.
        """
        while found:
            handle = found.pop().handle  # the last one first: each goes before all others
            with contextlib.suppress(TwophaseError):
                await self._queues.give_back(request.group.namespace, request.group.name, request.topic.name, handle)

    async def _give_back(self, request: ReceiveRequest, handles: list[str]) -> None:
        """Let others have soon what was given out and did not arrive.

        Its lease could last for hours: as long as the client's stream, or as the client has asked for. The client may
        have got some of it, and has the least time that it could have asked for.

        Arguments:
            handles: the receipts of what was given out.
        """
        for handle in handles:
            with contextlib.suppress(TwophaseError):
                await self._queues.extend(
                    request.group.namespace, request.group.name, request.topic.name, handle, INVISIBLE_MS_LEAST
                )

    async def end(self, call: StreamingCall) -> None:
        """Send what ends every answer to a ReceiveMessage, a refusal too."""
        await call.send(encode_delivered_at(self._clock.now_ms()))

    async def _received(self, client: Client, request: ReceiveRequest) -> list[Delivered]:
        group, topic = _group_and_topic(client, request.group, request.topic)
        if request.filter_kind == Filter.SQL:
            raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, "filter_expression: tags are served, SQL is not.")
        if request.limit < 1:
            raise Refused(Code.BAD_REQUEST, "batch_size: it must be at least 1.")
        invisible_ms, auto_renew = _invisible(client, request)
        try:
            await self._queues.topic(topic.namespace, topic.name, client.caller.owner, client.peer)
        except QueueNotFound as error:
            raise Refused(Code.TOPIC_NOT_FOUND, error.message) from error
        receiving = asyncio.ensure_future(
            self._queues.receive(
                group.namespace,
                group.name,
                topic.name,
                expression=request.expression or "*",
                limit=min(request.limit, BATCH_MAX),
                invisible_ms=invisible_ms,
                wait_ms=_wait_ms(client, request),
                client_id=client.session.client_id,
                auto_renew=auto_renew,
                bytes_max=_BODY_BYTES,
                caller=client.caller.owner,
                peer=client.peer,
            )
        )
        try:
            found = await client.session.poll(receiving) or []
        except QueueNotFound as error:
            raise Refused(Code.CONSUMER_GROUP_NOT_FOUND, error.message) from error
        except TooManyTopics:
            raise
        except InvalidRequest as error:  # the names were looked at before
            raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, error.message) from error
        except QueuesUnavailable:
            # A push consumer asks again at once, and for its queues every five seconds.
            await asyncio.sleep(min(_ELSEWHERE_S, _wait_ms(client, request) / 1000))
            raise
        except asyncio.CancelledError:
            if receiving.done() and not receiving.cancelled() and receiving.exception() is None:
                await self._give_back(request, [one.handle for one in receiving.result()])
            raise
        try:
            # A token may be revoked during a long poll.
            client.caller.require_scope(scopes_of(RECEIVE), RECEIVE, client.peer)
        except TwophaseError:
            await self._give_back(request, [one.handle for one in found])
            raise
        return found

    async def _ack(self, client: Client, raw: bytes) -> bytes:
        request = parse_ack(raw)
        group, topic = _group_and_topic(client, request.group, request.topic)
        if not request.receipts:
            raise Refused(Code.BAD_REQUEST, "entries: there is none.")
        client.caller.count(len(request.receipts) - 1, counted=1)
        acknowledged = [self._acknowledged(group, topic, receipt) for receipt in request.receipts]  # in one flush
        entries = list(zip(request.receipts, await asyncio.gather(*acknowledged), strict=True))
        first = entries[0][1]
        if any(status.code != first.code for _, status in entries):
            first = Status(Code.MULTIPLE_RESULTS, "some of the receipts were refused; each entry has its own status.")
        return encode_acknowledged(first, entries)

    async def _acknowledged(self, group: Resource, topic: Resource, receipt: Receipt) -> Status:
        try:
            await self._queues.ack(group.namespace, group.name, topic.name, receipt.handle)
        except TwophaseError as error:
            if isinstance(error, ReceiptStale) and error.is_superseded:
                return OK  # RocketMQ answers so, too: it is done, or the consumer that has it now acknowledges it
            return status_of(error)
        return OK

    async def _extend(self, client: Client, raw: bytes) -> bytes:
        request = parse_extend(raw)
        try:
            group, topic = _group_and_topic(client, request.group, request.topic)
            if not 0 <= request.invisible_ms <= INVISIBLE_MS_MAX:
                raise Refused(
                    Code.ILLEGAL_INVISIBLE_TIME,
                    f"invisible_duration: it is not between 0 and {INVISIBLE_MS_MAX} ms.",
                )
            invisible_ms = max(request.invisible_ms, _EXTENDED_MS_LEAST)
            handle = await self._queues.extend(  # a pause behind a failure, as far as the wire tells
                group.namespace, group.name, topic.name, request.handle, invisible_ms, rests=True
            )
        except TwophaseError as error:
            # The Python client takes over the receipt before it looks at the status.
            return encode_extended(status_of(error), request.handle)
        return encode_extended(OK, handle)

    async def _dead_letter(self, client: Client, raw: bytes) -> bytes:
        request = parse_dead_letter(raw)
        group, topic = _group_and_topic(client, request.group, request.topic)
        with contextlib.suppress(ReceiptStale):  # another delivery decides; Python's client would repeat for ever
            await self._queues.dead_letter(group.namespace, group.name, topic.name, request.handle)
        return encode_status("ForwardMessageToDeadLetterQueueResponse", OK)


def _bytes_of(one: Delivered) -> int:
    """Return about how much memory a message needs."""
    return _BESIDE_BODY + len(one.message.body) + sum(len(name) + len(value) for name, value in one.message.properties)


def _group_and_topic(client: Client, group: Resource, topic: Resource) -> tuple[Resource, Resource]:
    group, topic = group_in(group), topic_in(topic)
    if group.namespace != topic.namespace:
        raise Refused(Code.ILLEGAL_CONSUMER_GROUP, "group: its namespace is not the topic's.")
    client.require_topic(topic)
    return group, topic


def _invisible(client: Client, request: ReceiveRequest) -> tuple[int, bool]:
    """Return how long messages are the client's.

    The second is True for as long as its stream lives, `queue_hold_ms` at most.
    """
    if request.auto_renew:
        return (0, True) if client.session.is_live else (_WITHOUT_STREAM_MS, False)
    invisible_ms = request.invisible_ms or 0
    if not INVISIBLE_MS_LEAST <= invisible_ms <= INVISIBLE_MS_MAX:
        raise Refused(
            Code.ILLEGAL_INVISIBLE_TIME,
            f"invisible_duration: it is not between {INVISIBLE_MS_LEAST} and {INVISIBLE_MS_MAX} ms.",
        )
    return invisible_ms, False


def _wait_ms(client: Client, request: ReceiveRequest) -> int:
    wait_ms = WAIT_MS if request.wait_ms is None else min(max(request.wait_ms, 0), WAIT_MS_MAX)
    return min(wait_ms, max(client.timeout_ms - _MARGIN_MS, 0)) if client.timeout_ms else wait_ms
