"""Probes of check addresses: a wrong one is reported before a crash needs it.

The addresses are those of messages. Promise: an address that cannot answer is reported within a minute of its first
message, once for each change, and again when it answers. A prepare pays one look into a set; everything else happens in
the background and is bounded: the addresses known, the probes under way, their time and the pauses between them. Only
addresses of messages that demand an explicit verdict are probed, because other routes would take the probe for a
question about a message. Nothing is decided by a probe. Each node probes the addresses of its own messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from twophase.coordinator.background import Background, rest
from twophase.coordinator.dispatch.alerts import AlertEvent, Alerts
from twophase.coordinator.runtime import Runtime
from twophase.core.errors import Overloaded
from twophase.core.message import Message, databases_asked, scheme_of
from twophase.core.probe import PROBE_QUERY, Probed, ProbeState, interpret_probe
from twophase.destinations.base import Answer, Call, Destination

ADDRESSES_MAX: Final = 256
REPORTED_AFTER: Final = 2
"""Failures in a row after which an address is reported.

A service may be starting, or busy with the very request.
"""
FIRST_MS: Final = 1_000
AGAIN_MS: Final = 5_000
"""Pause after the first failure.

It is doubled after each further one, up to `PAUSE_CAP_MS`.
"""
PAUSE_CAP_MS: Final = 600_000
FRESH_MS: Final = 3_600_000
"""Time after which an address that messages still bring is probed again.

An address that no message brings any more is forgotten.
"""
_URLS_MAX: Final = 4_096
_IN_FLIGHT_MAX: Final = 16
_ON_REQUEST_MAX: Final = 4
_TIMEOUT_MS_MAX: Final = 5_000
_SCHEMES: Final = frozenset({"http", "https", "grpc", "grpcs"})


class CheckAddress(msgspec.Struct, frozen=True):
    """A check address: its last probe, and the address without its query."""

    target: str
    probed: Probed | None
    failing: bool
    probed_ms: int


class _Known(msgspec.Struct, eq=False):
    """An address under watch.

    `used`: a message has brought it since its last probe; `reported`: the state that was reported while it fails.
    """

    url: str
    protocol: str
    headers: tuple[tuple[str, str], ...]
    noticed_ms: int
    due_ms: int
    used: bool = True
    under_way: bool = False
    probed: Probed | None = None
    probed_ms: int = 0
    failures: int = 0
    failing_since_ms: int = 0
    reported: ProbeState | None = None

    @property
    def target(self) -> str:
        return self.url.partition("?")[0]


class Probing:
    """Probes addresses in the background; nothing when `probe_check_addresses` is off.

    Arguments:
        runtime: the node's; its observer hears every result, and each change of an address.
        destinations: how to call an address, by its scheme.
        alerts: tells the webhook of each change.
    """

    def __init__(
        self,
        runtime: Runtime,
        destinations: Mapping[str, Destination],
        alerts: Alerts,
    ) -> None:
        self._destinations = destinations
        self._on = runtime.settings.probe_check_addresses
        self._timeout_ms = min(runtime.settings.request_timeout_ms, _TIMEOUT_MS_MAX)
        self._clock = runtime.clock
        self._observer = runtime.observer
        self._alerts = alerts
        self.seen: set[str] = set()
        """Addresses as messages write them, since the last answer to a probe.

        A further message with one of these costs nothing.
        """
        self._known: dict[tuple[str, ...], _Known] = {}
        self._in_flight = 0
        self._on_request = 0
        self._woken = asyncio.Event()
        self._background = Background("twophase probes of check addresses")

    def start(self) -> None:
        """Begin to probe the addresses of messages."""
        if self._on:
            self._background.start(self._loop())

    async def stop(self) -> None:
        """Start no further probe; the answers of those under way are dropped.

        A second call is safe.
        """
        await self._background.stop()

    def wake(self) -> None:
        """Look at the clock now: it has jumped."""
        self._woken.set()

    def notice(self, message: Message) -> None:
        """Watch the check address of a message that is being prepared."""
        if message.options.explicit_verdict and message.check_url not in self.seen:
            self._watch(message)

    @property
    def on(self) -> bool:
        """True where addresses are probed."""
        return self._on

    @property
    def failing(self) -> int:
        """The number of addresses that were reported, and do not answer yet."""
        return sum(known.reported is not None for known in self._known.values())

    def addresses(self) -> list[CheckAddress]:
        """Return every address under watch, failing ones first."""
        shown = [
            CheckAddress(known.target, known.probed, known.reported is not None, known.probed_ms)
            for known in self._known.values()
        ]
        return sorted(shown, key=lambda one: (not one.failing, one.target))

    async def probe(self, url: str) -> tuple[Probed, int]:
        """Probe an address now, on an operator's request.

        Returns the result and its latency in milliseconds. An address under watch is asked with its messages' headers;
        when it can answer, it is no longer failing.

        Raises:
            Overloaded: too many such requests are under way.
        """
        if self._on_request >= _ON_REQUEST_MAX:
            raise Overloaded("too many check addresses are being probed on request.")
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        known = self._known.get(_key(url))
        self._on_request += 1
        try:
            self._call(url, "http", known.headers if known is not None else (), answered.set_result)
            answer = await asyncio.shield(answered)
        finally:
            self._on_request -= 1
        probed = _result(answer)
        if known is not None and probed.well:
            known.probed, known.probed_ms = probed, self._clock.now_ms()
            self._well(known)
        return probed, round(answer.latency_ms)

    def _watch(self, message: Message) -> None:
        url = message.check_url
        if not self._background.runs or len(self.seen) >= _URLS_MAX:
            return
        if scheme_of(url, message.protocol) not in _SCHEMES:
            return
        self.seen.add(url)
        now_ms = self._clock.now_ms()
        key = _key(url)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= ADDRESSES_MAX:
                return
            known = _Known(url, message.protocol, (), now_ms, now_ms + FIRST_MS)
            self._known[key] = known
            self._woken.set()
        # The newest message's address and headers: their contents may have been renewed.
        known.url, known.headers = url, message.options.headers
        known.used, known.noticed_ms = True, now_ms

    async def _loop(self) -> None:
        while True:
            self._woken.clear()
            now_ms = self._clock.now_ms()
            self._forget(now_ms)
            next_ms = now_ms + FRESH_MS
            for known in self._known.values():
                known.due_ms = min(known.due_ms, now_ms + FRESH_MS)  # a clock that was ahead delays nothing for longer
                if known.under_way:
                    continue
                if known.due_ms <= now_ms and self._in_flight < _IN_FLIGHT_MAX:
                    self._begin(known)
                else:
                    next_ms = min(next_ms, known.due_ms)
            # With every permit taken, an answer wakes this loop.
            pause_ms = max(0, next_ms - now_ms) if self._in_flight < _IN_FLIGHT_MAX else FRESH_MS
            await rest(pause_ms / 1000, self._woken)

    def _forget(self, now_ms: int) -> None:
        """Drop addresses that no message brings any more."""
        unused = [
            key
            for key, known in self._known.items()
            if not (known.under_way or known.used) and known.noticed_ms <= now_ms - FRESH_MS
        ]
        for key in unused:
            del self._known[key]

    def _begin(self, known: _Known) -> None:
        known.under_way = True
        self._in_flight += 1
        self._call(known.url, known.protocol, known.headers, partial(self._answered, known))

    def _call(
        self, url: str, protocol: str, headers: tuple[tuple[str, str], ...], on_answer: Callable[[Answer], None]
    ) -> None:
        destination = self._destinations.get(scheme_of(url, protocol))
        call = Call(url, PROBE_QUERY, b"", headers, self._timeout_ms)
        try:
            wrong = "no destination for this scheme" if destination is None else destination.accepts(url)
            if destination is not None and wrong is None:
                destination.call(call, on_answer)
                return
        except Exception as error:  # noqa: BLE001 -- a fault of a user's own destination is an answer
            wrong = f"the destination failed: {type(error).__name__}"
        asyncio.get_running_loop().call_soon(on_answer, Answer(0, error=wrong or ""))

    def _answered(self, known: _Known, answer: Answer) -> None:
        self._in_flight -= 1
        known.under_way = known.used = False
        if not self._background.runs:
            return
        probed = _result(answer)
        known.probed, known.probed_ms = probed, self._clock.now_ms()
        self._observer.probed(probed.state.value)
        if probed.well:
            self._well(known)
        else:
            self._failed(known, probed)
        # Addresses are noticed anew from here on: so it is known which ones messages still bring.
        self.seen.clear()
        self._woken.set()

    def _well(self, known: _Known) -> None:
        known.failures = 0
        known.due_ms = known.probed_ms + FRESH_MS
        if known.reported is not None:
            known.reported = None
            self._observer.check_address_well(known.target)
            self._alert(known, AlertEvent.CHECK_ADDRESS_WELL, "")

    def _failed(self, known: _Known, probed: Probed) -> None:
        if not known.failures:
            known.failing_since_ms = known.probed_ms
        pause_ms = AGAIN_MS << min(known.failures, 16)
        known.failures += 1
        known.due_ms = known.probed_ms + min(pause_ms, PAUSE_CAP_MS)
        if known.failures < REPORTED_AFTER or known.reported is probed.state:
            return
        is_new = known.reported is None
        known.reported = probed.state
        told = probed.told
        self._observer.check_address_failing(known.target, told.state.value, told.message, told.remedy)
        if is_new:
            self._alert(known, AlertEvent.CHECK_ADDRESS_FAILING, f"{told.state.value}: {told.message}")

    def _alert(self, known: _Known, event: AlertEvent, error: str) -> None:
        age_ms = max(0, known.probed_ms - known.failing_since_ms)
        self._alerts.check_address(event, known.target, error, known.failures, age_ms)


def _key(url: str) -> tuple[str, ...]:
    """Return the unit of probing: host, path and database.

    The rest of the query does not count.
    """
    return (url.partition("?")[0], *databases_asked(url))


def _result(answer: Answer) -> Probed:
    return interpret_probe(answer.status, answer.verdict_header, answer.body, answer.error)
