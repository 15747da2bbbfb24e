"""The routes of producers of transactional messages.

They are below `/api/twophase/queues/`. A half message is kept, decided, or asked about. Questions are the answers to a
long poll: a producer is there as long as one of its polls waits, and one that comes is asked at once about what waited.
So no address of it is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

import msgspec
from starlette.requests import Request

from twophase.coordinator.queues import Question, QueueApi
from twophase.core.errors import InvalidRequest
from twophase.core.limits import PAYLOAD_BYTES_MAX, URL_BYTES_MAX, require
from twophase.core.queue_api import (
    ANSWER_BYTES_MAX,
    DECIDE_PATH,
    HALF_PATH,
    QUESTIONS_PATH,
    Ask,
    Decide,
    HalfMessage,
    Kept,
    Noted,
    OneQuestion,
    Questions,
)
from twophase.core.queue_message import QueueMessage, address_of, full_name, gid_of, message_of
from twophase.server.api.operation import Operation, Served, caller_of, peer_of, require_room
from twophase.server.api.queues.long_polls import polled
from twophase.server.api.queues.requests import NO_QUEUE, POLL_BYTES_MAX, QUEUES_TAG, read, refuse, require_topic
from twophase.server.codecs.decode import Decoder
from twophase.server.codecs.encode import Answer
from twophase.server.identity.scopes import scopes_of
from twophase.server.sessions import QUESTIONS_MAX, Sessions, producers_of

HALF: Final = Operation(
    path=HALF_PATH,
    methods=("POST",),
    tag=QUEUES_TAG,
    summary="Store a half message of a queue, which its producer decides",
    description="May be repeated: the topic and the `id` of the address name it.",
    request=HalfMessage,
    answer=Kept,
    refusals={400: NO_QUEUE, 409: "TP-2002: the `id` stands for another message, or is another owner's"},
)
DECIDE: Final = Operation(
    path=DECIDE_PATH,
    methods=("POST",),
    tag=QUEUES_TAG,
    summary="Commit a half message, roll it back, or say that this is not known yet",
    description="May be repeated. When a commit is answered, the message is in its queue.",
    request=Decide,
    answer=Noted,
    refusals={
        404: "TP-2004: there is no such message",
        409: "TP-2003: the opposite was decided before; or TP-2002: it is another owner's",
    },
)
QUESTIONS: Final = Operation(
    path=QUESTIONS_PATH,
    methods=("POST",),
    tag=QUEUES_TAG,
    summary="Wait for questions about half messages of a group of producers",
    description="A long poll; the answers are requests to decide, with `checked`.",
    request=Ask,
    answer=Questions,
)
_ASKS: Final = scopes_of(QUESTIONS_PATH)
_encode = msgspec.json.Encoder().encode


class QueueProducersApi:
    """Answers the requests of producers.

    Arguments:
        queues: the engine.
        sessions: the clients of queues.
        decoder: gives long requests their turn.
    """

    def __init__(self, queues: QueueApi, sessions: Sessions, decoder: Decoder) -> None:
        self._queues = queues
        self._sessions = sessions
        self._decoder = decoder

    def served(self) -> list[Served]:
        """Return the operations with their handlers."""
        return [Served(HALF, self._half), Served(DECIDE, self._decide, refuse), Served(QUESTIONS, self._questions)]

    async def _half(self, request: Request) -> Answer:
        await self._decoder.turns.wait(len(await request.body()))
        asked = await read(request, HalfMessage)
        caller = caller_of(request)
        message = half_in(asked)
        require_topic(caller, message.namespace, message.topic)
        if caller.gid_prefix:
            caller.require_gid(gid_of(message.namespace, message.topic, message.message_id))
        full_name(asked.namespace, asked.group)
        transaction_id = await self._queues.half(
            message,
            producers=producers_of(caller, asked.namespace, asked.group),
            client_id=self._sessions.of(caller, asked.client).client_id,
            check_after_ms=asked.check_after_ms,
            caller=caller.owner,
            peer=peer_of(request),
        )
        return Answer(200, _encode(Kept(transaction_id)))

    async def _decide(self, request: Request) -> Answer:
        asked = await read(request, Decide)
        caller = caller_of(request)
        caller.require_gid(asked.transaction_id)
        await self._queues.end(
            asked.transaction_id,
            asked.decision,
            checked=asked.checked,
            client_id=self._sessions.of(caller, asked.client).client_id,
            caller=caller.owner,
        )
        return Answer(200, _encode(Noted()))

    async def _questions(self, request: Request) -> Answer:
        asked = await read(request, Ask, POLL_BYTES_MAX)
        caller = caller_of(request)
        full_name(asked.namespace, asked.group)
        session = self._sessions.of(caller, asked.client)
        session.answers_for({producers_of(caller, asked.namespace, asked.group)})
        inbox = Inbox()
        session.opened(inbox)
        try:
            await polled(request, session, inbox.filled(asked.wait_ms / 1000))
        finally:
            session.closed(inbox)
        if caller.limited:
            caller.require_scope(_ASKS, QUESTIONS_PATH, peer_of(request))  # the token may have been revoked meanwhile
        questions = tuple(map(_question, inbox.questions))
        answer = Answer(200, _encode(Questions(questions, tuple(await self._queues.http_urls()))))
        require_room(request, answer)  # the questions are asked again
        return answer


class Inbox:
    """The questions for one long poll; implements `sessions.Channel`."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self._bytes = 0
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def offer(self, question: Question) -> bool:
        """Answer the poll with a question soon; False when no more fit.

        Implements `sessions.Channel`.
        """
        size = len(question.message.body)
        if len(self.questions) >= QUESTIONS_MAX or (self.questions and self._bytes + size > ANSWER_BYTES_MAX):
            return False
        self.questions.append(question)
        self._bytes += size
        if not self._first.done():
            self._first.set_result(None)
        return True

    async def filled(self, seconds: float) -> None:
        """Wait for the first question, no longer than this."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._first), seconds)


def half_in(asked: HalfMessage) -> QueueMessage:
    """Return the half message of a request.

    Raises:
        InvalidRequest: the address names no queue, or it has no id, or attributes of another kind.
        LimitExceeded: the address or the body is too long.
    """
    require(URL_BYTES_MAX, len(asked.address.encode(errors="surrogatepass")))
    require(PAYLOAD_BYTES_MAX, len(asked.body))
    message = message_of(asked.address, asked.body)
    if not message.message_id:
        raise InvalidRequest("address: it has no `id`, by which a repeated half message is recognised.")
    if message.kind not in {"normal", "transaction"} or message.message_group or message.deliver_at_ms:
        raise InvalidRequest("address: a transactional message has no other kind, no message group and no delay.")
    return msgspec.structs.replace(message, kind="transaction")


def _question(question: Question) -> OneQuestion:
    return OneQuestion(
        address=address_of(question.message),
        body=question.message.body,
        transaction_id=question.transaction_id,
        asked=question.asked,
    )
