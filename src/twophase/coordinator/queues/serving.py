"""Gives messages to consumers, and keeps what they have done.

What consumers have, and until when, is in memory, and what is done is in the store: an acknowledgement returns when its
flush is durable. So a crash gives out again what was given out and not acknowledged, and nothing else. It implements
the group commit's `Readers`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import msgspec

from twophase.coordinator.gauges import QueueGauge
from twophase.coordinator.queues.contract import Client, Delivered
from twophase.coordinator.queues.cursor import FOR_EVER_MS, Cursor, Held
from twophase.coordinator.queues.subscription import PAGE_ENTRIES, Subscription, Taken, held_of, wanted_by
from twophase.coordinator.runtime import Runtime
from twophase.coordinator.state.group_commit import GroupCommit
from twophase.core.errors import (
    Overloaded,
    QueuesUnavailable,
    ReceiptInvalid,
    ReceiptStale,
    ShuttingDown,
    StoreError,
)
from twophase.stores.queue_rows import Progress

_UNATTACHED_MS: Final = 60_000
"""The time of a message whose client is not attached and names none."""
_LOOKED_MS: Final = 2_000
"""Time for which a look at the store's nodes counts."""
_SUBSCRIPTIONS_MAX: Final = 10_000
GROUPS_SHOWN_MAX: Final = 1_000
_RECEIPT_PARTS: Final = 4
_INCARNATION_BYTES: Final = 6


class Dead(msgspec.Struct, frozen=True, eq=False):
    """A message that goes into the dead letters."""

    cursor: Cursor
    number: int
    receipt: int
    held: Held


class Serving:
    """The consumers of all queues at this node.

    Arguments:
        runtime: the surroundings.
        group_commit: writes what is done.
    """

    def __init__(self, runtime: Runtime, group_commit: GroupCommit) -> None:
        self._store = runtime.store
        self._clock = runtime.clock
        self._settings = runtime.settings
        self._group_commit = group_commit
        self._incarnation = secrets.token_hex(_INCARNATION_BYTES)
        self._receipt = 0
        self._subscriptions: dict[tuple[str, str], Subscription] = {}
        self._by_topic: dict[str, list[Subscription]] = {}
        self._loading = asyncio.Lock()
        self._attached: dict[str, Client] = {}
        self._renewing: dict[str, set[Cursor]] = {}
        """The cursors in which an attached client may have something, by client id."""
        self._dirty: set[Cursor] = set()
        self._waiting: list[asyncio.Future[None]] = []
        """Acknowledgements that wait for the flush of what is dirty."""
        self._flushing: tuple[set[Cursor], list[asyncio.Future[None]]] = (set(), [])
        self._asked: dict[tuple[str, str], int] = {}
        """The time at which a consumer of a group has asked for messages of a topic last."""
        self._alone_until_ms = 0
        self._stopped = False
        self.redelivered = 0
        """The number of deliveries after the first."""

    # Clients.

    def attach(self, client: Client) -> None:
        """Let this client keep what it has as long as it is attached."""
        self._attached[client.client_id] = client
        self._renewing.setdefault(client.client_id, set())

    def detach(self, client: Client) -> None:
        """Let everything wait again that the client had as long as it was attached."""
        if self._attached.get(client.client_id) is not client:
            return  # it is attached anew
        del self._attached[client.client_id]
        for cursor in self._renewing.pop(client.client_id, ()):
            cursor.release(client.client_id)
            group, topic, _ = cursor.key
            subscription = self._subscriptions.get((group, topic))
            if subscription is not None:
                subscription.wake_all()

    # Giving out.

    async def receive(
        self,
        group: str,
        topic: str,
        queues: int,
        *,
        expression: str,
        limit: int,
        invisible_ms: int,
        wait_ms: int,
        client_id: str,
        attempts_max: int,
        fifo: bool,
    ) -> tuple[list[Delivered], list[Dead]]:
        """Take up to `limit` messages, and those that were given out too often.

        The caller moves the latter into the dead letters.
        """
        wanted = wanted_by(expression, group)
        until_ms = self._clock.now_ms() + wait_ms
        while True:
            subscription = await self._subscription(group, topic, queues)
            self._asked[group, topic] = self._clock.now_ms()
            taken = await subscription.take(wanted, limit, self._clock.now_ms, self._page_entries, fifo=fifo)
            if self._subscriptions.get((group, topic)) is not subscription:
                continue  # forgotten meanwhile, and so is what was taken
            # No await from here to the return: a cancelled call takes none.
            given = [self._give_out(one, invisible_ms, client_id) for one in taken if not _is_dead(one, attempts_max)]
            dead = [self._set_aside(one) for one in taken if _is_dead(one, attempts_max)]
            for cursor in subscription.cursors.values():
                if cursor.changed:
                    self._report(cursor)
            now_ms = self._clock.now_ms()
            if taken:
                subscription.wake()
                subscription.watch(now_ms)
                return given, dead
            if now_ms >= until_ms:
                return [], []
            await subscription.wait((until_ms - now_ms) / 1000, now_ms)
            if self._stopped:
                raise ShuttingDown

    def _set_aside(self, taken: Taken) -> Dead:
        """Leave a message alone for as long as its burial may take."""
        cursor, number, _, held = taken
        self._receipt += 1
        cursor.postpone(number, self._receipt, self._clock.now_ms() + _UNATTACHED_MS)
        return Dead(cursor, number, self._receipt, held)

    def _give_out(self, taken: Taken, invisible_ms: int, client_id: str) -> Delivered:
        cursor, number, one, held = taken
        renewed = self._renewing.get(client_id) if not invisible_ms else None
        if renewed is not None:
            renewed.add(cursor)
            until_ms = FOR_EVER_MS
        else:
            until_ms = self._clock.now_ms() + (invisible_ms or _UNATTACHED_MS)
        if one.attempts:
            self.redelivered += 1
            cursor.changed = True
        self._receipt += 1
        attempt = cursor.give_out(number, self._receipt, until_ms, client_id if renewed is not None else "")
        _, _, queue = cursor.key
        handle = self._handle(queue, number)
        return Delivered(held.message, queue, number, handle, attempt, held.stored_ms, invisible_ms, held.gid)

    def _handle(self, queue: int, number: int) -> str:
        return f"{self._incarnation}-{queue}-{number}-{self._receipt}"

    def _page_entries(self) -> int:
        """Return how many entries may be read at once: one, where memory holds enough."""
        held = sum(cursor.held_bytes for one in self._subscriptions.values() for cursor in one.cursors.values())
        return 1 if held > self._settings.queue_held_bytes_max else PAGE_ENTRIES

    async def _subscription(self, group: str, topic: str, queues: int) -> Subscription:
        if self._stopped:
            raise ShuttingDown
        await self._require_alone()
        found = self._subscriptions.get((group, topic))
        if found is not None and len(found.cursors) >= queues:
            return found
        async with self._loading:
            found = self._subscriptions.get((group, topic))
            if found is None or len(found.cursors) < queues:
                progress = {queue: Progress(group, topic, queue, 0, b"") for queue in range(queues)}
                progress |= {one.queue: one for one in await self._store.queue_progress(group, topic)}
                found = self._subscriptions.get((group, topic))
                if found is None:
                    self._make_room()
                    found = Subscription(self._store, progress, self._settings.queue_undone_max)
                    self._subscriptions[group, topic] = found
                    self._by_topic.setdefault(topic, []).append(found)
                found.add(progress)
                # Known from here on, so that no append is missed between the reading and the first look.
                for queue, end in (await self._store.queue_ends(topic)).items():
                    found.appended(queue, end)
        return found

    def served(self, group: str = "", topic: str = "") -> dict[tuple[str, str], Subscription]:
        """Return the subscriptions that are served here, by (group, topic).

        An empty name stands for all.
        """
        named = self._subscriptions.items()
        return {key: one for key, one in named if group in {"", key[0]} and topic in {"", key[1]}}

    def asked_ms(self, group: str, topic: str) -> int:
        """Return when a consumer has asked here for messages last.

        0 for never, or for long ago.
        """
        return self._asked.get((group, topic), 0)

    @contextlib.asynccontextmanager
    async def set_aside(self, group: str = "", topic: str = "") -> AsyncIterator[None]:
        """Serve none of these subscriptions during the block.

        The block changes what they have done. What was acknowledged before is durable at its beginning. Receipts of
        messages that were given out are stale from here on. An empty name stands for all.

        Raises:
            QueuesUnavailable: another node serves consumers. StoreError: nothing was changed.
        """
        await self._require_alone()
        async with self._loading:
            gone = self.served(group, topic)
            for key, one in gone.items():
                del self._subscriptions[key]
                self._by_topic[key[1]].remove(one)
            try:
                await self._flushed([cursor for one in gone.values() for cursor in one.cursors.values()])
            except BaseException:
                for key, one in gone.items():
                    self._subscriptions[key] = one
                    self._by_topic.setdefault(key[1], []).append(one)
                raise
            finally:
                for one in gone.values():
                    one.wake_all()
            yield

    async def _flushed(self, cursors: Sequence[Cursor]) -> None:
        """Write what is done; return when that is durable."""
        if cursors:
            self._dirty.update(cursors)
            written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(written)
            self._group_commit.report(urgent=True)
            await written

    def _make_room(self) -> None:
        if len(self._asked) > _SUBSCRIPTIONS_MAX:
            self._asked = {key: at_ms for key, at_ms in self._asked.items() if key in self._subscriptions}
        if len(self._subscriptions) < _SUBSCRIPTIONS_MAX:
            return
        dirty = {cursor.key[:2] for cursor in self._dirty | self._flushing[0]}
        idle = next((key for key, one in self._subscriptions.items() if one.idle and key not in dirty), None)
        if idle is None:
            raise Overloaded(f"{_SUBSCRIPTIONS_MAX} groups read topics here already.")
        _, topic = idle
        self._by_topic[topic].remove(self._subscriptions.pop(idle))

    async def _require_alone(self) -> None:
        """Refuse to serve where another node lives.

        Each would give out what the other has given out.
        """
        if not self._store.shared or self._clock.now_ms() < self._alone_until_ms:
            return
        own, _ = self._store.slot
        seen_after_ms = await self._store.now_ms() - self._store.lease_ms
        others = [
            node.node
            for node in await self._store.nodes()
            if node.held and node.node != own and node.seen_ms > seen_after_ms
        ]
        if others:
            self.forget(QueuesUnavailable())
            raise QueuesUnavailable(
                f"node {others[0]} uses this store, too, and consumers of queues are served only where one node does."
            )
        self._alone_until_ms = self._clock.now_ms() + _LOOKED_MS

    # What becomes of what was given out.

    async def ack(self, group: str, topic: str, handle: str) -> None:
        """See `QueueApi.ack`."""
        cursor, number = self.given(group, topic, handle)
        await self.finish(cursor, number)

    async def finish(self, cursor: Cursor, number: int) -> None:
        """Note that an entry is done; return when that is durable."""
        cursor.finish(number)
        group, topic, _ = cursor.key
        subscription = self._subscriptions.get((group, topic))
        if subscription is not None:
            subscription.wake()  # the next of its message group may be what a consumer waits for
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(durable)
        self._report(cursor, urgent=True)
        await durable

    def extend(self, group: str, topic: str, handle: str, invisible_ms: int) -> str:
        """See `QueueApi.extend`."""
        cursor, number = self.given(group, topic, handle)
        self._receipt += 1
        cursor.postpone(number, self._receipt, self._clock.now_ms() + invisible_ms)
        self._report(cursor)
        self._subscriptions[group, topic].watch(self._clock.now_ms())
        return self._handle(cursor.key[2], number)

    def given(self, group: str, topic: str, handle: str) -> tuple[Cursor, int]:
        """Return the entry of a receipt. Raises as `QueueApi.ack`."""
        parts = handle.split("-")
        if len(parts) != _RECEIPT_PARTS or not all(part.isascii() and part.isdigit() for part in parts[1:]):
            raise ReceiptInvalid
        queue, number, receipt = (int(part[:20]) for part in parts[1:])
        subscription = self._subscriptions.get((group, topic))
        cursor = subscription.cursors.get(queue) if subscription is not None else None
        if parts[0] != self._incarnation or cursor is None or not cursor.given(number, receipt):
            raise ReceiptStale
        return cursor, number

    async def dead(self, group: str, topic: str, handle: str) -> Dead:
        """Return an entry that a consumer gives up. Raises as `QueueApi.ack`."""
        cursor, number = self.given(group, topic, handle)
        receipt = cursor.undone[number].receipt
        entries = await self._store.queue_entries(topic, cursor.key[2], [number])
        if not entries:
            raise ReceiptStale
        return Dead(cursor, number, receipt, held_of(entries[0]))

    async def buried(self, dead: Dead) -> None:
        """Note that a message stands in the dead letters; return when that is durable."""
        group, topic, _ = dead.cursor.key
        subscription = self._subscriptions.get((group, topic))
        known = subscription is not None and dead.cursor in subscription.cursors.values()
        if known and dead.cursor.given(dead.number, dead.receipt):
            await self.finish(dead.cursor, dead.number)

    # The group commit.

    def _report(self, cursor: Cursor, *, urgent: bool = False) -> None:
        cursor.changed = False
        self._dirty.add(cursor)
        self._group_commit.report(urgent=urgent)

    def take_progress(self) -> list[Progress]:
        """See `Readers.take_progress`."""
        self._flushing = self._dirty, self._waiting
        self._dirty, self._waiting = set(), []
        return [cursor.progress() for cursor in self._flushing[0]]

    def progress_flushed(self, error: StoreError | None) -> None:
        """See `Readers.progress_flushed`."""
        cursors, waiting = self._flushing
        self._flushing = set(), []
        if error is not None:
            self._dirty |= cursors
            self._group_commit.report(urgent=False)
        for durable in waiting:
            if durable.done():
                continue
            if error is None:
                durable.set_result(None)
            else:
                durable.set_exception(error)

    def appended(self, ends: Mapping[tuple[str, int], int]) -> None:
        """See `Readers.appended`."""
        for (topic, queue), end in ends.items():
            for subscription in self._by_topic.get(topic, ()):
                subscription.appended(queue, end)

    def forget(self, error: Exception) -> None:
        """Forget everything; another node may serve from now on."""
        for durable in (*self._waiting, *self._flushing[1]):
            if not durable.done():
                durable.set_exception(error)
        subscriptions, self._subscriptions, self._by_topic = self._subscriptions, {}, {}
        self._dirty, self._waiting, self._flushing = set(), [], (set(), [])
        self._alone_until_ms = 0
        for client_id in self._renewing:
            self._renewing[client_id] = set()
        for subscription in subscriptions.values():
            subscription.wake_all()

    def wake(self) -> None:
        """Let every consumer look at the clock now."""
        for subscription in self._subscriptions.values():
            subscription.wake_all()

    def stop(self) -> None:
        """Give out nothing more, and end the polls."""
        self._stopped = True
        self.wake()

    def gauges(self) -> tuple[QueueGauge, ...]:
        """Return the lag of the groups that are served here; at most `GROUPS_SHOWN_MAX`."""
        served = itertools.islice(self._subscriptions.items(), GROUPS_SHOWN_MAX)
        return tuple(QueueGauge(group, topic, one.lag, one.in_flight, one.behind) for (group, topic), one in served)


def _is_dead(taken: Taken, attempts_max: int) -> bool:
    return taken[2].attempts >= attempts_max > 0
