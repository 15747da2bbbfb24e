"""A batch as the arrays of `flush.sql`: sorted by kind, one array a column.

A flush is one message on the wire whatever it holds. Every value of an array costs the driver about 0.3 µs, a look
whether it is an array itself, so columns whose values are all the same, as most are, travel as one value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from twophase.core.audit_log import AuditEntry
from twophase.core.gid import GID_CHARACTERS, born_ms
from twophase.core.lifecycle import FINAL, State
from twophase.stores.batch import Complete, Decide, DecideEarly, Finish, Insert, Item, Park, Redirect, Reschedule
from twophase.stores.postgres import statements
from twophase.stores.postgres.auditing import Acts, act_columns
from twophase.stores.postgres.queueing import NO_QUEUES, QueueColumns, queue_columns
from twophase.stores.queue_rows import Append, Progress
from twophase.stores.rows import Attempt

Column = list[Any] | None
_NEVER_MS = 2**63 - 1
_NO_FINISHES: tuple[Column, ...] = (None,) * 7
_NO_DECIDES: tuple[Column, ...] = (None,) * 5
_NO_CHANGES: tuple[Column, ...] = (None,) * 6
_NO_INSERTS: tuple[Column, ...] = (None,) * 4
_NO_ATTEMPTS: tuple[Column, ...] = (None,) * 9
_NO_ENTRIES: list[int] = []
APART: Final = (Redirect, DecideEarly)
"""The kinds that no arrays of `flush.sql` are for."""


class Columns:
    """The arguments of a flush.

    They are arrays in the function's order, and the item of each element.

    Arguments:
        items: (index in the batch, item); one item a gid: the caller keeps that.
        attempts: evidence to append.
        audited: acts of operators, by index in the batch; those of other items are left out.
        appends: entries of queues, likewise.
        progress: of groups of consumers.
    """

    __slots__ = (
        "acts",
        "apart",
        "arrays",
        "births",
        "entries_of",
        "gids",
        "oldest_born_ms",
        "order",
        "owners",
        "queues",
    )

    def __init__(
        self,
        items: Sequence[tuple[int, Item]],
        attempts: Sequence[Attempt],
        audited: Mapping[int, AuditEntry] | None = None,
        appends: Mapping[int, tuple[Append, ...]] | None = None,
        progress: Sequence[Progress] = (),
    ) -> None:
        finishes: list[Finish] = []
        decides: list[Decide] = []
        changes: list[Reschedule | Park] = []
        inserts: list[Insert] = []
        completes: list[Complete] = []
        self.apart: set[int] = set()
        """Items that no arrays are for: they go in a flush of their own."""
        indexes: tuple[list[int], list[int], list[int], list[int]] = ([], [], [], [])
        for index, item in items:
            kind = type(item)  # asked once; type checkers do not follow that it says what `item` is
            if kind is Insert:
                inserts.append(item)  # type: ignore[arg-type]
                indexes[3].append(index)
            elif kind is Decide:
                decides.append(item)  # type: ignore[arg-type]
                indexes[1].append(index)
            elif kind is Finish:
                finishes.append(item)  # type: ignore[arg-type]
                indexes[0].append(index)
            elif kind in APART:
                self.apart.add(index)
            elif kind is Complete:
                completes.append(item)  # type: ignore[arg-type]
                inserts.append(_without_body(item))  # type: ignore[arg-type]
                indexes[3].append(index)
            else:
                changes.append(item)  # type: ignore[arg-type]
                indexes[2].append(index)
        insert_columns = _insert_columns(inserts)
        self.order: list[int] = [index for part in indexes for index in part]
        """The batch's index of the function's first, second … place."""
        self.acts: Acts | None = _acts(self.order, audited) if audited else None
        """The arrays of operators' acts; None where there is no act."""
        self.queues, self.entries_of = NO_QUEUES, _NO_ENTRIES
        """The arrays of queues, and the item of each new entry."""
        if appends or progress or completes:
            self.queues, self.entries_of = queue_columns(completes, self.order, items, appends or {}, progress)
        self.gids: list[str] = insert_columns[0] or []
        """The gids of the new messages."""
        self.births: Column
        """Columns of the new messages, where one of them was begun elsewhere."""
        births = [item.created_ms for item in inserts]
        self.births = births if births.count(None) < len(births) else None
        owners = [item.owner for item in inserts]
        self.owners: Column = _short(owners) if any(owners) else None
        """The owners of the new messages, where one of them has one."""
        self.oldest_born_ms = oldest_born_ms(self.gids)
        self.arrays: tuple[Column, ...] = (
            *_finish_columns(finishes),
            *_decide_columns(decides),
            *_change_columns(changes),
            *insert_columns,
            *attempt_columns(attempts),
        )

    @property
    def arguments(self) -> tuple[Column | int, ...]:
        """The statement's parameters behind the node's slot and the clock."""
        if self.queues is not NO_QUEUES:
            acts = self.acts or act_columns(())
            return (self.oldest_born_ms, *self.arrays, self.births, self.owners, *acts, *self.queues)
        births = () if self.births is None else (self.births,)
        arguments = (self.oldest_born_ms, *self.arrays, *births, self.owners)
        return arguments if self.acts is None else (*arguments, *self.acts)

    @property
    def statement(self) -> str:
        """The text that is executed."""
        if self.queues is not NO_QUEUES:
            return statements.FLUSH_QUEUES
        if self.acts is not None:
            return statements.FLUSH_AUDITED if self.births is None else statements.FLUSH_BORN_AUDITED
        return statements.FLUSH if self.births is None else statements.FLUSH_BORN


class ApartColumns:
    """The parameters of a flush of redirects and early decisions alone.

    Arguments:
        items: (index in the batch, item).
        attempts: evidence to append.
        audited: acts of operators, by index in the batch.
    """

    __slots__ = ("arguments", "order")

    statement: ClassVar[str] = statements.FLUSH_APART
    queues: ClassVar[QueueColumns] = NO_QUEUES
    entries_of: ClassVar[Sequence[int]] = ()

    def __init__(
        self,
        items: Sequence[tuple[int, Redirect | DecideEarly]],
        attempts: Sequence[Attempt],
        audited: Mapping[int, AuditEntry],
    ) -> None:
        self.order: list[int] = [index for index, _ in items]
        self.arguments: tuple[Column | int, ...] = (
            [item.gid for _, item in items],
            [item.version for _, item in items],
            [item.due_ms if isinstance(item, Redirect) else item.due_in_ms for _, item in items],
            [item.done for _, item in items],
            [item.body if isinstance(item, Redirect) else None for _, item in items],
            [0 if isinstance(item, Redirect) else item.attempts for _, item in items],
            [None if isinstance(item, Redirect) else item.decided_by for _, item in items],
            *attempt_columns(attempts),
            *(_acts(self.order, audited) or act_columns(())),
        )


def oldest_born_ms(gids: Sequence[str]) -> int:
    """Return the birth of the oldest gid that twophase made; beyond all time if none.

    These sort by birth, so usually one is looked at.
    """
    born_here = [gid for gid in gids if len(gid) == GID_CHARACTERS and gid[:2] == "tp"]
    if not born_here:
        return _NEVER_MS
    born = born_ms(min(born_here))
    if born is not None:
        return born
    # The least was a foreign gid that looks like one of twophase's.
    return min((born for gid in born_here if (born := born_ms(gid)) is not None), default=_NEVER_MS)


def _acts(order: Sequence[int], audited: Mapping[int, AuditEntry]) -> Acts | None:
    found = [(place, audited[index]) for place, index in enumerate(order, 1) if index in audited]
    return act_columns([entry for _, entry in found], [place for place, _ in found]) if found else None


def attempt_columns(attempts: Sequence[Attempt]) -> tuple[Column, ...]:
    """Return the evidence."""
    if not attempts:
        return _NO_ATTEMPTS
    return (
        [attempt.gid for attempt in attempts],
        [attempt.kind for attempt in attempts],
        [attempt.branch_id for attempt in attempts],
        [attempt.target for attempt in attempts],
        [attempt.at_ms for attempt in attempts],
        [attempt.status for attempt in attempts],
        [attempt.latency_ms for attempt in attempts],
        [attempt.result for attempt in attempts],
        [attempt.error for attempt in attempts],
    )


def _finish_columns(items: list[Finish]) -> tuple[Column, ...]:
    if not items:
        return _NO_FINISHES
    states = _short([item.state for item in items])
    assert FINAL.issuperset(states), "a finished message is final"
    return (
        [item.gid for item in items],
        _short([item.version for item in items]),
        states,
        _short([item.reason for item in items]),
        _short([item.decided_by for item in items]),
        _short([item.attempts for item in items]),
        _short([item.done for item in items]),
    )


def _decide_columns(items: list[Decide]) -> tuple[Column, ...]:
    if not items:
        return _NO_DECIDES
    bodies = [item.body for item in items]
    return (
        [item.gid for item in items],
        _short([item.version for item in items]),
        _short([item.due_in_ms for item in items]),
        _short([item.decided_by for item in items]),
        None if bodies.count(None) == len(bodies) else bodies,
    )


def _change_columns(items: list[Reschedule | Park]) -> tuple[Column, ...]:
    """Null is what a change leaves as it is."""
    if not items:
        return _NO_CHANGES
    return (
        [item.gid for item in items],
        [item.version for item in items],
        [item.due_ms for item in items],
        [item.attempts for item in items],
        [item.done for item in items],
        [item.parked if isinstance(item, Park) else None for item in items],
    )


def _insert_columns(items: list[Insert]) -> tuple[Column, ...]:
    if not items:
        return _NO_INSERTS
    states = _short([item.state for item in items])
    assert _NEW.issuperset(states), "a new message is not final"
    return (
        [item.gid for item in items],
        states,
        _short([item.due_in_ms for item in items]),
        [item.body for item in items],
    )


def _without_body(item: Complete) -> Insert:
    """Return a message that only takes the gid.

    `append.sql` moves it into history, with its body.
    """
    return Insert(item.gid, State.SUBMITTED, 0, b"", owner=item.owner)


def _short(values: list[Any]) -> list[Any]:
    """Shorten a column whose values are all the same to one value, for `flush.sql`."""
    return values[:1] if values.count(values[0]) == len(values) else values


_NEW = frozenset({State.PREPARED, State.SUBMITTED})
