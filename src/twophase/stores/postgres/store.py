"""`PostgresStore`: the `Store` protocol over one PostgreSQL database.

Any number of nodes share it.

Four connections a node: one writes, two read, so that a look-up never waits behind a flush's fsync, and one hears the
notices of other nodes. Nothing is held between calls, no session setting, no session lock, no open transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from secrets import token_hex

from twophase.core.audit_log import AuditEntry, AuditHead, AuditPage, AuditRow, AuditSearch, TokensSeen
from twophase.core.errors import StoreError
from twophase.core.hooks import Clock
from twophase.stores.base import ATTEMPTS_SHOWN, DUE_EVER_MS, Overview, Purged
from twophase.stores.batch import Batch, FlushResult
from twophase.stores.postgres import auditing, node_slots, purge, queue_acts, queueing, reader, searching, statements
from twophase.stores.postgres.auditing import Acts, act_columns
from twophase.stores.postgres.failures import FAILURES, store_error
from twophase.stores.postgres.grouped import GroupedReads
from twophase.stores.postgres.migrating import make_ready
from twophase.stores.postgres.reconnecting import Outage, Readers, ReconnectingConnection
from twophase.stores.postgres.waking import CHANNEL, Waking
from twophase.stores.postgres.writer import Writer
from twophase.stores.queue_rows import Definition, Entry, Place, Progress, Reader, Span, Weights
from twophase.stores.rows import Attempt, HistoryRow, LiveRow, NodeSeen, Secrets, Subscriber, Topics
from twophase.stores.search import Found, Search
from twophase.stores.topic_rows import subscribers_text

LEASE_MS = 10_000
OUTAGE_WAIT_MS = 5_000
_READERS = 2


class PostgresStore:
    """A coordinator's store in one database.

    Arguments:
        url: as libpq and asyncpg understand it: `postgresql://user:password@host:port/database?sslmode=verify-full`.
        clock: overrides the database's clock, for tests; None, the default, for the database's own.
        lease_ms: how long a node may be silent before others end its epoch, and adopt its rows; the same on all nodes.
        outage_wait_ms: how long a call waits for a database that is away before it raises `StoreUnavailable`.
        secrets: of this process, and of the one whose slot it gives back first; random, and none, by default.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        lease_ms: int = LEASE_MS,
        outage_wait_ms: int = OUTAGE_WAIT_MS,
        secrets: Secrets | None = None,
    ) -> None:
        assert lease_ms > 0, "a lease lasts"
        self._secrets = secrets or Secrets(token_hex(16))
        self._clock = clock
        self._lease_ms = lease_ms
        self._reconnecting = ReconnectingConnection(url, outage_wait_ms)
        self._writer = Writer(self._reconnecting, clock)
        self._rows = GroupedReads(self._get_all)
        outage = Outage()
        self._read_connections = [ReconnectingConnection(url, outage_wait_ms, outage) for _ in range(_READERS)]
        self._waking = Waking(ReconnectingConnection(url, outage_wait_ms))
        self._readers: Readers | None = None
        self._slot: node_slots.NodeSlot | None = None
        self._sweep = purge.Sweep()

    @property
    def shared(self) -> bool:
        """See `Store.shared`."""
        return True

    @property
    def lease_ms(self) -> int:
        """See `Store.lease_ms`."""
        return self._lease_ms

    @property
    def slot(self) -> tuple[int, int]:
        """See `Store.slot`."""
        return (self._slot.node, self._slot.epoch) if self._slot else (0, 0)

    async def start(self) -> None:
        """See `Store.start`.

        Also raises StoreUnavailable, StoreDenied, SchemaMissing, ConfigurationError.
        """
        assert self._readers is None, "a store is started once"
        self._reconnecting.open()
        deadline = self._reconnecting.deadline()
        try:
            async with self._reconnecting.lock:
                connection = await self._reconnecting.connected(deadline)
                try:
                    await make_ready(self._reconnecting, connection, deadline)
                    # A deadline of its own: a migration may have taken long.
                    taking = node_slots.take(connection, self._clock, self._lease_ms, self._secrets)
                    self._slot = await self._reconnecting.within(self._reconnecting.deadline(), taking)
                except FAILURES as error:
                    raise store_error(error, self._reconnecting.database, "starting") from error
                self._writer.take(self._slot, connection)
            self._readers = Readers(self._read_connections)
            await self.history_horizon_ms()
            self._waking.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """See `Store.stop`."""
        readers, self._readers = self._readers, None
        slot, self._slot = self._slot, None
        self._writer.leave()
        await self._waking.stop()
        if readers is not None:
            await readers.close()
        async with self._reconnecting.lock:
            if slot is not None:
                await self._give_back(slot)
            await self._reconnecting.close()

    async def flush(self, batch: Batch) -> FlushResult:
        """See `Store.flush`."""
        return await self._writer.flush(batch)

    async def get(self, gid: str) -> LiveRow | HistoryRow | None:
        """See `Store.get`. Those that are asked for at the same time are read together."""
        return await self._rows.get(gid)

    async def _get_all(self, gids: Sequence[str]) -> dict[str, LiveRow | HistoryRow]:
        readers = await self._settled_readers()
        own = self._writer.node_epoch
        return await readers.ask(lambda connection: reader.get(connection, gids, own))

    async def attempts(self, gid: str, limit: int = ATTEMPTS_SHOWN) -> Sequence[Attempt]:
        """See `Store.attempts`."""
        readers = await self._settled_readers()
        return await readers.ask(lambda connection: reader.attempts(connection, gid, limit))

    async def due(self, until_ms: int, after: tuple[int, str], limit: int) -> Sequence[LiveRow]:
        """See `Store.due`."""
        readers = await self._settled_readers()
        own = self._writer.node_epoch
        return await readers.ask(lambda connection: reader.due(connection, until_ms, after, limit, own))

    async def overview(self, due_by_ms: int = DUE_EVER_MS) -> Overview:
        """See `Store.overview`. Costs about 0.1 ms per thousand live rows."""
        readers = await self._settled_readers()
        return await readers.ask(lambda connection: reader.overview(connection, due_by_ms))

    async def now_ms(self) -> int:
        """See `Store.now_ms`."""
        readers = await self._settled_readers()
        return self._clock.now_ms() if self._clock else await readers.ask(reader.now_ms)

    async def history_horizon_ms(self) -> int:
        """See `Store.history_horizon_ms`."""
        readers = await self._settled_readers()
        return await readers.ask(reader.horizon_ms)

    async def waiting_by_owner(self) -> dict[str, tuple[int, int]]:
        """See `Store.waiting_by_owner`."""
        readers = await self._settled_readers()
        return await readers.ask(reader.waiting_by_owner)

    async def size_bytes(self) -> int:
        """See `Store.size_bytes`: room that removed rows have left counts."""
        readers = await self._settled_readers()
        return await readers.ask(reader.size_bytes)

    async def nodes(self) -> Sequence[NodeSeen]:
        """See `Store.nodes`."""
        readers = await self._settled_readers()
        return await readers.ask(reader.nodes)

    async def note_takeover(self, at_ms: int, *, again: bool) -> None:
        """See `Store.note_takeover`."""
        readers = await self._settled_readers()
        await readers.ask(lambda connection: connection.execute(statements.NOTE_TAKEOVER, at_ms, again), "taking over")

    async def purge(self, before_ms: int, limit: int) -> Purged:
        """See `Store.purge`."""
        assert limit > 0, "a step removes something"
        now_ms = await self.now_ms()
        readers = await self._settled_readers()
        return await readers.ask(lambda connection: self._sweep.step(connection, before_ms, now_ms, limit), "cleaning")

    async def oldest_undecided(self, before_ms: int, after: tuple[int, str], limit: int) -> Sequence[LiveRow]:
        """See `Store.oldest_undecided`."""
        readers = await self._settled_readers()
        own = self._writer.node_epoch
        return await readers.ask(lambda connection: reader.oldest_undecided(connection, before_ms, after, limit, own))

    async def search(self, search: Search, position: str, limit: int) -> Found:
        """See `Store.search`."""
        readers = await self._settled_readers()
        own = self._writer.node_epoch
        return await readers.ask(lambda connection: searching.find(connection, search, position, limit, own))

    async def later(self, after: tuple[int, str], limit: int) -> Sequence[LiveRow]:
        """See `Store.later`."""
        readers = await self._settled_readers()
        own = self._writer.node_epoch
        return await readers.ask(lambda connection: searching.later(connection, after, limit, own))

    async def moved(self, known: Sequence[tuple[str, int]]) -> set[str]:
        """See `Store.moved`."""
        readers = await self._settled_readers()
        own = self._writer.node_epoch
        return await readers.ask(lambda connection: reader.moved(connection, known, own))

    async def topics(self, known: int = -1) -> Topics | None:
        """See `Store.topics`."""
        readers = await self._settled_readers()
        return await readers.ask(lambda connection: reader.topics(connection, known))

    async def change_topic(
        self, revision: int, name: str, subscribers: Sequence[Subscriber] | None, entry: AuditEntry | None = None
    ) -> bool:
        """See `Store.change_topic`.

        It passes no fence: the revision decides, and no node owns a topic.
        """
        readers = await self._settled_readers()
        text = None if subscribers is None else subscribers_text(subscribers)
        clock_ms = self._clock.now_ms() if self._clock else None
        node, acts = self._writer.node_epoch.node, act_columns(() if entry is None else (entry,))
        next_revision: int | None = await readers.ask(
            lambda connection: connection.fetchval(
                statements.CHANGE_TOPIC, revision, name, text, clock_ms, node, *acts
            ),
            "changing a topic",
            repeat=False,
        )
        return next_revision is not None

    async def append_audit(self, entries: Sequence[AuditEntry]) -> None:
        """See `Store.append_audit`. It passes no fence: the chain belongs to no node."""
        readers = await self._settled_readers()
        clock_ms = self._clock.now_ms() if self._clock else None
        node, acts = self._writer.node_epoch.node, act_columns(entries)
        await readers.ask(
            lambda connection: connection.fetchval(statements.AUDIT_APPEND, node, clock_ms, *acts),
            "writing the audit log",
            repeat=False,
        )

    async def tokens_seen(self) -> TokensSeen:
        """See `Store.tokens_seen`."""
        readers = await self._settled_readers()
        return await readers.ask(auditing.tokens)

    async def note_tokens(self, known: TokensSeen, now: dict[str, str], entries: Sequence[AuditEntry]) -> bool:
        """See `Store.note_tokens`. It passes no fence: the revision decides."""
        readers = await self._settled_readers()
        clock_ms = self._clock.now_ms() if self._clock else None
        gone = list(known.by_name.keys() - now.keys())
        node, acts = self._writer.node_epoch.node, act_columns(entries)
        change = (known.revision, gone, list(now), list(now.values()), clock_ms, node, *acts)
        revision: int | None = await readers.ask(
            lambda connection: connection.fetchval(statements.NOTE_TOKENS, *change), "noting tokens", repeat=False
        )
        return revision is not None

    async def audit_head(self) -> AuditHead:
        """See `Store.audit_head`."""
        readers = await self._settled_readers()
        return await readers.ask(auditing.head)

    async def audit_chain(self, after_seq: int, limit: int) -> Sequence[AuditRow]:
        """See `Store.audit_chain`."""
        readers = await self._settled_readers()
        return await readers.ask(lambda connection: auditing.chain(connection, after_seq, limit))

    async def audit_search(self, search: AuditSearch, position: int, limit: int) -> AuditPage:
        """See `Store.audit_search`."""
        readers = await self._settled_readers()
        return await readers.ask(lambda connection: auditing.search(connection, search, position, limit))

    async def queue_definitions(self) -> Sequence[Definition]:
        """See `QueueStore.queue_definitions`."""
        readers = await self._settled_readers()
        return await readers.ask(queueing.definitions)

    async def define_queue(self, wanted: Definition, entry: AuditEntry) -> Definition:
        """See `QueueStore.define_queue`. It passes no fence: no node owns a topic."""
        readers, act = await self._settled_readers(), self._act(entry)
        return await readers.ask(lambda one: queue_acts.define(one, wanted, *act), "making a topic or a group")

    async def queue_page(self, topic: str, queue: int, least: int, limit: int) -> Sequence[Entry]:
        """See `QueueStore.queue_page`."""
        readers = await self._settled_readers()
        return await readers.ask(lambda connection: queueing.page(connection, topic, queue, least, limit))

    async def queue_entries(self, topic: str, queue: int, numbers: Sequence[int]) -> Sequence[Entry]:
        """See `QueueStore.queue_entries`."""
        readers = await self._settled_readers()
        return await readers.ask(lambda connection: queueing.entries(connection, topic, queue, numbers))

    async def queue_ends(self, topic: str) -> dict[int, int]:
        """See `QueueStore.queue_ends`."""
        readers = await self._settled_readers()
        return await readers.ask(lambda connection: queueing.ends(connection, topic))

    async def queue_ends_of(self, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        """See `QueueStore.queue_ends_of`."""
        readers = await self._settled_readers()
        return await readers.ask(lambda connection: queueing.ends_of(connection, topics))

    async def own_topic(self, topic: str) -> int | None:
        """See `QueueStore.own_topic`."""
        return await self._writer.own_topic(topic)

    async def give_up_topic(self, topic: str, term: int) -> None:
        """See `QueueStore.give_up_topic`. It passes no fence: the term decides."""
        readers = await self._settled_readers()
        await readers.ask(lambda connection: connection.execute(statements.GIVE_UP_TOPIC, topic, term), "handing over")

    async def announce(self, served_at: str) -> None:
        """See `QueueStore.announce`."""
        await self._writer.announce(served_at)

    async def wake(self, topics: Sequence[str]) -> None:
        """See `QueueStore.wake`."""
        readers = await self._settled_readers()
        await readers.ask(lambda connection: connection.execute(statements.WAKE, CHANNEL, list(topics)), repeat=False)

    async def pass_on(self, known: Sequence[tuple[str, int]], node: int) -> None:
        """See `QueueStore.pass_on`.

        It passes no fence: of a fenced node's rows, which are adopted, it changes none.
        """
        readers = await self._settled_readers()
        own = self._writer.node_epoch
        change = [gid for gid, _ in known], [version for _, version in known], own.node, own.epoch, node
        await readers.ask(lambda connection: connection.execute(statements.PASS_ON, *change), "passing messages on")

    def on_wake(self, woken: Callable[[str], None]) -> None:
        """See `QueueStore.on_wake`."""
        self._waking.woken = woken

    async def queue_place(self, gid: str, branch: int) -> Place | None:
        """See `QueueStore.queue_place`."""
        readers = await self._settled_readers()
        return await readers.ask(lambda connection: queueing.place(connection, gid, branch))

    async def queue_progress(self, group: str, topic: str) -> Sequence[Progress]:
        """See `QueueStore.queue_progress`."""
        readers = await self._settled_readers()
        return await readers.ask(lambda connection: queueing.progress(connection, group, topic))

    async def queue_spans(self, topic: str = "") -> Sequence[Span]:
        """See `QueueStore.queue_spans`."""
        readers = await self._settled_readers()
        return await readers.ask(lambda connection: queue_acts.spans(connection, topic))

    async def queue_first(self, topic: str, queue: int, least: int) -> tuple[int, int] | None:
        """See `QueueStore.queue_first`."""
        readers = await self._settled_readers()
        return await readers.ask(lambda connection: queue_acts.first(connection, topic, queue, least))

    async def queue_weights(self, topic: str, places: Sequence[tuple[int, int]]) -> Weights:
        """See `QueueStore.queue_weights`."""
        readers = await self._settled_readers()
        return await readers.ask(lambda connection: queueing.weights(connection, topic, places))

    async def queue_readers(self, topic: str = "", group: str = "") -> Sequence[Reader]:
        """See `QueueStore.queue_readers`."""
        readers = await self._settled_readers()
        return await readers.ask(lambda connection: queue_acts.readers(connection, topic, group))

    async def change_queue(self, known: Definition | None, wanted: Definition | None, entry: AuditEntry) -> bool:
        """See `QueueStore.change_queue`. It passes no fence: the known definition decides."""
        readers, act = await self._settled_readers(), self._act(entry)
        return await readers.ask(
            lambda connection: queue_acts.change(connection, known, wanted, *act),
            "changing a topic or a group",
            repeat=False,
        )

    async def reset_queues(self, progress: Sequence[Progress], entry: AuditEntry) -> bool:
        """See `QueueStore.reset_queues`. It passes no fence: the term decides."""
        readers, act = await self._settled_readers(), self._act(entry)
        return await readers.ask(
            lambda connection: queue_acts.reset(connection, progress, *act), "resetting a group", repeat=False
        )

    def _act(self, entry: AuditEntry) -> tuple[int | None, int, Acts]:
        """Return the clock, the node, and the columns of an act."""
        clock_ms = self._clock.now_ms() if self._clock else None
        return clock_ms, self._writer.node_epoch.node, act_columns((entry,))

    async def empty_queue(self, topic: str, queue: int, before: int, limit: int) -> int:
        """See `QueueStore.empty_queue`."""
        readers = await self._settled_readers()
        return await readers.ask(lambda one: queue_acts.empty(one, topic, queue, before, limit), "cleaning")

    async def purge_queues(self, before_ms: int, limit: int, own_before_ms: Mapping[str, int] | None = None) -> int:
        """See `QueueStore.purge_queues`."""
        readers, own = await self._settled_readers(), own_before_ms or {}
        return await readers.ask(lambda connection: queueing.forget(connection, before_ms, limit, own), "cleaning")

    async def heartbeat(self) -> int:
        """See `Store.heartbeat`."""
        return await self._writer.heartbeat()

    async def adopt(self, limit: int, *, end_epochs: bool = True) -> int:
        """See `Store.adopt`."""
        assert limit > 0, "a step adopts something"
        return await self._writer.adopt(self._lease_ms, limit, end_epochs=end_epochs)

    async def rejoin(self) -> None:
        """See `Store.rejoin`."""
        if self._slot is None:
            raise self._not_open()
        old = self._slot
        async with self._reconnecting.lock:
            deadline = self._reconnecting.deadline()
            connection = await self._reconnecting.connected(deadline)
            try:
                await self._reconnecting.within(deadline, node_slots.leave(connection, old.owner))
                taking = node_slots.take(connection, self._clock, self._lease_ms, self._secrets)
                self._slot = await self._reconnecting.within(deadline, taking)
            except FAILURES as error:
                self._reconnecting.drop()
                raise store_error(error, self._reconnecting.database, "taking a node slot") from error
            self._writer.take(self._slot, connection)

    def _not_open(self) -> StoreError:
        return StoreError(f"{self._reconnecting.database} is not open: the store was not started, or is stopped.")

    async def _settled_readers(self) -> Readers:
        """Return the readers, when it is certain that no lost flush is under way (20)."""
        if self._writer.unsettled:
            await self._writer.settle()
        if self._readers is None:  # perhaps stopped meanwhile
            raise self._not_open()
        return self._readers

    async def _give_back(self, slot: node_slots.NodeSlot) -> None:
        deadline = self._reconnecting.deadline()
        try:
            connection = await self._reconnecting.connected(deadline)
            await self._reconnecting.within(deadline, node_slots.leave(connection, slot.owner))
        except (StoreError, *FAILURES):
            # Then the lease runs out by itself.
            self._reconnecting.drop()
