"""The one connection that writes, and the fate of a flush whose database is lost.

Keeps I8 and correctness rules 19, 20 and 22. A flush is one function call, begun by the fence and committed by the
database before it answers. When the answer does not come, the old backend may still commit; so before anything else
this node's fence is raised, which waits for a flush that is being committed and ends one that has not begun, and the
node's row, which counts flushes, shows whether it happened. Only when it did not is the same batch sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from twophase.core.audit_log import AuditEntry
from twophase.core.errors import StoreError, StoreFenced, StoreUnavailable
from twophase.core.gid import born_ms
from twophase.core.hooks import Clock
from twophase.stores.batch import Batch, Complete, FlushResult, Forgotten, Insert, Item, NotApplied, Rejected
from twophase.stores.postgres import reader, statements
from twophase.stores.postgres.columns import APART, ApartColumns, Columns
from twophase.stores.postgres.connection import Connection
from twophase.stores.postgres.failures import FAILURES, FORGOTTEN, is_beaten, is_data, is_lost, store_error
from twophase.stores.postgres.node_slots import NodeSlot, Settled
from twophase.stores.postgres.queueing import NO_QUEUES, numbers_of
from twophase.stores.postgres.reader import NodeEpoch
from twophase.stores.postgres.reconnecting import Deadline, ReconnectingConnection
from twophase.stores.queue_rows import Append, Progress
from twophase.stores.rows import Attempt

Indexed = Sequence[tuple[int, Item]]

_BEATEN_MAX: Final = 20
"""Times in a row that another transaction may win before the flush is given up."""


class Answer(msgspec.Struct, frozen=True):
    """The outcome of a flush; `refused` holds indexes of the batch."""

    at_ms: int
    refused: dict[int, Rejected | Forgotten | None]
    numbers: dict[int, tuple[int, ...]] = {}
    lost: frozenset[int] = frozenset()
    """The indexes of progress that was refused."""


class _BadData(Exception):
    """The database refuses a value of this call; nothing was written."""


class _HorizonMoved(Exception):
    """History was cleaned since the last flush, and a new gid is older than the rest.

    Nothing was written.
    """


class Writer:
    """The writing side of one node.

    Arguments:
        reconnecting: a connection for this writer alone.
        clock: overrides the database's clock, for tests; None for the database's own.
    """

    def __init__(self, reconnecting: ReconnectingConnection, clock: Clock | None) -> None:
        self._reconnecting = reconnecting
        self._clock = clock
        self._slot: NodeSlot | None = None
        self._unsettled = False
        self._connection: Connection | None = None
        """The one on which the slot was taken or settled."""
        self._horizon_ms = 0
        self._audited: Mapping[int, AuditEntry] = {}
        """The operators' acts of the flush under way, by index in its batch."""
        self._appends: Mapping[int, tuple[Append, ...]] = {}
        """The entries of queues of the flush under way, by index in its batch."""
        self._progress: Sequence[Progress] = ()
        """That of its groups. Each part of a flush may write it."""

    @property
    def node_epoch(self) -> NodeEpoch:
        """The node and epoch whose rows this node owns."""
        slot = self._held()
        return NodeEpoch(slot.node, slot.epoch)

    @property
    def unsettled(self) -> bool:
        """True when a lost connection may still commit a flush.

        Reading now would be guessing.
        """
        return self._unsettled

    def take(self, slot: NodeSlot, connection: Connection) -> None:
        """Write from now on as the holder of `slot`, which was taken on `connection`."""
        self._slot = slot
        self._connection = connection
        self._unsettled = False

    def leave(self) -> None:
        """Write no more."""
        self._slot = None

    async def settle(self) -> None:
        """Make sure that nothing of a lost connection can be written any more."""
        deadline = self._reconnecting.deadline()
        await self._reconnecting.take_turn(
            deadline
        )  # many readers ask for it at once, and each waits no longer than alone
        try:
            await self._ready(deadline)
        finally:
            self._reconnecting.lock.release()

    async def flush(self, batch: Batch) -> FlushResult:
        """Make a batch durable, see `Store.flush`."""
        items = batch.items
        assert len({item.gid for item in items}) == len(items), "at most one change of a gid in a batch"
        async with self._reconnecting.lock:
            deadline = self._reconnecting.deadline()
            clock_ms = self._clock_ms()
            self._audited, self._appends, self._progress = batch.audited, batch.appends, batch.progress
            try:
                answer = await self._put(list(enumerate(items)), batch.attempts, clock_ms, deadline)
            except _BadData as error:
                raise StoreError(f"{self._reconnecting.database}: evidence that cannot be written: {error}.") from error
            refused: dict[int, NotApplied] = {}
            if answer.refused:
                refused = await self._reasons(items, answer.refused, deadline)
            return FlushResult(answer.at_ms, refused, answer.numbers, answer.lost)

    async def heartbeat(self) -> int:
        """Renew the lease, see `Store.heartbeat`."""

        async def renew(connection: Connection, slot: NodeSlot) -> int | None:
            seen_ms: int | None = await connection.fetchval(
                statements.HEARTBEAT, slot.node, slot.fence, self._clock_ms()
            )
            return seen_ms

        seen_ms, _ = await self._write(renew, "renewing the lease")
        return seen_ms

    async def adopt(self, lease_ms: int, limit: int, *, end_epochs: bool) -> int:
        """Take over rows, see `Store.adopt`."""

        async def take(connection: Connection, slot: NodeSlot) -> int | None:
            came: int | None = await connection.fetchval(
                statements.ADOPT,
                *(slot.node, slot.epoch, slot.fence, self._clock_ms()),
                *(lease_ms, limit, end_epochs),
            )
            return came

        came, is_first_try = await self._write(take, "adopting")
        # When an answer was lost, rows may have come with it: then there is something to look for.
        return came if is_first_try else max(came, 1)

    async def own_topic(self, topic: str) -> int | None:
        """Take the consumers of a topic, see `QueueStore.own_topic`.

        When an answer was lost, the repeated call begins another term: nothing has been written in the first.
        """

        async def own(connection: Connection, slot: NodeSlot) -> int | None:
            term: int | None = await connection.fetchval(
                statements.OWN_TOPIC, slot.node, slot.fence, self._clock_ms(), topic
            )
            return term

        term, _ = await self._write(own, "taking a topic")
        return term or None

    async def announce(self, served_at: str) -> None:
        """Write the addresses of this node, see `QueueStore.announce`."""

        async def announce(connection: Connection, slot: NodeSlot) -> int | None:
            node: int | None = await connection.fetchval(statements.ANNOUNCE, slot.node, slot.fence, served_at)
            return node

        await self._write(announce, "announcing this node")

    async def _write(
        self, work: Callable[[Connection, NodeSlot], Awaitable[int | None]], doing: str
    ) -> tuple[int, bool]:
        """Do other work under this node's fence, which may be repeated.

        Returns its result, and whether one try was enough.

        Raises:
            StoreFenced: the result was None.
        """
        async with self._reconnecting.lock:
            deadline = self._reconnecting.deadline()
            tries = 0
            while True:
                connection, _ = await self._ready(deadline)
                tries += 1
                try:
                    result = await self._reconnecting.within(deadline, work(connection, self._held()))
                except asyncio.CancelledError:
                    self._unsettled = True
                    raise
                except FAILURES as error:
                    if is_lost(error):
                        self._lose()
                    if not (is_lost(error) or is_beaten(error)) or deadline.left_s() == 0:
                        raise store_error(error, self._reconnecting.database, doing) from error
                else:
                    if result is None:
                        raise self._fenced()
                    return result, tries == 1

    async def _put(
        self, items: Indexed, attempts: Sequence[Attempt], clock_ms: int | None, deadline: Deadline
    ) -> Answer:
        while True:
            columns = Columns(items, attempts, self._audited, self._appends, self._progress)
            if columns.apart:
                return await self._put_apart_first(items, attempts, clock_ms, deadline)
            if columns.oldest_born_ms < self._horizon_ms:
                return await self._put_without_forgotten(items, attempts, clock_ms, deadline)
            try:
                return await self._send(columns, clock_ms, deadline)
            except _HorizonMoved:
                continue
            except _BadData as error:
                return await self._put_in_parts(items, attempts, clock_ms, deadline, str(error))

    async def _put_apart_first(
        self, items: Indexed, attempts: Sequence[Attempt], clock_ms: int | None, deadline: Deadline
    ) -> Answer:
        """Flush what has a statement of its own with the evidence, then the other items."""
        apart = [(index, item) for index, item in items if isinstance(item, APART)]
        rest = [one for one in items if not isinstance(one[1], APART)]
        try:
            first = await self._send(ApartColumns(apart, attempts, self._audited), clock_ms, deadline)
        except _BadData as error:
            if attempts or len(items) > 1:
                return await self._put_in_parts(items, attempts, clock_ms, deadline, str(error))
            done = await self._send(Columns((), ()), clock_ms, deadline)
            return Answer(done.at_ms, {items[0][0]: Rejected(str(error))})
        if not rest and not self._progress:
            return first
        then = await self._put(rest, (), first.at_ms, deadline)
        return Answer(then.at_ms, first.refused | then.refused, then.numbers, then.lost)

    async def _put_without_forgotten(
        self, items: Indexed, attempts: Sequence[Attempt], clock_ms: int | None, deadline: Deadline
    ) -> Answer:
        horizon_ms = self._horizon_ms
        forgotten = {index for index, item in items if _is_forgotten(item, horizon_ms)}
        rest = [one for one in items if one[0] not in forgotten]
        answer = await self._put(rest, attempts, clock_ms, deadline)
        refused = answer.refused | dict.fromkeys(forgotten, Forgotten(horizon_ms))
        return Answer(answer.at_ms, refused, answer.numbers, answer.lost)

    async def _put_in_parts(
        self, items: Indexed, attempts: Sequence[Attempt], clock_ms: int | None, deadline: Deadline, error: str
    ) -> Answer:
        """Halve until the value is found, each half a flush of its own.

        Evidence is first, because no item may refuse it.
        """
        at_ms = clock_ms
        if attempts:
            done = await self._send(Columns((), [_escaped(attempt) for attempt in attempts]), at_ms, deadline)
            at_ms = done.at_ms
        elif len(items) == 1:
            done = await self._send(Columns((), ()), at_ms, deadline)
            return Answer(done.at_ms, {items[0][0]: Rejected(error)})
        middle = (len(items) + 1) // 2 if not attempts else len(items)
        refused: dict[int, Rejected | Forgotten | None] = {}
        numbers: dict[int, tuple[int, ...]] = {}
        lost: frozenset[int] = frozenset()
        for part in (items[:middle], items[middle:]):
            if part:
                half = await self._put(part, (), at_ms, deadline)
                at_ms = half.at_ms
                refused |= half.refused
                numbers |= half.numbers
                lost |= half.lost
        assert at_ms is not None, "there was something to write"
        return Answer(at_ms, refused, numbers, lost)

    async def _send(self, columns: Columns | ApartColumns, clock_ms: int | None, deadline: Deadline) -> Answer:
        """Call until it is known that exactly one call was committed."""
        beaten = 0
        while True:
            connection, _ = await self._ready(deadline)
            slot = self._held()
            arguments = (slot.node, slot.epoch, slot.fence, clock_ms, *columns.arguments)
            try:
                rows = await self._reconnecting.within(deadline, connection.fetch(columns.statement, *arguments))
                answer = rows[0][0] if rows else None
            except asyncio.CancelledError:
                self._unsettled = True
                raise
            except FAILURES as error:
                happened = await self._after(error, deadline)
                if happened is not None:
                    return _answer(happened.seen_ms, happened.refused, columns)
                beaten += is_beaten(error)
                if beaten > _BEATEN_MAX:
                    raise store_error(error, self._reconnecting.database, "writing") from error
            else:
                if answer is None:
                    raise self._fenced()
                slot.flushes += 1
                at_ms, self._horizon_ms, *refused = answer
                if columns.queues is NO_QUEUES:
                    return _answer(at_ms, refused, columns)
                end = refused.index(-1)
                answer = _answer(at_ms, refused[:end], columns)
                numbers = numbers_of(columns.entries_of, refused[end + 1 :])
                return Answer(at_ms, answer.refused, numbers, answer.lost)

    async def _after(self, error: BaseException, deadline: Deadline) -> Settled | None:
        """Return the outcome of a failed call that happened all the same.

        None when it is to be sent again.

        Raises:
            StoreError: it did not happen and shall not be repeated, or it is not known yet and waiting has an end.
            _BadData: it did not happen; a value is at fault.
        """
        if is_lost(error):
            expected = self._held().flushes + 1
            self._lose()
            try:
                _, settled = await self._ready(deadline)
            except StoreUnavailable as unavailable:
                raise unavailable from error
            return settled if settled is not None and settled.flushes == expected else None
        if is_data(error):
            raise _BadData(f"{type(error).__name__}: {error}") from error
        if getattr(error, "sqlstate", "") == FORGOTTEN:
            self._horizon_ms = int(getattr(error, "detail", 0))
            raise _HorizonMoved from error
        if is_beaten(error):
            return None
        raise store_error(error, self._reconnecting.database, "writing") from error

    async def _ready(self, deadline: Deadline) -> tuple[Connection, Settled | None]:
        """Return a connection on which this node may write.

        Also returns the flush that was settled on the way, if there was one.
        """
        while True:
            slot = self._held()
            connection = await self._reconnecting.connected(deadline)
            if connection is self._connection and not self._unsettled:
                return connection, None
            # Also when nothing was under way: this may be another server, one that was behind.
            self._unsettled = True
            try:
                settling = connection.fetch(statements.SETTLE, slot.node, slot.owner, slot.fence + 1)
                rows = await self._reconnecting.within(deadline, settling)
            except FAILURES as error:
                if not (is_lost(error) or is_beaten(error)) or deadline.left_s() == 0:
                    raise store_error(
                        error, self._reconnecting.database, "finding out what became of a flush"
                    ) from error
                self._reconnecting.drop()
                continue
            if not rows:
                raise StoreFenced(
                    f"{self._reconnecting.database}: while the connection was lost, node slot {slot.node} was taken."
                )
            settled = Settled(*rows[0])
            if settled.flushes not in (slot.flushes, slot.flushes + 1):
                raise StoreFenced(
                    f"{self._reconnecting.database}: the database has lost flushes ({settled.flushes} of "
                    f"{slot.flushes}): a failover to a standby that was behind?"
                )
            slot.fence, slot.flushes = settled.fence, settled.flushes
            self._connection = connection
            self._unsettled = False
            return connection, settled

    async def _reasons(
        self, items: Sequence[Item], refused: dict[int, Rejected | Forgotten | None], deadline: Deadline
    ) -> dict[int, NotApplied]:
        """Return the stored rows of refused items.

        They are read in one statement after the commit (21).
        """
        gids = [items[index].gid for index, reason in refused.items() if not isinstance(reason, Rejected)]
        while True:
            connection, _ = await self._ready(deadline)
            try:
                rows = await self._reconnecting.within(deadline, reader.get(connection, gids, self.node_epoch))
                break
            except FAILURES as error:
                if not is_lost(error) or deadline.left_s() == 0:
                    raise store_error(error, self._reconnecting.database, "reading what was refused") from error
                self._lose()
        return {
            index: reason if isinstance(reason, Rejected) else rows.get(items[index].gid, reason)
            for index, reason in refused.items()
        }

    def _clock_ms(self) -> int | None:
        return self._clock.now_ms() if self._clock else None

    def _fenced(self) -> StoreFenced:
        return StoreFenced(
            f"{self._reconnecting.database}: another process has taken node slot {self._held().node} of this node."
        )

    def _lose(self) -> None:
        self._reconnecting.drop()
        self._unsettled = True

    def _held(self) -> NodeSlot:
        if self._slot is None:
            raise StoreError(f"{self._reconnecting.database} is not open: the store was not started, or is stopped.")
        return self._slot


def _answer(at_ms: int, refused: Sequence[int], columns: Columns | ApartColumns) -> Answer:
    """Return the outcome; `refused` has items as 1, 2 … and progress as -2, -3 …."""
    items: dict[int, Rejected | Forgotten | None] = {columns.order[place - 1]: None for place in refused if place > 0}
    return Answer(at_ms, items, lost=frozenset([-2 - place for place in refused if place < 0]))


def _is_forgotten(item: Item, horizon_ms: int) -> bool:
    if not isinstance(item, (Insert, Complete)):
        return False
    born = born_ms(item.gid)
    return born is not None and born < horizon_ms


def _escaped(attempt: Attempt) -> Attempt:
    """Return the attempt with text escaped that no database takes.

    Evidence is not dropped for its spelling.
    """
    changed = {
        name: value.encode(errors="backslashreplace").decode().replace("\0", r"\x00")
        for name, value in msgspec.structs.asdict(attempt).items()
        if isinstance(value, str) and name != "kind"
    }
    return msgspec.structs.replace(attempt, **changed)
