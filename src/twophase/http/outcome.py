"""What becomes of one HTTP call: an `HttpResponse`, or an `HttpError` that says why there is none.

No text of an error contains the request's query, headers or body: errors are logged and stored, secrets are not.
"""

from __future__ import annotations

import enum
from collections.abc import Callable


class HttpErrorKind(enum.Enum):
    """Why there is no response; the value is what logs and metrics show."""

    BAD_URL = "bad_url"
    """The URL cannot be called; nothing was sent."""
    BAD_HEADER = "bad_header"
    """The method or a header cannot be sent; nothing was sent."""
    CONNECT = "connect"
    """No connection: the name, the address, the port or the TLS handshake failed; nothing was sent."""
    OVERLOADED = "overloaded"
    """Too many calls wait for this host already; nothing was sent."""
    TIMEOUT = "timeout"
    """The time was up; the request may have been carried out."""
    CLOSED = "closed"
    """The peer, or this client's `close`, ended the connection; the request may have been carried out."""
    PROTOCOL = "protocol"
    """What came back is not HTTP/1 as the standard wants it; the request may have been carried out."""
    TOO_LARGE = "too_large"
    """The response passed a bound; the request was most likely carried out."""


class HttpError(Exception):
    """A call without a usable response.

    >>> str(HttpError(HttpErrorKind.TIMEOUT, "no answer in time"))
    'timeout: no answer in time'
    """

    def __init__(self, kind: HttpErrorKind, text: str) -> None:
        super().__init__(f"{kind.value}: {text}")
        self.kind = kind


class HttpResponse:
    """A complete response: `status`, `headers`, `body`."""

    __slots__ = ("_headers", "body", "status")

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self.status = status
        self._headers = headers
        self.body = body

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Names in lower case, and values without blanks around them, in the order received.

        Made when asked for: most callers want one header or none, see `header`.
        """
        return normal_headers(self._headers)

    def header(self, name: bytes) -> bytes | None:
        """The value of a header given by its lower-case name; None when absent.

        Several values are joined by a comma, as HTTP defines it (RFC 9110 §5.2), so contradicting ones are seen.

        >>> HttpResponse(200, [(b"Content-Type", b"text/plain ")], b"").header(b"content-type")
        b'text/plain'
        """
        length = len(name)
        found: bytes | None = None
        for known, value in self._headers:
            if len(known) == length and known.lower() == name:
                stripped = value.strip(b" \t")
                found = stripped if found is None else found + b", " + stripped
        return found

    def __repr__(self) -> str:
        return f"HttpResponse(status={self.status}, body={len(self.body)} bytes)"


def normal_headers(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Headers as they came, normalised; the parser keeps blanks after a value, and which depends on the reads."""
    return [(name.lower(), value.strip(b" \t")) for name, value in headers]


Outcome = HttpResponse | HttpError
OnDone = Callable[[Outcome], None]
