"""The subscriptions that a node serves, by group and topic."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Final

from twophase.coordinator.gauges import QueueGauge
from twophase.coordinator.queues.subscription import Subscription
from twophase.core.hooks import Clock

GROUPS_SHOWN_MAX: Final = 1_000
ASKED_MS: Final = 60_000
"""The longest poll: a consumer that has asked within it is connected."""
_SET_BACK_MS: Final = 1_000
"""Step by which a clock goes back that was set, and is not merely adjusted."""


class Subscriptions:
    """See the module. `serving` adds and removes them.

    `clock`: the coordinator's. Where it is set back, no lease gets longer.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen_ms = 0
        """The latest time that was read."""
        self._subscriptions: dict[tuple[str, str], Subscription] = {}
        self._by_topic: dict[str, list[Subscription]] = {}
        self.asked: dict[tuple[str, str], int] = {}
        """The time at which a consumer of a group has asked for messages of a topic last."""

    def served(self, group: str = "", topic: str = "") -> dict[tuple[str, str], Subscription]:
        """Return the subscriptions that are served here, by (group, topic).

        An empty name stands for all.
        """
        named = self._subscriptions.items()
        return {key: one for key, one in named if group in {"", key[0]} and topic in {"", key[1]}}

    def asked_ms(self, group: str, topic: str) -> int:
        """Return when a consumer has asked here for messages last.

        0 for never, or for long ago.
        """
        return self.asked.get((group, topic), 0)

    def now_ms(self) -> int:
        """Return the time.

        Leases are moved with a clock that was set back.
        """
        now_ms = self._clock.now_ms()
        back_ms = self._seen_ms - now_ms
        if back_ms > _SET_BACK_MS:
            self.asked = {key: at_ms - back_ms for key, at_ms in self.asked.items()}
            for subscription in self._subscriptions.values():
                subscription.set_back(back_ms, now_ms)
        if back_ms > _SET_BACK_MS or back_ms < 0:
            self._seen_ms = now_ms
        return now_ms

    def topics(self) -> Sequence[str]:
        """Return the topics with consumers at this node."""
        return [topic for topic, subscriptions in self._by_topic.items() if subscriptions]

    def ends_are(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Look for entries where a queue has more than was known.

        `ends`: the next number of each queue.
        """
        for (topic, queue), end in ends.items():
            for subscription in self._by_topic.get(topic, ()):
                subscription.ends_at(queue, end)

    def appended_elsewhere(self, topic: str) -> None:
        """Look for new entries of a topic: another node has some."""
        for subscription in self._by_topic.get(topic, ()):
            for queue in subscription.cursors:
                subscription.appended(queue, 0)

    def wake_topic(self, topic: str) -> None:
        """Let every consumer of a topic look."""
        for subscription in self._by_topic.get(topic, ()):
            subscription.wake_all()

    def in_flight(self, topic: str) -> int:
        """Return the number of entries of a topic that consumers have, or that rest."""
        return sum(subscription.in_flight for subscription in self._by_topic.get(topic, ()))

    def wake(self) -> None:
        """Let every consumer look at the clock now."""
        for subscription in self._subscriptions.values():
            subscription.wake_all()

    def gauges(self) -> tuple[QueueGauge, ...]:
        """Return the lag of the groups that are served here; at most `GROUPS_SHOWN_MAX`."""
        served = itertools.islice(self._subscriptions.items(), GROUPS_SHOWN_MAX)
        return tuple(QueueGauge(group, topic, one.lag, one.in_flight, one.behind) for (group, topic), one in served)
