"""`SqliteStore`: the `Store` protocol over one SQLite file.

Two threads: one owns the connection that writes, the other the one that reads, so that a look-up never waits behind
a flush's fsync, and behind one page of rows at most. While the writing one has nothing to do, the event loop's own
thread prepares a flush for it. The lock on the file is held from start to stop, or to the death of the process.
"""

from __future__ import annotations

import functools
import os
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from twophase.core.audit_log import AuditEntry, AuditHead, AuditPage, AuditRow, AuditSearch, TokensSeen
from twophase.core.errors import ConfigurationError, StoreError, StoreFenced
from twophase.core.hooks import Clock, WallClock
from twophase.stores.base import ATTEMPTS_SHOWN, DUE_EVER_MS, Overview, Purged
from twophase.stores.batch import Batch, FlushResult
from twophase.stores.queue_rows import Definition, Entry, Place, Progress, Reader, Span, Weights
from twophase.stores.rows import Attempt, HistoryRow, LiveRow, NodeSeen, Subscriber, Topics
from twophase.stores.search import Found, Search
from twophase.stores.sqlite import auditing, purge, queue_acts, queueing, reader, schema, searching
from twophase.stores.sqlite.connection import open_reader
from twophase.stores.sqlite.failures import OPENING, looked_at, reported
from twophase.stores.sqlite.file_lock import FileLock
from twophase.stores.sqlite.queueing import Old
from twophase.stores.sqlite.worker_thread import WorkerThread
from twophase.stores.sqlite.writer import Writer

T = TypeVar("T")
_ITEMS_HERE_MAX = 512


class SqliteStore:
    """A coordinator's store in one file.

    Arguments:
        path: the database; made at the first start, in a folder that exists. Symbolic links are followed, so that
            every name of the file means the same lock.
        clock: where the store's times come from; the machine's clock by default.

    Raises:
        ConfigurationError: not a path of a file, such as `:memory:`, where nothing would be durable.

    >>> import asyncio, tempfile
    >>> from twophase.core.lifecycle import State
    >>> from twophase.stores.batch import Insert
    >>> async def prepare(folder: str) -> State:
    ...     store = SqliteStore(folder + "/twophase.db")
    ...     await store.start()
    ...     await store.flush(Batch([Insert("order-17", State.PREPARED, 35_000, b"...")], []))
    ...     row = await store.get("order-17")
    ...     await store.stop()
    ...     return row.state
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(prepare(folder))
    <State.PREPARED: 2>
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: Clock | None = None) -> None:
        self._path = _file(path)
        self._clock = clock or WallClock()
        self._lock: FileLock | None = None
        self._write_thread: WorkerThread | None = None
        self._read_thread: WorkerThread | None = None
        self._writer: Writer | None = None
        self._reader: sqlite3.Connection | None = None
        self._sweep = purge.Sweep()

    @property
    def shared(self) -> bool:
        """False: a file belongs to one process."""
        return False

    @property
    def lease_ms(self) -> int:
        """0: the lock on the file is the lease."""
        return 0

    @property
    def slot(self) -> tuple[int, int]:
        """See `Store.slot`."""
        return (0, 0) if self._writer is None else self._writer.slot

    async def start(self) -> None:
        """See `Store.start`.

        Also raises ConfigurationError: the folder is missing, or the path is a folder.
        """
        assert self._writer is None, "a store is started once"
        with looked_at(self._path):
            _check_directory(self._path)
        self._lock = FileLock(self._path.with_name(self._path.name + "-lock"))
        self._writer = Writer(self._path, self._clock)
        self._write_thread, self._read_thread = (
            WorkerThread("twophase-store-write"),
            WorkerThread("twophase-store-read"),
        )
        self._write_thread.open()
        self._read_thread.open()
        try:
            await self._write_thread.call(self._lock.acquire)
            await self._write_thread.call(self._writer.open)
            self._reader = await self._read_thread.call(functools.partial(_open_reader, self._path))
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """See `Store.stop`."""
        read_thread, self._read_thread = self._read_thread, None
        write_thread, self._write_thread = self._write_thread, None
        if read_thread is not None:
            await read_thread.close()
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if write_thread is not None:
            if self._writer is not None:
                await write_thread.call(self._writer.close)
            await write_thread.close()
        self._writer = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def flush(self, batch: Batch) -> Awaitable[FlushResult]:
        """See `Store.flush`.

        While the writing thread has nothing to do, the statements run here, in the event loop's own thread: they are a
        millisecond of computing. In a thread of their own they lose the interpreter's lock to a busy loop twenty times
        a flush, which took longer than they did; the COMMIT, which waits for the disk, asks for it once.
        """
        thread, writer = self._write_thread, self._writer
        if thread is None or writer is None:
            raise _not_open(self._path)
        if not thread.under_way and len(batch.items) <= _ITEMS_HERE_MAX:
            written = writer.write_at_once(batch)
            if written is not None:
                return thread.call(functools.partial(writer.commit, written))
        return thread.call(functools.partial(writer.flush, batch))

    async def get(self, gid: str) -> LiveRow | HistoryRow | None:
        """See `Store.get`."""
        return await self._read(lambda connection: reader.get(connection, gid))

    async def attempts(self, gid: str, limit: int = ATTEMPTS_SHOWN) -> Sequence[Attempt]:
        """See `Store.attempts`."""
        return await self._read(lambda connection: reader.attempts(connection, gid, limit))

    async def due(self, until_ms: int, after: tuple[int, str], limit: int) -> Sequence[LiveRow]:
        """See `Store.due`."""
        return await self._read(lambda connection: reader.due(connection, until_ms, after, limit))

    async def overview(self, due_by_ms: int = DUE_EVER_MS) -> Overview:
        """See `Store.overview`. Costs about 0.1 ms per thousand live rows."""
        return await self._read(lambda connection: reader.overview(connection, due_by_ms), is_page=True)

    async def nodes(self) -> Sequence[NodeSeen]:
        """See `Store.nodes`: one."""
        return await self._read(reader.nodes)

    async def waiting_by_owner(self) -> dict[str, tuple[int, int]]:
        """See `Store.waiting_by_owner`."""
        return await self._read(reader.waiting_by_owner)

    async def size_bytes(self) -> int:
        """See `Store.size_bytes`: pages that are free do not count."""
        return await self._read(reader.size_bytes)

    async def now_ms(self) -> int:
        """See `Store.now_ms`: the machine's clock, as SQLite has none of its own."""
        return self._clock.now_ms()

    async def history_horizon_ms(self) -> int:
        """See `Store.history_horizon_ms`."""
        return await self._read(reader.horizon_ms)

    async def note_takeover(self, at_ms: int, *, again: bool) -> None:
        """See `Store.note_takeover`. A write like a flush, under the same fence."""
        if self._write_thread is None or self._writer is None:
            raise _not_open(self._path)
        await self._write_thread.call(functools.partial(self._writer.note_takeover, at_ms, again=again))

    async def purge(self, before_ms: int, limit: int) -> Purged:
        """See `Store.purge`.

        The reader's thread finds the rows; the writer only deletes by key.
        """
        assert limit > 0, "a step removes something"
        now_ms = self._clock.now_ms()
        found = await self._read(lambda connection: self._sweep.find(connection, max(0, before_ms), now_ms, limit))
        if self._write_thread is None or self._writer is None:
            raise _not_open(self._path)
        horizon_ms = await self._write_thread.call(functools.partial(self._writer.forget, found))
        oldest_ms = await self._read(purge.oldest_ms)
        return Purged(len(found.history), len(found.attempts), found.more, horizon_ms, oldest_ms)

    async def oldest_undecided(self, before_ms: int, after: tuple[int, str], limit: int) -> Sequence[LiveRow]:
        """See `Store.oldest_undecided`. Costs as `overview` does."""
        return await self._read(
            lambda connection: reader.oldest_undecided(connection, before_ms, after, limit), is_page=True
        )

    async def search(self, search: Search, position: str, limit: int) -> Found:
        """See `Store.search`."""
        return await self._read(lambda connection: searching.find(connection, search, position, limit), is_page=True)

    async def later(self, after: tuple[int, str], limit: int) -> Sequence[LiveRow]:
        """See `Store.later`."""
        return await self._read(lambda connection: searching.later(connection, after, limit), is_page=True)

    async def topics(self, known: int = -1) -> Topics | None:
        """See `Store.topics`."""
        return await self._read(lambda connection: reader.topics(connection, known))

    async def change_topic(
        self, revision: int, name: str, subscribers: Sequence[Subscriber] | None, entry: AuditEntry | None = None
    ) -> bool:
        """See `Store.change_topic`. A write like a flush, under the same fence."""
        if self._write_thread is None or self._writer is None:
            raise _not_open(self._path)
        change = functools.partial(self._writer.change_topic, revision, name, subscribers, entry)
        return await self._write_thread.call(change)

    async def append_audit(self, entries: Sequence[AuditEntry]) -> None:
        """See `Store.append_audit`. A write like a flush, under the same fence."""
        if self._write_thread is None or self._writer is None:
            raise _not_open(self._path)
        await self._write_thread.call(functools.partial(self._writer.append_audit, entries))

    async def tokens_seen(self) -> TokensSeen:
        """See `Store.tokens_seen`."""
        return await self._read(auditing.tokens)

    async def note_tokens(self, known: TokensSeen, now: dict[str, str], entries: Sequence[AuditEntry]) -> bool:
        """See `Store.note_tokens`. A write like a flush, under the same fence."""
        if self._write_thread is None or self._writer is None:
            raise _not_open(self._path)
        return await self._write_thread.call(functools.partial(self._writer.note_tokens, known, now, entries))

    async def audit_head(self) -> AuditHead:
        """See `Store.audit_head`."""
        return await self._read(auditing.head)

    async def audit_chain(self, after_seq: int, limit: int) -> Sequence[AuditRow]:
        """See `Store.audit_chain`."""
        return await self._read(lambda connection: auditing.chain(connection, after_seq, limit), is_page=True)

    async def audit_search(self, search: AuditSearch, position: int, limit: int) -> AuditPage:
        """See `Store.audit_search`."""
        return await self._read(lambda connection: auditing.search(connection, search, position, limit), is_page=True)

    async def queue_definitions(self) -> Sequence[Definition]:
        """See `QueueStore.queue_definitions`."""
        return await self._read(queueing.definitions)

    async def define_queue(self, wanted: Definition, entry: AuditEntry) -> Definition:
        """See `QueueStore.define_queue`. A write like a flush, under the same fence."""
        await self._act("making a topic or a group", queue_acts.change(None, wanted), entry)
        named = (wanted.kind, wanted.name)
        return next(one for one in await self._read(queueing.definitions) if (one.kind, one.name) == named)

    async def queue_page(self, topic: str, queue: int, least: int, limit: int) -> Sequence[Entry]:
        """See `QueueStore.queue_page`."""
        return await self._read(lambda connection: queueing.page(connection, topic, queue, least, limit), is_page=True)

    async def queue_entries(self, topic: str, queue: int, numbers: Sequence[int]) -> Sequence[Entry]:
        """See `QueueStore.queue_entries`."""
        return await self._read(lambda connection: queueing.entries(connection, topic, queue, numbers), is_page=True)

    async def queue_ends(self, topic: str) -> dict[int, int]:
        """See `QueueStore.queue_ends`."""
        return await self._read(lambda connection: queueing.ends(connection, topic))

    async def queue_ends_of(self, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        """See `QueueStore.queue_ends_of`."""
        return await self._read(lambda connection: queueing.ends_of(connection, topics))

    async def own_topic(self, topic: str) -> int | None:
        """See `QueueStore.own_topic`: there is one node, which owns every topic."""
        assert topic, "a topic has a name"
        return 0

    async def give_up_topic(self, topic: str, term: int) -> None:
        """See `QueueStore.give_up_topic`: there is no other node."""

    async def announce(self, served_at: str) -> None:
        """See `QueueStore.announce`: there is no other node."""

    async def wake(self, topics: Sequence[str]) -> None:
        """See `QueueStore.wake`: there is no other node."""

    async def pass_on(self, known: Sequence[tuple[str, int]], node: int) -> None:
        """See `QueueStore.pass_on`: there is no other node."""

    def on_wake(self, woken: Callable[[str], None]) -> None:
        """See `QueueStore.on_wake`: there is no other node."""

    async def queue_place(self, gid: str, branch: int) -> Place | None:
        """See `QueueStore.queue_place`."""
        return await self._read(lambda connection: queueing.place(connection, gid, branch))

    async def queue_progress(self, group: str, topic: str) -> Sequence[Progress]:
        """See `QueueStore.queue_progress`."""
        return await self._read(lambda connection: queueing.progress(connection, group, topic))

    async def queue_spans(self, topic: str = "") -> Sequence[Span]:
        """See `QueueStore.queue_spans`."""
        return await self._read(lambda connection: queue_acts.spans(connection, topic), is_page=True)

    async def queue_first(self, topic: str, queue: int, least: int) -> tuple[int, int] | None:
        """See `QueueStore.queue_first`."""
        return await self._read(lambda connection: queue_acts.first(connection, topic, queue, least))

    async def queue_weights(self, topic: str, places: Sequence[tuple[int, int]]) -> Weights:
        """See `QueueStore.queue_weights`."""
        return await self._read(lambda connection: queueing.weights(connection, topic, places), is_page=True)

    async def queue_readers(self, topic: str = "", group: str = "") -> Sequence[Reader]:
        """See `QueueStore.queue_readers`."""
        return await self._read(lambda connection: queue_acts.readers(connection, topic, group), is_page=True)

    async def change_queue(self, known: Definition | None, wanted: Definition | None, entry: AuditEntry) -> bool:
        """See `QueueStore.change_queue`. A write like a flush, under the same fence."""
        return await self._act("changing a topic or a group", queue_acts.change(known, wanted), entry)

    async def reset_queues(self, progress: Sequence[Progress], entry: AuditEntry) -> bool:
        """See `QueueStore.reset_queues`. A write like a flush, under the same fence."""
        return await self._act("resetting a group", queue_acts.reset(progress), entry)

    async def empty_queue(self, topic: str, queue: int, before: int, limit: int) -> int:
        """See `QueueStore.empty_queue`."""
        return await self._forget(await self._read(lambda one: queue_acts.keys(one, topic, queue, before, limit)))

    async def purge_queues(self, before_ms: int, limit: int, own_before_ms: Mapping[str, int] | None = None) -> int:
        """See `QueueStore.purge_queues`."""
        own = own_before_ms or {}
        return await self._forget(await self._read(lambda one: queueing.old(one, before_ms, limit, own)))

    async def _act(self, doing: str, change: Callable[[sqlite3.Connection, int], bool], entry: AuditEntry) -> bool:
        if self._write_thread is None or self._writer is None:
            raise _not_open(self._path)
        return await self._write_thread.call(functools.partial(self._writer.act, doing, change, (entry,)))

    async def _forget(self, entries: list[Old]) -> int:
        if entries:
            if self._write_thread is None or self._writer is None:
                raise _not_open(self._path)
            await self._write_thread.call(functools.partial(self._writer.forget_entries, entries))
        return len(entries)

    async def heartbeat(self) -> int:
        """See `Store.heartbeat`: there is no lease to renew."""
        return self._clock.now_ms()

    async def adopt(self, limit: int, *, end_epochs: bool = True) -> int:  # noqa: ARG002 -- the protocol names them
        """See `Store.adopt`: every row is this node's own."""
        return 0

    async def moved(self, known: Sequence[tuple[str, int]]) -> set[str]:
        """See `Store.moved`."""
        return await self._read(lambda connection: reader.moved(connection, known))

    async def rejoin(self) -> None:
        """See `Store.rejoin`: a file has one slot only."""
        raise StoreFenced(f"{self._path}: another process has taken this file; it has one slot only.")

    async def _read(self, question: Callable[[sqlite3.Connection], T], *, is_page: bool = False) -> T:
        thread, connection = self._read_thread, self._reader
        if thread is None or connection is None:
            raise _not_open(self._path)

        def ask() -> T:
            with reported(self._path, "reading"):
                return question(connection)

        return await thread.call(ask, is_page=is_page)


def version_of(path: str | os.PathLike[str]) -> int:
    """Return the schema version of a file; 0 when it has none yet.

    It changes nothing.

    Raises:
        ConfigurationError, StoreError: as `SqliteStore.start`.
    """
    file = _file(path)
    with looked_at(file):
        if not file.exists():
            return 0
    with reported(file, OPENING), closing(open_reader(file)) as connection:
        return schema.identify(connection, file)


def _file(path: str | os.PathLike[str]) -> Path:
    name = os.fspath(path)
    if not name or name.startswith((":memory:", "file:")) or "\0" in name:
        raise ConfigurationError(
            f"store: {name!r} is not a file's path; SQLite in memory would lose what it acknowledged."
        )
    return Path(os.path.realpath(name))


def _check_directory(path: Path) -> None:
    if not path.parent.is_dir():
        raise ConfigurationError(f"store: the folder {path.parent} does not exist; create it first.")
    if path.is_dir():
        raise ConfigurationError(f"store: {path} is a folder; name a file in it.")
    if path.exists() and path.stat().st_nlink > 1:
        raise ConfigurationError(f"store: {path} has a second name (hard link), and SQLite would keep a log for each.")


def _open_reader(path: Path) -> sqlite3.Connection:
    with reported(path, "opening the store for reading"):
        connection = open_reader(path)
        # SQLite opens at the first look; now is when a fault should show.
        reader.horizon_ms(connection)
        return connection


def _not_open(path: Path) -> StoreError:
    return StoreError(f"{path} is not open: the store was not started, or is stopped.")
