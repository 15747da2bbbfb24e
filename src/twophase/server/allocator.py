"""The allocator of the C library, and the memory that large bodies leave behind.

glibc keeps blocks of 128 KiB and more out of its heap, and gives them back when they are freed. But after the first of
them is freed it takes such blocks from the heap, up to 32 MiB. Bodies that come and go then leave holes that nothing
else fits in.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

_MMAP_THRESHOLD: Final = -3
_LARGE_BYTES: Final = 128 * 1024
"""glibc's own bound for large blocks, at the start."""
_VARIABLES: Final = frozenset({"MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"})


def keep_large_blocks_apart() -> bool:
    """Fix the bound from which blocks are no part of the heap.

    Returns False where the C library has no such bound, or the environment has chosen one.
    """
    if _VARIABLES.intersection(os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGE_BYTES))
