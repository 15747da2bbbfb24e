"""Limits on the requests of one peer, and on their time."""

from __future__ import annotations

import math
from typing import Final

import msgspec

RECEIVE_WINDOW: Final = 4 * 1024 * 1024
"""Bytes that may be under way to the server on all streams of a connection.

They are given back as soon as they have been read: what is kept is bounded stream by stream.
"""
BLOCK_BYTES_MAX: Final = 64 * 1024
"""Bytes of one block of headers, as it travels."""

TURN_BYTES: Final = 16 * 1024
"""Bytes of a read that end the connection's turn.

The next read waits until the other connections had their turn.
"""
TURN_FIELDS: Final = 512
"""Headers, in blocks that were not seen before, that end the turn too."""

HEAD_BYTES_FREE: Final = 1024
"""Bytes of a request's headers that do not count in the budget."""

RESERVED_MAX: Final = 16
"""Connections beyond the bound, on which the server's health may be asked for."""
RESERVED_S: Final = 5.0
"""Time of such a connection until it is asked to go."""
_ADDRESS_CONNECTIONS: Final = 4
"""Connections of one address that may send as many frames as each of them may."""


class Limits(msgspec.Struct, frozen=True):
    """The bounds of one connection, and on the number of connections."""

    connections_max: int = 1_000
    per_address_percent: int = 100
    """Share of the connections and of the byte budget that one address may hold."""
    streams_max: int = 1_000
    """Requests under way at once."""
    header_list_bytes_max: int = 64 * 1024
    """Names and values of one request, with 32 bytes for each."""
    long_bytes_max: int = 16 * 1024 * 1024
    """Bytes that messages longer than a stream's window may need together.

    They count until the messages are whole; one is always let in.
    """
    oddities_max: int = 1_000
    """Resets, pings, settings, empty frames and the like, in a second.

    Two pings or WINDOW_UPDATE frames for each request begun in it count nowhere.
    """
    updates_max: int = 10_000
    """WINDOW_UPDATE frames, in a second."""
    fields_max: int = 20_000
    """Headers that are decoded, in a second; those seen before are not."""
    handshake_s: float = 10.0
    request_s: float = 30.0
    """From the headers of a request to its end."""
    write_s: float = 30.0
    """Time without taking anything of what waits for the peer."""
    idle_s: float = 75.0
    """Time between two requests.

    Also the time without a sign of life while a request is under way, after which the peer is pinged.
    """
    linger_s: float = 2.0
    """Time to take note of GOAWAY before the connection is cut."""

    @property
    def address_frames_max(self) -> float:
        """WINDOW_UPDATE frames, in a second, from all connections of an address.

        An odd frame counts as many as there may be for each odd one. Behind a proxy there is no bound: its clients
        have one address.
        """
        return math.inf if self.per_address_percent >= 100 else _ADDRESS_CONNECTIONS * self.updates_max

    @property
    def shortest_s(self) -> float:
        """The shortest of the times."""
        return min(self.handshake_s, self.request_s, self.write_s, self.idle_s, self.linger_s)
