"""The membership of this node in a store that several nodes share.

It has the heartbeat, the adoption of other nodes' messages, and this node's own fencing. Keeps I2 and I9 when nodes
die: rows of a node that has been silent for a lease are adopted by the others. A node that looks dead is fenced first,
by the store, so it can change nothing when it wakes; it then forgets all it held and takes a node slot anew. After an
outage of the database every node has been silent, and every node must get the time to report: a node ends the epochs of
others only after a whole lease of uninterrupted contact of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from twophase.coordinator.background import end
from twophase.coordinator.cluster.lease import Lease
from twophase.coordinator.cluster.store_clock import StoreClock
from twophase.coordinator.runtime import Runtime
from twophase.coordinator.store_faults import as_store_error, log_text
from twophase.core.errors import StoreError, StoreFenced, TwophaseError
from twophase.core.schedule import Schedule

_BEATS_PER_LEASE: Final = 4


class Work(Protocol):
    """Work of a node that holds a slot; see `node`."""

    def halt(self) -> None:
        """Stop at once: accept nothing, begin nothing, write nothing."""

    async def let_go(self, error: StoreFenced) -> None:
        """Answer every requester that waits, and evict every message."""

    def take_up(self) -> None:
        """Start again in a node slot: read this node's own rows, and accept."""

    def tick(self) -> None:
        """Look at the clock: the store's differs from what was known."""

    def adopted(self) -> None:
        """Read again what is due: rows were adopted."""

    def fail(self, error: StoreError) -> None:
        """Note that this node cannot continue."""


class Contact:
    """Time that the store has answered without a gap, by its own clock.

    >>> contact = Contact(lease_ms=1_000)
    >>> for at_ms in (0, 250, 500, 750):
    ...     contact.seen(at_ms)
    >>> contact.whole_lease
    False
    >>> contact.seen(1_000)
    >>> contact.whole_lease
    True
    >>> contact.seen(1_600)
    >>> contact.whole_lease
    False
    """

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._since_ms = 0
        self._last_ms: int | None = None

    def seen(self, at_ms: int) -> None:
        """Note an answer of the store.

        Half a lease of silence is a gap, whether the store was silent or this node.
        """
        if self._last_ms is None or not 0 <= at_ms - self._last_ms <= self._lease_ms // 2:
            self._since_ms = at_ms
        self._last_ms = at_ms

    def lost(self) -> None:
        """Note that the store has not answered."""
        self._last_ms = None

    @property
    def whole_lease(self) -> bool:
        """True when it has answered for a whole lease, until now."""
        return self._last_ms is not None and self._last_ms - self._since_ms >= self._lease_ms


class Membership:
    """Beats, adopts, and finds a new node slot.

    On a store that is not shared it does nothing.

    Arguments:
        runtime: the node's store, clock, settings and observer; the store is started before this.
        work: the coordinator.
        clock: follows the store's at every beat.
        lease: renewed at every beat.
        on_contact: called when the store answers again after it did not.
    """

    def __init__(
        self,
        runtime: Runtime,
        work: Work,
        clock: StoreClock,
        lease: Lease,
        on_contact: Callable[[], None],
    ) -> None:
        self._store = runtime.store
        self._settings = runtime.settings
        self._random = runtime.random
        self._observer = runtime.observer
        self._work = work
        self._clock = clock
        self._lease = lease
        self._on_contact = on_contact
        self._contact = Contact(0)
        self._silent = False
        self._beating: asyncio.Task[None] | None = None
        self._adopting: asyncio.Task[None] | None = None
        self._rejoining: asyncio.Task[None] | None = None
        self._leaving = False

    @property
    def rejoining(self) -> bool:
        """True while this node is fenced and has no slot."""
        return self._rejoining is not None

    def start(self) -> None:
        """Begin to beat and to adopt, in the background."""
        if self._store.shared:
            self._contact = Contact(self._store.lease_ms)
            self._observer.joined(*self._store.slot)
            self._beating = asyncio.get_running_loop().create_task(self._beat(), name="twophase heartbeat")

    async def leave(self) -> None:
        """Adopt nothing any more, and take no new node slot; the heart beats until `stop`."""
        self._leaving = True
        adopting, self._adopting = self._adopting, None
        await end(adopting)

    async def stop(self) -> None:
        """End everything. Safe to call twice."""
        await self.leave()
        rejoining, self._rejoining = self._rejoining, None
        beating, self._beating = self._beating, None
        await end(rejoining)
        await end(beating)

    def fenced(self, error: StoreFenced) -> None:
        """Stop at once, then find another node slot: the store has fenced this node."""
        if self._rejoining is None:
            self._observer.fenced(*self._store.slot, error.message)
            self._work.halt()
            self._rejoining = asyncio.get_running_loop().create_task(self._begin_anew(error), name="twophase rejoin")

    async def _beat(self) -> None:
        pause_s = self._store.lease_ms / _BEATS_PER_LEASE / 1000
        while True:
            asked_ms, asked_s = self._clock.own_ms(), self._lease.now_s()
            try:
                at_ms = await self._store.heartbeat()
            except Exception as cause:  # noqa: BLE001 -- whatever it is, the heart must beat on
                self._silent = True
                self._contact.lost()
                self._heard(cause)
            else:
                self._lease.renewed(asked_s)
                if self._clock.follow(at_ms, asked_ms):
                    self._work.tick()
                self._answered(at_ms)
            await asyncio.sleep(pause_s)

    def _answered(self, at_ms: int) -> None:
        if self._silent:
            self._silent = False
            self._on_contact()
        self._contact.seen(at_ms)
        if self._adopting is None and not self._leaving:
            whole_lease = self._contact.whole_lease
            adoption = self._adopt(end_epochs=whole_lease)
            self._adopting = asyncio.get_running_loop().create_task(adoption, name="twophase adoption")

    async def _adopt(self, *, end_epochs: bool) -> None:
        total, logged = 0, 0
        try:
            while came := await self._store.adopt(self._settings.adopt_rows, end_epochs=end_epochs):
                # Epochs are ended right after a heartbeat has shown that contact is whole, and not later.
                end_epochs = False
                total += came
                if total >= 2 * logged:
                    # Reading begins with the first rows; were it begun anew for every batch, it would never get far.
                    logged = total
                    self._work.adopted()
        except Exception as cause:  # noqa: BLE001 -- whatever it is, the next heartbeat tries again
            self._heard(cause)
            # Rows may have been adopted, and only the answer been lost: no later answer would report them.
            self._work.adopted()
        self._adopting = None
        if total:
            self._observer.adopted(total)
            self._work.adopted()

    def _heard(self, cause: Exception) -> None:
        error = as_store_error(cause)
        if isinstance(error, StoreFenced):
            self.fenced(error)
        else:
            self._observer.heartbeat_failed(error.code, log_text(error))

    async def _begin_anew(self, error: StoreFenced) -> None:
        try:
            await self._rejoin(error)
        except Exception as cause:  # noqa: BLE001 -- whatever it is: half a node is worse than none
            self._work.fail(as_store_error(cause))

    async def _rejoin(self, error: StoreFenced) -> None:
        beating, self._beating = self._beating, None
        adopting, self._adopting = self._adopting, None
        await end(beating)
        await end(adopting)
        await self._work.let_go(error)
        first_ms = self._settings.store_retry_ms
        pauses = Schedule(first_ms, cap_ms=max(first_ms, self._store.lease_ms))
        failures = 0
        while not self._leaving:
            asked_s = self._lease.now_s()
            try:
                await self._store.rejoin()
            except Exception as cause:  # noqa: BLE001 -- whatever it is, a node without a slot does nothing else
                failures += 1
                error_code = cause.code if isinstance(cause, TwophaseError) else as_store_error(cause).code
                self._observer.heartbeat_failed(error_code, log_text(cause))
                await asyncio.sleep(pauses.pause_ms(failures, self._random()) / 1000)
                continue
            if not self._leaving:  # leaving may have begun meanwhile; its stop gives the slot back
                self._lease.renewed(asked_s)
                self._work.take_up()
                self.start()
            break
        self._rejoining = None
