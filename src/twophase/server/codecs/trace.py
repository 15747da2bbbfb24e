"""The trace headers of a request, which its message's calls carry on.

They tie the calls to the caller's trace. A header that cannot be passed on (too long, or with characters that gRPC
metadata cannot carry) is left out, and never makes a request fail: tracing is not the purpose of the request. Most
requests have no such headers, and cost one call of a C function: names that were seen before and are no trace headers
are remembered as they were spelled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from twophase.core.errors import ConfigurationError
from twophase.core.headers import CONNECTION_HEADERS, why_no_header

Trace = tuple[tuple[str, str], ...]

DEFAULT_NAMES: Final = ("traceparent", "tracestate")
TRACE_BYTES_MAX: Final = 4096
"""Bytes in names and values of one message's trace headers; more are left out."""
NAMES_MAX: Final = 16
_REMEMBERED_MAX: Final = 1024
_REMEMBERED_BYTES_MAX: Final = 64
_NAME: Final = re.compile(r"[0-9a-z][0-9a-z_.-]*")
_VALUE: Final = re.compile(rb"[\x20-\x7e]+")
_NOT_OURS_TO_PASS: Final = CONNECTION_HEADERS | frozenset(
    {
        *("accept", "accept-encoding", "authorization", "content-encoding", "content-type", "cookie"),
        *("proxy-authorization", "user-agent"),
    }
)


def names_of(text: str) -> tuple[str, ...]:
    """Return the header names in a setting's text, which separates them by commas.

    Raises:
        ConfigurationError: a name that no header or no gRPC metadata can have, or that means something to the call.

    >>> names_of("traceparent, X-Request-Id"), names_of("")
    (('traceparent', 'x-request-id'), ())
    """
    names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip()))
    if len(names) > NAMES_MAX:
        raise ConfigurationError(f"trace_headers: {len(names)} names, at most {NAMES_MAX} are allowed.")
    for name in names:
        if not _NAME.fullmatch(name) or name.startswith("grpc-") or name.endswith("-bin"):
            raise ConfigurationError(f"trace_headers: {name[:45]!r} cannot be a header of every call.")
        if name in _NOT_OURS_TO_PASS:
            raise ConfigurationError(f"trace_headers: {name!r} belongs to one request and is not passed on.")
        why_not = why_no_header(name, "")
        if why_not:
            raise ConfigurationError(f"trace_headers: {why_not}")
    return names


class TraceHeaders:
    """Finds the headers that are passed on.

    Arguments:
        names: in lower case, as `names_of` gives them.
    """

    def __init__(self, names: Iterable[str] = DEFAULT_NAMES) -> None:
        self._names = frozenset(names)
        self._others: set[bytes] = set()
        self.in_none_of = self._others.issuperset
        """Called with a request's header names: True when none of them is passed on."""

    def of(self, headers: Mapping[bytes, bytes]) -> Trace:
        """Return the headers that are passed on, names in lower case.

        >>> TraceHeaders().of({b"Host": b"c", b"TraceParent": b"00-4bf9-00f0-01"})
        (('traceparent', '00-4bf9-00f0-01'),)
        """
        return self.among(headers.items())

    def among(self, headers: Iterable[tuple[bytes, bytes]]) -> Trace:
        """Return the same, from pairs."""
        found: list[tuple[str, str]] = []
        left_bytes = TRACE_BYTES_MAX
        for spelled, value in headers:
            if spelled in self._others:
                continue
            name = spelled.lower().decode("latin-1")
            if name not in self._names:
                if len(spelled) <= _REMEMBERED_BYTES_MAX:
                    if len(self._others) >= _REMEMBERED_MAX:
                        self._others.clear()
                    self._others.add(spelled)
                continue
            left_bytes -= len(name) + len(value)
            if left_bytes >= 0 and _VALUE.fullmatch(value):
                found.append((name, value.decode("ascii")))
        return tuple(found)
