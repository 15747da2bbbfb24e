"""The client of one call: its id, its token, and what it may name."""

from __future__ import annotations

from typing import NamedTuple

from twophase.core.queue_message import full_name
from twophase.rocketmq_wire.values import Resource
from twophase.server.identity.caller import Caller
from twophase.server.rocketmq.peculiarities import Peculiar, Peculiarities
from twophase.server.sessions import Session, Sessions


class Kept(NamedTuple):
    """The values of a call's metadata."""

    client_id: str
    language: bytes
    namespace: str
    authority: str
    caller: Caller


class Client(NamedTuple):
    """The client of one call.

    `timeout_ms`: the time that it gives the call; 0 for no bound. `peer`: its address.
    """

    client_id: str
    language: bytes
    namespace: str
    authority: str
    caller: Caller
    timeout_ms: int
    peer: str
    sessions: Sessions
    peculiarities: Peculiarities

    @property
    def session(self) -> Session:
        """The client's session."""
        return self.sessions.of(self.caller, self.client_id)

    @property
    def peculiar(self) -> Peculiar:
        """The part of its session that only RocketMQ's clients have."""
        return self.peculiarities.of(self.session, self.namespace)

    def require_topic(self, topic: Resource) -> None:
        """Refuse a topic that the token's entry does not allow.

        Raises:
            Forbidden: its destinations have others alone.
        """
        if self.caller.limited:
            self.caller.require_queue(full_name(topic.namespace, topic.name))
