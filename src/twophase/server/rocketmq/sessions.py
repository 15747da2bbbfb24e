"""The clients of the port: streams, long polls, names of producers, by client id.

A client id is the client's own word, so one counts only among the clients of the same token. A session outlives its
streams, because a client may send messages before it opens the first one; the sessions without a stream are bounded.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from twophase.coordinator.queues import Delivered, Question, QueueApi
from twophase.core.queue_message import full_name
from twophase.rocketmq_wire.answers import encode_question
from twophase.rocketmq_wire.values import Resource
from twophase.server.identity.caller import Caller
from twophase.server.rocketmq.checking import asked

SESSIONS_MAX: Final = 10_000
"""Sessions that are known; beyond, those without a stream are forgotten."""
QUESTIONS_MAX: Final = 64
"""Questions of one stream that wait to be sent."""
QUESTION_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes that wait in one stream, behind which it takes no more questions."""
NAMES_MAX: Final = 1024
"""Names for which one client answers questions."""


class Outbox:
    """The messages that wait to be sent over one stream."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()
        self.bytes = 0

    def __len__(self) -> int:
        return self._waiting.qsize()

    def put(self, message: bytes) -> None:
        """Add a message; it is sent soon."""
        self.bytes += len(message)
        self._waiting.put_nowait(message)

    async def send_by(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send what waits and what will, one after the other, until `send` raises."""
        while True:
            message = await self._waiting.get()
            await send(message)
            self.bytes -= len(message)
            self._waiting.task_done()

    async def empty(self) -> None:
        """Wait until everything was sent."""
        await self._waiting.join()


class Session:
    """One client; implements `queues.Client`.

    Arguments:
        queues: the engine, which knows the client while it has a stream.
        caller: the token's owner.
        client_id: the client's name for itself.
        namespace: of its topics and groups.
        is_other: the spelling that its first route has.
    """

    def __init__(
        self, queues: QueueApi, caller: Caller, client_id: str, namespace: str, *, is_other: bool = False
    ) -> None:
        self.caller = caller
        self.client_id = engine_id(caller, client_id)
        self.namespace = namespace
        self.producers: frozenset[str] = frozenset()
        self.group = ""
        """The group that the producer names itself, which RocketMQ's clients do not do."""
        self.facade = Facade(is_other=is_other)
        self._queues = queues
        self._streams: list[Outbox] = []
        self._detach: Callable[[], None] | None = None
        self._polls: set[asyncio.Task[list[Delivered]]] = set()

    @property
    def is_live(self) -> bool:
        """True while the client has a stream."""
        return bool(self._streams)

    def opened(self, stream: Outbox) -> None:
        """Ask the client over this stream from now on. Safe to call twice."""
        if stream not in self._streams:
            self._streams.append(stream)
            self._attach()

    def closed(self, stream: Outbox) -> None:
        """Use the stream no more."""
        if stream in self._streams:
            self._streams.remove(stream)
        if not self._streams and self._detach is not None:
            self._detach()
            self._detach = None

    def answers_for(self, *topics: Resource, group: str = "") -> None:
        """Note topics, and a group, about whose half messages the client can be asked."""
        self.group = group or self.group
        names = {producers_of(self.caller, topic.namespace, topic.name) for topic in topics}
        if self.group:
            names.add(producers_of(self.caller, self.namespace, self.group))
        if not names <= self.producers and len(self.producers | names) <= NAMES_MAX:
            self.producers |= names
            if self._streams:
                self._attach()

    def producers_for(self, topic: Resource) -> str:
        """Return the name whose producers are asked about a half message."""
        if self.group:
            return producers_of(self.caller, self.namespace, self.group)
        return producers_of(self.caller, topic.namespace, topic.name)

    def ask(self, question: Question) -> bool:
        """Send a question; False when it cannot be sent now. Implements `queues.Client`."""
        if not self._streams or (self.caller.limited and not self.caller.scopes):
            return False
        stream = self._streams[-1]
        if len(stream) >= QUESTIONS_MAX or stream.bytes >= QUESTION_BYTES_MAX:
            return False
        stream.put(encode_question(*asked(question), question.transaction_id))
        return True

    async def poll(self, receiving: asyncio.Task[list[Delivered]]) -> list[Delivered]:
        """Wait for messages; return none when the client says that it ends."""
        self._polls.add(receiving)
        try:
            return await receiving
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            return []
        finally:
            self._polls.discard(receiving)

    def end_polls(self) -> None:
        """Answer every long poll of the client now."""
        for poll in list(self._polls):
            poll.cancel()

    @property
    def is_idle(self) -> bool:
        """True while nothing needs the session."""
        return not self._streams and not self._polls

    def _attach(self) -> None:
        self._detach = self._queues.attach(self)  # again: the engine reads the names anew


class Facade:
    """The spelling of the server's address in the routes of a client.

    The official Python client opens its stream to an address once. When the stream breaks, it notices after five
    minutes, and until then it is asked nothing. It opens a stream to every address that is new to it, so a client that
    asks for a route again and has no stream gets the same address in another spelling. So it does after a restart.
    """

    def __init__(self, *, is_other: bool = False) -> None:
        self.is_other = is_other
        self._answered: set[Resource] = set()

    def next(self, topic: Resource, *, is_live: bool) -> bool:
        """Return whether the route of a topic has the other spelling."""
        if topic in self._answered and not is_live:
            self.is_other = not self.is_other
            self._answered = set()
        if len(self._answered) < NAMES_MAX:
            self._answered.add(topic)
        return self.is_other


class Sessions:
    """The sessions of one port.

    `incarnation`: a number that is another one after each start, so that routes are spelt in the other way then.
    """

    def __init__(self, queues: QueueApi, incarnation: int = 0) -> None:
        self._queues = queues
        self._is_other = incarnation % 2 == 1
        self._known: OrderedDict[str, Session] = OrderedDict()

    def of(self, caller: Caller, client_id: str, namespace: str) -> Session:
        """Return the session of a client; a new one for a new client."""
        name = engine_id(caller, client_id)
        session = self._known.get(name)
        if session is None:
            session = self._known[name] = Session(self._queues, caller, client_id, namespace, is_other=self._is_other)
            if len(self._known) > SESSIONS_MAX:
                self._forget_one()
        else:
            self._known.move_to_end(name)
        return session

    def end_polls(self) -> None:
        """Answer every long poll now: the server ends."""
        for session in self._known.values():
            session.end_polls()

    def _forget_one(self) -> None:
        """Forget the session without a stream that was used least recently."""
        for name, session in self._known.items():
            if session.is_idle:
                del self._known[name]
                return


def engine_id(caller: Caller, client_id: str) -> str:
    """Return the name of a client to the engine.

    Clients of two tokens never have one name.
    """
    return f"{caller.name}/{client_id}" if caller.limited else client_id


def producers_of(caller: Caller, namespace: str, name: str) -> str:
    """Return the name whose producers answer for a topic or a group.

    It has the token's owner, so no client is asked about another owner's message.

    >>> producers_of(Caller("shop.eu"), "", "orders")
    'shop%2Eeu|orders'
    """
    owner = f"{caller.name.replace('.', '%2E')}|" if caller.limited else ""
    return full_name(namespace, owner + name)
