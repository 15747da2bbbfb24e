"""What a durable commit costs on this disk, now: what a coordinator with many commits a message waits for."""

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
    """Milliseconds to append 4 KiB to a file of its own and have them on disk; the middle of several."""
    taken_s = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(_TIMES):
            started_s = time.perf_counter()
            file.write(_PAGE)
            os.fdatasync(file.fileno())
            taken_s.append(time.perf_counter() - started_s)
    return statistics.median(taken_s) * 1000
