"""Up to when everything is decided, and up to when everything called is delivered: what cleaners of barrier rows ask.

Keeps I10 with correctness rules 14 and 16. A producer's barrier rows may go only below the oldest undecided message
that asks *its* database. A consumer's may go only below H, of which is promised: *whatever called a branch before H is
finished, and calls no more*. Both are the store's times, over all nodes of the store, so any node may be asked. H rides
on every branch call as a header, for consumers that do not know their coordinators; it is computed in the background,
and a call carries whatever stands there.

Why H holds. The clock is read first (T), then the prepared rows, then the far ones, then all; H is T, or less:

* A *submitted* row counts from its birth: with check-back durability its branches may have been called before its
  decision was stored (rule 25). Left out are those not parked whose due time lies more than `_FAR_MS` ahead, farther
  than any pause between two tries (`core.schedule.PAUSE_MS_MAX`, half of it), and is the very time that the message's
  own `delay` or `next_cron_time` comes to, before which nothing is called (`_awaits_its_time`). A far time that the
  message does not explain was set by a clock that was wrong, after a call perhaps: that row counts. So do all with
  check-back durability: a submit may bring a time late, when an earlier one was acknowledged, called and forgotten;
  such rows are never due farther than one pause ahead (`Times.earliest_due_ms`). When there are more far rows than
  are read, all count.
* A *prepared* row counts from its birth if its branches may have been called all the same, by such a submit; its body
  says so (`may_be_called_early`). Any other has never been called. Young ones, below the begin deadline, count unread:
  consumers keep a day at least. When there are more old ones than are read, H is the birth of the last one read.
* A row that is prepared at the first look and submitted at the second is seen once at least, and none moves the other
  way. One that is in neither look was finished before, or was stored after, and then its first call comes after T.

So what is left out has its first call after T, and what that writes at a consumer bears a time after T, but for what
clocks differ by; `barrier.cleaning` allows five minutes for that. And the promise is for ever: what had called before
H is finished, whatever time the header is read at. H may fall when a far time comes near, and counts from birth again;
a later, lesser H says less, and takes nothing back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import msgspec

from twophase.coordinator.background import Background
from twophase.core.lifecycle import State
from twophase.core.limits import BEGIN_DEADLINE_MS
from twophase.core.message import Durability, Message, databases_asked, decode, may_be_called_early
from twophase.core.schedule import PAUSE_MS_MAX
from twophase.stores.base import DUE_EVER_MS, LiveRow, Store

OLDEST_HEADER: Final = "x-twophase-oldest"
_PAGE_ROWS: Final = 64
"""With their bodies: few, because they may be large."""
_PAGES_MAX: Final = 160
"""Of old prepared messages, and as many of such with a far time, that are read for each header."""
_FAR_MS: Final = 2 * PAUSE_MS_MAX
"""Twice, for a clock that is ahead, and for the time between two of the questions."""
_ROUNDED_MS: Final = 60_000
"""By how much a row's due time may differ from the one it was computed from: a flush that waited for the store, and two
clocks."""


class Horizon(msgspec.Struct, frozen=True):
    """Milliseconds by the store's clock.

    Every message that asks the given database and was prepared before `oldest_undecided_ms` is decided; no younger
    than the begin deadline, because nothing that young may be cleaned. Every message that called a branch before
    `oldest_unfinished_ms` is finished, and calls none again.
    """

    oldest_undecided_ms: int
    oldest_unfinished_ms: int
    now_ms: int


async def horizon(store: Store, check_prefix: str = "", identity: str = "") -> Horizon:
    """Ask the store.

    Arguments:
        check_prefix: count only messages whose check address begins so.
        identity: do not count messages whose check address names another database; one that names none is counted.

    Raises:
        StoreError: it does not answer.
    """
    unfinished_ms = await oldest_unfinished_ms(store)
    now_ms = await store.now_ms()
    before_ms = now_ms - BEGIN_DEADLINE_MS.value
    position = (-1, "")
    while rows := await store.oldest_undecided(before_ms, position, _PAGE_ROWS):
        for row in rows:
            if _asks(row, check_prefix, identity):
                return Horizon(row.created_ms, unfinished_ms, now_ms)
        position = (rows[-1].created_ms, rows[-1].gid)
    return Horizon(before_ms, unfinished_ms, now_ms)


async def oldest_unfinished_ms(store: Store) -> int:
    """Whatever called a branch before this is finished; see above, also for the order of the three questions."""
    now_ms = await store.now_ms()
    young_ms = now_ms - BEGIN_DEADLINE_MS.value
    called_early_ms = await _oldest_called_early_ms(store, young_ms)
    unexplained_ms, all_read = await _oldest_unexplained_ms(store, now_ms + _FAR_MS)
    seen = await store.overview(now_ms + _FAR_MS if all_read else DUE_EVER_MS)
    oldest = [now_ms, called_early_ms, unexplained_ms, seen.oldest_tried_ms]
    if seen.oldest_prepared_ms is not None:
        oldest.append(max(seen.oldest_prepared_ms, young_ms))
    return min(one for one in oldest if one is not None)


async def _oldest_called_early_ms(store: Store, before_ms: int) -> int | None:
    """The birth of the oldest prepared message whose branches may have been called; None: of none born before."""
    position = (-1, "")
    for _ in range(_PAGES_MAX):
        rows = await store.oldest_undecided(before_ms, position, _PAGE_ROWS)
        for row in rows:
            message = _message_of(row)
            if message is None or may_be_called_early(message):
                return row.created_ms
        if len(rows) < _PAGE_ROWS:
            return None
        position = (rows[-1].created_ms, rows[-1].gid)
    return position[0]


async def _oldest_unexplained_ms(store: Store, far_ms: int) -> tuple[int | None, bool]:
    """The birth of the oldest message that is due after `far_ms` for no reason of its own; whether all were read."""
    oldest_ms: int | None = None
    position = (far_ms, "")
    for _ in range(_PAGES_MAX):
        rows = await store.later(position, _PAGE_ROWS)
        for row in rows:
            if row.state is State.SUBMITTED and not _awaits_its_time(row):
                oldest_ms = row.created_ms if oldest_ms is None else min(oldest_ms, row.created_ms)
        if len(rows) < _PAGE_ROWS:
            return oldest_ms, True
        position = (rows[-1].due_ms, rows[-1].gid)
    return oldest_ms, False


def _awaits_its_time(row: LiveRow) -> bool:
    """Return True when a far due time is the message's own, and no try is recorded."""
    message = _message_of(row)
    if message is None or row.attempts or row.done or message.options.durability is Durability.CHECK_BACK:
        return False
    return abs(row.due_ms - message.options.first_call_ms(row.created_ms)) <= _ROUNDED_MS


def _message_of(row: LiveRow) -> Message | None:
    try:
        return decode(row.body)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def _asks(row: LiveRow, check_prefix: str, identity: str) -> bool:
    message = _message_of(row)
    if message is None:
        return True  # whom it would ask cannot be told, so nobody may clean what it might ask about
    url = message.check_url
    # The barrier row of a redirected message stands where its producer prepared it.
    if not url or not (url.startswith(check_prefix) or message.prepared_check_url.startswith(check_prefix)):
        return False
    named = databases_asked(url)
    return not identity or not named or identity in named


class OldestHeader:
    """Keeps the header of branch calls fresh.

    Arguments:
        store: asked every `interval_ms`; while it does not answer, the header stays as it was, which is safe.
        publish: given the header, as the pair a call carries.
    """

    def __init__(self, store: Store, interval_ms: int, publish: Callable[[tuple[str, str]], None]) -> None:
        self._store = store
        self._interval_s = interval_ms / 1000
        self._publish = publish
        self._background = Background("twophase oldest unfinished")

    async def start(self) -> None:
        """Begin to ask."""
        self._background.start(self._loop())

    async def stop(self) -> None:
        """Ask no more. Safe to call twice."""
        await self._background.stop()

    async def _loop(self) -> None:
        while True:
            # That the store fails is said by whoever flushes; an old header only makes consumers keep more.
            # Whatever it is, the next round asks again: the loop's end would freeze the header.
            with contextlib.suppress(Exception):
                self._publish((OLDEST_HEADER, str(await oldest_unfinished_ms(self._store))))
            await asyncio.sleep(self._interval_s)
