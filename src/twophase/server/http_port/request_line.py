"""The strict reading of a request line and of its codings (RFC 9112, 3 and 6.1)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from twophase.core.errors import InvalidRequest

HTTP_1_0: Final = "1.0"
TRANSFER_ENCODING: Final = b"transfer-encoding"
_VERSIONS: Final = frozenset({"1.1", HTTP_1_0})
_ABSOLUTE: Final = re.compile(rb"https?://([^/?@\\]+)(?:/.*)?", re.IGNORECASE | re.DOTALL)


def authority_of(target: bytes, version: str, fields: Mapping[bytes, bytes]) -> bytes:
    """Return the server that a request's target names; empty for a path.

    Raises:
        InvalidRequest: no HTTP/1, a target that is neither a path nor a whole URL, or a coding other than chunked.

    >>> authority_of(b"/api/ping", "1.1", {}), authority_of(b"http://pay:36789/api/ping", "1.1", {})
    (b'', b'pay:36789')
    """
    for name, value in fields.items():
        if len(name) == len(TRANSFER_ENCODING) and name.lower() == TRANSFER_ENCODING:
            _require_chunked(value, version)
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


def _require_chunked(value: bytes, version: str) -> None:
    """Refuse a body whose end another server could see elsewhere.

    The parser takes any list of codings that ends with chunked, and reads the others as if they were not there.
    """
    if value.strip(b" \t").lower() != b"chunked" or version == HTTP_1_0:
        raise InvalidRequest("Transfer-Encoding: only chunked, alone, and with HTTP/1.1.")


def is_long(data: bytes, start: int, end: int) -> bool:
    """Return True for a head without a length whose request may be longer.

    It announces a chunked body or another protocol.
    """
    head = data[start:end].lower()
    return TRANSFER_ENCODING in head or b"upgrade" in head
