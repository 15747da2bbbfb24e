"""The clients of queues, by client id: their channels and their long polls.

No wire format is known here. A channel brings questions to a producer: a stream of RocketMQ's clients, or
a long poll over HTTP. A client id is the client's own word, so one counts only among the clients of the same token. A
session outlives its channels, because a client may send messages before it opens the first one; the sessions without a
channel are bounded.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Any, Final, Protocol, TypeVar

from twophase.coordinator.queues import Question, QueueApi
from twophase.core.queue_message import full_name
from twophase.server.identity.caller import Caller
from twophase.server.identity.scopes import Scope

T = TypeVar("T")

SESSIONS_MAX: Final = 10_000
"""Sessions that are known; beyond, those without a channel are forgotten."""
QUESTIONS_MAX: Final = 64
"""Questions of one channel that wait to be sent."""
QUESTION_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes that wait in one channel, behind which it takes no more questions."""
NAMES_MAX: Final = 1024
"""Names for which one client answers questions."""
NAMES_OF_ALL_MAX: Final = 100_000
"""Names of all sessions; beyond, those without a channel are forgotten."""


class Channel(Protocol):
    """A way to a producer, open now."""

    def offer(self, question: Question) -> bool:
        """Send a question soon; False when no more can wait here."""
        ...


class Session:
    """One client; implements `queues.Client`.

    Arguments:
        queues: the engine, which knows the client while it has a channel.
        caller: the token's owner.
        client_id: the client's name for itself.
        on_names: hears how many more names it answers for.
    """

    def __init__(
        self, queues: QueueApi, caller: Caller, client_id: str, on_names: Callable[[int], None] = lambda _: None
    ) -> None:
        self.caller = caller
        self.on_names = on_names
        self.client_id = engine_id(caller, client_id)
        self.producers: frozenset[str] = frozenset()
        self._queues = queues
        self._channels: list[Channel] = []
        self._detach: Callable[[], None] | None = None
        self._polls: set[asyncio.Task[Any]] = set()
        self._consumes = False
        """True while the engine may let the client keep messages."""

    @property
    def is_live(self) -> bool:
        """True while the client has a channel."""
        return bool(self._channels)

    @property
    def polls(self) -> int:
        """The number of its long polls that wait."""
        return len(self._polls)

    def opened(self, channel: Channel) -> None:
        """Ask the client over this channel from now on. Safe to call twice."""
        is_new = channel not in self._channels
        if is_new:
            self._channels.append(channel)
        if is_new or self._detach is None:
            self._attach()

    def closed(self, channel: Channel) -> None:
        """Use the channel no more."""
        if channel in self._channels:
            self._channels.remove(channel)
        if not self._channels:
            self._leave()

    def reread(self) -> None:
        """Let others have what the client keeps, if its token may not consume any more.

        The file of tokens was read anew. A client without scopes is asked nothing, either.
        """
        if not self.caller.scopes or (self._consumes and Scope.CONSUME not in self.caller.scopes):
            self._leave()
            if self._channels:
                self._attach()

    def answers_for(self, names: Collection[str]) -> None:
        """Note names for which the client can be asked, as `producers_of` gives them."""
        if not self.producers.issuperset(names) and len(self.producers.union(names)) <= NAMES_MAX:
            before, self.producers = len(self.producers), self.producers.union(names)
            if self._channels:
                self._attach()
            self.on_names(len(self.producers) - before)

    def ask(self, question: Question) -> bool:
        """Send a question; False when it cannot be sent now. Implements `queues.Client`."""
        if self.caller.limited and not self.caller.scopes:
            return False
        return any(channel.offer(question) for channel in reversed(self._channels))

    async def poll(self, waiting: asyncio.Task[T]) -> T | None:
        """Wait for a long poll's result; return None when the client says that it ends."""
        self._polls.add(waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            return None
        finally:
            self._polls.discard(waiting)

    def end_polls(self) -> None:
        """Answer every long poll of the client now."""
        for poll in list(self._polls):
            poll.cancel()

    @property
    def is_idle(self) -> bool:
        """True while nothing needs the session."""
        return not self._channels and not self._polls

    def _attach(self) -> None:
        if self.caller.scopes:  # else the token is revoked
            self._consumes = Scope.CONSUME in self.caller.scopes
            self._detach = self._queues.attach(self)  # again: the engine reads the names anew

    def _leave(self) -> None:
        if self._detach is not None:
            self._detach()
            self._detach = None


class Sessions:
    """The sessions of a server's ports."""

    def __init__(self, queues: QueueApi) -> None:
        self._queues = queues
        self._known: OrderedDict[str, Session] = OrderedDict()
        self._names = 0

    def of(self, caller: Caller, client_id: str) -> Session:
        """Return the session of a client; a new one for a new client."""
        name = engine_id(caller, client_id)
        session = self._known.get(name)
        if session is None:
            session = self._known[name] = Session(self._queues, caller, client_id, self._count_names)
            if len(self._known) > SESSIONS_MAX:
                self._forget_one()
        else:
            session.caller = caller  # its owner's token may be another one by now
            self._known.move_to_end(name)
        return session

    def reread(self) -> None:
        """Look at every client's token again: the file was read anew."""
        for session in self._known.values():
            session.reread()

    def end_polls(self) -> None:
        """Answer every long poll now: the server ends."""
        for session in self._known.values():
            session.end_polls()

    def _count_names(self, more: int) -> None:
        self._names += more
        while self._names > NAMES_OF_ALL_MAX and self._forget_one():
            pass

    def _forget_one(self) -> bool:
        """Forget the session without a channel that was used least recently.

        Returns False when all have one.
        """
        for name, session in self._known.items():
            if session.is_idle:
                del self._known[name]
                self._names -= len(session.producers)
                session.on_names = lambda _: None
                return True
        return False


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
