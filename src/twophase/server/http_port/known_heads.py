"""Heads of requests that a port has read before.

Invariant: a request with a known head has the route and the length that the parser read in that head.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from twophase.http_client.turns import LONG_BYTES
from twophase.server.codecs.encode import Route
from twophase.server.identity.caller import UNLIMITED, Caller

HEADS_MAX: Final = 1024
HEAD_BYTES_MAX: Final = 1024


class KnownHead(NamedTuple):
    """The meaning of a hot request's head.

    It keeps the connection open, has no trace headers, and gives the length of the body and the sender.
    """

    route: Route
    body_bytes: int
    caller: Caller = UNLIMITED


class KnownHeads(dict[bytes, KnownHead]):
    """Heads that the parser has read before, by their bytes.

    There are at most 1,024, of at most 1 KiB.

    All connections of a port share them: a client's requests have one of a few heads. The parser is asked once for
    each.

    >>> heads = KnownHeads()
    >>> heads.learn(b"POST /api/dtmsvr/submit HTTP/1.1\\r\\nContent-Length: 2\\r\\n\\r\\n{}", Route.SUBMIT, 2)
    >>> list(heads.values())
    [KnownHead(route=<Route.SUBMIT: ...>, body_bytes=2, caller=...)]
    """

    __slots__ = ()

    def learn(self, data: bytes, route: Route, body_bytes: int, caller: Caller = UNLIMITED) -> None:
        """Remember the head of a request, unless more than head and body is in `data`."""
        end = data.find(b"\r\n\r\n") + 4
        if len(data) - end != body_bytes or end > HEAD_BYTES_MAX or body_bytes > LONG_BYTES:
            return  # another request beside it, or one that waits for a turn
        line, _, fields = data[:end].partition(b"\r\n")
        if not line.endswith(b" HTTP/1.1") or b"content-length:" not in fields.lower():
            return
        if len(self) >= HEADS_MAX:
            self.clear()  # heads that never come again would fill it: lengths, or a header of the client's own
        self[data[:end]] = KnownHead(route, body_bytes, caller)


class _NoHeads(KnownHeads):
    __slots__ = ()

    def learn(self, data: bytes, route: Route, body_bytes: int, caller: Caller = UNLIMITED) -> None:
        """Remember nothing."""


NO_HEADS: Final = _NoHeads()
"""The heads of a connection whose requests are all parsed."""
