"""Branches and check-backs that answer anything.

They give proper results, garbage, halves, far too much, and nothing. So the coordinator's own HTTP client is fuzzed
too, over real sockets. No call waits for long: a branch that does not answer closes the connection.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Final

ANSWERS: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\ncontent-length: 24\r\n\r\n" + b'{"dtm_result":"SUCCESS"}',
    b"HTTP/1.1 409 Conflict\r\ncontent-length: 24\r\n\r\n" + b'{"dtm_result":"FAILURE"}',
    b"HTTP/1.1 425 Too Early\r\ncontent-length: 7\r\n\r\nONGOING",
    b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nx: " + b"a" * 100_000 + b"\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n\r\n" + b"b" * 2_000_000,
    b"HTTP/1.1 200 OK\r\nx-twophase-verdict: committed\r\ncontent-length: 0\r\n\r\n",
    b'HTTP/1.1 200 OK\r\nx-twophase-verdict: committed\r\ncontent-length: 17\r\n\r\n{"branches":"???"',
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" * 50,
    b"\x00\xff\xfe garbage \r\n\r\n",
    b'{"jsonrpc":"2.0","id":"x","error":{"code":-32901,"message":"no"}}',
    b"",
)


class Branches:
    """A listener on a free port.

    The number in a request's path selects its answer.
    """

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, number: int) -> str:
        """Return an address whose calls get one of `ANSWERS`."""
        return f"http://127.0.0.1:{self.port}/{number % len(ANSWERS)}?method=f"

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            connection.settimeout(2.0)
            with contextlib.suppress(OSError), connection:
                head = connection.recv(65536)
                number = head.partition(b"/")[2].partition(b"?")[0].partition(b" ")[0]
                connection.sendall(ANSWERS[int(number) % len(ANSWERS) if number.isdigit() else 0])
