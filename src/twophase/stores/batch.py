"""A batch: the changes that one flush makes durable, and the outcome of each."""

from __future__ import annotations

import msgspec

from twophase.core.audit_log import AuditEntry
from twophase.core.lifecycle import State
from twophase.stores.queue_rows import Append, Progress
from twophase.stores.rows import Attempt, HistoryRow, LiveRow


class Insert(msgspec.Struct, frozen=True):
    """A new message: PREPARED, or SUBMITTED for a plain one, which its submit decides.

    It is refused when the gid is taken.

    `due_in_ms` counts from the store's clock at the flush. `created_ms` is the birth of a message that was begun at
    another coordinator, 0 when unknown; None: it is born with this flush. `owner` is the name of its
    producer's token, empty for none.
    """

    gid: str
    state: State
    due_in_ms: int
    body: bytes
    created_ms: int | None = None
    owner: str = ""


class Decide(msgspec.Struct, frozen=True):
    """PREPARED becomes SUBMITTED.

    `body` replaces the stored one when not None (options or branches came late). Resets `attempts` and
    `done` to 0 and clears `parked`.
    """

    gid: str
    version: int
    due_in_ms: int
    decided_by: str
    body: bytes | None = None


class DecideEarly(msgspec.Struct, frozen=True):
    """PREPARED becomes SUBMITTED, by a submit that counted before it was stored (25).

    Its branches have been called; `attempts` and `done` say with what result. Clears `parked`.
    """

    gid: str
    version: int
    due_in_ms: int
    decided_by: str
    attempts: int
    done: int


class Reschedule(msgspec.Struct, frozen=True):
    """A round did not end the matter: try again at `due_ms`."""

    gid: str
    version: int
    due_ms: int
    attempts: int
    done: int


class Park(msgspec.Struct, frozen=True):
    """Set or clear the durable mark that stops retries (23).

    `attempts` and `done` None leave these as they are.
    """

    gid: str
    version: int
    parked: bool
    due_ms: int
    attempts: int | None = None
    done: int | None = None


class Finish(msgspec.Struct, frozen=True):
    """The message becomes final: a history row replaces its live row in one commit.

    `decided_by` empty keeps the live row's (a delivered message); otherwise this finish is the decision.
    """

    gid: str
    version: int
    state: State
    reason: str = ""
    decided_by: str = ""
    attempts: int = 0
    done: int = 0


class Redirect(msgspec.Struct, frozen=True):
    """An operator gave some calls, or the check-back, another address.

    `body` has it. Resets `attempts` to 0.
    """

    gid: str
    version: int
    due_ms: int
    done: int
    body: bytes


class Complete(msgspec.Struct, frozen=True):
    """A new plain message that has nothing to call.

    It enters history at once, succeeded. It is refused when the gid is taken. `done` and `owner`: as in its row.
    """

    gid: str
    done: int
    body: bytes
    owner: str = ""


Item = Insert | Decide | DecideEarly | Reschedule | Park | Finish | Redirect | Complete


class Batch(msgspec.Struct):
    """The changes that one flush makes durable.

    `audited`: the operator's act behind an item, by the item's index. Its row of the audit log is written with the
    item, and not when the item is refused. `appends`: the entries of queues that come with an item, by its index; they
    are written as `audited` is. `progress`: what groups of consumers have done.
    """

    items: list[Item]
    attempts: list[Attempt]
    audited: dict[int, AuditEntry] = {}
    appends: dict[int, tuple[Append, ...]] = {}
    progress: list[Progress] = []


class Rejected(msgspec.Struct, frozen=True):
    """The database refuses this item's data, for ever; its neighbours were applied."""

    error: str


class Forgotten(msgspec.Struct, frozen=True):
    """A new message whose gid was born before the history horizon (15).

    It is unknown whether it existed before.
    """

    horizon_ms: int


NotApplied = LiveRow | HistoryRow | Rejected | Forgotten | None
"""The reason why an item was not applied: the row as it now is, or None."""


class FlushResult(msgspec.Struct):
    """The outcome of a flush.

    Every item whose index in the batch is not in `refused` was applied. `numbers` has the offsets of an applied item's
    `appends`; an index is missing where the answer of a flush was lost. `lost` has the indexes of `Batch.progress` that
    were refused, because this node does not own the topic in that term any more.
    """

    at_ms: int
    refused: dict[int, NotApplied]
    numbers: dict[int, tuple[int, ...]] = {}
    lost: frozenset[int] = frozenset()
