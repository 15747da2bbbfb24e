"""Refusals by scope, counted, so that a flood of them is a few rows.

Promise: a refusal costs its request no statement. Each (who, route, needed scopes) is one row a minute, with its count;
beyond `KINDS_MAX` of them in a minute the rest share one row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from twophase.coordinator.background import Background
from twophase.core.audit_log import AuditEntry
from twophase.core.errors import StoreError

KINDS_MAX: Final = 256
EVERY_S: Final = 60.0
_KEPT: Final = 4
"""Minutes of refusals that are kept while the store fails."""
_Kind = tuple[str, str, str]


class Refusals:
    """Counts refusals, and writes them once a minute.

    Arguments:
        write: writes rows of the audit log.
        every_s: the time between two writings.
    """

    def __init__(self, write: Callable[[Sequence[AuditEntry]], Awaitable[None]], every_s: float = EVERY_S) -> None:
        self._write = write
        self._every_s = every_s
        self._counts: dict[_Kind, int] = {}
        self._peers: dict[_Kind, str] = {}
        self._unwritten: list[AuditEntry] = []
        self._background = Background("twophase refusals")

    def note(self, who: str, needed: Iterable[str], route: str, peer: str) -> None:
        """Count a refusal.

        `peer`: the client's address; a row has that of the first refusal it counts.
        """
        kind = (who, route, " or ".join(sorted(needed)))
        if kind not in self._counts and len(self._counts) >= KINDS_MAX:
            kind, peer = ("", "other routes", ""), ""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._peers.setdefault(kind, peer)

    def start(self) -> None:
        """Write from now on."""
        self._background.start(self._loop())

    async def stop(self) -> None:
        """Write what is left, and no more. Safe to call twice, and before a start."""
        await self._background.stop()
        await self.flush()

    async def flush(self) -> None:
        """Write what was counted; what cannot be written is kept for the next time."""
        entries = self._unwritten + [
            AuditEntry(who, self._peers[kind], "refused", route, reason=_reason(needed, count))
            for kind, count in self._counts.items()
            for who, route, needed in (kind,)
        ]
        self._counts, self._peers = {}, {}
        self._unwritten = entries[-KINDS_MAX * _KEPT :]
        if entries:
            try:
                await self._write(self._unwritten)
            except StoreError:
                return
            self._unwritten = []

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            await self.flush()


def _reason(needed: str, count: int) -> str:
    return f"the scope {needed or 'of another route'} is needed; refused {count} times"
