"""A whole answer to a request, as frames for any stream of any connection."""

from __future__ import annotations

from twophase.grpc_server.http2.frames import DATA, DEFAULT_FRAME_BYTES, END_HEADERS, END_STREAM, HEADERS, lead


class Response:
    """A whole answer, ready to be sent on any stream of any connection.

    Arguments:
        headers: their block.
        body: the data behind them.
        trailers: their block; empty for none.

    >>> len(Response(b"h", b"body", b"t").parts)
    4
    """

    __slots__ = ("body", "headers", "parts", "trailers")

    def __init__(self, headers: bytes, body: bytes = b"", trailers: bytes = b"") -> None:
        self.headers = headers
        self.body = body
        self.trailers = trailers
        self.parts: tuple[bytes, ...] = ()
        """The frames, cut where the stream's number belongs.

        Empty when they are longer than frames may be.
        """
        if max(len(headers), len(body), len(trailers)) <= DEFAULT_FRAME_BYTES:
            self.parts = self._cut()

    def _cut(self) -> tuple[bytes, ...]:
        after = [(DATA, self.body)] if self.body else []
        if self.trailers:
            after.append((HEADERS, self.trailers))
        flags = END_HEADERS if after else END_HEADERS | END_STREAM
        parts, before = [lead(len(self.headers), HEADERS, flags)], self.headers
        for index, (kind, payload) in enumerate(after, 1):
            flags = (END_HEADERS if kind == HEADERS else 0) | (END_STREAM if index == len(after) else 0)
            parts.append(before + lead(len(payload), kind, flags))
            before = payload
        return (*parts, before)
