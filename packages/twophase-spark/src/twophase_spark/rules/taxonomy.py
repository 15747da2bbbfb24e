"""The classes of the audit: meaning, importance and remedy of each.

One table serves code, report and docs. A message carries a *set* of classes, because it can be lost and contrary at
once; the first of its set in the order below is its primary one. The exact conditions are columns in `classify`;
`docs/reference/audit.md` states them.
"""

from __future__ import annotations

import enum

import msgspec


class Flag(enum.StrEnum):
    """The classes of a gid; the order is the precedence."""

    LOST = "lost"
    GHOST = "ghost"
    DUPLICATE_EFFECT = "duplicate_effect"
    MISSING_EFFECT = "missing_effect"
    DIFFERING_EFFECT = "differing_effect"
    ORPHAN = "orphan"
    CONTRARY_VERDICT = "contrary_verdict"
    UNGUARDED_EFFECT = "unguarded_effect"
    STOPPED = "stopped"
    PARKED = "parked"
    LATE = "late"
    IN_FLIGHT = "in_flight"
    LEFT_OUT = "left_out"
    UNCHECKED = "unchecked"


class Meaning(msgspec.Struct, frozen=True):
    """One class in words. `violation`: a promise is broken, so the audit fails."""

    flag: Flag
    title: str
    violation: bool
    what: str
    remedy: str


MEANINGS: tuple[Meaning, ...] = (
    Meaning(
        Flag.LOST,
        "lost",
        True,
        "Committed, but the message is unknown, has failed, or was never appended to its queue.",
        "Call the branches manually, or send the message again under a new gid; then find out who decided against it.",
    ),
    Meaning(
        Flag.GHOST,
        "ghost",
        True,
        "Branches were or will be called, are in a queue, or took effect, although nothing was committed.",
        "Undo the effect in the consumer's database; check that the check-back route looks at the producer's database.",
    ),
    Meaning(
        Flag.DUPLICATE_EFFECT,
        "duplicate effect",
        True,
        "One branch took effect more than once: several ledger rows, rows in several consumers, or entries of queues.",
        "Undo the surplus rows; the effect and the barrier row must be written in one transaction (`barrier.once`).",
    ),
    Meaning(
        Flag.MISSING_EFFECT,
        "missing effect",
        True,
        "The message succeeded, or the consumer's barrier says so, but the effect is missing.",
        "Remove its barrier row, if there is one, and call the branch manually; its service must commit before it "
        "answers 200.",
    ),
    Meaning(
        Flag.DIFFERING_EFFECT,
        "differing effect",
        True,
        "The effect is there, but its ledger's row contradicts the payload by the ledger's condition `agrees`.",
        "Compare the row with the payload (`twophase messages show --payload`); correct the row, and its service.",
    ),
    Meaning(
        Flag.ORPHAN,
        "orphan effect",
        True,
        "A branch took effect for a message that no given coordinator knows, or that has no such branch.",
        "Name every coordinator that calls these consumers; otherwise another program called the branch.",
    ),
    Meaning(
        Flag.CONTRARY_VERDICT,
        "contrary verdict",
        True,
        "The coordinator's decision and the producer's barrier row contradict each other, or the row is missing.",
        "Compare decided_by and reason with the barrier row; the check-back must insert before it answers.",
    ),
    Meaning(
        Flag.UNGUARDED_EFFECT,
        "unguarded effect",
        True,
        "The ledger has the effect, but the consumer's barrier has no row: a repeated call would take effect again.",
        "Write both in one transaction, with `barrier.once`.",
    ),
    Meaning(
        Flag.STOPPED,
        "stopped by an operator",
        False,
        "The producer's transaction is committed, and an operator stopped the message by force.",
        "Nothing, if the operator repaired it in another way.",
    ),
    Meaning(
        Flag.PARKED,
        "parked",
        False,
        "Undecided or undelivered, and no longer retried.",
        "Remove the cause, then redrive the message.",
    ),
    Meaning(
        Flag.LATE,
        "late",
        False,
        "Undecided or undelivered for longer than the bound of this audit.",
        "See the attempts of this gid in the coordinator: a producer or a branch does not answer.",
    ),
    Meaning(Flag.IN_FLIGHT, "in flight", False, "Undecided or undelivered, within the bound.", "Nothing; wait."),
    Meaning(
        Flag.LEFT_OUT,
        "effect left out",
        False,
        "The ledger has the effect, but its condition `where` leaves the rows out, as those of a cancelled effect.",
        "Nothing, if the effect was cancelled on purpose. Do not call the branch again: that would repeat the effect.",
    ),
    Meaning(
        Flag.UNCHECKED,
        "not checkable",
        False,
        "Something about this gid could not be compared; the coverage says what and why.",
        "Give the audit the missing database, or audit before history is cleaned.",
    ),
)

VIOLATIONS: tuple[Flag, ...] = tuple(meaning.flag for meaning in MEANINGS if meaning.violation)
OPEN: tuple[Flag, ...] = (Flag.PARKED, Flag.LATE, Flag.IN_FLIGHT)
"""Classes of messages that are not final yet."""


def meaning_of(flag: Flag) -> Meaning:
    """Return the words for a class.

    >>> meaning_of(Flag.LOST).violation, meaning_of(Flag.LATE).violation
    (True, False)
    """
    return next(meaning for meaning in MEANINGS if meaning.flag is flag)
