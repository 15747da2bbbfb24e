"""The store protocol: the duties of an engine.

It contains nothing that a wire format or a destination knows.

Keeps I3 and I8. A coordinator writes only through `flush`: one batch, one round trip, one durable commit, an
outcome for every item. When `flush` returns, everything applied is on disk; when it raises `StoreError`,
nothing of the batch was acknowledged and the outcome must be read, never guessed (correctness rule 20).

The rules an engine keeps:

* a gid is unique over live rows and history together (18);
* a `Decide`, `DecideEarly`, `Reschedule`, `Park`, `Redirect` or `Finish` applies only when the live row still has the
  expected `version` and is not final; else it is refused, changes nothing, and `FlushResult.refused` carries the row
  as it now is, live or history, read after the commit (21);
* at most one changing item per gid and batch; the caller guarantees it, the engine asserts it (22);
* an item whose data the database rejects is refused as `Rejected` and never fails its neighbours (22);
* every flush first advances the node's sequence under its fence, which on SQLite is its epoch; when that finds no row,
  the engine raises `StoreFenced` and nothing is written (19); `seq` of a node's history rows comes from there: it grows
  by exactly one a row, in commit order, and is never used twice;
* times the store sets (`created_ms`, `decided_ms`, `finished_ms`) come from its own clock: `FlushResult.at_ms`;
* an item's `Batch.appends` are written when it applies, and only then;
* an `Insert` of one of our own gids that was born before the history horizon, as it stands in the same commit, is
  refused: by the row, when one still stands, else as `Forgotten`. History that has been cleaned must not give a gid a
  second life (15). Nor is a history row of one of our gids removed before the horizon has passed its birth: the gid's
  time is the producer's clock, which may be ahead.

Several nodes may share one store (`shared`). A live row belongs to the node that wrote it last: a change of it, by
whichever node, moves it (compare-and-set on `version`). A node holds its slot by a lease in the store's clock,
renewed by every flush and by `heartbeat`. Rows carry (node, epoch): when the slot's epoch moves on, any node may
adopt them. It moves on in `adopt` alone, for a holder that has missed the lease, which fences it, and for a vacant slot
that has rows; only then, in a statement of its own, rows are taken. A slot that was given back keeps its epoch until
then, so a process that takes it first has its rows at once. The fence is what a flush presents: it moves on with every
change of holder, and when the holder itself ends a flush whose answer was lost, and no row is rewritten for that.

SQLite has one slot and no lease. There the epoch is the fence too, and moves on with every start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from twophase.stores.queue_store import QueueStore

if TYPE_CHECKING:
    from twophase.core.audit_log import AuditEntry, AuditHead, AuditPage, AuditRow, AuditSearch, TokensSeen
    from twophase.stores.batch import Batch, FlushResult
    from twophase.stores.rows import Attempt, HistoryRow, LiveRow, NodeSeen, Subscriber, Topics
    from twophase.stores.search import Found, Search


class Purged(msgspec.Struct, frozen=True):
    """The rows that one step of cleaning removed.

    It also shows whether more of that age are left.

    `horizon_ms` is the history horizon after it; `oldest_ms` the finished_ms of the oldest history row that is left,
    None for no row.
    """

    history: int
    attempts: int
    more: bool
    horizon_ms: int
    oldest_ms: int | None = None


ATTEMPTS_SHOWN: Final = 100
"""The number of a live message's newest attempts that are kept, however old."""
DUE_EVER_MS: Final = 2**62
"""Later than any due time."""
DUE_BYTES_MAX: Final = 16 * 1024 * 1024
"""The most bytes of the bodies of one page of due rows, but for its last."""


class Overview(msgspec.Struct, frozen=True):
    """Counts for metrics and health, as of one moment.

    `prepared` and `submitted` count parked rows too. The oldest prepared row is found by `created_ms`, the oldest
    submitted, which is the oldest undelivered, by `decided_ms`. `oldest_tried_ms` is the least `created_ms` of the
    submitted rows that are parked or due by the time asked for: of the others none may have been called yet.
    """

    prepared: int
    submitted: int
    parked: int
    oldest_prepared_ms: int | None
    oldest_submitted_ms: int | None
    oldest_tried_ms: int | None = None


class Store(QueueStore, Protocol):
    """One engine.

    Every method may raise `StoreError`; all are called from one event loop.

    While the database cannot be reached, a method waits for it within the engine's bound, then raises
    `StoreUnavailable`; it works again by itself once the database does.
    """

    @property
    def shared(self) -> bool:
        """True when several nodes may use this store at once.

        Then `heartbeat` must be called within the lease.
        """
        ...

    @property
    def lease_ms(self) -> int:
        """The time that a node may be silent before another may take its slot.

        0 when the store is not shared.
        """
        ...

    @property
    def slot(self) -> tuple[int, int]:
        """The node and the epoch that this process holds; (0, 0) before `start`.

        Logs and metrics show them.
        """
        ...

    async def start(self) -> None:
        """Open, check durability and schema, migrate forward, and take a node slot.

        A store that is not shared begins a new epoch. On a shared one a vacant slot keeps its epoch, with its rows;
        where no slot is vacant, one is added. A slot whose holder is only silent is never taken here.

        Raises:
            StoreLocked, StoreCorrupt, StoreReadOnly, StoreFull, SchemaTooNew, UnsafeDurability: as they say.
        """
        ...

    async def stop(self) -> None:
        """Close. Safe to call twice, and after a failed start."""
        ...

    def flush(self, batch: Batch) -> Awaitable[FlushResult]:
        """Make a batch durable. Not called again before its result has been awaited."""
        ...

    async def get(self, gid: str) -> LiveRow | HistoryRow | None:
        """Return the row of a gid, live or history."""
        ...

    async def attempts(self, gid: str, limit: int = ATTEMPTS_SHOWN) -> Sequence[Attempt]:
        """Return the newest attempts of a gid, oldest first."""
        ...

    async def due(self, until_ms: int, after: tuple[int, str], limit: int) -> Sequence[LiveRow]:
        """Read this node's live, unparked rows with due_ms ≤ until_ms, behind `after`.

        In the order (due_ms, gid), served by an index, whatever the number of rows. `after=(-1, "")` starts from the
        beginning. Fewer than `limit` are the last ones, unless their bodies are `DUE_BYTES_MAX` together: then the page
        ends with the row that reached it.
        """
        ...

    async def overview(self, due_by_ms: int = DUE_EVER_MS) -> Overview:
        """Count what is live; `due_by_ms` only defines `Overview.oldest_tried_ms`."""
        ...

    async def nodes(self) -> Sequence[NodeSeen]:
        """Return the node slots there were, by number; at most `NODES_SHOWN_MAX`."""
        ...

    async def waiting_by_owner(self) -> dict[str, tuple[int, int]]:
        """Return how many messages of each owner wait, and the bytes of their bodies.

        They are somewhat fewer than the bytes that the messages take in memory. At most `OWNERS_COUNTED_MAX` owners
        are counted.
        """
        ...

    async def size_bytes(self) -> int:
        """Return the bytes of the store on disk."""
        ...

    async def now_ms(self) -> int:
        """Return the store's clock."""
        ...

    async def history_horizon_ms(self) -> int:
        """Return the birth time before which gids may have been forgotten (15).

        0 when history was never cleaned.
        """
        ...

    async def note_takeover(self, at_ms: int, *, again: bool) -> None:
        """Note the time at which messages of another coordinator were taken over.

        It is `store_meta` name `taken_over_ms`. Gids born before may have ended there, so an audit misses no message of
        theirs. The time never falls. It is written with `again` False only where none stands yet.
        """
        ...

    async def purge(self, before_ms: int, limit: int) -> Purged:
        """Remove old rows, and raise the history horizon behind them, in one commit.

        This is one step of cleaning.

        Removed are at most `limit` history rows with finished_ms < before_ms, and at most `limit` attempts with
        at_ms < before_ms, of a live message only those that are not among its newest `ATTEMPTS_SHOWN`; nothing that an
        archive still needs (`store_meta` name `archived_until_ms`, when there is one). The audit log loses as many
        rows at its beginning, and none behind `audit_archived_through` where there is an archive. Rows dated later than
        now, under a clock that was ahead, hide none behind them. The horizon never falls, and lies just behind the
        births and ends of what was removed (`stores.forgetting`). Served by indexes; blocks no flush for longer than
        these rows take.
        """
        ...

    async def oldest_undecided(self, before_ms: int, after: tuple[int, str], limit: int) -> Sequence[LiveRow]:
        """Read prepared rows of all nodes with created_ms < before_ms, parked or not.

        In the order (created_ms, gid), strictly behind `after`; for horizons (14): there are few that old.
        """
        ...

    async def search(self, search: Search, position: str, limit: int) -> Found:
        """Return a page of the messages of all nodes that a person looks for.

        Live ones come first, then history.

        Looks at a bounded number of rows, see `stores.search`; `position=""` begins.

        Raises:
            InvalidRequest: no page ended with this position.
        """
        ...

    async def later(self, after: tuple[int, str], limit: int) -> Sequence[LiveRow]:
        """Return live, unparked rows of all nodes, strictly behind `after`.

        They are in the order (due_ms, gid).

        Served by an index, whatever the number of rows.
        """
        ...

    async def topics(self, known: int = -1) -> Topics | None:
        """Return all topics of one moment; None at the revision `known`.

        Then the database reads one key.
        """
        ...

    async def change_topic(
        self, revision: int, name: str, subscribers: Sequence[Subscriber] | None, entry: AuditEntry | None = None
    ) -> bool:
        """Give a topic these subscribers, durably, with the next revision.

        A missing topic is made; None removes one. False, and nothing is changed, when the topics are not at `revision`
        any more. It is tried once: after `StoreUnavailable` it may have happened, and the next reading of the topics
        shows whether it has. The name
        is text that every database takes. `entry`: the act's row of the audit log, in the same commit.
        """
        ...

    async def append_audit(self, entries: Sequence[AuditEntry]) -> None:
        """Write acts that change no row of the store into the audit log, in one commit."""
        ...

    async def tokens_seen(self) -> TokensSeen:
        """Return the tokens that were noted last."""
        ...

    async def note_tokens(self, known: TokensSeen, now: dict[str, str], entries: Sequence[AuditEntry]) -> bool:
        """Note the tokens as they are, in one commit with a row for each change.

        False, and nothing is changed, when others than `known` are noted by now.
        """
        ...

    async def audit_head(self) -> AuditHead:
        """Return both ends of the audit log's chain."""
        ...

    async def audit_chain(self, after_seq: int, limit: int) -> Sequence[AuditRow]:
        """Return the rows of the audit log behind a number, in the order of the chain."""
        ...

    async def audit_search(self, search: AuditSearch, position: int, limit: int) -> AuditPage:
        """Return a page of the audit log, the newest first; `position` 0 begins.

        It looks at `AUDIT_LOOKED_AT_MAX` rows at most.
        """
        ...

    async def heartbeat(self) -> int:
        """Renew the lease; returns the store's clock.

        A node that was last seen later than that, by a clock that has fallen back since, counts as seen now: a clock
        that falls back makes no dead node live longer than a lease.

        Raises:
            StoreFenced: another node has ended this node's epoch; `rejoin`, or stop.
        """
        ...

    async def adopt(self, limit: int, *, end_epochs: bool = True) -> int:
        """End the epochs of nodes that missed their lease, then adopt rows.

        At most `limit` rows are adopted. The epochs of vacant slots end, too. Returns the number of adopted rows; 0
        when the others are changing all that are left. Their version does not change. A node that has not itself kept
        contact with the store for a whole lease gives `end_epochs=False`, which ends no epoch of a silent node, and
        takes only what earlier epochs and vacant slots left: after an outage the others need time to report.

        Raises:
            StoreFenced: as `heartbeat`.
        """
        ...

    async def moved(self, known: Sequence[tuple[str, int]]) -> set[str]:
        """Return the gids, of these (gid, version), that are no such rows of this node.

        They have moved, changed or become final.
        """
        ...

    async def rejoin(self) -> None:
        """Take a node slot anew after `StoreFenced`, as `start` does.

        The caller has forgotten every row before.

        Raises:
            StoreFenced: this engine has one slot only, and another process holds it.
        """
        ...
