"""The transport of a connection whose peer has gone.

A connection is freed by the garbage collector, which comes seldom. What TLS keeps for the real transport, some 30 KB,
would stay until then.
"""

from __future__ import annotations

import asyncio


class GoneTransport(asyncio.Transport):
    """A closed transport, which does nothing.

    It has the certificate of the peer, for requests that continue.
    """

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        super().__init__({"peercert": transport.get_extra_info("peercert")})

    def is_closing(self) -> bool:
        """Return True."""
        return True

    def can_write_eof(self) -> bool:
        """Return False."""
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Drop the data."""

    def pause_reading(self) -> None:
        """Do nothing."""

    def resume_reading(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def abort(self) -> None:
        """Do nothing."""
