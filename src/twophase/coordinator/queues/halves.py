"""Half messages, and why they are not decided yet.

What a producer is asked is known to the node that asks; where nodes share a store, another node's questions are not
known here.
"""

from __future__ import annotations

import msgspec

from twophase.coordinator.dispatch.producers import PRODUCER_PREFIX, Producers, names_in
from twophase.coordinator.runtime import Runtime
from twophase.coordinator.search_page import page_of
from twophase.coordinator.state.appends import appends_of
from twophase.coordinator.view import MessageView
from twophase.core.lifecycle import State
from twophase.core.queue_operating import ShownHalf
from twophase.stores.rows import AttemptKind
from twophase.stores.search import Search

HALVES: Search = Search(states=frozenset({State.PREPARED}), check=PRODUCER_PREFIX)
"""Finds half messages."""


class Halves:
    """See the module.

    Arguments:
        runtime: the node's store, clock, settings and observer.
        producers: asks them.
    """

    def __init__(self, runtime: Runtime, producers: Producers) -> None:
        self._store = runtime.store
        self._clock = runtime.clock
        self._answers_max = runtime.settings.producer_checks_max
        self._producers = producers

    async def page(self, search: Search, position: str, limit: int) -> tuple[list[ShownHalf], str]:
        """Return a page of half messages, and the position of the next one.

        The position is empty at the end.

        Arguments:
            search: `HALVES`, narrowed to those that the caller may see.
            position, limit: as for a search.
        """
        views, following = await page_of(self._store, search, position, limit)
        halves = []
        for view in views:
            attempts = await self._store.attempts(view.message.gid) if view.attempts else ()
            halves.append(self.shown(msgspec.structs.replace(view, log=attempts)))
        return halves, following

    def shown(self, view: MessageView) -> ShownHalf:
        """Return a half message as an operator sees it."""
        message = view.message
        name, client_id = names_in(message.check_url)
        entries = appends_of(message, {})
        answered = [one.at_ms for one in view.log if one.kind == AttemptKind.CHECK_BACK]
        situation, why = self._situation(view)
        return ShownHalf(
            message.gid,
            entries[0].topic if entries else "",
            name,
            client_id,
            view.created_ms,
            view.due_ms or 0,
            view.attempts,
            self._answers_max,
            answered[-1] if answered else 0,
            situation,
            why,
        )

    def _situation(self, view: MessageView) -> tuple[str, str]:
        if view.parked:
            answered = f"its producers have answered 'unknown' {view.attempts} times"
            return "parked", f"it is parked: {answered}" if view.attempts else "it is parked by an operator"
        situation, why = self._producers.situation(view.message.gid, view.message.check_url)
        if situation in {"waits", "away"} and view.due_ms is not None and view.due_ms > self._clock.now_ms():
            is_new = view.attempts == 0 and situation == "waits"
            return ("waits", "no producer is asked before it is due") if is_new else (situation, why)
        return situation, why


def is_half(view: MessageView) -> bool:
    """Return True for a message whose producer is asked over its own connection."""
    return view.state is State.PREPARED and view.message.check_url.startswith(PRODUCER_PREFIX)
