"""Gives messages to consumers, and keeps what they have done.

What consumers have, and until when, is in memory, and what is done is in the store: an acknowledgement returns when its
flush is durable. So a crash gives out again what was given out and not acknowledged, and nothing else. What a consumer
has goes to no other, and becomes a dead letter at that consumer's request alone: whether it was given out too often is
decided before it is given out. On a store that several nodes share it serves the topics of this node alone
(`topic_owners`). It implements the group commit's `Readers`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

import msgspec

from twophase.coordinator.queues.contract import Client, Delivered
from twophase.coordinator.queues.cursor import Cursor, Dead
from twophase.coordinator.queues.receipts import Receipt, Receipts, place_of
from twophase.coordinator.queues.subscription import PAGE_ENTRIES, Subscription, Taken, held_of, parted, wanted_by
from twophase.coordinator.queues.subscriptions import Subscriptions
from twophase.coordinator.queues.topic_owners import TopicOwners
from twophase.coordinator.runtime import Runtime
from twophase.coordinator.state.group_commit import GroupCommit
from twophase.core.errors import Overloaded, QueuesElsewhere, ReceiptStale, ShuttingDown, StoreError
from twophase.stores.queue_rows import Progress

_UNATTACHED_MS: Final = 60_000
"""The time of a message whose client is not attached and names none."""
_UNSURE_S: Final = 0.05
"""Pause while this node does not know whether it has its slot."""
_WRITES_MAX: Final = 10
"""Times that progress is written, as acknowledgements come, before a handover."""
_SUBSCRIPTIONS_MAX: Final = 10_000


class Serving(Subscriptions):
    """The consumers of all queues at this node.

    Arguments:
        runtime: the node's store, clock, settings and observer.
        group_commit: writes what is done.
        owners: the topics that this node serves.
    """

    def __init__(self, runtime: Runtime, group_commit: GroupCommit, owners: TopicOwners) -> None:
        super().__init__(runtime.clock)
        self._store = runtime.store
        self._settings = runtime.settings
        self._group_commit = group_commit
        self._owners = owners
        self.on_appended: Callable[[Mapping[tuple[str, int], int]], None] | None = None
        """Called with the new entries of this node's flushes."""
        self._receipts = Receipts()
        self._loading = asyncio.Lock()
        self._attached: dict[str, Client] = {}
        self._renewing: dict[str, set[Cursor]] = {}
        """The cursors in which an attached client may have something, by client id."""
        self._dirty: set[Cursor] = set()
        self._waiting: list[tuple[Cursor, asyncio.Future[None]]] = []
        """Acknowledgements that wait for the flush of what is dirty."""
        self._flushing: tuple[list[Cursor], list[tuple[Cursor, asyncio.Future[None]]]] = ([], [])
        self._stopped = False
        self.redelivered = 0
        """The number of deliveries after the first."""

    # Clients.

    def attach(self, client: Client) -> None:
        """Let this client keep what it gets, as long as it is attached."""
        self._attached[client.client_id] = client
        self._renewing.setdefault(client.client_id, set())

    def detach(self, client: Client) -> None:
        """Let everything wait again that the client had no longer than it was attached."""
        if self._attached.get(client.client_id) is not client:
            return  # it is attached anew
        del self._attached[client.client_id]
        for cursor in self._renewing.pop(client.client_id, ()):
            cursor.release(client.client_id)
            subscription = self._subscriptions.get(cursor.key[:2])
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
        bytes_max: int | None,
    ) -> tuple[list[Delivered], list[Dead]]:
        """Take up to `limit` messages, and those that were given out too often.

        The caller moves the latter into the dead letters.
        """
        wanted = wanted_by(expression, group)
        until_ms = self.now_ms() + wait_ms
        while True:
            subscription = await self._subscription(group, topic, queues, until_ms)
            self.asked[group, topic] = self.now_ms()
            taken = await subscription.take(wanted, limit, self.now_ms, self._page_entries, bytes_max)
            if self._subscriptions.get((group, topic)) is not subscription:
                subscription.put_back(taken)  # it is served again where `set_aside` fails
                continue
            is_sure = self._owners.is_sure and self._owners.term(topic) is not None
            if not is_sure:
                subscription.put_back(taken)
                taken = []
            # No await from here to the return: a cancelled call takes none.
            alive, gone = parted(taken, attempts_max)
            given = [self._give_out(one, invisible_ms, client_id) for one in alive]
            dead = [self._set_aside(one) for one in gone]
            for cursor in subscription.cursors.values():
                if cursor.changed:
                    self._report(cursor)
            now_ms = self.now_ms()
            if taken:
                subscription.wake()
                subscription.watch(now_ms)
                return given, dead
            if now_ms >= until_ms + subscription.overtime_ms:
                return [], []
            until_ms = min(until_ms, now_ms + wait_ms)  # the clock may have been set back
            wait_s = (until_ms - now_ms) / 1000
            await subscription.wait(wait_s if is_sure else min(wait_s, _UNSURE_S), now_ms)
            if self._stopped:
                raise ShuttingDown

    def _set_aside(self, taken: Taken) -> Dead:
        """Leave a message alone for as long as its burial may take."""
        cursor, number, _, held = taken
        receipt = self._receipts.next()
        cursor.set_aside(number, receipt, self.now_ms() + _UNATTACHED_MS)
        return Dead(cursor, number, receipt, held)

    def _give_out(self, taken: Taken, invisible_ms: int, client_id: str) -> Delivered:
        cursor, number, one, held = taken
        renewed = self._renewing.get(client_id) if not invisible_ms else None
        if renewed is not None:
            renewed.add(cursor)
        hold_ms = _UNATTACHED_MS if renewed is None else self._settings.queue_hold_ms
        until_ms = self.now_ms() + (invisible_ms or hold_ms)
        if one.attempts:
            self.redelivered += 1
        if one.attempts or cursor.is_new:
            cursor.is_new, cursor.changed = False, True  # from its first message on, cleaning waits for a group
        receipt = self._receipts.next()
        attempt = cursor.give_out(number, receipt, until_ms, client_id if renewed is not None else "")
        group, topic, queue = cursor.key
        handle = self._receipts.handle(place_of(group, topic), queue, number, receipt)
        return Delivered(held.message, queue, number, handle, attempt, held.stored_ms, invisible_ms, held.gid)

    def _page_entries(self) -> int:
        """Return how many entries may be read at once: one, where memory holds enough."""
        held = sum(cursor.held_bytes for one in self._subscriptions.values() for cursor in one.cursors.values())
        return 1 if held > self._settings.queue_held_bytes_max else PAGE_ENTRIES

    async def _subscription(self, group: str, topic: str, queues: int, until_ms: int) -> Subscription:
        while True:
            if self._stopped:
                raise ShuttingDown
            term = await self._owners.own(topic, until_ms)
            found = self._subscriptions.get((group, topic))
            if found is not None and len(found.cursors) >= queues and not found.lacks_queue:
                return found
            async with self._loading:
                found = self._subscriptions.get((group, topic))
                if found is None:
                    self._make_room()
                if found is None or len(found.cursors) < queues or found.lacks_queue:
                    await self._load(group, topic, queues, term)

    async def _load(self, group: str, topic: str, queues: int, term: int) -> None:
        """Read a group's progress, after this node's term has begun.

        Until then the owner before may have written some. A group that is served gets the queues that are new, also
        those that have entries by an earlier definition.
        """
        rows = await self._store.queue_progress(group, topic)
        stored = {one.queue: msgspec.structs.replace(one, term=term) for one in rows}
        there = {*range(queues), *await self._store.queue_ends(topic)}
        progress = {queue: Progress(group, topic, queue, 0, b"", term) for queue in there} | stored
        if self._owners.term(topic) != term:
            return  # another node may have written some since
        found = self._subscriptions.get((group, topic))
        if found is None:
            found = Subscription(self._store, progress, self._settings.queue_undone_max)
            self._subscriptions[group, topic] = found
            self._by_topic.setdefault(topic, []).append(found)
        found.add(progress)
        found.lacks_queue = False
        for cursor in found.cursors.values():
            cursor.resume(self.now_ms())
        for queue in progress.keys() - stored.keys():
            found.cursors[queue].is_new = True
        # It is known from here on, so that no append is missed.
        for queue, end in (await self._store.queue_ends(topic)).items():
            found.appended(queue, end)

    async def term(self, topic: str) -> int:
        """Return the term in which this node serves a topic's consumers, now.

        Raises:
            QueuesElsewhere, QueuesUnavailable: it does not.
        """
        return await self._owners.own(topic, self.now_ms())

    @contextlib.asynccontextmanager
    async def set_aside(self, topics: Sequence[str], group: str = "") -> AsyncIterator[None]:
        """Serve none of these topics' subscriptions during the block.

        With a group, only its own are meant. The block changes what they have done: what was acknowledged before is
        durable at its beginning, and receipts of messages that were given out are stale from here on.

        Raises:
            QueuesElsewhere, QueuesUnavailable: another node serves one of the topics. StoreError: nothing was changed.
        """
        for topic in topics:
            await self.term(topic)
        async with self._loading:
            gone = {key: one for key, one in self.served(group).items() if key[1] in topics}
            for key, one in gone.items():
                del self._subscriptions[key]
                self._by_topic[key[1]].remove(one)
            cursors = [cursor for one in gone.values() for cursor in one.cursors.values()]
            try:
                await self._written(cursors)
            except BaseException:
                for key, one in gone.items():
                    if all(self._owners.has(key[1], cursor.term) for cursor in one.cursors.values()):
                        self._subscriptions[key] = one
                        self._by_topic.setdefault(key[1], []).append(one)
                        for cursor in one.cursors.values():
                            self._report(cursor)
                raise
            finally:
                for one in gone.values():
                    one.wake_all()
            yield

    async def _written(self, cursors: Sequence[Cursor]) -> None:
        """Write what is done; return when that is durable. Raises as `write_topic`."""
        written = [asyncio.get_running_loop().create_future() for _ in cursors]
        self._waiting += zip(cursors, written, strict=True)
        for cursor in cursors:
            self._report(cursor, urgent=True)
        await asyncio.gather(*written)

    def _make_room(self) -> None:
        if len(self.asked) > _SUBSCRIPTIONS_MAX:
            self.asked = {key: at_ms for key, at_ms in self.asked.items() if key in self._subscriptions}
        if len(self._subscriptions) < _SUBSCRIPTIONS_MAX:
            return
        dirty = {cursor.key[:2] for cursor in self._dirty.union(self._flushing[0])}
        idle = next((key for key, one in self._subscriptions.items() if one.idle and key not in dirty), None)
        if idle is None:
            raise Overloaded(f"{_SUBSCRIPTIONS_MAX} groups read topics here already.")
        _, topic = idle
        self._by_topic[topic].remove(self._subscriptions.pop(idle))

    # What becomes of what was given out.

    async def ack(self, group: str, topic: str, handle: str) -> None:
        """See `QueueApi.ack`."""
        cursor, number = await self._given_here(group, topic, handle)
        await self.finish(cursor, number)

    async def _given_here(self, group: str, topic: str, handle: str) -> tuple[Cursor, int]:
        """Return the entry of a receipt; name the owner where it is another node.

        What is done is refused when that is durable: the flush of the first acknowledgement may be under way, or has
        failed. A receipt that this node gave before it lost the topic is stale: clients repeat any other refusal.
        """
        try:
            return self.given(group, topic, handle)
        except ReceiptStale:
            cursor, receipt = self._named_by(group, topic, handle)
            if cursor is None and not receipt.delivery:
                await self._owners.require_here(topic)  # what another node gave out, only it knows
            elif cursor is not None and receipt.number in cursor.done and self._is_to_write(cursor):
                await self._written([cursor])
            raise

    def _is_to_write(self, cursor: Cursor) -> bool:
        return cursor.changed or cursor in self._dirty or cursor in self._flushing[0]

    async def finish(self, cursor: Cursor, number: int) -> None:
        """Note that an entry is done; return when that is durable."""
        cursor.finish(number)
        subscription = self._subscriptions.get(cursor.key[:2])
        if subscription is not None:
            subscription.wake()  # the next of its message group may be what a consumer waits for
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((cursor, durable))
        self._report(cursor, urgent=True)
        await durable

    async def extend(self, group: str, topic: str, handle: str, invisible_ms: int, *, rests: bool) -> str:
        """See `QueueApi.extend`."""
        cursor, (queue, number, delivery) = self._named_by(group, topic, handle)
        newest = 0 if cursor is None else cursor.extended(number, delivery, invisible_ms, rests=rests)
        if cursor is None or not newest:
            cursor, _ = await self._given_here(group, topic, handle)
            newest = self._receipts.next()
        cursor.extend(number, delivery, newest, self.now_ms() + invisible_ms, invisible_ms, rests=rests)
        self._report(cursor)
        self._subscriptions[group, topic].watch(self.now_ms())
        if rests and self._is_to_write(cursor):
            await self._written([cursor])
        return self._receipts.handle(place_of(group, topic), queue, number, newest)

    async def give_back(self, group: str, topic: str, handle: str) -> None:
        """See `QueueApi.give_back`."""
        cursor, number = await self._given_here(group, topic, handle)
        cursor.give_back(number)
        self._report(cursor)
        self._subscriptions[group, topic].wake()

    def given(self, group: str, topic: str, handle: str) -> tuple[Cursor, int]:
        """Return the entry of a receipt. Raises as `QueueApi.ack`."""
        cursor, (_, number, delivery) = self._named_by(group, topic, handle)
        if cursor is None or not cursor.given(number, delivery):
            raise ReceiptStale(is_superseded=cursor is not None and cursor.superseded(number, delivery))
        return cursor, number

    def _named_by(self, group: str, topic: str, handle: str) -> tuple[Cursor | None, Receipt]:
        receipt = self._receipts.read(handle, place_of(group, topic))
        subscription = self._subscriptions.get((group, topic))
        return subscription.cursors.get(receipt.queue) if subscription is not None else None, receipt

    async def dead(self, group: str, topic: str, handle: str) -> Dead:
        """Return an entry that a consumer gives up. Raises as `QueueApi.ack`."""
        cursor, number = await self._given_here(group, topic, handle)
        receipt = cursor.undone[number].receipt
        entries = await self._store.queue_entries(topic, cursor.key[2], [number])
        if not entries or not cursor.given(number, receipt):  # another consumer may have got it meanwhile
            raise ReceiptStale
        return Dead(cursor, number, receipt, held_of(entries[0]))

    async def buried(self, dead: Dead) -> None:
        """Note that a message stands in the dead letters; return when that is durable."""
        subscription = self._subscriptions.get(dead.cursor.key[:2])
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
        self._flushing = list(self._dirty), self._waiting
        self._dirty, self._waiting = set(), []
        return [cursor.progress() for cursor in self._flushing[0]]

    def progress_flushed(self, error: StoreError | None, lost: frozenset[int] = frozenset()) -> None:
        """See `Readers.progress_flushed`."""
        cursors, waiting = self._flushing
        self._flushing = [], []
        if error is not None:
            self._dirty.update(cursor for cursor in cursors if self._serves(cursor))
            self._group_commit.report(urgent=False)
        refused = {cursors[index] for index in lost}
        for cursor, durable in waiting:
            if durable.done():
                continue
            if error is not None:
                durable.set_exception(error)
            elif cursor in refused:
                durable.set_exception(QueuesElsewhere())
            else:
                durable.set_result(None)
        for cursor in refused:
            _, topic, _ = cursor.key
            if self._owners.lost(topic, cursor.term) or self._serves(cursor):
                self.forget_topic(topic, QueuesElsewhere())

    def _serves(self, cursor: Cursor) -> bool:
        """Return True for a cursor that was not forgotten."""
        group, topic, queue = cursor.key
        subscription = self._subscriptions.get((group, topic))
        return subscription is not None and subscription.cursors.get(queue) is cursor

    def appended(self, ends: Mapping[tuple[str, int], int]) -> None:
        """See `Readers.appended`."""
        for (topic, queue), end in ends.items():
            for subscription in self._by_topic.get(topic, ()):
                subscription.appended(queue, end)
        if self.on_appended is not None:
            self.on_appended(ends)

    def forget(self, error: Exception) -> None:
        """Forget everything; another node may serve from now on."""
        self._owners.forget()
        for topic in list(self._by_topic):
            self.forget_topic(topic, error)
        for _, durable in (*self._waiting, *self._flushing[1]):
            if not durable.done():
                durable.set_exception(error)
        self._dirty, self._waiting, self._flushing = set(), [], ([], [])
        for client_id in self._renewing:
            self._renewing[client_id] = set()

    # Topics that move between nodes.

    async def write_topic(self, topic: str) -> None:
        """Write the progress of a topic's groups; return when that is durable.

        Raises:
            StoreError: it is not known to be.
            QueuesElsewhere: another node owns the topic already.
        """
        for _ in range(_WRITES_MAX):
            cursors = [cursor for one in self._by_topic.get(topic, ()) for cursor in one.cursors.values()]
            await self._written(cursors)
            if not any(map(self._is_to_write, cursors)):
                return

    def forget_topic(self, topic: str, error: Exception) -> None:
        """Forget a topic: this node does not own it any more."""
        for subscription in self._by_topic.pop(topic, ()):
            for cursor in subscription.cursors.values():
                group, _, _ = cursor.key
                self._subscriptions.pop((group, topic), None)
                self._dirty.discard(cursor)
            gone = set(subscription.cursors.values())
            for cursor, durable in self._waiting:
                if cursor in gone and not durable.done():
                    durable.set_exception(error)
            subscription.wake_all()

    def stop(self) -> None:
        """Give out nothing more, and end the polls."""
        self._stopped = True
        self.wake()
