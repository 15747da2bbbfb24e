"""The horizons for cleaners of barrier rows.

One is the time up to which everything is decided, the other the time up to which everything called is delivered. Keeps
I10 with correctness rules 14 and 16. A producer's barrier rows may be removed only below the oldest undecided message
that asks *its* database. A consumer's may be removed only below H, whose promise is: *every message that called a
branch before H is finished, and calls no more*. Both are the store's times, over all nodes of the store, so any node
may be asked. H travels on every branch call as a header, for consumers that do not know their coordinators; it is
computed in the background, and a call carries the last value.

Proof of H. The clock is read first (T), then the prepared rows, then the far ones, then all; H is T, or less:

* A *submitted* row counts from its birth: with check-back durability its branches may have been called before its
  decision was stored (rule 25). Excluded are those not parked whose due time lies more than `_FAR_MS` ahead, farther
  than any pause between two tries (`core.schedule.PAUSE_MS_MAX`, half of it), and is exactly the time that the
  message's own `delay` or `next_cron_time` gives, before which nothing is called (`_awaits_its_time`). A far time that
  the message does not explain was set by a clock that was wrong, after a call perhaps: that row counts. So do all with
  check-back durability: a submit may bring a time late, when an earlier one was acknowledged, called and forgotten;
  such rows are never due farther than one pause ahead (`Times.earliest_due_ms`). When there are more far rows than are
  read, all count.
* A *prepared* row counts from its birth if its branches may have been called all the same, by such a submit; its body
  shows that (`may_be_called_early`). Any other has never been called. Young ones, below the begin deadline, count
  unread: consumers keep a day at least. When there are more old ones than are read, H is the birth of the last one
  read.
* A row that is prepared at the first look and submitted at the second is seen once at least, and none moves the other
  way. One that is in neither look was finished before, or was stored after, and then its first call comes after T.

So an excluded row has its first call after T, and what that call writes at a consumer has a time after T, except for
the difference of clocks; `barrier.cleaning` allows five minutes for that. And the promise is for ever: a message that
had called before H is finished, at any time at which the header is read. H may fall when a far time comes near, and
counts from birth again; a later, lesser H promises less, and takes nothing back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import msgspec

from twophase.coordinator.background import Background
from twophase.core.headers import OLDEST_HEADER
from twophase.core.lifecycle import State
from twophase.core.limits import BEGIN_DEADLINE_MS
from twophase.core.message import Message, databases_asked, decode, may_be_called_early
from twophase.core.options import Durability
from twophase.core.schedule import PAUSE_MS_MAX
from twophase.stores.base import DUE_EVER_MS, Store
from twophase.stores.rows import LiveRow

_PAGE_ROWS: Final = 64
"""Rows of one page with their bodies: few, because they may be large."""
_PAGES_MAX: Final = 160
"""Pages of old prepared messages that are read for each header.

As many are read of messages with a far time.
"""
_FAR_MS: Final = 2 * PAUSE_MS_MAX
"""Bound of a far time: twice the longest pause.

Twice, for a clock that is ahead, and for the time between two of the questions.
"""
_ROUNDED_MS: Final = 60_000
"""Difference allowed between a row's due time and the one it was computed from.

The causes are a flush that waited for the store, and two clocks.
"""


class Horizon(msgspec.Struct, frozen=True):
    """Milliseconds by the store's clock.

    Every message that asks the given database and was prepared before `oldest_undecided_ms` is decided; the time is no
    younger than the begin deadline, because nothing that young may be cleaned. Every message that called a branch
    before `oldest_unfinished_ms` is finished, and calls none again.
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
    """Return a time before which every message that called a branch is finished.

    See above, also for the order of the three questions.
    """
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
    """Return the birth of the oldest prepared message that may have been called.

    That is, one whose branches may have been. None: none was born before `before_ms`.
    """
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
    """Return the oldest birth among messages due after `far_ms` without a reason.

    The reason would be the message's own. The second value is True when all were read.
    """
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
        return True  # the database it would ask is unknown, so no row that it might ask about may be cleaned
    # The barrier row of a redirected message stands where its producer prepared it; the check-back is asked elsewhere.
    addresses = [url for url in (message.check_url, message.prepared_check_url) if url]
    if not any(url.startswith(check_prefix) for url in addresses):
        return False
    return not identity or any(identity in (databases_asked(url) or [identity]) for url in addresses)


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
            # The next flush reports that the store fails; an old header only makes consumers keep more. After any error
            # the next round asks again: the loop's end would freeze the header.
            with contextlib.suppress(Exception):
                self._publish((OLDEST_HEADER, str(await oldest_unfinished_ms(self._store))))
            await asyncio.sleep(self._interval_s)
