"""The promises made to producers and consumers, and which of them were broken.

The checker reads each event once and keeps some bytes for each message, so half a million messages fit. It knows
nothing of the server but its answers.

* *lost*: a message that was promised is not in its queue, or a group has never got it.
* *ghost*: a consumer gets a message that was never sent, that was rolled back, or that is not due yet.
* *duplicated beyond what was in flight*: it comes again after its acknowledgement was confirmed, or while another
  consumer has it from the same life of the same server.
* *out of order*: one of a message group comes before the acknowledgement of the one before it, or after a later one.

A late acknowledgement is answered as a good one, as RocketMQ does. So one counts as confirmed only soon after the
message was given out, and by the same life of the server: then nothing can have ended the receipt.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

CONFIRMED_S: Final = 2.5
"""Greatest age of a delivery whose acknowledgement counts as confirmed.

It counts from before the call that brought the message. It is
well below the lease of a node, less its heartbeat, and below the time that a hand-over waits.
"""
_EXAMPLES_MAX: Final = 5
_NOT_TRIED, _TRIED, _CONFIRMED = 0, 1, 2
_OPEN, _PROMISED = 0, 1


class Holding(NamedTuple):
    """A message with a consumer, until when, and from which life."""

    life: str
    asked_s: float
    until_s: float
    is_alive: Callable[[], bool] | None
    """For a consumer that keeps what it has as long as its stream lives."""


class Ledger:
    """See the module.

    Arguments:
        groups: of consumers; each gets every message.
        hold_s: the longest time for which a message is one consumer's alone; None: no bound.
        clock: in seconds.
    """

    def __init__(
        self, groups: Sequence[str], *, hold_s: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.groups = tuple(groups)
        self.counts: Counter[str] = Counter()
        self.violations: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}
        self._hold_s = hold_s
        self._clock = clock
        self._promised = bytearray()
        self._rolled_back = bytearray()
        self._kinds: list[str] = []
        self._due_ms: dict[int, int] = {}
        self._place: dict[int, tuple[str, int]] = {}
        self._in_group: dict[tuple[str, int], int] = {}
        self._acked = {group: bytearray() for group in groups}
        self._given = {group: bytearray() for group in groups}
        self._held: dict[tuple[str, int], Holding] = {}
        self._newest: dict[tuple[str, str], tuple[str, int]] = {}
        self.waiting = dict.fromkeys(groups, 0)
        """Promised messages that a group has not got yet."""

    def __len__(self) -> int:
        return len(self._promised)

    # Producers.

    def new(self, what: str, *, commit: bool = True, place: tuple[str, int] | None = None, due_ms: int = 0) -> str:
        """Return the id of a new message; its fate is its last word.

        `place`: message group, and the number in it, from 0.
        """
        index = len(self._promised)
        self._promised.append(_OPEN)
        self._rolled_back.append(not commit)
        for group in self.groups:
            self._acked[group].append(_NOT_TRIED)
            self._given[group].append(0)
        if due_ms:
            self._due_ms[index] = due_ms
        if place is not None:
            self._place[index] = place
            self._in_group[place] = index
        self.counts[what] += 1
        self._kinds.append(what)
        return f"{index}-{'commit' if commit else 'rollback'}"

    def promise(self, id_: str) -> None:
        """Note that a message was sent or committed, by the server's word or by its check."""
        index = _index(id_)
        if self._promised[index] == _OPEN and not self._rolled_back[index]:
            self._promised[index] = _PROMISED
            for group in self.groups:
                self.waiting[group] += not self._given[group][index]

    # Consumers.

    def given(
        self,
        group: str,
        id_: str,
        life: str,
        asked_s: float,
        hold_s: float,
        now_ms: int,
        is_alive: Callable[[], bool] | None = None,
    ) -> None:
        """Note that a consumer got a message, and check it.

        Arguments:
            group, id_, life: who, what, from whom.
            asked_s: before the call that brought it.
            hold_s: how long it is the consumer's, from then.
            now_ms: the wall clock.
            is_alive: of a consumer that keeps what it has while this is true.
        """
        index = _index(id_)
        if not 0 <= index < len(self._promised) or self._rolled_back[index]:
            self._broken("ghost: a message that was never sent, or was rolled back", f"{group} {id_}")
            return
        if now_ms < self._due_ms.get(index, 0):
            self._broken("ghost: a delayed message before it was due", f"{group} {id_}")
        if self._acked[group][index] == _CONFIRMED:
            self._broken("duplicated: given again after its acknowledgement", f"{group} {id_} {life}")
        now_s = self._clock()
        held = self._held.get((group, index))
        if held is not None and held.life == life and self._holds(held, now_s):
            self._broken("duplicated: given while another consumer had it", f"{group} {id_} {life}")
        self._check_order(group, index, id_, life)
        if self._given[group][index]:
            self.counts["given again"] += 1
        elif self._promised[index]:
            self.waiting[group] -= 1
        self._given[group][index] = min(self._given[group][index] + 1, 255)
        self.counts["given"] += 1
        self._held[group, index] = Holding(life, asked_s, asked_s + hold_s, is_alive)

    def _holds(self, held: Holding, now_s: float) -> bool:
        bound_s = held.until_s if self._hold_s is None else min(held.until_s, held.asked_s + self._hold_s)
        return now_s < bound_s and (held.is_alive is None or held.is_alive())

    def _check_order(self, group: str, index: int, id_: str, life: str) -> None:
        place = self._place.get(index)
        if place is None:
            return
        name, number = place
        before = self._in_group.get((name, number - 1))
        if before is not None and self._acked[group][before] == _NOT_TRIED:
            self._broken("out of order: before the one before it was acknowledged", f"{group} {name} {id_}")
        newest_life, newest = self._newest.get((group, name), (life, -1))
        if newest_life == life and number < newest:
            self._broken("out of order: after a later one", f"{group} {name} {id_} {life}")
        self._newest[group, name] = life, number

    def extended(self, group: str, id_: str, seconds: float) -> None:
        """Note that a consumer keeps a message for longer."""
        index = _index(id_)
        held = self._held.get((group, index))
        if held is not None:
            self._held[group, index] = held._replace(until_s=self._clock() + seconds)

    def released(self, group: str, id_: str) -> None:
        """Note that a consumer gives a message up, before the server may hear of it."""
        self._held.pop((group, _index(id_)), None)

    def acknowledging(self, group: str, id_: str) -> None:
        """Note that an acknowledgement is about to be sent."""
        index = _index(id_)
        self._acked[group][index] = max(self._acked[group][index], _TRIED)

    def acknowledged(self, group: str, id_: str, life: str) -> None:
        """Note that the server has confirmed an acknowledgement."""
        index = _index(id_)
        held = self._held.get((group, index))
        if held is not None and held.life == life and self._clock() - held.asked_s < CONFIRMED_S:
            self._acked[group][index] = _CONFIRMED
            self.counts["acknowledgements confirmed"] += 1
        else:
            self.counts["acknowledgements that may have come late"] += 1
        self._held.pop((group, index), None)

    # The end.

    def check_queues(self, ids: Sequence[str]) -> None:
        """Compare what stands in all queues with what was promised."""
        found = Counter(ids)
        for id_, count in found.items():
            index = _index(id_)
            if not 0 <= index < len(self._promised) or self._rolled_back[index]:
                self._broken("ghost: in a queue, never sent or rolled back", id_)
            elif count > 1:
                self._broken("duplicated: twice in a queue", id_)
        there = {_index(id_) for id_ in found}
        for index, promised in enumerate(self._promised):
            if promised and index not in there:
                self._broken("lost: not in its queue", str(index))
        for group in self.groups:
            for index in there:
                if not self._given[group][index] and not self._rolled_back[index]:
                    self._broken("lost: never given to a group", f"{group} {index} ({self._kinds[index]})")

    def require(self, holds: bool, promise: str, example: str = "") -> None:
        """Note a promise that is broken unless `holds`."""
        if not holds:
            self._broken(promise, example)

    def _broken(self, promise: str, example: str) -> None:
        self.violations[promise] += 1
        kept = self.examples.setdefault(promise, [])
        if len(kept) < _EXAMPLES_MAX:
            kept.append(example)

    def sentences(self) -> list[str]:
        """Return a sentence for each broken promise."""
        return [f"{what}: {count}, such as {'; '.join(self.examples[what])}" for what, count in self.violations.items()]


def _index(id_: str) -> int:
    """Return the number of a message; -1 for what no ledger named."""
    number, dash, fate = id_.rpartition("-")
    return int(number) if dash and number.isdecimal() and fate in {"commit", "rollback"} else -1
