"""One call out of the coordinator.

Its steps: find the destination, wait for the limiter, call, leave the limiter. Delivery and check-back differ in what
they ask and in what an answer means; the bounds of a call, and the one report of its answer, are the same for both and
stand here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from twophase.coordinator.dispatch.limiter import ConcurrencyLimiter
from twophase.coordinator.state.active_message import ActiveMessage
from twophase.core.address import why_no_scheme, why_reserved
from twophase.core.message import scheme_of
from twophase.core.queue_message import QUEUE_PREFIX
from twophase.destinations.base import Answer, Call, Destination

NO_PERMIT: Final = Answer(0, error="too many calls wait for the destination")
"""Given instead of an answer: nothing was called.

There was no room, or the call was not wanted any more.
"""
_ADDRESSES_REMEMBERED_MAX: Final = 4096

OnAnswer = Callable[[str, Answer], None]
"""Called with (the key of the destination's limits, answer)."""


class Calls:
    """Calls of one kind: branches, or check-backs.

    Arguments:
        destinations: how to call an address, by its scheme.
        limiter: bounds the calls.
        identities_max: the most databases that an address may name; see `why_reserved`.
    """

    def __init__(
        self, destinations: Mapping[str, Destination], limiter: ConcurrencyLimiter, *, identities_max: int = 0
    ) -> None:
        self._destinations = destinations
        self._identities_max = identities_max
        self._known: dict[tuple[str, str], tuple[Destination, str]] = {}
        self.limiter = limiter
        self.draining = False

    def drain(self) -> None:
        """Start no call until `resume`; drop those that wait.

        Calls under way continue.
        """
        self.draining = True
        self.limiter.clear()

    def resume(self) -> None:
        """Start calls again."""
        self.draining = False

    def start(
        self,
        active: ActiveMessage,
        url: str,
        build: Callable[[ActiveMessage], Call | None],
        on_answer: OnAnswer,
        *,
        pressure: int = 0,
    ) -> None:
        """Call `url` for a message, now or in its turn.

        Arguments:
            active: the message; when it has left memory by then, nothing is called and nothing reported.
            url: the address. One that cannot be called is answered at once, with status 0.
            build: makes the call at the last moment; None: it is not wanted any more, and `NO_PERMIT` is reported.
            on_answer: called once, with the answer or with `NO_PERMIT`, whatever the destination does.
            pressure: see `ConcurrencyLimiter.enter`.
        """
        protocol = active.message.protocol
        found = self._known.get((url, protocol)) or self._find(url, protocol)
        if isinstance(found, str):
            on_answer("", Answer(0, error=found))
            return
        destination, key = found
        one = _OneCall(self, active, destination, key, build, on_answer)
        if not self.limiter.enter(key, one.run, active.owner, pressure=pressure, give_up=one.give_up):
            on_answer(key, NO_PERMIT)

    def waited_ms(self, active: ActiveMessage, url: str) -> int:
        """Return the age of the oldest queued call of its owner to that destination."""
        found = self._known.get((url, active.message.protocol))
        return self.limiter.waited_ms(found[1], active.owner) if found is not None else 0

    def _find(self, url: str, protocol: str) -> tuple[Destination, str] | str:
        """Return the destination of `url` and its key, or the reason why none calls it.

        A reserved name is refused here too, because not every address comes with a request (rule 26): branches that
        were added in the transaction come with a check-back's answer, and a row may be an earlier version's.
        """
        if reserved := why_reserved(url, identities_max=self._identities_max):
            return reserved
        destination = self._destinations.get(scheme_of(url, protocol))
        if destination is None:
            return "no destination for this scheme"
        try:
            wrong = destination.accepts(url)
            if wrong is not None:
                return wrong
            found = destination, destination.key(url)
        except Exception as error:  # noqa: BLE001 -- a user's own destination may fail, and must lose no message
            return _fault(error)
        if len(self._known) >= _ADDRESSES_REMEMBERED_MAX:
            self._known.clear()
        self._known[url, protocol] = found
        return found


def why_not_callable(destinations: Mapping[str, Destination], url: str) -> str | None:
    """Return None when one of the destinations can call `url`, now and later.

    Otherwise return the reason, which names what is wrong with the address.
    """
    scheme, separator, _ = url.partition("://")
    if not separator:
        return f"{why_no_scheme(url)}."
    destination = destinations.get(scheme.lower())
    if destination is None:
        missing = " gRPC needs `pip install 'twophase[grpc]'`." if scheme.lower() in {"grpc", "grpcs"} else ""
        return f"no destination for {scheme[:45]!r}; there are {', '.join(sorted(destinations))}.{missing}"
    return destination.accepts(url)


def why_not_askable(destinations: Mapping[str, Destination], url: str) -> str | None:
    """Return None when one of the destinations can ask `url` for a verdict.

    Otherwise return the reason; no queue can. An empty address needs no destination.
    """
    askable = {scheme: one for scheme, one in destinations.items() if f"{scheme}://" != QUEUE_PREFIX}
    return why_not_callable(askable, url) if url else None


class _OneCall(msgspec.Struct, eq=False):
    """A call from its request for a permit until its answer."""

    _calls: Calls
    _entry: ActiveMessage
    _destination: Destination
    _key: str
    _build: Callable[[ActiveMessage], Call | None]
    _on_answer: OnAnswer
    _answer: Answer | None = None
    _starting: bool = False

    def run(self) -> None:
        active = self._entry
        if self._calls.draining or active.detached:
            self._calls.limiter.leave(self._key, active.owner, answered=None)
            return
        call = self._build(active)
        if call is None:
            # Later, so that many that are not wanted any more leave the loop free for others between them.
            asyncio.get_running_loop().call_soon(self._leave)
            return
        active.calls += 1
        self._starting = True
        try:
            self._destination.call(call, self._answered)
        except Exception as error:  # noqa: BLE001 -- as above: it becomes an answer, and is retried like one
            self._answered(Answer(0, error=_fault(error)))
        self._starting = False

    def _leave(self) -> None:
        self._calls.limiter.leave(self._key, self._entry.owner, answered=None)
        self.give_up()

    def give_up(self) -> None:
        if not self._entry.detached:
            self._on_answer(self._key, NO_PERMIT)

    def _answered(self, answer: Answer) -> None:
        if self._answer is not None:
            return
        self._answer = answer
        if self._starting:
            # Answered before `call` returned: reported later, so that no caller is called back inside its own call.
            asyncio.get_running_loop().call_soon(self._tell, answer)
        else:
            self._tell(answer)

    def _tell(self, answer: Answer) -> None:
        self._entry.calls -= 1
        self._calls.limiter.leave(self._key, self._entry.owner, answered=answer.status != 0)
        self._on_answer(self._key, answer)


def _fault(error: Exception) -> str:
    return f"the destination failed: {type(error).__name__}: {error}"
