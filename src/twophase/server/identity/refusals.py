"""Refusals by scope: the first of its kind is a row at once, others are counted.

Promise: a kill behind the answer to a refusal loses no first row, and a flood of refusals is a few rows. The first
refusal of a kind (who, peer, route, needed scopes) in a minute is written before it is answered, together with all that
came during the commit before. Further ones are one row at the end of the minute, with their number. Beyond `KINDS_MAX`
kinds in a minute, kinds differ no more by their peer; beyond as many of those, the rest is one kind. So a flood is at
most `2 * KINDS_MAX + 1` first rows a minute and as many counts, by one commit at a time. When the store does not answer
within `WAIT_S_MAX`, refusals are answered, and their rows follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple

from twophase.coordinator.background import Background, rest
from twophase.core.audit_log import AuditEntry
from twophase.core.errors import StoreError

KINDS_MAX: Final = 128
EVERY_S: Final = 60.0
WAIT_S_MAX: Final = 1.0
_UNWRITTEN_MAX: Final = 1_024
"""Rows that are kept while the store fails."""


class _Kind(NamedTuple):
    who: str
    peer: str
    route: str
    needed: str

    def row(self, further: int = 0) -> AuditEntry:
        """Return the row of the first refusal, or of the further ones."""
        reason = f"the scope {self.needed or 'of another route'} is needed"
        counted = f"; refused {further} more times in this minute" if further else ""
        return AuditEntry(self.who, self.peer, "refused", self.route, reason + counted)


_OTHERS: Final = _Kind("", "", "other routes", "")


class Refusals:
    """Notes refusals, and writes their rows.

    Arguments:
        write: writes rows of the audit log.
        every_s: the length of the minutes.
    """

    def __init__(self, write: Callable[[Sequence[AuditEntry]], Awaitable[None]], every_s: float = EVERY_S) -> None:
        self._write = write
        self._every_s = every_s
        self._further: dict[_Kind, int] = {}
        self._with_peer = self._without_peer = 0
        self._first: list[AuditEntry] = []
        self._unwritten: list[AuditEntry] = []
        self._woken = asyncio.Event()
        self._next: asyncio.Future[None] | None = None
        self._under_way: asyncio.Future[None] | None = None
        self._background = Background("twophase refusals")

    @property
    def waits(self) -> asyncio.Future[None] | None:
        """Done when every first refusal of now is written; None when all are."""
        return self._next or self._under_way

    def note(self, who: str, needed: Iterable[str], route: str, peer: str) -> None:
        """Note a refusal; its answer should come behind `waits`.

        `peer`: the client's address.
        """
        kind = self._kind(_Kind(who, peer, route, " or ".join(sorted(needed))))
        if kind in self._further:
            self._further[kind] += 1
            return
        self._further[kind] = 0
        self._first.append(kind.row())
        if self._background.runs and self._next is None:
            loop = asyncio.get_running_loop()
            self._next = loop.create_future()
            loop.call_later(WAIT_S_MAX, _end, self._next)
            self._woken.set()

    def _kind(self, kind: _Kind) -> _Kind:
        """Return the kind by which a refusal counts; a new one takes one of the places."""
        if kind in self._further:
            return kind
        if self._with_peer < KINDS_MAX:
            self._with_peer += 1
            return kind
        kind = kind._replace(peer="")
        if kind in self._further:
            return kind
        if self._without_peer < KINDS_MAX:
            self._without_peer += 1
            return kind
        return _OTHERS

    def start(self) -> None:
        """Write from now on."""
        self._background.start(self._loop())

    async def stop(self) -> None:
        """Write what is left, and no more. Safe to call twice, and before a start."""
        await self._background.stop()
        await self.flush()

    async def flush(self) -> None:
        """End the minute: write everything.

        What cannot be written is kept for the next time.
        """
        self._first += [kind.row(further) for kind, further in self._further.items() if further]
        self._further = {}
        self._with_peer = self._without_peer = 0
        await self._write_first()

    async def _write_first(self) -> None:
        self._under_way, self._next = self._next, None
        entries, self._first = [*self._unwritten, *self._first][-_UNWRITTEN_MAX:], []
        self._unwritten = entries
        try:
            if entries:
                await self._write(entries)
            self._unwritten = []
        except StoreError:
            pass  # kept for the next time; the requests are refused all the same
        finally:
            _end(self._under_way)
            self._under_way = None

    async def _loop(self) -> None:
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + self._every_s
        while True:
            await rest(max(0.0, ends_s - loop.time()), self._woken)
            self._woken.clear()
            if loop.time() < ends_s:
                await self._write_first()
            else:
                ends_s = loop.time() + self._every_s
                await self.flush()


def _end(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
