"""Ports that stay this process's own, also while no server listens there.

A port that is free now may be another's a moment later: other programs connect and listen all the time. So it is bound
here, without listening: the kernel then gives it to no process that asks for any port, and connections to it are
refused. The server for which it is kept may listen there all the same, and again after its end, as servers set
SO_REUSEADDR.
"""

from __future__ import annotations

import functools
import os
import socket
import weakref


class KeptPort:
    """A port of 127.0.0.1, kept until `release`, or as long as this object lives.

    Arguments:
        number: one whose server is away for a while; 0 for a new one.
    """

    def __init__(self, number: int = 0) -> None:
        with socket.socket() as held:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(("127.0.0.1", number))
            self.number: int = held.getsockname()[1]
            self.release = weakref.finalize(self, os.close, held.detach())
            """Let anybody have it; safe to call twice."""


@functools.cache
def _nobodys() -> KeptPort:
    return KeptPort()


def nobodys_port() -> int:
    """Return a port where no server listens as long as this process lives."""
    return _nobodys().number
