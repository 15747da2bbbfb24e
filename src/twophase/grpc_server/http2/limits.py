"""How much one peer may ask for, and how long it may take."""

from __future__ import annotations

from typing import Final

import msgspec

RECEIVE_WINDOW: Final = 4 * 1024 * 1024
"""What may be under way to us on all streams of a connection. It is given back as soon as it has been read: what is
kept is bounded stream by stream."""
BLOCK_BYTES_MAX: Final = 64 * 1024
"""One block of headers, as it travels."""


class Limits(msgspec.Struct, frozen=True):
    """The bounds of one connection, and how many there are."""

    connections_max: int = 1_000
    streams_max: int = 1_000
    """Requests under way at once."""
    header_list_bytes_max: int = 64 * 1024
    """Names and values of one request, with 32 bytes for each."""
    long_bytes_max: int = 16 * 1024 * 1024
    """What messages longer than a stream's window may need together, until they are whole; one is always let in."""
    oddities_max: int = 1_000
    """Resets, pings, settings, empty frames and the like, in a second."""
    handshake_s: float = 10.0
    request_s: float = 30.0
    """From the headers of a request to its end."""
    write_s: float = 30.0
    """Without taking anything of what waits for it."""
    idle_s: float = 75.0
    """Between two requests; and without a sign of life while one is under way, before it is asked for one."""
    linger_s: float = 2.0
    """To take note of GOAWAY before the connection is cut."""

    @property
    def shortest_s(self) -> float:
        """The shortest of the times."""
        return min(self.handshake_s, self.request_s, self.write_s, self.idle_s, self.linger_s)
