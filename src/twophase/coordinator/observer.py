"""Observer of a coordinator: metrics and logs subscribe.

The coordinator knows neither. Events arrive on the hot path, so an observer counts and returns; it never raises, blocks
or awaits.
"""

from __future__ import annotations

from typing import Protocol

from twophase.core.lifecycle import State
from twophase.stores.base import Purged
from twophase.stores.rows import Attempt


class Observer(Protocol):
    """Receives the events of a coordinator. Durations are in seconds."""

    def flushed(self, items: int, seconds: float) -> None:
        """A flush made `items` changes durable."""

    def flush_failed(self, code: str, what: str = "") -> None:
        """A flush failed with this error code and text.

        Its requests were answered with it.
        """

    def check_back_answered(self, verdict: str, seconds: float) -> None:
        """A producer was asked, and this is how the answer was understood."""

    def branch_answered(self, result: str, destination: str, seconds: float) -> None:
        """A branch was called, and this is how the answer was understood."""

    def not_done(self, attempt: Attempt) -> None:
        """A branch call or a check-back had no success, and is repeated later."""

    def probed(self, result: str) -> None:
        """A check address was probed, and this is its condition."""

    def check_address_failing(self, target: str, state: str, what: str, remedy: str) -> None:
        """The check address `target` cannot answer check-backs.

        It fails since now, or for another reason than before.
        """

    def check_address_well(self, target: str) -> None:
        """A check address that was reported as failing answers again."""

    def refused(self, code: str) -> None:
        """A request was refused with this error code."""

    def finished(self, state: State, decided_by: str) -> None:
        """A message became final."""

    def parked(self, gid: str, why: str) -> None:
        """A message is not tried any more.

        An operator's redrive or a request that decides it ends that.
        """

    def alerted(self, result: str, host: str, what: str = "") -> None:
        """An alert was sent to the webhook at `host`, failed there, or was dropped.

        It is dropped when the queue is full.
        """

    def incident(self, gid: str, what: str) -> None:
        """A contrary decision arrived and was refused.

        A promise is broken: a person should look.
        """

    def joined(self, node: int, epoch: int) -> None:
        """This node has taken a slot of a store that several share.

        It does so at the start, or again after it was fenced.
        """

    def fenced(self, node: int, epoch: int, what: str) -> None:
        """This node was fenced; `what` says why.

        Another node has fenced it, or the store has lost what it wrote. It forgets everything, and takes a slot anew.
        """

    def adopted(self, messages: int) -> None:
        """This node has adopted unfinished messages of nodes that are gone."""

    def moved(self, messages: int) -> None:
        """Prepared messages that another node owns now were not asked about."""

    def overdue(self, messages: int) -> None:
        """Messages of this node were due for long, and nothing here would have tried them.

        Now they are tried.
        """

    def heartbeat_failed(self, code: str, what: str = "") -> None:
        """The store did not renew this node's lease, or let it adopt or rejoin.

        It is tried again.
        """

    def purged(self, step: Purged) -> None:
        """One step of cleaning has removed old rows and raised the history horizon."""

    def cleaned(self, history: int, attempts: int, seconds: float) -> None:
        """A cleaning has ended; the numbers are the rows removed."""

    def cleaning_failed(self, code: str, what: str = "") -> None:
        """A cleaning has failed with this error code; the next one continues."""

    def topic_over(self, topic: str, why: str, remedy: str) -> None:
        """A topic of queues keeps more bytes than its bound.

        It does since now, or for another reason than before.
        """

    def topic_within(self, topic: str) -> None:
        """A topic that was reported keeps no more than its bound."""

    def burial_failed(self, group: str, code: str, what: str) -> None:
        """A message did not get into its group's dead letters.

        It was given out too often. It is tried again in a minute, while consumers of the group ask for messages.
        """

    def topics_failed(self, code: str, what: str = "") -> None:
        """The store did not answer whether topics have changed; it is asked again."""
