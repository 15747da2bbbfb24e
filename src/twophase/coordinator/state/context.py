"""The context of an action: memory, group commit, topics and the listener.

The state machine makes one context for its whole life; actions are plain functions of it.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from twophase.coordinator.runtime import Runtime
from twophase.coordinator.state.active_message import ActiveMessage, OnReply, Reply, Trigger, deliver
from twophase.coordinator.state.active_set import ActiveSet
from twophase.coordinator.state.group_commit import GroupCommit
from twophase.coordinator.topics import Topics
from twophase.core.errors import StoreFenced


class Listener(Protocol):
    """Acts on events that the state machine only reports.

    The coordinator implements it.
    """

    def submitted(self, active: ActiveMessage, /) -> None:
        """Deliver a message: it is submitted and due."""
        ...

    def stop_requested(self, active: ActiveMessage, on_reply: OnReply, stop: Trigger, /) -> None:
        """Ask the producer of a prepared message that an operator stops."""
        ...

    def parked(self, active: ActiveMessage, trigger: Trigger) -> None:
        """Report a message that is parked now."""
        ...

    def evicted(self, due_ms: int, /) -> None:
        """Note the due time of an unfinished message that left memory."""
        ...

    def store_failed(self) -> None:
        """Read again from the store: the state of some messages there is unknown."""
        ...

    def fenced(self, error: StoreFenced) -> None:
        """Stop or rejoin: this node has lost its slot on the store."""
        ...


class Context(msgspec.Struct, frozen=True):
    """See the module."""

    runtime: Runtime
    memory: ActiveSet
    topics: Topics
    group_commit: GroupCommit
    listener: Listener

    def refuse(self, trigger: Trigger, reply: Reply) -> None:
        """Reply to a requester that its request changed nothing."""
        if reply.error is not None:
            self.runtime.observer.refused(reply.error.code)
        if trigger.on_reply is not None:
            deliver(trigger.on_reply, reply)
