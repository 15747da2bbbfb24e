"""The outcome of one HTTP call: an `HttpResponse` or an `HttpError`.

The error gives the reason for the missing response. No text of an error contains the request's query, headers or body:
errors are logged and stored, secrets are not.
"""

from __future__ import annotations

import enum
from collections.abc import Callable


class HttpErrorKind(enum.Enum):
    """The reason for a missing response; logs and metrics show the value."""

    BAD_URL = "bad_url"
    """The URL cannot be called; nothing was sent."""
    BAD_HEADER = "bad_header"
    """The method or a header cannot be sent; nothing was sent."""
    CONNECT = "connect"
    """No connection; nothing was sent.

    The name, the address or the port failed, or no handshake ended in time.
    """
    TLS = "tls"
    """No connection: the TLS handshake failed; nothing was sent."""
    REFUSED = "destination_refused"
    """The address may not be connected to; nothing was sent."""
    OVERLOADED = "overloaded"
    """Too many calls wait for this host already; nothing was sent."""
    TIMEOUT = "timeout"
    """The time was up; the request may have been carried out."""
    CLOSED = "closed"
    """The connection was ended; the request may have been carried out.

    The peer ended it, or this client's `close`.
    """
    PROTOCOL = "protocol"
    """The answer is not HTTP/1 by the standard; the request may have been carried out."""
    TOO_LARGE = "too_large"
    """The response passed a bound; the request was most likely carried out."""
    NO_ROOM = "no_room"
    """The responses under way passed a bound together.

    The request was most likely carried out.
    """


class HttpError(Exception):
    """A call without a usable response.

    >>> str(HttpError(HttpErrorKind.TIMEOUT, "no answer in time"))
    'timeout: no answer in time'
    """

    def __init__(self, kind: HttpErrorKind, text: str, *, remedy: str = "") -> None:
        super().__init__(f"{kind.value}: {text}")
        self.kind = kind
        self.remedy = remedy
        """Advice for the client of a coordinator, where there is any."""

    @property
    def text(self) -> str:
        """The error without its kind."""
        return str(self).partition(": ")[2]


class HttpResponse:
    """A complete response: `status`, `headers`, `body`.

    Headers are taken apart on demand. Most callers want one or none, and handing every header of every response from
    the parser to Python costs more than all the rest of reading it.
    """

    __slots__ = ("_lowered", "_parsed", "_received", "body", "status")

    def __init__(self, status: int, received: list[bytes], body: bytes, lowered: bytes | None = None) -> None:
        """A response.

        Arguments:
            received: the bytes of all its headers, and perhaps more.
            lowered: the bytes of its headers in lower case, where they are known.
        """
        self.status = status
        self.body = body
        self._received = received
        self._parsed: list[tuple[bytes, bytes]] | None = None
        self._lowered = lowered

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Names in lower case, and values, in the order received.

        Values have no blanks around them.
        """
        if self._parsed is None:
            self._parsed = split_headers(b"".join(self._received))
            self._received = []
        return self._parsed

    def header(self, name: bytes) -> bytes | None:
        """Return the value of a header given by its lower-case name; None when absent.

        Several values are joined by a comma, as HTTP defines it (RFC 9110 §5.2), so contradicting ones are seen.

        >>> received = [b"HTTP/1.1 200 OK\\r\\nContent-Type: text/plain\\r\\n\\r\\n"]
        >>> HttpResponse(200, received, b"").header(b"content-type")
        b'text/plain'
        """
        if self._lowered is None:
            received = self._received
            self._lowered = received[0].lower() if len(received) == 1 and len(received[0]) < _SMALL_BYTES else b""
        if self._lowered and name not in self._lowered:
            return None
        values = [value for known, value in self.headers if known == name]
        return b", ".join(values) if values else None

    def __repr__(self) -> str:
        return f"HttpResponse(status={self.status}, body={len(self.body)} bytes)"


_SMALL_BYTES = 4096
"""Size up to which a search of all bytes is cheaper than splitting the headers."""


def split_headers(received: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers of the response that `received` begins with.

    Interim ones before it are skipped. The strict parser has accepted these bytes, so lines end with CR LF and nothing
    else, none is folded, and every name is a token followed by a colon (RFC 9112 §5): splitting them means the same to
    both.

    >>> split_headers(b"HTTP/1.1 103 Hints\\r\\nA: 0\\r\\n\\r\\nHTTP/1.1 200 OK\\r\\nA: 1 \\r\\nb:\\r\\n\\r\\nA: 2")
    [(b'a', b'1'), (b'b', b'')]
    """
    while True:
        head, _, received = received.lstrip(b"\r\n").partition(b"\r\n\r\n")
        status_line, *lines = head.split(b"\r\n")
        if not status_line.partition(b" ")[2].lstrip(b" ").startswith(b"1"):
            fields = (line.partition(b":") for line in lines)
            return [(name.lower(), value.strip(b" \t")) for name, _, value in fields]


Outcome = HttpResponse | HttpError
OnDone = Callable[[Outcome], None]
