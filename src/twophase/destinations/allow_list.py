"""The addresses that an operator allows the coordinator to call.

Promise: with a list, no call goes to an address that begins with none of its URLs. Scheme, host and port must be equal,
and the path must begin with the listed one, up to the end of a part: `http://bank-b/in` allows `/in` and `/in/7`, not
`/inner`. A path that a server may read as another one, by `..` or an encoded slash, begins with no listed path.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote, urlsplit

from twophase.core.address import DESTINATION_REFUSED
from twophase.http_client.address import parse_address
from twophase.http_client.outcome import HttpError

_SCHEMES: Final = frozenset({"http", "https", "grpc", "grpcs"})
_REMEDY: Final = "write scheme://host:port/path, of http, https, grpc or grpcs"


class AllowList:
    """Addresses by their prefixes.

    Arguments:
        urls: prefixes; with none of them every address is allowed.

    Raises:
        ValueError: a URL that is no prefix; names what is wrong with it.

    >>> allowed = AllowList(["http://bank-b/in"])
    >>> allowed.why_not("http://bank-b:80", "/in/7"), allowed.why_not("http://bank-b:80", "/inner")
    ('', "destination_refused: it begins with no URL of the coordinator's setting destinations")
    """

    def __init__(self, urls: Iterable[str] = ()) -> None:
        self._paths: dict[str, list[str]] = {}
        for url in urls:
            key, path = _prefix(url)
            self._paths.setdefault(key, []).append(path.rstrip("/"))

    def why_not(self, key: str, path: str) -> str:
        """Return why this address may not be called; empty when it may.

        Arguments:
            key: `scheme://host:port`, in lower case.
            path: as the address has it.
        """
        if not self._paths:
            return ""
        allowed = self._paths.get(key, ())
        if "" in allowed or (
            not _is_ambiguous(path) and any(path == one or path.startswith(f"{one}/") for one in allowed)
        ):
            return ""
        return f"{DESTINATION_REFUSED}it begins with no URL of the coordinator's setting destinations"


def _prefix(url: str) -> tuple[str, str]:
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    if scheme not in _SCHEMES:
        raise ValueError(f"{url!r} has no scheme that can be called; {_REMEDY}")
    try:
        address = parse_address(f"{'https' if scheme == 'https' else 'http'}://{rest}")
        parts = urlsplit(url)
    except (HttpError, ValueError) as error:
        raise ValueError(f"{url!r} is no address: {error}; {_REMEDY}") from error
    if scheme.startswith("grpc") and parts.port is None:
        raise ValueError(f"{url!r} has no port, which a gRPC address needs; {_REMEDY}")
    if parts.query or parts.fragment or _is_ambiguous(parts.path):
        raise ValueError(f"{url!r} has a query, a fragment or a path with '..'; {_REMEDY}")
    return f"{scheme}://{address.key.partition('://')[2]}", parts.path


def _is_ambiguous(path: str) -> bool:
    """Return True for a path that some server would read as another one."""
    plain = unquote(path)
    if "%" in plain or "\\" in plain or plain.count("/") != path.count("/"):
        return True
    return any(part.partition(";")[0] in {".", ".."} for part in plain.split("/"))
