"""Spans of time as people give them: seconds, or a timedelta.

Public functions take these. Inside, and wherever a number travels, spans are whole milliseconds, named so.
"""

from __future__ import annotations

from datetime import timedelta


def as_seconds(span: float | timedelta) -> float:
    """Return a span in seconds, however it was given."""
    return span.total_seconds() if isinstance(span, timedelta) else span


def as_ms(span: float | timedelta) -> int:
    """Return a span in whole milliseconds.

    >>> as_ms(1.5), as_ms(timedelta(minutes=1))
    (1500, 60000)
    """
    return round(as_seconds(span) * 1000)
