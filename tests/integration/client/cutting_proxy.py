"""A TCP proxy in front of a database that can cut a connection around a COMMIT.

It cuts before the COMMIT, or before its reply.
"""

from __future__ import annotations

import contextlib
import enum
import re
import select
import socket
import threading
from collections.abc import Iterator

_COMMIT = re.compile(rb"(?<![a-z_])commit(?![a-z_])", re.IGNORECASE)
"""The statement, not a setting that has the word in its name."""


class Cut(enum.Enum):
    """The point at which the connection is cut, once."""

    BEFORE_COMMIT = "the server never hears of the commit"
    BEFORE_REPLY = "the server has committed, the producer never hears of it"


class CuttingProxy:
    """A proxy that forwards bytes until it is armed.

    Then the next COMMIT is the last statement that its connection carries.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._cut: Cut | None = None
        self._closed = False
        self._refuse_afterwards = False
        self._refusing = False
        self.has_cut = threading.Event()

    def arm(self, cut: Cut, *, refuse_afterwards: bool = False) -> None:
        """Cut around the next COMMIT; then, if wanted, refuse every connection."""
        self._cut = cut
        self._refuse_afterwards = refuse_afterwards

    @contextlib.contextmanager
    def running(self) -> Iterator[CuttingProxy]:
        """Forward until the block ends."""
        accepting = threading.Thread(target=self._accept, daemon=True)
        accepting.start()
        try:
            yield self
        finally:
            self._closed = True
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            accepting.join()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                client.close()
                continue
            threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        # A client that closes its connection while bytes are sent to it is no failure here, nor is a server that has
        # ended.
        with client, contextlib.suppress(OSError), socket.create_connection(self._target) as server:
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    part = ready.recv(65536)
                    if not part:
                        return
                    if ready is client and self._cut is not None and _COMMIT.search(part):
                        self._cut_around(part, server)
                        return
                    (server if ready is client else client).sendall(part)

    def _cut_around(self, part: bytes, server: socket.socket) -> None:
        if self._cut is Cut.BEFORE_REPLY:
            server.sendall(part)
            server.recv(65536)
        self._cut = None
        self._refusing = self._refuse_afterwards
        self.has_cut.set()
