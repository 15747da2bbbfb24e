"""The clock of an open loop, without the event loop's rounding.

It calls back at given moments. Timers of the event loop are rounded to milliseconds, more than the latencies to be
measured. On Linux a timer of the kernel (timerfd) wakes the loop as a readable file instead. Elsewhere the loop's timer
must suffice. The report shows how late the generator was in both cases.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable
from typing import Final

_CLOCK_MONOTONIC: Final = 1
_ABSOLUTE: Final = 1
_NONBLOCK: Final = 0o4000
_COARSE_S: Final = 0.001


class _Span(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Timer(ctypes.Structure):
    _fields_ = (("interval", _Span), ("first", _Span))


class Ticker:
    """A timer that calls `on_tick` every `interval_s` until it is stopped.

    It begins at `first_s`, by `time.perf_counter`.
    """

    def __init__(self, interval_s: float, first_s: float, on_tick: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_tick = on_tick
        self._file = _kernel_timer(interval_s, first_s)
        self._coarse: asyncio.TimerHandle | None = None
        if self._file is not None:
            self._loop.add_reader(self._file, self._read)
        else:
            self._again()

    def stop(self) -> None:
        """Stop calling."""
        if self._coarse is not None:
            self._coarse.cancel()
        if self._file is not None:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = None

    def _read(self) -> None:
        assert self._file is not None, "its reader is removed when it is closed"
        with contextlib.suppress(BlockingIOError):
            os.read(self._file, 8)
        self._on_tick()

    def _again(self) -> None:
        self._coarse = self._loop.call_later(_COARSE_S, self._again)
        self._on_tick()


def _kernel_timer(interval_s: float, first_s: float) -> int | None:
    """Return a file that becomes readable at each tick; None without such timers."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    file: int = library.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK)
    if file < 0:
        return None
    first_s = max(first_s, time.perf_counter())
    timer = _Timer(_span(interval_s), _span(first_s))
    if library.timerfd_settime(file, _ABSOLUTE, ctypes.byref(timer), None):
        os.close(file)
        return None
    return file


def _span(seconds: float) -> _Span:
    whole = int(seconds)
    return _Span(whole, max(int((seconds - whole) * 1e9), 0 if whole else 1))
