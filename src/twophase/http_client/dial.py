"""Opening a connection: resolve the name, try its addresses in turn.

An attempt gives up in time. Promise: a service that moved is found within seconds, and at once where its old address no
longer answers; attempts at the same moment share one look-up (`names`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable
from typing import Protocol, cast

from twophase.http_client.address import Address
from twophase.http_client.guard import Guard
from twophase.http_client.names import Addresses, Names
from twophase.http_client.outcome import HttpError, HttpErrorKind
from twophase.http_client.tls_failure import tls_failure


class Dialled(Protocol):
    """The event loop's protocol of a connection to be."""

    @property
    def made(self) -> bool:
        """True when the peer has accepted it."""
        ...


class Dialer:
    """Opens connections to one address."""

    __slots__ = ("_address", "_guard", "_literal", "_loop", "_names", "_timeout_s", "_tls")

    def __init__(
        self,
        address: Address,
        loop: asyncio.AbstractEventLoop,
        *,
        timeout_ms: int,
        tls: ssl.SSLContext | None,
        names: Names,
        guard: Guard | None = None,
    ) -> None:
        assert address.tls == (tls is not None)
        self._address = address
        self._guard = guard
        self._names = names
        self._loop = loop
        self._timeout_s = timeout_ms / 1000
        self._tls = tls
        self._literal = _family_of(address.host)

    async def dial(self, make: Callable[[], Dialled]) -> None:
        """Connect; `make` builds the protocol, one for every address that is tried.

        Returns as soon as one of them is `made`; from then on its owner is responsible for it.

        Raises:
            HttpError: kind `CONNECT`, when no address could be connected to within the timeout; `TLS`, when the
                handshake failed; `REFUSED`, when the guard allows none.
        """
        key = self._address.key
        deadline_s = self._loop.time() + self._timeout_s
        addresses = await self.addresses(self._timeout_s)
        reason: Exception | None = None
        for position, (family, host) in enumerate(addresses):
            # An address that swallows packets may use its share of the time and no more.
            now_s = self._loop.time()
            connection = make()
            try:
                async with asyncio.timeout_at(now_s + (deadline_s - now_s) / (len(addresses) - position)):
                    await self._connect(connection, family, host)
            except (OSError, ValueError) as error:  # ValueError: an address that cannot be written down
                reason = error
            if connection.made:
                return
        self._names.forget(self._address.host)
        if isinstance(reason, ssl.SSLError):
            raise tls_failure(key, reason) from None
        raise HttpError(HttpErrorKind.CONNECT, f"{key}: {_words(reason)}") from None

    async def addresses(self, timeout_s: float) -> Addresses:
        """Return families and addresses that may be connected to, in the resolver's order.

        Raises:
            HttpError: kind `CONNECT`, when the name is not resolved within `timeout_s`; `REFUSED` as `dial`.
        """
        key = self._address.key
        try:
            async with asyncio.timeout(timeout_s):
                addresses = await self._resolve()
        except TimeoutError:
            raise HttpError(HttpErrorKind.CONNECT, f"{key}: the name was not resolved in time") from None
        except (OSError, UnicodeError) as error:
            raise HttpError(HttpErrorKind.CONNECT, f"{key}: the name was not resolved: {error}") from None
        return self._allowed(addresses)

    def _allowed(self, addresses: Addresses) -> Addresses:
        """Return those of the addresses that may be connected to."""
        guard = self._guard
        if guard is None or not addresses:
            return addresses
        reasons = [guard.why_not(host, self._address.port) for _, host in addresses]
        if all(reasons):
            raise HttpError(HttpErrorKind.REFUSED, f"{self._address.key}: {reasons[0]}")
        return [address for address, reason in zip(addresses, reasons, strict=True) if not reason]

    async def _connect(self, connection: Dialled, family: int, host: str) -> None:
        server_hostname = self._address.host if self._tls is not None else None
        await self._loop.create_connection(
            lambda: cast("asyncio.BaseProtocol", connection),
            host,
            self._address.port,
            family=family,
            ssl=self._tls,
            server_hostname=server_hostname,
        )

    async def _resolve(self) -> Addresses:
        """Return families and addresses of the host, in the resolver's order."""
        if self._literal is not None:
            return [(self._literal, self._address.host)]
        return await self._names.addresses(self._address.host)


def _family_of(host: str) -> int | None:
    """Return the address family of an IP literal, None for a name."""
    try:
        return socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        return None


def _words(error: Exception | None) -> str:
    if isinstance(error, TimeoutError) and not error.errno:
        return "no connection in time"
    return (str(error) or type(error).__name__)[:200] if error is not None else "the name has no address"
