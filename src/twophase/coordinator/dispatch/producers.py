"""Asks producers over connections that they keep.

Their messages have the check address `producer://NAME?client=ID`.

Keeps I5 and I9 for producers that no address reaches. The question goes to the client that sent the message, else to
any that answers for the name. Only an answer counts as a try: a message whose producers are away waits, is never given
up, and is asked about as soon as one attaches. A client has a bounded number of questions at a time, because many
answer one by one; one that does not answer in time is asked again about this message only after the others. A message
that was answered with "unknown" as often as the setting allows is parked, with an alert: visible, and never decided by
silence.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable
from typing import Final, Protocol
from urllib.parse import parse_qsl, quote, unquote

import msgspec

from twophase.coordinator.runtime import Runtime
from twophase.coordinator.state.active_message import ActiveMessage, Owner
from twophase.coordinator.state.active_set import ActiveSet
from twophase.coordinator.state.machine import StateMachine
from twophase.core.lifecycle import State
from twophase.core.queue_message import QUEUE_PREFIX, QueueMessage, message_of

PRODUCER_PREFIX: Final = "producer://"
AGES_MS: Final = (60_000, 600_000, 3_600_000, 86_400_000)
"""Ages by which messages without an answer are counted."""
_AWAY_MS: Final = 30_000
"""Pause before a message whose producers are away is looked at again."""
_WAITING_MAX: Final = 100_000
"""Messages that are remembered for an attach; others wait for their time."""
_SILENT_MAX: Final = 4_096
"""Messages of which it is remembered who did not answer."""
_SILENT_OF_ONE_MAX: Final = 16


class Question(msgspec.Struct, frozen=True):
    """A check-back that goes over a producer's own connection.

    `asked`: the number of answers there were before.
    """

    message: QueueMessage
    transaction_id: str
    asked: int


class Client(Protocol):
    """A connection of a producer or a consumer.

    `producers`: the names for which it answers questions, as `full_name` gives them. When they change, it is attached
    again.
    """

    client_id: str
    producers: frozenset[str]

    def ask(self, question: Question) -> bool:
        """Send a question; False when it cannot be sent now. It never waits."""
        ...


class _Attached(msgspec.Struct, frozen=True, eq=False):
    """A client, as of one attach."""

    client: Client


class _Asked(msgspec.Struct, frozen=True):
    """A question without an answer."""

    name: str
    client: Client
    until_ms: int


def check_address(producers: str, client_id: str) -> str:
    """Return the check address of a message whose producers keep a connection.

    >>> check_address("shop/orders", "host@7")
    'producer://shop/orders?client=host%407'
    """
    return f"{PRODUCER_PREFIX}{quote(producers, safe='/')}?client={quote(client_id, safe='')}"


class Producers:
    """The clients that answer, and the questions that are with them."""

    def __init__(self, runtime: Runtime, memory: ActiveSet, machine: StateMachine) -> None:
        self._memory = memory
        self._machine = machine
        self._clock = runtime.clock
        self._settings = runtime.settings
        self._clients: dict[str, dict[str, _Attached]] = {}
        """By the name for which they answer, then by client id.

        The one that was asked longest ago is first.
        """
        self._asked: dict[str, _Asked] = {}
        """By gid, in the order of their times."""
        self._questions: dict[str, int] = {}
        """The number of those that a client has, by client id."""
        self._unknown: set[tuple[str, str]] = set()
        """Answers "unknown" that are being stored, by gid and caller."""
        self._silent: dict[str, tuple[str, ...]] = {}
        """The clients that did not answer in time, by gid, the last one last."""
        self._waiting: dict[str, dict[str, None]] = {}
        """The gids of messages by the name whose clients are away or busy.

        Memory may evict the messages.
        """
        self._waits_for: dict[str, str] = {}
        """That name by gid."""
        self.draining = False

    @property
    def questions(self) -> int:
        """The number of questions without an answer."""
        return len(self._asked)

    def attach(self, client: Client) -> Callable[[], None]:
        """Ask this client from now on; returns its detach.

        A client id that attaches again takes the place of the one before, whose detach then changes nothing.
        """
        names, attached = client.producers, _Attached(client)
        for name in names:
            self._clients.setdefault(name, {})[client.client_id] = attached
        for name in names:
            self._ask_waiting(name)

        def detach() -> None:
            for name in names:
                clients = self._clients.get(name, {})
                if clients.get(client.client_id) is attached:
                    del clients[client.client_id]
                if not clients:
                    self._clients.pop(name, None)

        return detach

    def ask(self, active: ActiveMessage) -> None:
        """Ask about a prepared message that is due; without a client it waits."""
        assert active.state is State.PREPARED, "only a prepared message is asked about"
        if self.draining or active.detached:
            return
        name, preferred = names_in(active.message.check_url)
        now_ms = self._clock.now_ms()
        self._forget(active.message.gid)
        self._give_up(active.message.gid)
        question = Question(_queue_message(active), active.message.gid, active.attempts)
        for client in self._in_turn(name, preferred, active.message.gid, now_ms):
            if client.ask(question):
                until_ms = now_ms + self._settings.producer_answer_ms
                self._asked[active.message.gid] = _Asked(name, client, until_ms)
                self._questions[client.client_id] = self._questions.get(client.client_id, 0) + 1
                clients = self._clients[name]
                clients[client.client_id] = clients.pop(client.client_id)
                self._memory.schedule(active, until_ms)
                return
        if len(self._waits_for) < _WAITING_MAX:
            self._waiting.setdefault(name, {})[active.message.gid] = None
            self._waits_for[active.message.gid] = name
        self._machine.defer(active, _AWAY_MS)

    def stranded(self, limit: int) -> list[tuple[str, int]]:
        """Return (gid, version) of waiting messages whose name no client here answers for."""
        found: list[tuple[str, int]] = []
        for gid, name in self._waits_for.items():
            active = self._memory.get(gid) if name not in self._clients else None
            if active is not None and active.owned and not active.busy and active.state is State.PREPARED:
                found.append((gid, active.version))
                if len(found) == limit:
                    break
        return found

    def is_asked(self, gid: str) -> bool:
        """Return True while a client has the message's question, and time to answer it."""
        asked = self._asked.get(gid)
        return asked is not None and asked.until_ms >= self._clock.now_ms()

    def begin_unknown(self, gid: str, caller: Owner | None) -> bool:
        """Take an answer "unknown", which `end_unknown` ends.

        Returns False for one that counts as no try: no question is open, or an answer to it is being stored. Another
        caller's stands in no one's way: it may be another owner's.
        """
        answer = (gid, _name_of(caller))
        if answer in self._unknown or not self.is_asked(gid):
            return False
        self._unknown.add(answer)
        return True

    def end_unknown(self, gid: str, caller: Owner | None) -> None:
        """End what `begin_unknown` began: it was stored, or refused."""
        self._unknown.discard((gid, _name_of(caller)))

    def answered(self, gid: str) -> int | None:
        """Note an answer or a decision; the client takes another question.

        Returns how long the message's question was with a client, in milliseconds; None for no question.
        """
        self._forget(gid)
        self._silent.pop(gid, None)
        asked = self._take_back(gid)
        if asked is None:
            return None
        self._ask_waiting(asked.name)
        return max(0, self._clock.now_ms() - asked.until_ms + self._settings.producer_answer_ms)

    def situation(self, gid: str, check_url: str) -> tuple[str, str]:
        """Return why a message that is due has no answer: one word, and the same in words."""
        name, _ = names_in(check_url)
        asked = self._asked.get(gid)
        if asked is not None and self.is_asked(gid):
            return "asked", f"the producer {asked.client.client_id!r} is asked and has not answered yet"
        clients = self._clients.get(name)
        if not clients:
            return "away", f"no producer of {name!r} is connected to this node"
        if gid in self._waits_for:
            asked_max = self._settings.producer_asked_max
            return "busy", f"each of {len(clients)} connected producers has {asked_max} questions, or takes none"
        return "waits", f"{len(clients)} producers of {name!r} are connected, and one is asked when it is due"

    def waiting_by_age(self) -> tuple[int, ...]:
        """Return the number of due messages without an answer, by age.

        The ages have the bounds `AGES_MS`; the last number is of those beyond.
        """
        now_ms, counts = self._clock.now_ms(), [0] * (len(AGES_MS) + 1)
        for gid in itertools.chain(self._asked, self._waits_for):
            active = self._memory.get(gid)
            if active is not None:
                counts[bisect_left(AGES_MS, now_ms - active.created_ms)] += 1
        return tuple(counts)

    def _forget(self, gid: str) -> None:
        name = self._waits_for.pop(gid, None)
        if name is not None:
            del self._waiting[name][gid]
            if not self._waiting[name]:
                del self._waiting[name]

    def _in_turn(self, name: str, preferred: str, gid: str, now_ms: int) -> list[Client]:
        """Return the clients that may be asked.

        The message's own is first, and those that did not answer are last, in the order in which they were asked.
        """
        clients = self._clients.get(name)
        if not clients:
            return []
        self._expire(now_ms)
        asked_max = self._settings.producer_asked_max
        free = [one.client for id_, one in clients.items() if self._questions.get(id_, 0) < asked_max]
        silent = {id_: turn for turn, id_ in enumerate(self._silent.get(gid, ()), 1)}
        return sorted(free, key=lambda one: (silent.get(one.client_id, 0), one.client_id != preferred))

    def _take_back(self, gid: str) -> _Asked | None:
        """Count a message's question no longer; return it, if a client has it."""
        asked = self._asked.pop(gid, None)
        if asked is not None:
            id_ = asked.client.client_id
            self._questions[id_] -= 1
            if not self._questions[id_]:
                del self._questions[id_]
        return asked

    def _give_up(self, gid: str) -> None:
        """Count a message's question no longer, if a client has it.

        That client is asked about the message after all others from now on.
        """
        asked = self._take_back(gid)
        if asked is None:
            return
        id_ = asked.client.client_id
        before = [one for one in self._silent.pop(gid, ()) if one != id_]
        self._silent[gid] = (*before[1 - _SILENT_OF_ONE_MAX :], id_)
        if len(self._silent) > _SILENT_MAX:
            del self._silent[next(iter(self._silent))]

    def _expire(self, now_ms: int) -> None:
        """Take back the questions whose time is over, the oldest first.

        Those from before the clock was set back have a time that is too late, and go at once.
        """
        last_ms = now_ms + self._settings.producer_answer_ms
        while self._asked:
            gid = next(iter(self._asked))
            if now_ms <= self._asked[gid].until_ms <= last_ms:
                return
            self._give_up(gid)

    def _ask_waiting(self, name: str) -> None:
        """Ask about messages that waited, as far as the name's clients are free."""
        while name in self._waiting:
            gid = next(iter(self._waiting[name]))
            self._forget(gid)
            active = self._memory.get(gid)
            if active is None or active.busy or active.parked or active.state is not State.PREPARED:
                continue
            self.ask(active)
            if gid in self._waits_for:
                return  # none is free any more


def names_in(check_url: str) -> tuple[str, str]:
    """Return the name of the producers, and the client that is asked first."""
    name, _, query = check_url[len(PRODUCER_PREFIX) :].partition("?")
    return unquote(name), dict(parse_qsl(query)).get("client", "")


def _name_of(caller: Owner | None) -> str:
    return "" if caller is None else caller.name


def _queue_message(active: ActiveMessage) -> QueueMessage:
    for branch in active.message.branches:
        if branch.url.startswith(QUEUE_PREFIX):
            return message_of(branch.url, branch.payload)
    return QueueMessage("", "", active.message.gid, b"")
