"""Python's garbage collector, kept away from large batches of values that are all in use.

It looks again and again at what it cannot free: two thirds of the time of decoding messages, half of that of encoding
rows.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collecting_nothing() -> Iterator[None]:
    """Without the collector for the block's time; for bounded work, because cycles stay until its end."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
