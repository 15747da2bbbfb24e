"""Log lines on standard error, for machines or for people.

They are bounded in length and number, without payloads or secrets. For machines each is one JSON object; on a terminal,
unless a setting says otherwise, each is a line of text.

An outage repeats the same line thousands of times a second, and a disk full of logs is a second outage. So the number
of lines of an event is bounded within a window, about each target and about all of them; the first line after it says
how many were left out. A line that cannot be written is dropped.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import time
from collections.abc import Callable, MutableMapping
from typing import Any, Final, TextIO, cast

import msgspec
import structlog

from twophase.core.credentials import without_credentials
from twophase.core.printable import printable, printable_json, unfiltered

_TEXT_MAX: Final = 2_000
_TRACE_MAX: Final = 20_000
_WINDOWS_MAX: Final = 512
_SECRET: Final = re.compile(r"(?i)payload|body|password|secret|token|authorization|cookie")
_encoder = msgspec.json.Encoder(enc_hook=repr)

Event = MutableMapping[str, Any]


class RateLimit:
    """Lets each event through up to `lines_max` times in a window, then counts.

    Arguments:
        lines_max: lines of one event about one target in a window.
        event_lines_max: lines of one event about all targets in a window.
        window_s: its length in seconds.
        now_s: the clock, in seconds.
    """

    def __init__(
        self,
        lines_max: int = 20,
        event_lines_max: int = 200,
        window_s: float = 10.0,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now_s = now_s
        self._of_targets = _Windows(lines_max, window_s)
        self._of_events = _Windows(event_lines_max, window_s)

    def __call__(self, _logger: object, _method: str, event: Event) -> Event:
        """Process an event, as structlog calls it.

        Raises:
            structlog.DropEvent: this line is one too many.
        """
        # One failing address must not silence the lines about another, and a thousand of them must not fill the disk.
        now_s = self._now_s()
        name = str(event.get("event"))[:300]
        left_out = self._of_targets.add(f"{name} {event.get('target', '')}"[:300], now_s)
        left_out += self._of_events.add(name, now_s)
        if left_out:
            event["left_out"] = left_out
        return event


class _Windows:
    """Counts of lines by key, each within a window of its own.

    At most 512 windows are kept: the oldest goes first.
    """

    def __init__(self, lines_max: int, window_s: float) -> None:
        self._lines_max = lines_max
        self._window_s = window_s
        self._kept: dict[str, tuple[float, int]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, key: str, now_s: float) -> int:
        """Count a line; returns how many the window before left out.

        Raises:
            structlog.DropEvent: this line is one too many.
        """
        kept = self._kept
        begun_s, lines = kept.get(key, (now_s, 0))
        left_out = 0
        if now_s - begun_s >= self._window_s:
            del kept[key]  # and again below, as the youngest
            left_out = max(0, lines - self._lines_max)
            begun_s, lines = now_s, 0
        if key not in kept and len(kept) >= _WINDOWS_MAX:
            del kept[next(iter(kept))]
        kept[key] = (begun_s, lines + 1)
        if lines >= self._lines_max:
            raise structlog.DropEvent
        return left_out


def keep_decent(_logger: object, _method: str, event: Event) -> Event:
    """Cut long texts, leave out what may be a payload or a secret.

    >>> keep_decent(None, "info", {"event": "x", "password": "hunter2", "store": "postgresql://u:pw@h/db"})
    {'event': 'x', 'password': '(left out)', 'store': 'postgresql://h/db'}
    """
    for name, value in event.items():
        if _SECRET.search(name):
            event[name] = "(left out)"
        elif isinstance(value, str):
            text = without_credentials(value)
            text_max = _TRACE_MAX if name == "exception" else _TEXT_MAX
            event[name] = text if len(text) <= text_max else text[:text_max] + "…"
    return event


def make_printable(_logger: object, _method: str, event: Event) -> Event:
    """Keep from a terminal what it would obey.

    >>> make_printable(None, "info", {"event": "x", "target": "\\x1b[2J", "lines": 5})
    {'event': 'x', 'target': '\\\\x1b[2J', 'lines': 5}
    """
    for name, value in event.items():
        text = value if isinstance(value, str) else repr(value)
        if not text.isprintable():
            event[name] = printable(text, kept="\n\t" if name == "exception" else "")
    return event


def _render(_logger: object, _method: str, event: Event) -> str:
    return printable_json(_encoder.encode(event).decode())


def are_for_people(log_format: str, stream: TextIO | None = None) -> bool:
    """Return True when lines are text for people.

    The setting decides, or `auto` with a `stream` that is a terminal.
    """
    return log_format == "console" or (log_format == "auto" and (stream or sys.stderr).isatty())


def configure(level: str, stream: TextIO | None = None, log_format: str = "auto", *, worker: int | None = None) -> None:
    """Send log lines to `stream` in this format.

    They are twophase's and those of the libraries that it uses. Without `stream` they go to standard error.

    Arguments:
        level: the lowest severity.
        stream: standard error by default.
        log_format: as the setting.
        worker: the number that each line carries, where several processes write to one stream.
    """

    def name_worker(_logger: object, _method: str, event: Event) -> Event:
        if worker is not None:
            event["worker"] = worker
        return event

    out = stream or unfiltered(sys.stderr)  # its values are printable, and its colours are codes
    ending: list[Any]
    if are_for_people(log_format, out):
        plain = structlog.dev.plain_traceback
        ending = [
            make_printable,
            structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=plain, pad_event_to=0),
        ]
        stamp = structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False)
    else:
        ending = [_render]
        stamp = structlog.processors.TimeStamper(fmt="iso", utc=True, key="at")
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            RateLimit(),
            name_worker,
            stamp,
            structlog.processors.format_exc_info,
            keep_decent,
            *ending,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        # A line is one write: workers share the stream.
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _Droppable(out))),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_Forward()]
    root.setLevel(level.upper())


class _Droppable:
    """A stream that drops the lines that the one behind it does not take.

    A full disk, or a reader that has gone, costs lines and nothing else: they are written amid the steps of a delivery.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


class _Forward(logging.Handler):
    """A handler that sends the standard library's log records through structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger()
        log.log(record.levelno, record.getMessage().strip(), logger=record.name, exc_info=record.exc_info or None)
