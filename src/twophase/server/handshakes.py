"""TLS handshakes before the connections of a port.

Promise: a client that never ends its handshake keeps no other client out. A handshake counts as a connection of its
port and of its peer. Where a bound is passed, the oldest handshake is cut, and each of them has a timeout. A failed one
leaves nothing in the log, because any client of the network can cause it as often as it likes.

A port without TLS does not use this module.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Final, cast

_BEYOND_BOUND_MAX: Final = 16
"""Handshakes that go on where all places are taken.

Their clients may ask for the server's health.
"""

Make = Callable[[asyncio.Transport], asyncio.BaseProtocol]
"""Makes the protocol of a connection; takes the transport below TLS."""


class Handshakes:
    """The handshakes of one port that have not ended.

    Arguments:
        context: returns the context of the next connection.
        free: returns how many connections the port and this peer address may still have.
        timeout_s: from the connection to the end of its handshake.
        shutdown_s: bound on sending the rest to a client whose connection is closed, and on its farewell.
    """

    def __init__(
        self,
        context: Callable[[], ssl.SSLContext],
        free: Callable[[str], tuple[int, int]],
        *,
        timeout_s: float,
        shutdown_s: float,
    ) -> None:
        self._context = context
        self._free = free
        self._timeout_s = timeout_s
        self._shutdown_s = shutdown_s
        self._waiting: dict[_Handshake, None] = {}
        self._by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def before(self, make: Make) -> Callable[[], asyncio.Protocol]:
        """Return the factory of a port's protocols.

        Each makes its connection once its handshake is done.
        """
        return lambda: _Handshake(self, make)

    def stop(self) -> None:
        """Cut every handshake. Safe to call twice."""
        for waiting in list(self._waiting):
            waiting.cut()

    def began(self, handshake: _Handshake) -> None:
        """Count a handshake, and cut the oldest where a bound is passed."""
        self._waiting[handshake] = None
        self._by_address[handshake.address] += 1
        of_port, of_peer = self._free(handshake.address)
        if len(self._waiting) > max(of_port, _BEYOND_BOUND_MAX):
            next(iter(self._waiting)).cut()
        elif self._by_address[handshake.address] > max(of_peer, _BEYOND_BOUND_MAX):
            next(one for one in self._waiting if one.address == handshake.address).cut()

    def ended(self, handshake: _Handshake) -> None:
        """Count a handshake no longer. Safe to call twice."""
        if handshake in self._waiting:
            del self._waiting[handshake]
            self._by_address[handshake.address] -= 1
            if not self._by_address[handshake.address]:
                del self._by_address[handshake.address]

    async def encrypted(self, below: asyncio.Transport, waiting: asyncio.Protocol) -> asyncio.Transport | None:
        """Return the transport above TLS; None when the handshake failed."""
        try:
            made = await asyncio.get_running_loop().start_tls(
                below,
                waiting,
                self._context(),
                server_side=True,
                ssl_handshake_timeout=self._timeout_s,
                ssl_shutdown_timeout=self._shutdown_s,
            )
        except OSError:  # the peer's: of TLS, of its certificate, of the network, or too late
            return None
        return None if made is None or made.is_closing() else made


class _Handshake(asyncio.Protocol):
    """The protocol of a connection until its handshake is done.

    The handshake is no task: it would begin in a later turn of the event loop, and what arrives before is lost.
    """

    def __init__(self, owner: Handshakes, make: Make) -> None:
        self.address = ""
        self._owner = owner
        self._make = make
        self._below = cast("asyncio.Transport", None)
        self._early: list[bytes] = []
        self._running = cast("Coroutine[asyncio.Future[None], None, asyncio.Transport | None]", None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self._below = cast("asyncio.Transport", transport)
        self.address = (transport.get_extra_info("peername") or ("",))[0]
        self._owner.began(self)
        if not self._below.is_closing():
            self._running = self._owner.encrypted(self._below, self)
            self._go_on()

    def data_received(self, data: bytes) -> None:
        """Keep what the event loop passes on before the connection is made.

        It came together with the end of the handshake.
        """
        self._early.append(data)

    def cut(self) -> None:
        """End the connection."""
        self._owner.ended(self)
        self._below.abort()

    def _go_on(self, _: object = None) -> None:
        """Run the coroutine up to the next future that it waits for, as a task would."""
        try:
            waited_for = self._running.send(None)
        except StopIteration as end:
            self._owner.ended(self)
            if end.value is not None:
                self._hand_over(end.value)
        except BaseException:
            self.cut()  # a fault of the server's, which the event loop reports
            raise
        else:
            waited_for._asyncio_future_blocking = False  # noqa: SLF001 -- asyncio's protocol of a future and its task
            waited_for.add_done_callback(self._go_on)

    def _hand_over(self, encrypted: asyncio.Transport) -> None:
        connection = cast("asyncio.Protocol", self._make(self._below))
        encrypted.set_protocol(connection)
        connection.connection_made(encrypted)
        for data in self._early:
            connection.data_received(data)
