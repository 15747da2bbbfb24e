"""Requests that are signed before they are sent.

Those of one turn of the event loop are signed together, in the turn after it. A hash takes 1 µs directly after another
one, and several times as long after other work, which takes the place of its code and data in the processor's caches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from twophase.http_client.address import Address
from twophase.http_client.outcome import HttpError, HttpErrorKind
from twophase.http_client.pools import HostPools
from twophase.http_client.request import PendingCall

Sign = Callable[[str, str, bytes], bytes]
"""Takes method, target and body as they are sent; returns a header line.

The line ends with CR LF and has been checked by its maker.
"""
_Unsigned = tuple[PendingCall, Address, Sign, str, str]
"""A call, its address, and what signs it; method and target."""


class Signing:
    """The calls that wait for their signature."""

    __slots__ = ("_loop", "_pools", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, pools: HostPools) -> None:
        self._loop = loop
        self._pools = pools
        self._waiting: list[_Unsigned] = []

    def take_on(self, call: PendingCall, address: Address, sign: Sign, method: str, target: str) -> None:
        """Sign a call and send it, in the next turn."""
        if not self._waiting:
            self._loop.call_soon(self._send)
        call.carrier = self
        self._waiting.append((call, address, sign, method, target))

    def let_go(self, call: PendingCall) -> str:  # noqa: ARG002 - it is done, and is not sent any more
        """Forget a call that ended before its time."""
        return "its signature"

    def under_way(self) -> list[str]:
        """Return the `scheme://host:port` of each call that waits."""
        return [address.key for call, address, *_ in self._waiting if not call.done]

    def end(self, error: HttpError) -> None:
        """Give every call that waits `error`."""
        waiting, self._waiting = self._waiting, []
        for call, *_ in waiting:
            call.finish(error)

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        signed: list[tuple[PendingCall, Address, bytes]] = []
        for call, address, sign, method, target in waiting:
            try:
                signed.append((call, address, sign(method, target, call.body)))
            except Exception as error:  # noqa: BLE001 -- one call's fault must not take its neighbours' outcomes
                call.finish(HttpError(HttpErrorKind.BAD_HEADER, f"no signature: {type(error).__name__}"))
        for call, address, line in signed:
            if call.carrier is self:  # it has not ended meanwhile
                call.head = b"%b%b\r\n" % (call.head[:-2], line)
                self._pools.pool_of(address).take_on(call)
