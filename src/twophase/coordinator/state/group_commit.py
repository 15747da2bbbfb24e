"""Group commit with linger 0: a flush starts as soon as the last one ended.

It has every change that came meanwhile. Keeps I8: an outcome is reported only after the store's durable commit. Changes
without a waiting requester (a finished message, a new due time) may wait some milliseconds for others, because a commit
costs more than they do.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from twophase.coordinator.runtime import Runtime
from twophase.coordinator.state.active_message import ActiveMessage, Trigger
from twophase.coordinator.state.active_set import ActiveSet
from twophase.coordinator.state.acts import entries_of
from twophase.coordinator.state.flush_turns import ALONE_BYTES, FLUSH_BYTES_MAX, in_turns
from twophase.coordinator.store_faults import as_store_error, log_text
from twophase.core import failpoint
from twophase.core.errors import StoreError, StoreFenced
from twophase.stores.batch import Batch, FlushResult, Item, NotApplied
from twophase.stores.queue_rows import Append, Progress
from twophase.stores.rows import Attempt, AttemptKind

_ATTEMPTS_MAX = 10_000
_REPORTED_AT_ONCE = 32
"""Outcomes reported in one turn of the event loop.

The loop sends their responses when the turn ends. With a whole flush reported in one turn, clients stood still
meanwhile, and then the server while all of them answered: 15 % fewer messages.
"""
_SHORTER = 4
"""Divisor of the bound on a flush while several owners wait.

Each request waits for two flushes: the one under way, and its own.
"""
_NOT_DONE = frozenset({AttemptKind.BRANCH, AttemptKind.CHECK_BACK})
_REPORT_S = 1.0
"""Time that progress without a waiting consumer may wait for a flush."""


class Outcomes(Protocol):
    """Continues after each change that was flushed; the state machine implements it."""

    def applied(self, active: ActiveMessage, trigger: Trigger, item: Item, at_ms: int) -> None:
        """Take note of a change that is durable since `at_ms` of the store's clock."""
        ...

    def refused(self, active: ActiveMessage, trigger: Trigger, found: NotApplied) -> None:
        """Take note of a change that the store refused, with the row that it met."""
        ...

    def fail_and_evict(self, active: ActiveMessage, trigger: Trigger | None, error: StoreError) -> None:
        """Take note of a change whose outcome is unknown."""
        ...

    def fenced(self, error: StoreFenced) -> None:
        """Take note that this node has lost its slot on the store."""
        ...


class Readers(Protocol):
    """The consumers of queues, whose progress rides with flushes.

    `queues.serving` implements it.
    """

    def take_progress(self) -> list[Progress]:
        """Return what groups have done since the last call; the next flush writes it."""
        ...

    def progress_flushed(self, error: StoreError | None, lost: frozenset[int] = frozenset()) -> None:
        """Take note that what was taken is durable; with an error its outcome is unknown.

        `lost`: as `FlushResult`.
        """
        ...

    def appended(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Take note of new entries.

        `ends`: the next number of each queue; 0 where the flush's answer was lost.
        """
        ...

    def forget(self, error: StoreError) -> None:
        """Forget everything: this node has lost its slot, or stops."""
        ...


class GroupCommit:
    """Collects changes, flushes them in batches, and reports each one's outcome.

    Arguments:
        runtime: the node's store, clock, settings and observer.
        memory: the messages in memory; while they are small, no flush is weighed.
        outcomes: continues after each change.
    """

    def __init__(self, runtime: Runtime, memory: ActiveSet, outcomes: Outcomes) -> None:
        self._store = runtime.store
        self._observer = runtime.observer
        self._flush_items_max = runtime.settings.flush_items_max
        self._linger_s = runtime.settings.linger_ms / 1000
        self._memory = memory
        self._outcomes = outcomes
        self._items: list[Item] = []
        self._about: list[tuple[ActiveMessage, Trigger]] = []
        self._attempts: list[Attempt] = []
        self._appends: dict[Trigger, tuple[Append, ...]] = {}
        """The entries of queues that come with a waiting change, by its trigger."""
        self.readers: Readers | None = None
        self._reporting = False
        """True when the readers have progress to write."""
        self._unsure: set[tuple[str, int]] = set()
        """The queues of entries that a failed flush may have written."""
        self._flush: asyncio.Task[None] | None = None
        """The flush that is with the store."""
        self._unfinished: set[asyncio.Task[None]] = set()
        """That flush, and those whose outcomes are still being reported."""
        self._urgent = False
        self._linger: asyncio.TimerHandle | None = None
        self._later: asyncio.TimerHandle | None = None
        """The flush of progress for which nothing waits."""
        self._began = ""
        """The owner whose turn it was first when the last flush had no room for all."""
        self._in_flush = 0
        self.waiting = 0
        """The number of changes that are not durable yet."""
        self._of: Counter[str] = Counter()
        """The number of changes of each owner that no flush has yet.

        Only the first `_counted` changes are in it.
        """
        self._counted = 0
        self._of_owner_max = max(1, runtime.settings.waiting_max // 2)
        self.acts = 0
        """The number of operators' acts under way; a flush looks for them only then."""
        self._halted = False

    def add(self, active: ActiveMessage, trigger: Trigger, item: Item, *, urgent: bool = True) -> None:
        """Make a change durable; `active` is busy until its outcome has been reported."""
        assert not active.busy, "one change of a gid at a time"
        active.busy = True
        self.waiting += 1
        self._items.append(item)
        self._about.append((active, trigger))
        if self._flush is None and not self._urgent:
            if urgent:
                self._urgent = True
                if self._linger is not None:
                    self._linger.cancel()
                    self._linger = None
                asyncio.get_running_loop().call_soon(self._start)
            elif self._linger is None:
                self._linger = asyncio.get_running_loop().call_later(self._linger_s, self._start)

    def is_full_for(self, owner: str) -> bool:
        """Return True when half of the changes that may wait are of this owner."""
        # While fewer wait in all, none are counted.
        return len(self._items) >= self._of_owner_max and self._of_owners()[owner] >= self._of_owner_max

    def _of_owners(self) -> Counter[str]:
        """Count what waits, of each owner; each change is looked at once."""
        self._of.update([active.holder for active, _ in self._about[self._counted :] if active.holder])
        self._counted = len(self._about)
        return self._of

    def _forget_owners(self) -> None:
        self._of.clear()
        self._counted = 0

    def append(self, trigger: Trigger, entries: tuple[Append, ...]) -> None:
        """Write entries of queues with the change that was added last."""
        assert self._about[-1][1] is trigger, "they come with a change"
        self._appends[trigger] = entries

    def report(self, *, urgent: bool) -> None:
        """Write the readers' progress with the next flush; `urgent`: someone waits for it."""
        self._reporting = True
        if self._flush is not None or self._urgent or self._linger is not None:
            return  # a flush comes soon
        if urgent:
            self._linger = asyncio.get_running_loop().call_later(self._linger_s, self._start)
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(_REPORT_S, self._report_later)

    def _report_later(self) -> None:
        self._later = None
        if self._reporting:
            self.report(urgent=True)

    def record(self, attempt: Attempt) -> None:
        """Write an attempt with the next flush, and report it.

        Beyond a bound failed calls are not written.
        """
        if attempt.kind in _NOT_DONE:
            self._observer.not_done(attempt)
        if len(self._attempts) >= _ATTEMPTS_MAX and attempt.kind is not AttemptKind.OPERATOR:
            return
        self._attempts.append(attempt)
        if self._flush is None and self._linger is None and not self._urgent:
            self._linger = asyncio.get_running_loop().call_later(self._linger_s, self._start)

    async def drained(self) -> None:
        """Wait until nothing waits for the store.

        What readers have done is tried once where the store fails.
        """
        tried = False
        while not self._halted and (
            self._unfinished or self._items or self._attempts or (self._reporting and not tried)
        ):
            if self._flush is None:
                tried = True
                self._start()
            if self._unfinished:
                await asyncio.wait(self._unfinished)

    def halt(self) -> None:
        """Start no flush until `resume`."""
        self._halted = True

    def resume(self) -> None:
        """Start flushes again, without any change that was planned before."""
        assert not self._items, "what was planned before was planned in another epoch"
        self._halted = False
        self._start()

    async def discard(self, error: StoreError) -> None:
        """Wait for the flush under way, and report every unwritten change as failed.

        The group commit is halted already. Changes planned until this returns are reported with the rest, so the caller
        evicts messages without an await between.
        """
        assert self._halted, "no flush may begin meanwhile"
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if self._unfinished:
            await asyncio.wait(self._unfinished)
        self._forget_owners()
        self._items.clear()
        self._appends.clear()
        self._unsure.clear()
        self._reporting = False
        if self.readers is not None:
            self.readers.forget(error)
        self.waiting = 0
        self._attempts.clear()
        about, self._about = self._about, []
        self._report_failed(error, about)

    def _start(self) -> None:
        self._urgent = False
        self._linger = None
        if self._halted or self._flush is not None or not (self._items or self._attempts or self._reporting):
            return
        if self._goes_whole():
            items, self._items = self._items, []
            about, self._about = self._about, []
            self._forget_owners()
        else:
            items, about = self._take_in_turns()
        attempts, self._attempts = self._attempts, []
        self._in_flush = len(items)
        batch = Batch(items, attempts, entries_of(items, about) if self.acts else {})
        if self._appends or self._reporting:
            self._add_queues(batch, about)
        self._flush = asyncio.get_running_loop().create_task(self._run(batch, about))
        self._unfinished.add(self._flush)
        self._flush.add_done_callback(self._unfinished.discard)

    def _add_queues(self, batch: Batch, about: list[tuple[ActiveMessage, Trigger]]) -> None:
        """Give a batch its entries of queues, and what groups have done."""
        if self._appends:
            with_entries = [(index, trigger) for index, (_, trigger) in enumerate(about) if trigger in self._appends]
            batch.appends = {index: self._appends.pop(trigger) for index, trigger in with_entries}
        if self._reporting and self.readers is not None:
            batch.progress = self.readers.take_progress()
        self._reporting = False

    def _goes_whole(self) -> bool:
        """Return True when everything that waits goes into one flush.

        Not where that would keep one owner waiting for another.
        """
        count = len(self._items)
        if count > self._flush_items_max:
            return False
        if count > _REPORTED_AT_ONCE and self._memory.of_several_owners and len(self._of_owners()) > 1:
            return False
        if count == 1 or self._memory.bytes <= FLUSH_BYTES_MAX:
            return True
        sizes = [active.bytes for active, _ in self._about]
        if sum(sizes) > FLUSH_BYTES_MAX:
            return False
        return not (self._memory.of_several_owners and max(sizes) > ALONE_BYTES and len(self._of_owners()) > 1)

    def _take_in_turns(self) -> tuple[list[Item], list[tuple[ActiveMessage, Trigger]]]:
        """Return what waits, or a part of it; the owners of the messages take turns."""
        holders = [active.holder for active, _ in self._about]
        sizes = [active.bytes for active, _ in self._about]
        items_max = max(1, self._flush_items_max // (_SHORTER if len(self._of_owners()) > 1 else 1))
        taken = in_turns(holders, sizes, items_max, FLUSH_BYTES_MAX, self._began)
        self._began = holders[taken[0]]
        items, about = [self._items[index] for index in taken], [self._about[index] for index in taken]
        left = sorted(set(range(len(holders))).difference(taken))
        self._items, self._about = [self._items[index] for index in left], [self._about[index] for index in left]
        self._forget_owners()
        return items, about

    async def _run(self, batch: Batch, about: list[tuple[ActiveMessage, Trigger]]) -> None:
        if failpoint.ARMED:
            failpoint.reach("coordinator.before_flush")
        started = time.perf_counter()
        try:
            result = await self._store.flush(batch)
        except Exception as cause:  # noqa: BLE001 -- whatever it is, every requester gets an answer
            self._flush = None
            self.waiting -= self._in_flush
            self._in_flush = 0
            error = as_store_error(cause)
            self._queues_failed(batch, error)
            self._failed(error, about)
        else:
            if failpoint.ARMED:
                failpoint.reach("coordinator.after_flush")
            self._flush = None
            self.waiting -= self._in_flush
            self._in_flush = 0
            if batch.audited:
                _note_written(batch, about, result)
            if batch.appends or batch.progress or self._unsure:
                self._queues_flushed(batch, about, result)
            seconds = time.perf_counter() - started
            await self._report(batch.items, about, result)
            self._start()
            self._observer.flushed(len(about), seconds)
            return
        if self._items or self._attempts:
            self._start()
        elif self._reporting:
            self.report(urgent=False)  # after a pause: it would fail again and again while the store is away

    def _queues_flushed(self, batch: Batch, about: list[tuple[ActiveMessage, Trigger]], result: FlushResult) -> None:
        for index, numbers in result.numbers.items():
            trigger = about[index][1]
            trigger.numbers, trigger.appended = numbers, batch.appends[index]
        if self.readers is None:
            return
        ends = dict.fromkeys(self._unsure, 0)
        self._unsure.clear()
        for index in batch.appends.keys() - result.refused.keys():
            entries = batch.appends[index]
            for entry, number in zip(entries, result.numbers.get(index, (-1,) * len(entries)), strict=True):
                place = entry.topic, entry.queue
                ends[place] = max(ends.get(place, 0), number + 1)
        self.readers.appended(ends)
        if batch.progress:
            self.readers.progress_flushed(None, result.lost)

    def _queues_failed(self, batch: Batch, error: StoreError) -> None:
        """Let consumers look for what may have been written.

        They look now, and again when the next flush has succeeded: a store may be slower than this node.
        """
        self._unsure.update((entry.topic, entry.queue) for entries in batch.appends.values() for entry in entries)
        if self.readers is None:
            return
        if self._unsure:
            self.readers.appended(dict.fromkeys(self._unsure, 0))
        if batch.progress:
            self.readers.progress_flushed(error)

    async def _report(self, items: list[Item], about: list[tuple[ActiveMessage, Trigger]], result: FlushResult) -> None:
        """Report durable changes, some at a time.

        Meanwhile the next flush may begin, with other messages' changes.
        """
        refused = result.refused
        for index, (active, trigger) in enumerate(about):
            if index % _REPORTED_AT_ONCE == _REPORTED_AT_ONCE - 1:
                await asyncio.sleep(0)
            active.busy = False
            try:
                if refused and index in refused:
                    self._outcomes.refused(active, trigger, refused[index])
                else:
                    self._outcomes.applied(active, trigger, items[index], result.at_ms)
            except Exception as cause:  # noqa: BLE001 -- one message's fault never stops its neighbours
                self._outcomes.fail_and_evict(active, trigger, as_store_error(cause))

    def _failed(self, error: StoreError, about: list[tuple[ActiveMessage, Trigger]]) -> None:
        self._observer.flush_failed(error.code, log_text(error))
        self._report_failed(error, about)
        if isinstance(error, StoreFenced):
            self._outcomes.fenced(error)

    def _report_failed(self, error: StoreError, about: list[tuple[ActiveMessage, Trigger]]) -> None:
        for active, trigger in about:
            active.busy = False
            self._outcomes.fail_and_evict(active, trigger, error)


def _note_written(batch: Batch, about: list[tuple[ActiveMessage, Trigger]], result: FlushResult) -> None:
    for index in batch.audited.keys() - result.refused.keys():
        audited = about[index][1].audited
        assert audited is not None, "its act is in the batch"
        audited.written = True
