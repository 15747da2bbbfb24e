"""Faults of a peer: of one stream, or of the connection (RFC 9113, 5.4).

The text is for the peer's developer, in GOAWAY; it never repeats what the peer has sent.
"""

from __future__ import annotations


class ConnectionFault(Exception):
    """The connection cannot continue."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class StreamFault(Exception):
    """One request cannot continue; the others can."""

    def __init__(self, stream: int, code: int, text: str) -> None:
        super().__init__(text)
        self.stream = stream
        self.code = code
