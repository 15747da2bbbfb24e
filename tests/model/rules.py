"""The protocol's rules as switches.

All on is the protocol; one off is a plausible mistake that must be caught. Each switch quotes the
rule (C) of `docs/explanation/rules.md` or the promise (I) of `docs/explanation/promises.md` that it stands for, so that
the model's producer and coordinator can be laid beside the SDK and the server, rule by rule.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from twophase.core.lifecycle import Event, State, Transition, transition


class Rules(msgspec.Struct, frozen=True):
    """The rules of producers, business database and coordinators.

    The default is the protocol.
    """

    table: Callable[[State, Event], Transition] = transition
    """The lifecycle table; every decision of a coordinator goes through it."""

    # producer
    begins_after_prepare: bool = True
    """The local transaction begins only after prepare was acknowledged (I2)."""
    refuses_existing_row: bool = True
    """A barrier row that is already there bars the transaction (I4)."""
    verifies_before_commit: bool = True
    """The last statement before COMMIT reads the barrier row (C2).

    It sees the row as this transaction wrote it.
    """
    looks_last: bool = True
    """Nothing of the application's runs between that look and COMMIT (C2).

    Off: a commit listener does.
    """
    barrier_commits_with_business: bool = True
    """One COMMIT ends row and business (I1).

    Off: the row's database commits, the other one of the Session fails.
    """
    business_commits_with_barrier: bool = True
    """And the reverse; off: the other database commits, the row's fails (I2)."""
    submits_after_commit: bool = True
    """Submit follows a commit that returned (I1)."""
    asks_after_exception: bool = True
    """After an exception the barrier is asked (C1).

    Off: the exception itself means rolled back.
    """
    silent_when_undecided: bool = True
    """Neither committed nor rolled back: send nothing to the coordinator (C1)."""
    submits_branches_of_row: bool = True
    """A submit after asking carries the branches in the barrier row (decision 1).

    The attempt's own branches are not used.
    """

    # business database
    check_back_writes: bool = True
    """The check-back inserts, then reads; off: it only reads, and finds none (I4, C7)."""
    check_back_looks_last: bool = True
    """'Rolled back' follows a COMMIT whose last look saw the row (I4).

    Off: a listener may roll it back unseen.
    """
    held_lock_is_in_progress: bool = True
    """A row locked by an open transaction is in progress; off: it counts as none (C7)."""
    barrier_commits_durably: bool = True
    """A verdict of the barrier survives a power cut of the database (C8)."""
    barrier_row_is_kept: bool = True
    """No cleaner removes the row of an undecided message (I10, C12 to C14)."""
    begins_within_deadline: bool = True
    """A transaction that begins too long after prepare is refused (C12)."""
    cleaner_waits_for_decision: bool = True
    """A barrier row is deleted when its message is decided; off: when it is old (C14)."""
    horizon_rises_with_deletes: bool = True
    """In the transaction of the deletes; off: in one of its own, afterwards (C13)."""
    imported_message_keeps_birth: bool = True
    """A message that is taken over keeps its birth (C13).

    Off: it is born now, its row is older.
    """
    cleaner_names_row_by_key: bool = True
    """A DELETE names the gid (C14).

    Off: an id that was read long before, which another row may have by now.
    """
    check_back_heeds_horizon: bool = True
    """An insert that succeeded below the horizon is undone and proves nothing (C13)."""

    row_without_branches_is_no_verdict: bool = True
    """A row committed before the added branches were written is marked as such.

    Off: it counts as complete.
    """
    check_back_asks_written_table: bool = True
    """The table that is asked is the one that the transaction writes (C6).

    Off: another one, which has no such row.
    """

    # coordinator
    time_decides: State | None = None
    """A prepared message that grows old goes into this state (I5 forbids it)."""
    unknown_counts_as: Event = Event.CHECK_UNDECIDED
    """The event for a check-back without a verdict (C10)."""
    takes_branches_of_row: bool = True
    """'Committed' brings the branches in the barrier row (decision 1).

    Off: those of prepare count as all.
    """
    compares_and_sets: bool = True
    """A change applies only to the version on which it was decided (I3, C21).

    Off: the last writer wins.
    """
    applies_table_again: bool = True
    """After a lost compare-and-set the table is applied to the stored state (C21).

    Off: the old plan is written.
    """
    flushes_before_reply: bool = True
    """Acknowledge after the flush (I8)."""
    flushes_before_call: bool = True
    """A branch is called only after the decision is durable (promise I1)."""
    keeps_undecided_rows: bool = True
    """A prepared row is never deleted (I2)."""
    flush_checks_history_horizon: bool = True
    """An insert of a gid older than the history horizon is refused (C15).

    It is refused in its own commit; off: nothing is found, so it is new.
    """


class Size(msgspec.Struct, frozen=True):
    """The size of the world to explore."""

    attempts: int = 2
    """Processes that prepare the same gid.

    Each has its own local transaction and its own branches.
    """
    nodes: int = 2
    """Coordinators that share one store."""
    pauses: int = 1
    """Number of changes of a row's version without a change of its state.

    A reschedule, park or redrive makes one.
    """
    swallowed_errors: bool = False
    """A statement may fail and the application continues (PostgreSQL, C2).

    COMMIT then rolls back without an error.
    """
    swallowed_deadlocks: bool = False
    """A deadlock may roll back (MySQL, C2).

    The application continues in a new transaction.
    """
    blocks_that_commit: bool = False
    """The application may end the transaction inside its block (C2, decision 1).

    It then continues.
    """
    open_messages: bool = False
    """Branches are added inside the block, and written after it.

    So a block that commits leaves a row without them.
    """
    operator: bool = False
    """An operator may park, redrive and force a stop at any time (C23, C24)."""
    history_is_purged: bool = False
    """Final messages may be forgotten; then the gid is older than history (C15)."""
    barrier_is_cleaned: bool = False
    """Time passes the begin deadline, and barrier rows are cleaned (C12 to C14)."""
    contrary_words: bool = False
    """In place of the SDK, a client that may send anything at any time.

    It sends prepare, submit, abort, and either verdict. The promises that depend on the producer (I1, I2, I4) do not
    hold for such a client; a decision must still be one (I3, I5, I7, I8).
    """
