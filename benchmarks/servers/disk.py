"""The current cost of a durable commit on this disk.

A coordinator with many commits a message waits for it each time.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

_PAGE: Final = bytes(4096)
_TIMES: Final = 20


def sync_ms(directory: Path) -> float:
    """Return the median time to write 4 KiB durably, in milliseconds.

    The bytes are appended to a file of its own, and then synchronized to disk.
    """
    taken_s = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(_TIMES):
            started_s = time.perf_counter()
            file.write(_PAGE)
            os.fdatasync(file.fileno())
            taken_s.append(time.perf_counter() - started_s)
    return statistics.median(taken_s) * 1000
