"""The branch's side of the model: calls that repeat, and a cleaner.

It checks I2, I6, I10 and C16. There is one branch with its barrier row. As in the rest of the model, a call that was
sent may arrive any number of times. Only the retention ends that: a call that has not arrived days after the last
answer does not arrive any more. So the cleaner must count from the message's end, and its horizon must count every
message that may have been called: also a prepared one that chose check-back durability, and one whose next call is a
year away, if it is not the first.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import msgspec


class ConsumerRules(msgspec.Struct, frozen=True):
    """The rules as switches: all on is the protocol; one off is a plausible mistake."""

    inserts_row_with_effect: bool = True
    """Row and effect commit together (I6)."""
    waits_for_the_end: bool = True
    """A row is deleted when its message is finished, as the coordinators report (C16).

    Off: when the message is old.
    """
    keeps_after_the_end: bool = True
    """The retention has also passed since, in which the last calls die; off: at once."""
    counts_what_was_called_early: bool = True
    """A prepared message that may be called holds its row, too (C25).

    Off: only a decided message does.
    """
    counts_what_is_tried_again: bool = True
    """A message is left out for its far due time if that is of its first call.

    Off: also between two tries.
    """
    far_means_never_called: bool = True
    """A far time of a later submit makes no far row of a message already called.

    The message may have been called. Off: it does.
    """
    header_is_as_old_as_its_question: bool = True
    """The header names the time before the store was asked.

    Off: the time at which it is carried.
    """
    takes_old_calls: bool = True
    """A call is accepted however old its message (C16).

    Off: it is refused below the horizon, as if its row had been cleaned.
    """
    reads_done_before: bool = True
    """"Done before" is read from the branch's row.

    Off: inferred from an error, such as another key that is taken.
    """
    confirms_durably: bool = True
    """A repeated call writes the row and flushes before it answers.

    Off: it answers from a commit that it merely sees.
    """
    imported_message_keeps_birth: bool = True
    """A message that is taken over keeps its birth.

    Off: it is born now, after its branch's row.
    """
    cleaner_names_row_by_key: bool = True
    """A DELETE names the gid.

    Off: an id that was read long before, which another row may have by now.
    """
    remembers_lost_transactions: bool = True
    """A row whose block ended its transaction is refused ever after.

    Off: it looks like a whole effect.
    """


class Moment(NamedTuple):
    """One state of the consumer's side.

    `effects` is counted up to two: more breaks nothing new.
    """

    early: bool = False
    """It chose check-back durability.

    Its branches are called before its decision is stored.
    """
    decided: bool = False
    waits: bool = False
    """Its time has not come: nothing calls it."""
    far: bool = False
    """Its row is due farther ahead than any pause."""
    old: bool = False
    """The retention has passed since the message was made."""
    calls: bool = False
    """At least one call is in the network."""
    row: bool = False
    visible_only: bool = False
    """Row and effect are committed, and seen by others, but not on disk yet."""
    half: bool = False
    """The row stands for a block that ended its transaction; the effect is partial."""
    effects: int = 0
    """Whole effects."""
    answered: bool = False
    """A success is in the network."""
    finished: bool = False
    told: bool = False
    """A header does not count the message, and names a time at which the row stood.

    The cleaner has it for ever.
    """
    carried: bool = False
    """A header does not count the message, and is still carried.

    Its time is that of the carrying, under that mistake.
    """
    kept: bool = False
    """The retention has passed since that time."""


class Found(msgspec.Struct, frozen=True):
    """The number of moments, and the shortest story of a broken promise, if any."""

    moments: int
    promise: str = ""
    story: tuple[str, ...] = ()


def explore(rules: ConsumerRules) -> Found:
    """Visit every reachable moment, or stop at the first breach."""
    origin: dict[Moment, tuple[str, ...]] = {Moment(early=early): () for early in (False, True)}
    waiting = deque(origin)
    while waiting:
        here = waiting.popleft()
        if here.effects > 1:
            return Found(len(origin), "I6", origin[here])
        if here.finished and here.effects == 0:
            return Found(len(origin), "I2", origin[here])
        if here.decided and not here.waits and not _can_finish(here, rules):
            return Found(len(origin), "I2", origin[here])
        for label, after in _steps(here, rules).items():
            if after not in origin:
                origin[after] = (*origin[here], label)
                waiting.append(after)
    return Found(len(origin))


def _steps(here: Moment, rules: ConsumerRules) -> dict[str, Moment]:
    steps = _coordinator_steps(here, rules)
    if not here.old:
        steps["the retention passes; the message is old"] = here._replace(old=True)
    if here.calls:
        steps["branch: a call arrives"] = _arrive(here, rules)
        steps |= _other_arrivals(here, rules)
    if here.visible_only:
        steps["database: flushes; the call that committed answers"] = here._replace(visible_only=False, answered=True)
        steps["database: crashes, and forgets what was not flushed"] = here._replace(
            row=False, visible_only=False, effects=here.effects - 1
        )
    if here.half:
        steps["a person completes the effect"] = _completed(here)
    if here.told and not here.kept:
        # A call sent before the end dies in this time; a call for an unfinished message does not.
        dies = {"calls": False, "answered": False} if here.finished else {}
        steps["the retention passes since the time told"] = here._replace(old=True, kept=True, **dies)
    if not rules.header_is_as_old_as_its_question and here.carried and here.row:
        steps["a call carries the header with the time of now"] = here._replace(told=True)
    if here.row and _may_go(here, rules):
        steps["cleaner: deletes the branch's row"] = _without_row(here)
    if here.row and not rules.cleaner_names_row_by_key:
        steps["cleaner: goes on after days, deletes by an id that is this row's now"] = _without_row(here)
    return steps


def _coordinator_steps(here: Moment, rules: ConsumerRules) -> dict[str, Moment]:
    steps: dict[str, Moment] = {}
    if not here.decided:
        steps["the message is decided"] = here._replace(decided=True)
        far = not (here.early and rules.far_means_never_called)
        steps["it is decided, for a far time"] = here._replace(decided=True, waits=True, far=far)
    if here.waits:
        steps["its time comes"] = here._replace(waits=False, far=False)
    if not here.finished and not here.waits and (here.decided or here.early):
        # Early also before the decision is stored: the submit is received, and then forgotten.
        steps["coordinator: calls the branch"] = here._replace(calls=True)
    if not here.finished and here.decided and not here.waits and here.calls and not rules.counts_what_is_tried_again:
        steps["a failed try is followed by a long pause"] = here._replace(far=True)
    if here.answered and not here.finished:
        steps["coordinator: hears success, finishes"] = here._replace(decided=True, finished=True, far=False)
    if not here.finished and not rules.imported_message_keeps_birth:
        # This message is the oldest unfinished one, and the header names its birth: the row is older.
        steps["coordinator: the message is taken over, as born now"] = here._replace(told=here.told or here.row)
    if _is_left_out(here, rules):
        steps["coordinator: asks the store, does not count it"] = here._replace(
            told=here.told or here.row, carried=True
        )
    return steps


def _is_left_out(here: Moment, rules: ConsumerRules) -> bool:
    """Return True when the store's answer for the header would not count the message."""
    if here.finished or here.far:
        return True
    return not here.decided and not (here.early and rules.counts_what_was_called_early)


def _may_go(here: Moment, rules: ConsumerRules) -> bool:
    if not rules.waits_for_the_end:
        return here.old
    return here.told and (here.kept or not rules.keeps_after_the_end)


def _arrive(here: Moment, rules: ConsumerRules) -> Moment:
    if here.old and not rules.takes_old_calls:
        return here
    if here.half and rules.remembers_lost_transactions:
        return here
    if here.row:
        return here._replace(answered=True, visible_only=here.visible_only and not rules.confirms_durably)
    return here._replace(row=rules.inserts_row_with_effect, effects=min(2, here.effects + 1), answered=True)


def _other_arrivals(here: Moment, rules: ConsumerRules) -> dict[str, Moment]:
    """Return the arrivals that are neither a whole effect nor the answer to it."""
    if here.row or (here.old and not rules.takes_old_calls):
        return {}
    whole = here._replace(row=rules.inserts_row_with_effect, effects=min(2, here.effects + 1))
    return {
        "branch: a call's commit is visible, and not flushed yet": whole._replace(visible_only=whole.row),
        "branch: a call's block ends its transaction": here._replace(row=True, half=True),
        "branch: a call meets another key that is taken": here._replace(
            answered=here.answered or not rules.reads_done_before
        ),
    }


def _without_row(here: Moment) -> Moment:
    return here._replace(row=False, visible_only=False, half=False, told=False, kept=False)


def _completed(here: Moment) -> Moment:
    return here._replace(half=False, effects=min(2, here.effects + 1))


def _can_finish(here: Moment, rules: ConsumerRules) -> bool:
    """Return True when the message can finish after the faults.

    A person has completed what is half done; then come one more call and one more answer.
    """
    if here.half:
        here = _completed(here)
    return here.finished or here.answered or _arrive(here, rules).answered
