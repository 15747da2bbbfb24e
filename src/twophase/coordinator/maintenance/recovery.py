"""Recovery: brings unfinished messages from the store into memory.

It does so at the start, when they fall due, and after a store fault. Keeps I2 and I9: every live, unparked row is in
memory or will be read when it is due, because each message that leaves memory unfinished notes the due time from which
the store must be read again (`note`).

A message that leaves memory as another node's notes nothing, and what memory knew of it may be older than its adoption
here. So while adopted rows are read, a row that memory does not know in the same version as this node's is looked at
again.

No known event leaves a due row that nothing drives. A look at every row that is due for long, twice a minute, bounds
what an unknown one may do to I9.

A row that a clock ahead of its time has made due in weeks is not read by its due time. So after a start, an adoption
and a clock that fell back all far rows are looked through, behind everything due, and those that nothing explains come
in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from twophase.coordinator.background import Background, rest
from twophase.coordinator.runtime import Runtime
from twophase.coordinator.state.active_message import ActiveMessage
from twophase.coordinator.state.active_set import ActiveSet
from twophase.coordinator.store_faults import as_store_error, log_text
from twophase.core.errors import StoreCorrupt
from twophase.core.lifecycle import State
from twophase.core.message import Message
from twophase.stores.base import DUE_BYTES_MAX
from twophase.stores.rows import LiveRow

_BEFORE_ALL: Final = (0, "")
_FAR_ROWS: Final = 64
"""Rows of one page with their bodies: few, because they may be large."""
_OVERDUE_MS: Final = 10_000
"""A row that is due for so long is under way, or was overlooked."""
_OVERDUE_EVERY_MS: Final = 30_000
_FELL_BACK_MS: Final = 1_000
"""Bound of a correction: a clock kept in time by small steps has not fallen back."""


class Recovery:
    """Pages due rows into memory, as long as there is room.

    Without room, slow queues of calls give up some.

    Arguments:
        runtime: the node's store, clock, settings and observer.
        memory: the messages in memory.
        is_accepting: returns False from a stop on.
        make_room: called with the most messages that should leave memory.
    """

    def __init__(
        self,
        runtime: Runtime,
        memory: ActiveSet,
        is_accepting: Callable[[], bool],
        make_room: Callable[[int], None],
    ) -> None:
        self._store = runtime.store
        self._settings = runtime.settings
        self._clock = runtime.clock
        self._random = runtime.random
        self._observer = runtime.observer
        self._memory = memory
        self._is_accepting = is_accepting
        self._make_room = make_room
        self._from_ms = 0
        self._faulted = False
        self._adopted = False
        self._far: tuple[int, str] | None = None
        """Position among the rows that are due far away.

        None when all have been looked through.
        """
        self._seen_ms = 0
        self._overdue_ms = 0
        """When to look at overdue rows again."""
        self._requested = asyncio.Event()
        self._hurried = asyncio.Event()
        self._background = Background("twophase recovery")

    async def start(self) -> None:
        """Read the first page, then continue in the background."""
        self._look_at_clock()
        await self._read_pages(pages_max=1)
        self._far = _BEFORE_ALL
        self._go_on()

    def restart(self) -> None:
        """Read everything from the beginning, in the background.

        Memory is empty, and the node has a new slot.
        """
        self._faulted = False
        self.adopted()
        self._go_on()

    def _go_on(self) -> None:
        self._requested.set()
        self._background.start(self._loop())

    async def stop(self) -> None:
        """Read nothing more. Safe to call twice."""
        await self._background.stop()

    def note(self, due_ms: int) -> None:
        """Note the due time of an unfinished message that has left memory.

        The time may be of a clock that is ahead and is set right before the next look at it.
        """
        self._now_ms()
        if due_ms < self._from_ms:
            self._from_ms = due_ms
            self._requested.set()

    def adopted(self) -> None:
        """Note that rows of other nodes are this node's now; they may be older than any."""
        self._adopted = True
        self._far = _BEFORE_ALL
        self._from_ms = 0
        self._requested.set()

    def fault(self) -> None:
        """Note a failure of the store.

        Messages whose stored state is not known have left memory.
        """
        self._faulted = True
        self._from_ms = 0
        self._requested.set()

    def wake(self) -> None:
        """Look at the clock now: it has jumped."""
        self._requested.set()

    def hurry(self) -> None:
        """End the pause after a fault: the store answers again."""
        self._hurried.set()

    async def _loop(self) -> None:
        ahead_s = self._settings.page_ahead_ms / 2000
        pauses = self._settings.delivery.starting_at(self._settings.store_retry_ms)
        faults = 0
        while self._is_accepting():
            await rest(ahead_s, self._requested)
            self._requested.clear()
            faults = faults + 1 if self._faulted else 0
            if self._faulted:
                # Without a pause a full disk would have everything due called again as fast as it can be read.
                self._hurried.clear()
                await rest(pauses.pause_ms(faults, self._random()) / 1000, self._hurried)
                self._faulted = False
            self._look_at_clock()
            try:
                everything = await self._read_pages(pages_max=1_000_000)
                if everything:
                    everything = await self._read_far()
                if everything:
                    await self._read_overdue()
            except Exception as error:  # noqa: BLE001 -- whatever it is, paging must continue: I2 depends on it
                self._observer.flush_failed(as_store_error(error).code, log_text(error))
                self.fault()
                continue
            if not everything:
                self._requested.set()
                await asyncio.sleep(self._settings.crowded_retry_ms / 1000)

    def _now_ms(self) -> int:
        """Return the time, and keep the latest.

        What is reckoned from it is reckoned anew when the clock falls back, also before the next look at it.
        """
        now_ms = self._clock.now_ms()
        self._seen_ms = max(self._seen_ms, now_ms)
        return now_ms

    def _look_at_clock(self) -> None:
        now_ms = self._clock.now_ms()
        if now_ms < self._seen_ms - _FELL_BACK_MS:
            self._from_ms = self._overdue_ms = 0
            self._far = _BEFORE_ALL
            self._memory.clock_fell_back()
        self._memory.look_at_far(now_ms)
        self._seen_ms = now_ms

    async def _read_far(self) -> bool:
        """Bring in rows that are due farther away than anything explains.

        It continues as long as no due row is wanted and there is room.
        """
        while self._far is not None and not self._requested.is_set():
            position = max(self._far, (self._now_ms() + self._settings.page_ahead_ms, ""))
            left: dict[str, bool] = {}
            self._memory.left = left
            try:
                rows = await self._store.later(position, _FAR_ROWS)
            finally:
                self._memory.left = None
            for row in rows:
                if row.owned and row.gid not in self._memory and row.gid not in left:
                    if not self._memory.roomy:
                        return False
                    self._adopt_unexplained(row)
            self._far = (rows[-1].due_ms, rows[-1].gid) if len(rows) == _FAR_ROWS else None
        return True

    async def _read_overdue(self) -> None:
        """Try what has been due for long and is driven by nothing here."""
        now_ms = self._now_ms()
        if now_ms < self._overdue_ms:
            return
        self._overdue_ms = now_ms + _OVERDUE_EVERY_MS
        found = 0
        position = _BEFORE_ALL
        while not self._memory.overcrowded:
            left: dict[str, bool] = {}
            self._memory.left = left
            try:
                rows = await self._store.due(now_ms - _OVERDUE_MS, position, self._settings.page_rows)
            finally:
                self._memory.left = None
            for row in rows:
                active = self._memory.get(row.gid)
                if active is None and row.gid not in left:
                    self._adopt(row)
                    found += 1
                elif active is not None and active.quiet and (active.version < row.version or _is_idle(active)):
                    self._memory.load_row(active, row)
                    found += 1
            if not rows:
                break
            position = (rows[-1].due_ms, rows[-1].gid)
        if found:
            self._observer.overdue(found)

    def _adopt_unexplained(self, row: LiveRow) -> None:
        self._adopt(row)
        active = self._memory.get(row.gid)
        if active is not None and active.due_ms >= row.due_ms:
            self._memory.remove(active)  # it waits in the store for the time that it has

    async def _read_pages(self, pages_max: int) -> bool:
        """Read what is due.

        True when memory now holds every row due within the page-ahead time.
        """
        now_ms = self._now_ms()
        until_ms = now_ms + self._settings.page_ahead_ms
        position = (self._from_ms - 1, "\U0010ffff")
        # Set once, before the first wait: messages that leave memory meanwhile lower it again. The other is set in the
        # same way.
        self._from_ms = until_ms + 1
        doubting, self._adopted = self._adopted, False
        doubted = False
        try:
            for _ in range(pages_max):
                if self._memory.overcrowded:
                    self._make_room(self._settings.page_rows)
                    break
                left: dict[str, bool] = {}
                self._memory.left = left
                try:
                    rows = await self._store.due(until_ms, position, self._settings.page_rows)
                finally:
                    self._memory.left = None
                for row in rows:
                    active = self._memory.get(row.gid)
                    if active is not None or row.gid in left:
                        known = left[row.gid] if active is None else active.owned and active.version >= row.version
                        if doubting and not known:
                            doubted = True
                            self._from_ms = min(self._from_ms, row.due_ms)
                        continue
                    if row.due_ms > now_ms and not self._memory.roomy:
                        # Were it taken in, it would take the room of rows that are due before it and arrive later.
                        self._from_ms = min(self._from_ms, row.due_ms)
                        return False
                    self._adopt(row)
                if len(rows) < self._settings.page_rows and sum([len(row.body) for row in rows]) < DUE_BYTES_MAX:
                    doubting = doubted
                    return not doubted
                position = (rows[-1].due_ms, rows[-1].gid)
            self._from_ms = min(self._from_ms, max(0, position[0]))
            return False
        finally:
            # Not everything was read, or not everything was clear: the next reading must look as closely.
            self._adopted = self._adopted or doubting

    def _adopt(self, row: LiveRow) -> None:
        active = self._memory.add(Message(row.gid, ()))
        try:
            self._memory.load_row(active, row)
        except StoreCorrupt as error:
            self._memory.remove(active)
            self._observer.incident(row.gid, f"{error.message} It stays in the store, undecided.")


def _is_idle(active: ActiveMessage) -> bool:
    """Return True for a message that nothing will move, though its time passes.

    A prepared one without a time may wait for a permit to ask its producer. A parked one has no time; where the row
    has one, it was parked while the row was read.
    """
    return active.slot is None and not active.parked and active.state is State.SUBMITTED
