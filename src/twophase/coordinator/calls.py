"""One call out, whoever wants it: find the destination, wait for a place, call, give the place back.

Delivery and check-back differ in what they ask and in what an answer means; how a call is bounded, and that its
answer is told exactly once, is the same for both and stands here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from twophase.coordinator.entry import Entry
from twophase.coordinator.gate import Gate
from twophase.destinations.base import Answer, Call, Destination

OnAnswer = Callable[[str, Answer], None]
"""Called with (what the destination shares its limits by, answer)."""


class Calls:
    """Calls of one kind: branches, or check-backs."""

    def __init__(self, destinations: Mapping[str, Destination], gate: Gate) -> None:
        self._destinations = destinations
        self.gate = gate
        self.draining = False

    def drain(self) -> None:
        """Start no call any more, and forget those that wait; the ones under way end as they would."""
        self.draining = True
        self.gate.clear()

    def start(self, entry: Entry, url: str, build: Callable[[Entry], Call | None], on_answer: OnAnswer) -> bool:
        """Call `url` for a message, now or when there is a place; False, and never, when too many wait already.

        Arguments:
            entry: the message; when it has left memory by then, nothing is called and nothing told.
            url: the address. One that nobody can call is answered at once, with status 0.
            build: makes the call at the last moment; None: it is not wanted any more.
            on_answer: told the answer.
        """
        destination = self._destinations.get(url.partition("://")[0].lower())
        wrong = "no destination for this scheme" if destination is None else destination.accepts(url)
        if destination is None or wrong is not None:
            on_answer("", Answer(0, error=wrong or ""))
            return True
        key = destination.key(url)
        return self.gate.enter(key, partial(self._run, entry, destination, key, build, on_answer))

    def _run(
        self,
        entry: Entry,
        destination: Destination,
        key: str,
        build: Callable[[Entry], Call | None],
        on_answer: OnAnswer,
    ) -> None:
        call = None if self.draining or entry.detached else build(entry)
        if call is None:
            self.gate.leave(key)
            return
        entry.calls += 1
        destination.call(call, partial(self._answered, entry, key, on_answer))

    def _answered(self, entry: Entry, key: str, on_answer: OnAnswer, answer: Answer) -> None:
        entry.calls -= 1
        self.gate.leave(key)
        on_answer(key, answer)
