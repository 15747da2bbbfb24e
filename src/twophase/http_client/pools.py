"""The pools of all hosts, and the permits for connections they share.

Promise: the number of connections of the process is bounded, and hosts that hang cannot take all of it: the last part
of the permits is kept for hosts that have no connection at all. When permits are scarce no connection stays idle, and
hosts that wait for a permit get one in the order in which they asked.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import OrderedDict
from collections.abc import Mapping

from twophase.http_client.address import Address
from twophase.http_client.dial import Dialer
from twophase.http_client.guard import Guard
from twophase.http_client.names import Names
from twophase.http_client.outcome import HttpError
from twophase.http_client.pool import HostPool, Limits
from twophase.http_client.timeouts import Timeouts

_KEPT_PART = 8
"""Divisor of the permits: one in eight is kept for hosts without a connection."""


class HostPools:
    """One pool a host, made at its first call, dropped when it has nothing left."""

    __slots__ = (
        *("_drained", "_free", "_guard", "_kept", "_limits", "_loop", "_names", "_starving", "_timeouts"),
        *("_tls", "_tls_of", "known", "scarce"),
    )

    def __init__(
        self,
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
        timeouts: Timeouts,
        tls: ssl.SSLContext | None,
        tls_of: Mapping[str, ssl.SSLContext],
        names: Names,
        guard: Guard | None,
    ) -> None:
        self._limits = limits
        self._loop = loop
        self._timeouts = timeouts
        self._tls = tls
        self._tls_of = tls_of
        self._names = names
        self._guard = guard
        self.known: dict[str, HostPool] = {}
        """The pools by `scheme://host:port`."""
        self._free = limits.connections_max
        self._kept = limits.connections_max // _KEPT_PART
        self._starving: OrderedDict[HostPool, None] = OrderedDict()
        self._drained: asyncio.Future[None] | None = None
        self.scarce = False
        """True while no pool may keep idle connections.

        Some host waits for a permit, or all connections are being closed.
        """

    def pool_of(self, address: Address) -> HostPool:
        """Return the pool that calls of this address go to."""
        pool = self.known.get(address.key)
        if pool is None:
            tls = self._tls_of.get(address.key) if address.tls else None
            if address.tls and tls is None:
                tls = self._tls = self._tls or ssl.create_default_context()
            dialer = Dialer(
                address,
                self._loop,
                timeout_ms=self._limits.connect_timeout_ms,
                tls=tls,
                names=self._names,
                guard=self._guard,
            )
            pool = HostPool(address.key, dialer, self, self._limits, self._loop, self._timeouts)
            self.known[address.key] = pool
        return pool

    def drop_unused(self, key: str) -> None:
        """Forget the pool of a host that has nothing left."""
        pool = self.known.get(key)
        if pool is not None and pool.unused:
            del self.known[key]

    def under_way(self) -> Mapping[str, int]:
        """Return the number of calls under way or waiting, by `scheme://host:port`.

        Hosts without any are left out.
        """
        return {key: pool.under_way for key, pool in self.known.items() if pool.under_way}

    @property
    def connections(self) -> int:
        """Return the permits taken: by connections, and attempts to connect."""
        return self._limits.connections_max - self._free

    # Called by the pools.

    def take(self, host: HostPool) -> bool:
        """Take a permit for `host`, if one is free for it; else its turn will come."""
        if self._free > (self._kept if host.held else 0):
            self._free -= 1
            return True
        if host not in self._starving:
            self._starving[host] = None
            self.scarce = True
            self._close_one_idle()
        return False

    def give_back(self, host: HostPool) -> None:
        """Give a free permit to the hosts that wait, in their order, then to `host`."""
        self._free += 1
        if self._starving:
            for starving in list(self._starving):
                del self._starving[starving]
                starving.open_more()
            if self._starving:
                self._close_one_idle()
            self.scarce = bool(self._starving) or self._drained is not None
        host.open_more()
        if self.known.get(host.key) is host:
            self.drop_unused(host.key)
        if self._drained is not None and not self.connections and not self._drained.done():
            self._drained.set_result(None)

    def _close_one_idle(self) -> None:
        for pool in self.known.values():
            if pool.close_one_idle():
                return

    async def close(self, error: HttpError) -> None:
        """Give every call `error`, drop every connection, and wait until they are gone."""
        self._drained = self._loop.create_future()
        self.scarce = True
        attempts = [task for pool in list(self.known.values()) for task in pool.end(error)]
        await asyncio.gather(*attempts, return_exceptions=True)
        if self.connections:
            await self._drained
        self.known.clear()

    def abandon(self) -> None:
        """Close the connections of an event loop that is closed."""
        for pool in self.known.values():
            pool.abandon()
