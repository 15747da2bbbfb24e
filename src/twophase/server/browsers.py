"""The refusal of requests that a web page makes.

A page in a browser that reaches this server may send requests to it. Three facts keep it out, and no client but a
browser notices any. A browser says who sends: `Origin` and `Sec-Fetch-Site` stand in requests of pages, and a page
cannot leave them out. A browser says `Sec-Purpose` where it loads what a page asks it to load early; it then calls
itself the sender. A page whose own name was made to lead to this server (DNS rebinding) sends that name as `Host`, so
only this server's names are served. An IP address cannot be made to lead elsewhere.

Two kinds of GET are not recognised by them. One to a plain-text address that is not loopback, such as an image's, has
no such header. One that a redirect or a link of another program leads to looks as if a person had typed it. So a GET
that changes something is served to no browser, except for pages of this server (`require_program`).
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Iterator
from typing import Final

from twophase.core.address import shown_address
from twophase.core.errors import ConfigurationError, InvalidRequest, PageRefused, TwophaseError, WrongHost

FIELDS: Final = frozenset({b"host", b"origin", b"sec-fetch-site", b"sec-purpose"})
"""The headers that decide; each may come once."""
EVERY_HOST: Final = "*"
_LENGTHS: Final = frozenset(len(name) for name in FIELDS)
_OWN_SITES: Final = frozenset({b"none", b"same-origin"})
"""Values of `Sec-Fetch-Site` for a typed address and for a page of this server."""
_OWN_PAGE: Final = b"same-origin"
_BROWSER: Final = b"mozilla/"
"""Begins the `User-Agent` of every browser."""
_HOST: Final = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(?::[0-9]{0,5})?")
_ORIGIN: Final = re.compile(rb"[a-z][a-z0-9+.-]*://" + _HOST.pattern)
_BETWEEN: Final = re.compile(rb"[,;]")
_SHOWN_MAX: Final = 100
_ADDRESSES_MAX: Final = 32
"""The most addresses of which a client of gRPC may send all."""


def names_in(text: str) -> tuple[str, ...]:
    """Return the entries of a comma-separated setting.

    >>> names_in("a, b,")
    ('a', 'b')
    """
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


class BrowserGuard:
    """The check of a request's sender and of the name that it was sent to.

    `localhost`, this machine's own name, and what the server listens on are always served; on all addresses of the
    machine, every IP address is.

    Arguments:
        hosts: further names; `*.name` for all below a name, `*` for every name.
        origins: pages that may send requests, as `https://console.example`.

    Raises:
        ConfigurationError: one of them cannot be one.

    >>> guard = BrowserGuard(hosts=["pay.internal"])
    >>> guard.why_not([(b"Host", b"pay.internal:36789")])
    >>> guard.why_not([(b"Host", b"evil.example")]).code
    'TP-1007'
    >>> guard.why_not([(b"Host", b"localhost"), (b"Origin", b"https://evil.example")]).code
    'TP-1006'
    """

    def __init__(self, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        self._hosts = {"localhost", *_own_names()}
        self._below: tuple[str, ...] = ()
        self._every_host = False
        self._every_address = False
        self._origins = frozenset(_origin(origin) for origin in origins)
        for host in hosts:
            if host == EVERY_HOST:
                self._every_host = True
                continue
            name = host.removeprefix("*.")
            if _HOST.fullmatch(name.encode()) is None:
                shown = shown_address(host)
                raise ConfigurationError(
                    f"hosts: {shown!r} is not a name or address of a server, such as pay.internal."
                )
            if name == host:
                self._hosts.add(_plain(name))
            else:
                self._below += (f".{name.lower()}",)

    def listens(self, *hosts: str) -> None:
        """Serve names and addresses that the server listens on."""
        for host in map(_plain, hosts):
            address = _address_of(host)
            if address is not None and address.is_unspecified:
                self._every_address = True
            self._hosts.add(host)

    def why_not(self, fields: Iterable[tuple[bytes, bytes]], *, needs_host: bool = True) -> TwophaseError | None:
        """Return the refusal of a request by its headers; None to serve it.

        `needs_host`: False for HTTP/1.0, which no browser speaks, and which has no Host.
        """
        host = None
        for spelt, value in fields:
            if len(spelt) not in _LENGTHS:
                continue
            name = spelt.lower()
            if name == b"host":
                if host is not None:
                    return InvalidRequest("Host: it must come once.")
                host = value
            elif name == b"origin" and value.lower() not in self._origins:
                return PageRefused(f"a page of {_shown(value)} sends this request.")
            elif name == b"sec-fetch-site" and value.strip(b" \t").lower() not in _OWN_SITES:
                return PageRefused("a page of another site sends this request.")
            elif name == b"sec-purpose":
                return PageRefused("a browser sends this request before a person asks for it.")
        if host is None:
            return InvalidRequest("Host: it is missing.") if needs_host else None
        return self.why_not_host(host)

    def why_not_authority(self, authority: bytes) -> TwophaseError | None:
        """Return the refusal of a call of gRPC to this name.

        A client that was given the IP addresses of several servers may send all of them to each. No page can: its
        browser would look for one name.

        >>> guard = BrowserGuard(hosts=["10.0.0.1"])
        >>> guard.why_not_authority(b"10.0.0.1:8081,10.0.0.2:8081")
        >>> guard.why_not_authority(b"10.0.0.2:8081;10.0.0.1:8081")
        >>> guard.why_not_authority(b"10.0.0.1:8081,evil.example:8081").code
        'TP-1000'
        >>> guard.why_not_authority(b"10.0.0.2:8081,10.0.0.3:8081").code
        'TP-1007'
        """
        parts = _BETWEEN.split(authority, _ADDRESSES_MAX)
        found = [_HOST.fullmatch(part) for part in parts]
        if len(parts) == 1 or not all(one is not None and _address_of(_plain(one[1].decode())) for one in found):
            return self.why_not_host(authority)
        errors = [self.why_not_host(part) for part in parts]
        return None if None in errors else WrongHost(f"this server has none of the addresses {_shown(authority)}.")

    def why_not_host(self, authority: bytes) -> TwophaseError | None:
        """Return the refusal of a request to this name, with or without a port."""
        found = _HOST.fullmatch(authority)
        if found is None:
            return InvalidRequest(f"Host: {_shown(authority)} is not a name or address of a server.")
        host = _plain(found[1].decode())
        if host in self._hosts or self._every_host or host.endswith(self._below):
            return None
        if self._every_address and _address_of(host) is not None:
            return None
        return WrongHost(f"this server does not have the name {_shown(authority)}.")


def require_program(fields: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuse a browser's GET that changes something.

    One of a page of this server, or of the setting `origins`, is served.

    Arguments:
        fields: the headers of a request that `BrowserGuard` serves, their names in lower case.

    Raises:
        PageRefused: a browser sends it.

    >>> require_program([(b"user-agent", b"Go-http-client/1.1")])
    >>> require_program([(b"user-agent", b"Mozilla/5.0 (X11)"), (b"sec-fetch-site", b"none")])
    Traceback (most recent call last):
    twophase.core.errors.requests.PageRefused: TP-1006: a browser sends this request, which changes something by a GET.
    """
    headers = dict(fields)
    site = headers.get(b"sec-fetch-site", b"").strip(b" \t").lower()
    if site == _OWN_PAGE or b"origin" in headers:
        return
    if site or headers.get(b"user-agent", b"").lower().startswith(_BROWSER):
        raise PageRefused("a browser sends this request, which changes something by a GET.")


def _origin(text: str) -> bytes:
    """Return an origin as browsers send it; raises ConfigurationError."""
    origin = text.rstrip("/").lower().encode()
    if _ORIGIN.fullmatch(origin) is None:
        raise ConfigurationError(f"origins: {text!r} is not an origin, such as https://console.example.")
    return origin


def _plain(host: str) -> str:
    """Return one spelling of a name or an address.

    >>> _plain("LOCALHOST."), _plain("[0:0::1]"), _plain("0x7f.1")
    ('localhost', '::1', '0x7f.1')
    """
    host = host.strip("[]").removesuffix(".").lower()
    address = _address_of(host)
    return host if address is None else str(address)


def _address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _own_names() -> Iterator[str]:
    name = _plain(socket.gethostname())
    yield name
    yield name.partition(".")[0]


def _shown(value: bytes) -> str:
    return repr(value[:_SHOWN_MAX].decode("ascii", "backslashreplace"))
