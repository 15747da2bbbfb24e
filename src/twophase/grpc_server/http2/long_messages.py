"""The messages of a connection that are longer than a stream's window.

They are let through one after the other. Promise: a stream that is over is not kept, whatever waits beside it.
"""

from __future__ import annotations

from collections.abc import Callable

from twophase.grpc_server.http2.stream import Stream


class LongMessages:
    """See the module.

    Arguments:
        widen: lets a peer send more of a stream's data.
        bytes_max: the most bytes beyond the windows together; one message is always let in.
    """

    __slots__ = ("_asking", "_bytes_max", "_granted", "_widen")

    def __init__(self, widen: Callable[[Stream, int], None], bytes_max: int) -> None:
        self._widen = widen
        self._bytes_max = bytes_max
        self._granted = 0
        self._asking: dict[Stream, int] = {}

    def admit(self, stream: Stream, by: int) -> None:
        """Let one message through, at once or when others are whole."""
        if stream.asks:
            return
        if self._has_room(by):
            self._grant(stream, by)
        else:
            stream.asks = True
            self._asking[stream] = by

    def admitted(self, stream: Stream) -> None:
        """Note that a message is whole, or given up."""
        self._granted -= stream.granted
        stream.granted = 0
        if stream.asks:
            stream.asks = False
            del self._asking[stream]
        while self._asking:
            asking, by = next(iter(self._asking.items()))
            if not (asking.ended or self._has_room(by)):
                return
            asking.asks = False
            del self._asking[asking]
            if not asking.ended:
                self._grant(asking, by)

    def clear(self) -> None:
        """Forget what waits: the connection ends."""
        self._asking.clear()

    def _has_room(self, by: int) -> bool:
        return not self._granted or self._granted + by <= self._bytes_max

    def _grant(self, stream: Stream, by: int) -> None:
        self._granted += by
        stream.granted += by
        self._widen(stream, by)
