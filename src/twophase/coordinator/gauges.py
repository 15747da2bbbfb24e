"""Fill of a coordinator."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class QueueGauge(msgspec.Struct, frozen=True):
    """The messages that a group has not done, and those with its consumers.

    `behind`: those that wait behind others of their message group.
    """

    group: str
    topic: str
    lag: int
    in_flight: int
    behind: int = 0


class KeptGauge(msgspec.Struct, frozen=True):
    """The messages that a topic with a bound of bytes had after the last cleaning.

    `held`: the bytes beyond the bound, by what holds them; the bytes are estimated.
    """

    topic: str
    messages: int
    bytes: int
    bytes_max: int
    held: Mapping[str, int]


class Gauges(msgspec.Struct, frozen=True):
    """Fill of every bounded part, as of now."""

    active: int
    active_bytes: int
    waiting_for_store: int
    branch_calls: int
    branch_calls_waiting: int
    check_backs: int
    check_backs_waiting: int
    check_addresses: int
    check_addresses_failing: int
    node: int = 0
    epoch: int = 0
    questions: int = 0
    redelivered: int = 0
    queues: tuple[QueueGauge, ...] = ()
    halves: tuple[int, ...] = ()
    """Half messages that are due and have no answer, by age.

    The ages have the bounds `producers.AGES_MS`.
    """
    kept: tuple[KeptGauge, ...] = ()
