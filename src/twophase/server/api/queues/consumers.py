"""The routes of consumers of queues, under `/api/twophase/queues/`.

They are the engine's contract over HTTP, so a consumer of twophase's and one of RocketMQ's may share a group. A
receive is a long poll. What it took is given back when its client has gone, or when its token was revoked meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from starlette.requests import Request

from twophase.coordinator.queues import Delivered, QueueApi
from twophase.core.errors import InvalidRequest, Refused, TwophaseError
from twophase.core.queue_api import (
    ACK_PATH,
    ANSWER_BYTES_MAX,
    DEAD_LETTER_PATH,
    EXTEND_PATH,
    GIVE_BACK_PATH,
    LEAVE_PATH,
    NACK_PATH,
    RECEIVE_PATH,
    Deliveries,
    Extend,
    Extended,
    GiveUp,
    Leave,
    Nack,
    Nacked,
    Noted,
    OneDelivery,
    OneReceipt,
    ReceiptResults,
    Receipts,
    Receive,
)
from twophase.core.queue_message import address_of
from twophase.server.api.operation import Operation, Served, caller_of, peer_of, require_room
from twophase.server.api.queues.long_polls import polled
from twophase.server.api.queues.requests import NO_QUEUE, POLL_BYTES_MAX, QUEUES_TAG, STALE, read, require_topic
from twophase.server.codecs.encode import Answer
from twophase.server.identity.caller import Caller
from twophase.server.identity.scopes import scopes_of
from twophase.server.sessions import Sessions

_encode = msgspec.json.Encoder().encode


def _operation(path: str, summary: str, request: Any, answer: Any, description: str = "", **refusals: str) -> Operation:
    return Operation(
        path=path,
        methods=("POST",),
        tag=QUEUES_TAG,
        summary=summary,
        description=description,
        request=request,
        answer=answer,
        refusals={int(status[1:]): text for status, text in refusals.items()},
    )


RECEIVE: Final = _operation(
    RECEIVE_PATH,
    "Take messages of a topic for a group of consumers",
    Receive,
    Deliveries,
    "A long poll. A message is the consumer's for `lease_ms`; then others get it. Bodies have 4 MiB together, or one"
    " message has more.",
    _400=NO_QUEUE,
)
ACK: Final = _operation(
    ACK_PATH,
    "Acknowledge messages",
    Receipts,
    ReceiptResults,
    "The acknowledgement is durable before the answer. A stale receipt is an outcome of its own, TP-2020.",
)
NACK: Final = _operation(NACK_PATH, "Let a message be delivered again", Nack, Nacked, _409=STALE)
EXTEND: Final = _operation(
    EXTEND_PATH,
    "Keep a message for longer",
    Extend,
    Extended,
    "The same request again, whose answer was lost, gets the same receipt, and its time begins anew.",
    _409=STALE,
)
GIVE_BACK: Final = _operation(
    GIVE_BACK_PATH,
    "Give back messages that were not begun",
    Receipts,
    ReceiptResults,
    "Others get them at once, and the delivery does not count.",
)
DEAD_LETTER: Final = _operation(
    DEAD_LETTER_PATH, "Move a message into the group's dead letters", GiveUp, Noted, _409=STALE
)
LEAVE: Final = _operation(LEAVE_PATH, "Answer the long polls of a client now", Leave, Noted)
_RECEIVES: Final = scopes_of(RECEIVE_PATH)
_NOTED: Final = Answer(200, _encode(Noted()))


class QueueConsumersApi:
    """Answers the requests of consumers.

    Arguments:
        queues: the engine.
        sessions: the clients of queues.
    """

    def __init__(self, queues: QueueApi, sessions: Sessions) -> None:
        self._queues = queues
        self._sessions = sessions

    def served(self) -> list[Served]:
        """Return the operations with their handlers."""
        return [
            Served(RECEIVE, self._receive),
            Served(ACK, self._ack),
            Served(NACK, self._nack),
            Served(EXTEND, self._extend),
            Served(GIVE_BACK, self._give_back),
            Served(DEAD_LETTER, self._dead_letter),
            Served(LEAVE, self._leave),
        ]

    async def _receive(self, request: Request) -> Answer:
        asked = await read(request, Receive, POLL_BYTES_MAX)
        caller = caller_of(request)
        require_topic(caller, asked.namespace, asked.topic)
        session = self._sessions.of(caller, asked.client)
        receiving = self._queues.receive(
            asked.namespace,
            asked.group,
            asked.topic,
            expression=asked.tags,
            limit=asked.limit,
            invisible_ms=asked.lease_ms,
            wait_ms=asked.wait_ms,
            client_id=session.client_id,
            auto_renew=False,
            bytes_max=ANSWER_BYTES_MAX,
            caller=caller.owner,
            peer=peer_of(request),
        )
        end = await polled(request, session, receiving)
        found: Sequence[Delivered] = end.result or ()
        try:
            if not end.is_there:
                await self._return(asked, found)
                found = ()
            elif caller.limited:
                caller.require_scope(_RECEIVES, RECEIVE_PATH, peer_of(request))  # revoked while it waited?
            answer = Answer(200, _encode(Deliveries(tuple(map(_delivery, found)))))
            require_room(request, answer)
        except TwophaseError:
            await self._return(asked, found)
            raise
        return answer

    async def _return(self, asked: Receive, found: Sequence[Delivered]) -> None:
        """Let others have what did not reach the client."""
        for one in found:
            with contextlib.suppress(TwophaseError):
                await self._queues.give_back(asked.namespace, asked.group, asked.topic, one.handle)

    async def _ack(self, request: Request) -> Answer:
        return await self._each(request, self._queues.ack)

    async def _give_back(self, request: Request) -> Answer:
        return await self._each(request, self._queues.give_back)

    async def _each(self, request: Request, act: Any) -> Answer:
        """Do the same with every receipt; they share the flush."""
        asked = await read(request, Receipts)
        caller = caller_of(request)
        require_topic(caller, asked.namespace, asked.topic)
        caller.count(len(asked.receipts) - 1, counted=1)
        acts = (act(asked.namespace, asked.group, asked.topic, receipt) for receipt in asked.receipts)
        ends = await asyncio.gather(*acts, return_exceptions=True)
        return Answer(200, _encode(ReceiptResults(tuple(map(_outcome, ends)))))

    async def _nack(self, request: Request) -> Answer:
        asked = await read(request, Nack)
        caller = caller_of(request)
        self._require(caller, asked)
        pause_ms = asked.pause_ms
        if pause_ms is None:
            group = await self._queues.group(asked.namespace, asked.group, caller.owner, peer_of(request))
            pause_ms = group.pause_ms(asked.attempt)
        await self._queues.extend(asked.namespace, asked.group, asked.topic, asked.receipt, pause_ms, rests=True)
        return Answer(200, _encode(Nacked(pause_ms)))

    async def _extend(self, request: Request) -> Answer:
        asked = await read(request, Extend)
        self._require(caller_of(request), asked)
        receipt = await self._queues.extend(asked.namespace, asked.group, asked.topic, asked.receipt, asked.lease_ms)
        return Answer(200, _encode(Extended(receipt)))

    async def _dead_letter(self, request: Request) -> Answer:
        asked = await read(request, GiveUp)
        self._require(caller_of(request), asked)
        await self._queues.dead_letter(asked.namespace, asked.group, asked.topic, asked.receipt, asked.reason)
        return _NOTED

    async def _leave(self, request: Request) -> Answer:
        asked = await read(request, Leave)
        self._sessions.of(caller_of(request), asked.client).end_polls()
        return _NOTED

    def _require(self, caller: Caller, asked: Nack | Extend | GiveUp) -> None:
        require_topic(caller, asked.namespace, asked.topic)


def _delivery(one: Delivered) -> OneDelivery:
    return OneDelivery(
        address=address_of(one.message),
        body=one.message.body,
        receipt=one.handle,
        attempt=one.attempt,
        queue=one.queue,
        offset=one.offset,
        stored_ms=one.stored_ms,
        lease_ms=one.invisible_ms,
        transaction_id=one.transaction_id,
    )


def _outcome(end: BaseException | None) -> OneReceipt:
    """Return the outcome of one receipt.

    Raises:
        BaseException: what is no outcome, such as a fault of the store; the request may be repeated.
    """
    if end is None:
        return OneReceipt()
    if isinstance(end, Refused | InvalidRequest):
        return OneReceipt(end.code, end.message)
    raise end
