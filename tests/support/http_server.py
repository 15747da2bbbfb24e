"""HTTP servers of Python's library, each in a thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer


class QuietHandler(BaseHTTPRequestHandler):
    """A handler without a log."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base class's name
        """Log nothing."""


@contextlib.contextmanager
def served(server: BaseServer) -> Iterator[None]:
    """Let a server answer in a thread until the block ends."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
