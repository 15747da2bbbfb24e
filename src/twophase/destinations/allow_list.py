"""The addresses that an operator allows, and what their calls carry.

Promise: with a list, no call goes to an address that begins with none of its URLs. Scheme, host and port must be equal,
and the path must begin with the listed one, up to the end of a part: `http://bank-b/in` allows `/in` and `/in/7`, not
`/inner`. A path that a server may read as another one, by `..` or an encoded slash, begins with no listed path.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from twophase.core.address import DESTINATION_REFUSED, shown_address
from twophase.core.signature import SigningKey
from twophase.core.trust import Trust
from twophase.http_client.address import parse_address
from twophase.http_client.outcome import HttpError

_SCHEMES: Final = frozenset({"http", "https", "grpc", "grpcs"})
_REMEDY: Final = "write scheme://host:port/path, of http, https, grpc or grpcs"


class Listed(msgspec.Struct, frozen=True):
    """An entry of the list, and what calls of its addresses carry.

    `key` signs them, `signed_verdicts` demands that check-backs are answered by its holder, `headers` replace the
    message's own of the same names. `trust` and `in_flight` (0: the setting for all) hold for scheme, host and port.
    """

    url: str
    key: SigningKey | None = None
    signed_verdicts: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    trust: Trust = Trust()
    in_flight: int = 0

    def __repr__(self) -> str:
        """Return the URL alone: headers may be secrets."""
        return f"Listed({self.url!r})"


class AllowList:
    """Addresses by their prefixes.

    Arguments:
        listed: the entries; with none of them every address is allowed.

    Raises:
        ValueError: a URL that is no prefix, or entries that contradict each other; names what is wrong with it.

    >>> allowed = AllowList([Listed("http://bank-b/in")])
    >>> allowed.why_not("http://bank-b:80", "/in/7"), allowed.why_not("http://bank-b:80", "/inner")
    ('', "destination_refused: it begins with no URL of the coordinator's setting destinations")
    """

    def __init__(self, listed: Iterable[Listed] = ()) -> None:
        self._listed: dict[str, list[tuple[str, Listed]]] = {}
        self.of_url: dict[str, Listed | None] = {}
        """Entries that were looked up before, by URL; the caller bounds them."""
        self.trust: dict[str, Trust] = {}
        """The certificates of hosts that have some of their own, by `scheme://host:port`."""
        self.in_flight: dict[str, int] = {}
        """The most calls in progress, where an entry says so, by `scheme://host:port`."""
        self.is_plain = True
        """True when no entry adds anything to a call."""
        of_prefix: dict[tuple[str, str], Listed] = {}
        for one in listed:
            key, path = _prefix(one.url)
            self._listed.setdefault(key, []).append((path.rstrip("/"), one))
            if not _call_alike(one, of_prefix.setdefault((key, path.rstrip("/")), one)):
                raise ValueError(f"{key}{path} has two entries with different key, signed_verdicts or headers")
            if one.trust != Trust() and self.trust.setdefault(key, one.trust) != one.trust:
                raise ValueError(f"{key} has two entries with different ca, client_certificate or client_key")
            if one.in_flight and self.in_flight.setdefault(key, one.in_flight) != one.in_flight:
                raise ValueError(f"{key} has two entries with different in_flight")
            self.is_plain = self.is_plain and not (one.key or one.headers)
        for paths in self._listed.values():
            paths.sort(key=lambda pair: -len(pair[0]))

    @property
    def keys(self) -> frozenset[str]:
        """The listed `scheme://host:port`."""
        return frozenset(self._listed)

    def renew(self, other: AllowList) -> None:
        """Take another list's entries, for all who hold this one."""
        self._listed, self.of_url = other._listed, {}
        self.trust, self.in_flight, self.is_plain = other.trust, other.in_flight, other.is_plain

    def why_not(self, key: str, path: str) -> str:
        """Return why this address may not be called; empty when it may.

        Arguments:
            key: `scheme://host:port`, in lower case.
            path: as the address has it.
        """
        if not self._listed or self.find(key, path) is not None:
            return ""
        return f"{DESTINATION_REFUSED}it begins with no URL of the coordinator's setting destinations"

    def find(self, key: str, path: str) -> Listed | None:
        """Return the entry with the longest path that this address begins with.

        Arguments:
            key: `scheme://host:port`, in lower case.
            path: as the address has it.
        """
        paths = self._listed.get(key)
        if paths is None:
            return None
        ambiguous = _is_ambiguous(path)
        for prefix, listed in paths:
            if not prefix or (not ambiguous and (path == prefix or path.startswith(f"{prefix}/"))):
                return listed
        return None


def _call_alike(one: Listed, other: Listed) -> bool:
    """Return True when either of two entries of one address may apply to its calls."""
    return (one.key, one.signed_verdicts, one.headers) == (other.key, other.signed_verdicts, other.headers)


@functools.lru_cache(256)  # most calls carry the same headers
def with_own(headers: tuple[tuple[str, str], ...], own: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return a message's headers and those of an entry, which replace the same names.

    >>> with_own((("X-Tenant", "blue"), ("authorization", "the message's")), (("Authorization", "the entry's"),))
    (('X-Tenant', 'blue'), ('Authorization', "the entry's"))
    """
    names = {name.lower() for name, _ in own}
    return tuple([pair for pair in headers if pair[0].lower() not in names]) + own


def _prefix(url: str) -> tuple[str, str]:
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    if scheme not in _SCHEMES:
        raise ValueError(f"{shown_address(url)!r} has no scheme that can be called; {_REMEDY}")
    try:
        address = parse_address(f"{'https' if scheme == 'https' else 'http'}://{rest}")
        parts = urlsplit(url)
    except (HttpError, ValueError) as error:
        raise ValueError(f"{shown_address(url)!r} is not an address: {error}; {_REMEDY}") from error
    if scheme.startswith("grpc") and parts.port is None:
        raise ValueError(f"{shown_address(url)!r} has no port, which a gRPC address needs; {_REMEDY}")
    if parts.query or parts.fragment or _is_ambiguous(parts.path):
        raise ValueError(f"{shown_address(url)!r} has a query, a fragment or a path with '..'; {_REMEDY}")
    return f"{scheme}://{address.key.partition('://')[2]}", parts.path


def _is_ambiguous(path: str) -> bool:
    """Return True for a path that some server would read as another one."""
    plain = unquote(path)
    if "%" in plain or "\\" in plain or plain.count("/") != path.count("/"):
        return True
    return any(part.partition(";")[0] in {".", ".."} for part in plain.split("/"))
