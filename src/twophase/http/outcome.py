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
    """A complete response: `status`, `headers` in the order received with lower-case names, `body`."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header given by its lower-case name, None when absent.

        >>> HttpResponse(200, [(b"content-type", b"text/plain")], b"").header(b"content-type")
        b'text/plain'
        """
        for known, value in self.headers:
            if known == name:
                return value
        return None

    def __repr__(self) -> str:
        return f"HttpResponse(status={self.status}, body={len(self.body)} bytes)"


Outcome = HttpResponse | HttpError
OnDone = Callable[[Outcome], None]
