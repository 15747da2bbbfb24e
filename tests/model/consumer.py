"""The branch's side of the model: one branch, its barrier row, calls that repeat, and a cleaner (I6, I10, C16).

As in the rest of the model, a call that was sent may arrive any number of times. Only the retention ends that: what
has not arrived days after the last answer does not arrive any more. So the cleaner must count from the message's end.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import msgspec


class ConsumerRules(msgspec.Struct, frozen=True):
    """All on is the protocol; one off is a plausible mistake."""

    inserts_row_with_effect: bool = True
    """Row and effect commit together (I6)."""
    waits_for_the_end: bool = True
    """A row goes when its message is finished, as the coordinators say; off: when the message is old (C16)."""
    keeps_after_the_end: bool = True
    """And the retention has passed since, in which the last calls die; off: at once."""
    counts_from_birth: bool = True
    """What is not decided holds a row, too, as it may have been called (C25); off: only what is decided does."""
    takes_old_calls: bool = True
    """A call is taken however old its message; off: refused below the horizon, as if its row had been cleaned (C16)."""


class Moment(NamedTuple):
    """Everything that can differ. `effects` is counted up to two: more breaks nothing new."""

    decided: bool = False
    old: bool = False
    """The retention has passed since the message was made."""
    calls: bool = False
    """At least one call is in the network."""
    row: bool = False
    effects: int = 0
    answered: bool = False
    """A success is in the network."""
    finished: bool = False
    kept: bool = False
    """The retention has passed since the message was finished."""


class Found(msgspec.Struct, frozen=True):
    """How many moments there are, and the shortest story of a broken promise, if there is one."""

    moments: int
    promise: str = ""
    story: tuple[str, ...] = ()


def explore(rules: ConsumerRules) -> Found:
    """Visit every reachable moment, or stop at the first breach."""
    origin: dict[Moment, tuple[str, ...]] = {Moment(): ()}
    waiting = deque(origin)
    while waiting:
        here = waiting.popleft()
        if here.effects > 1:
            return Found(len(origin), "I6", origin[here])
        if here.decided and not _can_finish(here, rules):
            return Found(len(origin), "I2", origin[here])
        for label, after in _steps(here, rules).items():
            if after not in origin:
                origin[after] = (*origin[here], label)
                waiting.append(after)
    return Found(len(origin))


def _steps(here: Moment, rules: ConsumerRules) -> dict[str, Moment]:
    steps: dict[str, Moment] = {}
    if not here.decided:
        steps["the message is decided"] = here._replace(decided=True)
    if not here.old:
        steps["the retention passes; the message is old"] = here._replace(old=True)
    if not here.finished:
        # Also before the decision is stored: with check-back durability the submit is heard, and then forgotten.
        steps["coordinator: calls the branch"] = here._replace(calls=True)
    if here.calls:
        steps["branch: a call arrives"] = _arrive(here, rules)
    if here.answered and not here.finished:
        steps["coordinator: hears success, finishes"] = here._replace(decided=True, finished=True)
    if here.finished and not here.kept:
        steps["the retention passes after the end; no call is on its way"] = here._replace(
            old=True, kept=True, calls=False, answered=False
        )
    if here.row and _may_go(here, rules):
        steps["cleaner: deletes the branch's row"] = here._replace(row=False)
    return steps


def _may_go(here: Moment, rules: ConsumerRules) -> bool:
    if not rules.waits_for_the_end or not (rules.counts_from_birth or here.decided):
        return here.old
    return here.finished and (here.kept or not rules.keeps_after_the_end)


def _arrive(here: Moment, rules: ConsumerRules) -> Moment:
    if here.old and not rules.takes_old_calls:
        return here
    if here.row:
        return here._replace(answered=True)
    return here._replace(row=rules.inserts_row_with_effect, effects=min(2, here.effects + 1), answered=True)


def _can_finish(here: Moment, rules: ConsumerRules) -> bool:
    """When faults stop: one more call, one more answer."""
    return here.finished or here.answered or _arrive(here, rules).answered
