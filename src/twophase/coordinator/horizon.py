"""Up to when everything is decided, and up to when everything is delivered: what cleaners of barrier rows must know.

Keeps I10 with correctness rules 14 and 16. A producer's barrier rows may go only below the oldest undecided message
that asks *its* database; a consumer's, only below the birth of the oldest message that is not finished. Not below its
decision: with check-back durability branches are called while the row is still prepared, and a check-back may decide
long after (rule 25). Both are the store's times, over all nodes of the store, so any node may be asked.

The second rides on every branch call as a header, for consumers that do not know their coordinators. It is computed
in the background; a call carries whatever stands there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qs

import msgspec

from twophase.core.limits import BEGIN_DEADLINE_MS
from twophase.core.message import decode
from twophase.stores.base import LiveRow, Store

OLDEST_HEADER: Final = "x-twophase-oldest"
IDENTITY_PARAMETER: Final = "barrier"
"""In a check address: the name of the producer's database, as its SDK read it there."""

_PAGE_ROWS = 500


class Horizon(msgspec.Struct, frozen=True):
    """Milliseconds by the store's clock.

    Every message that asks the given database and was prepared before `oldest_undecided_ms` is decided; no younger
    than the begin deadline, because nothing that young may be cleaned. Every message that was born, prepared or
    submitted at once, before `oldest_unfinished_ms` is finished: its branches are called no more.
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
    """Every message born before this is finished. The clock is read first: what is born later is younger."""
    now_ms = await store.now_ms()
    oldest_ms = (await store.overview()).oldest_live_ms
    return now_ms if oldest_ms is None else min(oldest_ms, now_ms)


def _asks(row: LiveRow, check_prefix: str, identity: str) -> bool:
    try:
        url = decode(row.body).check_url
    except (msgspec.DecodeError, msgspec.ValidationError):
        return True  # whom it would ask cannot be told, so nobody may clean what it might ask about
    if not url or not url.startswith(check_prefix):
        return False
    named = parse_qs(url.partition("?")[2].partition("#")[0]).get(IDENTITY_PARAMETER)
    return not identity or named is None or identity in named


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
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to ask."""
        self._task = asyncio.create_task(self._loop(), name="twophase oldest unfinished")

    async def stop(self) -> None:
        """Ask no more. Safe to call twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _loop(self) -> None:
        while True:
            # That the store fails is said by whoever flushes; an old header only makes consumers keep more.
            # Whatever it is, the next round asks again: the loop's end would freeze the header.
            with contextlib.suppress(Exception):
                self._publish((OLDEST_HEADER, str(await oldest_unfinished_ms(self._store))))
            await asyncio.sleep(self._interval_s)
