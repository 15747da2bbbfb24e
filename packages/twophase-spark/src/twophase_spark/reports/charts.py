"""The geometry of the charts: shares of a whole, bars, and lines over time.

So templates only draw. Inline SVG in user units; colours are the page's, by class name, so that a dark page has dark
charts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

WIDTH, HEIGHT = 720, 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 10, 26
SHARE_LEAST = 0.006
"""Least share that is drawn, so that every part is visible."""


class Share(msgspec.Struct, frozen=True):
    """A part of a whole: `x` and `width` of a bar of WIDTH units."""

    label: str
    count: int
    rank: str
    x: float
    width: float
    percent: str


class Bar(msgspec.Struct, frozen=True):
    """One bar; `width` is between 0 and 100."""

    label: str
    text: str
    rank: str
    width: float


class Tick(msgspec.Struct, frozen=True):
    """A label at a position on an axis."""

    at: float
    label: str


class Line(msgspec.Struct, frozen=True):
    """One curve: `points` as SVG wants them; several parts where values are missing."""

    label: str
    rank: str
    parts: tuple[str, ...]
    dots: tuple[tuple[float, float, str], ...]


class Lines(msgspec.Struct, frozen=True):
    """A chart of curves over time."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    rows: tuple[Tick, ...]
    columns: tuple[Tick, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    bottom: int = HEIGHT - _BOTTOM
    right: int = WIDTH - _RIGHT


def shares(parts: Sequence[tuple[str, int, str]]) -> tuple[Share, ...]:
    """Return (label, count, rank) as parts of one bar; empty ones are left out.

    >>> [(one.label, one.percent, round(one.width)) for one in shares([("a", 3, "good"), ("b", 1, "bad")])]
    [('a', '75 %', 540), ('b', '25 %', 180)]
    >>> [round(one.width) for one in shares([("a", 9_999_999, "good"), ("b", 1, "bad")])]
    [716, 4]
    """
    present = [part for part in parts if part[1] > 0]
    total = sum(count for _, count, _ in present)
    weights = [max(count / total, SHARE_LEAST) for _, count, _ in present]
    scale = WIDTH / sum(weights) if weights else 0
    found: list[Share] = []
    x = 0.0
    for (label, count, rank), weight in zip(present, weights, strict=True):
        found.append(Share(label, count, rank, round(x, 2), round(weight * scale, 2), percent(count, total)))
        x += weight * scale
    return tuple(found)


def percent(count: int, total: int) -> str:
    """Return a share in words.

    A part that exists is never 0 %, and one that is not all is never 100 %.

    >>> percent(1, 3), percent(1, 10**7), percent(10**7 - 1, 10**7), percent(5, 5), percent(0, 5)
    ('33 %', '< 0.1 %', '> 99.9 %', '100 %', '0 %')
    """
    if count in {0, total}:
        return "100 %" if count else "0 %"
    share = 100 * count / total
    if share < 0.1:
        return "< 0.1 %"
    if share > 99.9:
        return "> 99.9 %"
    return f"{share:.0f} %" if 1 <= share <= 99 else f"{share:.1f} %"


def bars(items: Sequence[tuple[str, float, str, str]]) -> tuple[Bar, ...]:
    """Return (label, value, text, rank) as bars; the longest is 100 wide.

    None that is not zero is invisible.
    """
    most = max((value for _, value, _, _ in items), default=0) or 1
    return tuple(
        Bar(label, text, rank, round(max(100 * value / most, 1.0) if value else 0.0, 2))
        for label, value, text, rank in items
    )


def lines_of(
    title: str, unit: str, times_ms: Sequence[int], series: Sequence[tuple[str, str, Sequence[float | None]]]
) -> Lines:
    """Return curves over time of (label, rank, values), None where there is no value."""
    values = [value for _, _, column in series for value in column if value is not None]
    top = _ceiling(max(values, default=0))
    first, last = (min(times_ms), max(times_ms)) if times_ms else (0, 0)
    inner_width, inner_height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def x(at_ms: int) -> float:
        return _LEFT + (inner_width * (at_ms - first) / (last - first) if last > first else inner_width / 2)

    def y(value: float) -> float:
        return _TOP + inner_height * (1 - value / top)

    drawn: list[Line] = []
    for label, rank, column in series:
        parts: list[list[str]] = [[]]
        dots: list[tuple[float, float, str]] = []
        for at_ms, value in zip(times_ms, column, strict=True):
            if value is None:
                parts.append([])
                continue
            parts[-1].append(f"{x(at_ms):.1f},{y(value):.1f}")
            dots.append((round(x(at_ms), 1), round(y(value), 1), f"{_moment(at_ms)}: {number(value)} {unit}"))
        drawn.append(Line(label, rank, tuple(" ".join(part) for part in parts if len(part) > 1), tuple(dots)))
    rows = tuple(Tick(round(y(top * part / 4), 1), number(top * part / 4)) for part in range(5))
    chosen = sorted({first + (last - first) * part // 4 for part in range(5)}) if times_ms else []
    columns = tuple(Tick(round(x(at_ms), 1), _moment(at_ms)) for at_ms in chosen)
    return Lines(title, unit, tuple(drawn), rows, columns)


def number(value: float) -> str:
    """Return a value for a label, in at most three significant digits.

    >>> number(0), number(0.0421), number(12.34), number(1200), number(2_500_000)
    ('0', '0.042', '12.3', '1200', '2.5M')
    """
    if value >= 1_000_000:
        return f"{value / 1_000_000:.3g}M"
    if value >= 10_000:
        return f"{value / 1_000:.3g}k"
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}" if value >= 1 else f"{value:.2g}"


def _ceiling(value: float) -> float:
    """Return the least round number that is not below `value`.

    It is 1, 2, 4, 8 or 10 times a power of ten, so that quarters are round.
    """
    if value <= 0:
        return 1.0
    power: float = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 8, 10) if step * power >= value * 0.999999)


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%d %b %H:%M")
