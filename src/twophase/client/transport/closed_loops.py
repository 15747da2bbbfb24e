"""The entries of transports for event loops that were closed.

`loop.close()` alone runs no asynchronous generator, by which a transport is closed with its loop; and what is kept for
a loop holds it, so that a weak dictionary never drops it.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import TypeVar

T = TypeVar("T")


def take_closed(of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, T]) -> list[T]:
    """Remove the entries of loops that are closed, and return them.

    A program with a loop for each job would otherwise keep the connections of all.
    """
    closed = [loop for found in of_loops.keyrefs() if (loop := found()) is not None and loop.is_closed()]
    return [left for loop in closed if (left := of_loops.pop(loop, None)) is not None]
