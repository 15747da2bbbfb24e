"""The end of the process, whatever hangs."""

from __future__ import annotations

import os
import threading
from typing import Final

import structlog

EXIT_OVERDUE: Final = 1
_log = structlog.get_logger("twophase.server")


def end_at_last(after_s: float) -> None:
    """End the process after `after_s`, whatever hangs by then.

    A thread that hangs cannot be stopped, and Python would wait for it. The store bears this end like a kill.
    """

    def end() -> None:
        _log.error("the server did not end in time, and is ended", waited_s=after_s)
        os._exit(EXIT_OVERDUE)

    timer = threading.Timer(after_s, end)
    timer.daemon = True
    timer.start()
