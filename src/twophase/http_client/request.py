"""The head of a request, and the call under way that it belongs to.

Promise: a header can neither end early nor change the framing of the request: the client alone sets the length of the
body and the fate of the connection.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Protocol

from twophase.http_client.outcome import HttpError, HttpErrorKind, OnDone, Outcome
from twophase.http_client.timeouts import Timeouts

METHODS = frozenset({"GET", "POST", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"})
METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
"""Methods whose length is given even when it is 0 (RFC 9110 §8.6)."""
CONNECTION_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers in lower case that no caller of the client sets."""
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_IN_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def encode_headers(headers: Sequence[tuple[str, str]]) -> str:
    """Return header lines, each ended by CR LF; characters outside ASCII become UTF-8.

    They ask for an unencoded body, unless the caller names an encoding: this client does not decompress.

    Raises:
        HttpError: kind `BAD_HEADER`, naming the header and never its value.

    >>> encode_headers([("X-Trace", "7")])
    'X-Trace: 7\\r\\naccept-encoding: identity\\r\\n'
    """
    lines: list[str] = []
    asks_for_encoding = False
    for name, value in headers:
        if not _NAME.fullmatch(name):
            raise HttpError(HttpErrorKind.BAD_HEADER, "a header name has invalid characters")
        lower = name.lower()
        if lower in CONNECTION_HEADERS:
            raise HttpError(HttpErrorKind.BAD_HEADER, f"header {lower} belongs to the client")
        if _NOT_IN_VALUE.search(value):
            raise HttpError(HttpErrorKind.BAD_HEADER, f"the value of header {lower[:64]} has control characters")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                text = f"the value of header {lower[:64]} cannot be encoded"
                raise HttpError(HttpErrorKind.BAD_HEADER, text) from None
        asks_for_encoding = asks_for_encoding or lower == "accept-encoding"
        lines.append(f"{name}: {value}\r\n")
    if not asks_for_encoding:
        lines.append("accept-encoding: identity\r\n")
    return "".join(lines)


class HeaderBook(dict[tuple[tuple[str, str], ...], str]):
    """Header lines already checked: `book[headers]` checks and encodes new ones.

    Most calls carry the same headers. A look-up raises as `encode_headers`.
    """

    __slots__ = ("_entries_max",)

    def __init__(self, entries_max: int = 256) -> None:
        super().__init__()
        self._entries_max = entries_max

    def __missing__(self, headers: tuple[tuple[str, str], ...]) -> str:
        lines = encode_headers(headers)
        if len(self) >= self._entries_max:
            self.clear()
        self[headers] = lines
        return lines


class Carrier(Protocol):
    """The present holder of a call.

    It is the queue of its host, an attempt to connect, or a connection.
    """

    def let_go(self, call: PendingCall) -> str:
        """Stop working for a call that ends before its time.

        Returns what it was waiting for.
        """
        ...


class PendingCall:
    """One call under way.

    In every case, `finish` reaches the caller once: the first time.
    """

    __slots__ = ("_deadline", "_on_done", "body", "carrier", "head", "is_head", "response_bytes_max")

    def __init__(
        self,
        head: bytes,
        body: bytes,
        on_done: OnDone,
        timeouts: Timeouts,
        timeout_ms: int,
        response_bytes_max: int = 0,
        *,
        is_head: bool,
    ) -> None:
        self.head = head
        self.body = body
        self.response_bytes_max = response_bytes_max
        self.is_head = is_head
        self.carrier: Carrier | None = None
        self._on_done: OnDone | None = on_done
        self._deadline = timeouts.after(self, timeout_ms)

    @property
    def done(self) -> bool:
        """True when the caller has its outcome, or does not want it any more."""
        return self._on_done is None

    def finish(self, outcome: Outcome) -> None:
        """Report the outcome to the caller; later outcomes are ignored.

        An error that the caller's function raises goes no further.
        """
        on_done = self._on_done
        if on_done is None:
            return
        self._on_done = None
        self.carrier = None
        self._deadline.pop(self, None)
        try:
            on_done(outcome)
        except Exception as error:  # noqa: BLE001 - the caller's mistake must not break a pooled connection
            asyncio.get_running_loop().call_exception_handler(
                {"message": "the on_done of an HTTP call raised", "exception": error},
            )

    def abandon(self) -> str:
        """Stop working for this call without a report to the caller.

        Returns what it was waiting for.
        """
        carrier = self.carrier
        self.carrier = None
        return carrier.let_go(self) if carrier is not None else "a connection"

    def cancel(self) -> None:
        """Abandon the call of a caller that is gone, without a report."""
        self._on_done = None
        self._deadline.pop(self, None)
        self.abandon()

    def disown(self) -> None:
        """Drop the outcome for a caller that is gone; the call goes on until its end."""
        self._on_done = None

    def on_timeout(self) -> None:
        """End the call at its deadline; called by `Timeouts`."""
        self.finish(HttpError(HttpErrorKind.TIMEOUT, f"the time was up while waiting for {self.abandon()}"))
