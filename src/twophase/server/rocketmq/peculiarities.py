"""The part of a client's session that only RocketMQ's clients have.

It is the spelling of the server's address in their routes, and the group that a producer may name.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from twophase.rocketmq_wire.values import Resource
from twophase.server.sessions import NAMES_MAX, Session, producers_of


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


class Peculiar:
    """The peculiarities of one client.

    `group`: the group that the producer names itself, which RocketMQ's clients do not do.
    """

    def __init__(self, namespace: str, *, is_other: bool) -> None:
        self.facade = Facade(is_other=is_other)
        self.group = ""
        self._namespace = namespace

    def name_group(self, session: Session, group: str) -> None:
        """Let the client be asked about the half messages of a group."""
        self.group = group or self.group
        if self.group:
            session.answers_for({producers_of(session.caller, self._namespace, self.group)})

    def producers_for(self, session: Session, topic: Resource) -> str:
        """Return the name whose producers are asked about a half message."""
        if self.group:
            return producers_of(session.caller, self._namespace, self.group)
        return producers_of(session.caller, topic.namespace, topic.name)


class Peculiarities:
    """The peculiarities of the port's clients, as long as their sessions are known.

    `incarnation`: as of `begin`.
    """

    def __init__(self, incarnation: int = 0) -> None:
        self._is_other = False
        self.begin(incarnation)
        self._of: WeakKeyDictionary[Session, Peculiar] = WeakKeyDictionary()

    def begin(self, incarnation: int) -> None:
        """Spell the routes of new clients by this node's incarnation, as other nodes do.

        It is another number after each start, so that they are spelt in the other way then.
        """
        self._is_other = incarnation % 2 == 1

    def of(self, session: Session, namespace: str) -> Peculiar:
        """Return a client's; new ones for a new client."""
        found = self._of.get(session)
        if found is None:
            found = self._of[session] = Peculiar(namespace, is_other=self._is_other)
        return found
