"""The strict reading of a request line (RFC 9112, 3)."""

from __future__ import annotations

import re
from typing import Final

from twophase.core.errors import InvalidRequest

HTTP_1_0: Final = "1.0"
_VERSIONS: Final = frozenset({"1.1", HTTP_1_0})
_ABSOLUTE: Final = re.compile(rb"https?://([^/?@\\]+)(?:/.*)?", re.IGNORECASE | re.DOTALL)


def authority_of(target: bytes, version: str) -> bytes:
    """Return the server that a request's target names; empty for a path.

    Raises:
        InvalidRequest: no HTTP/1, or a target that is neither a path nor a whole URL.

    >>> authority_of(b"/api/ping", "1.1"), authority_of(b"http://pay:36789/api/ping", "1.1")
    (b'', b'pay:36789')
    """
    if version not in _VERSIONS:
        raise InvalidRequest(f"HTTP/{version} is not spoken here, only HTTP/1.1.")
    if b"#" in target:
        raise InvalidRequest("a request's URL has no part behind '#'.")
    if target.startswith(b"/"):
        return b""
    found = _ABSOLUTE.fullmatch(target)
    if found is None:
        raise InvalidRequest("the request's URL is neither a path nor a whole URL.")
    return found[1]


def is_long(data: bytes, start: int, end: int) -> bool:
    """Return True for a head without a length whose request may be longer.

    It announces a chunked body or another protocol.
    """
    head = data[start:end].lower()
    return b"transfer-encoding" in head or b"upgrade" in head
