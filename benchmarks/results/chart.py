"""Line charts as SVG, written without a library.

A hundred lines of code are enough, and the result is text that a diff can show. Readers with any kind of colour vision
can distinguish the colours (Okabe and Ito's). Each line's name also stands at its end, and the chart is readable on a
light and on a dark background.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Final

import msgspec

_WIDTH: Final = 760
_HEIGHT: Final = 360
_LEFT: Final = 64
_RIGHT: Final = 150
_TOP: Final = 44
_BOTTOM: Final = 48
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_LABEL_GAP: Final = 14
_STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#333}.title{font-size:14px;font-weight:600}"
    ".grid{stroke:#8884;stroke-width:1}.line{fill:none;stroke-width:2;stroke-linejoin:round}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}}"
)


class Line(msgspec.Struct, frozen=True):
    """One line: its name, and its points by rising x."""

    name: str
    points: tuple[tuple[float, float], ...]


class Axis(msgspec.Struct, frozen=True):
    """One axis: its label and its marks. A logarithmic axis needs positive values."""

    label: str
    logarithmic: bool = False
    marks: tuple[tuple[float, str], ...] = ()


def chart(title: str, x: Axis, y: Axis, lines: Sequence[Line]) -> str:
    """Return the whole SVG file.

    >>> chart("t", Axis("s"), Axis("msg/s"), [Line("null", ((0, 1), (1, 2)))]).startswith("<svg")
    True
    """
    lines = [_drawable(line, x, y) for line in lines]
    lines = [line for line in lines if line.points]
    xs = [point[0] for line in lines for point in line.points] or [1.0, 10.0]
    ys = [point[1] for line in lines for point in line.points] or [1.0, 10.0]
    x_marks = x.marks or _marks(min(xs), max(xs), logarithmic=x.logarithmic)
    y_marks = y.marks or _marks(min(ys) if y.logarithmic else 0.0, max(ys), logarithmic=y.logarithmic)
    place_x = _scale([*xs, *(mark for mark, _ in x_marks)], _LEFT, _WIDTH - _RIGHT, logarithmic=x.logarithmic)
    place_y = _scale([*ys, *(mark for mark, _ in y_marks)], _HEIGHT - _BOTTOM, _TOP, logarithmic=y.logarithmic)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<text class="title" x="{_LEFT}" y="20">{escape(title)}</text>',
        *_grid(x, x_marks, place_x, y, y_marks, place_y),
        *_drawn(lines, place_x, place_y),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _drawable(line: Line, x: Axis, y: Axis) -> Line:
    """Return the line without the points that a logarithmic axis cannot show."""
    points = tuple(
        (at, value) for at, value in line.points if (at > 0 or not x.logarithmic) and (value > 0 or not y.logarithmic)
    )
    return Line(line.name, points)


def _scale(values: Sequence[float], start: float, end: float, *, logarithmic: bool) -> Callable[[float], float]:
    low, high = min(values), max(values)
    if logarithmic:
        low, high = math.log10(low), math.log10(high)
    span = (high - low) or 1.0

    def place(value: float) -> float:
        return start + ((math.log10(value) if logarithmic else value) - low) / span * (end - start)

    return place


def _marks(low: float, high: float, *, logarithmic: bool) -> tuple[tuple[float, str], ...]:
    """Round values that cover the range."""
    if logarithmic:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        return tuple((10.0**power, f"{10.0**power:g}") for power in range(first, max(last, first + 1) + 1))
    step = 10 ** math.floor(math.log10((high - low) or 1.0))
    step *= next(factor for factor in (0.2, 0.5, 1, 2) if (high - low) / (step * factor) <= 6)
    first = math.floor(low / step)
    last = math.ceil(high / step)
    return tuple((number * step, f"{number * step:,g}") for number in range(first, last + 1))


def _grid(
    x: Axis,
    x_marks: Sequence[tuple[float, str]],
    place_x: Callable[[float], float],
    y: Axis,
    y_marks: Sequence[tuple[float, str]],
    place_y: Callable[[float], float],
) -> list[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = []
    for value, text in y_marks:
        at = place_y(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{escape(text)}</text>')
    for value, text in x_marks:
        at = place_x(value)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{bottom}"/>')
        parts.append(f'<text x="{at:.1f}" y="{bottom + 17}" text-anchor="middle">{escape(text)}</text>')
    parts.append(f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 10}" text-anchor="middle">{escape(x.label)}</text>')
    parts.append(f'<text x="{_LEFT}" y="{_TOP - 8}">{escape(y.label)}</text>')
    return parts


def _drawn(lines: Sequence[Line], place_x: Callable[[float], float], place_y: Callable[[float], float]) -> list[str]:
    parts = []
    labels = []
    for number, line in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(f"{place_x(at):.1f},{place_y(value):.1f}" for at, value in line.points)
        parts.append(f'<polyline class="line" stroke="{colour}" points="{path}"/>')
        labels.append((place_y(line.points[-1][1]), colour, line.name))
    last = -math.inf
    for wanted, colour, name in sorted(labels):
        last = at = max(wanted, last + _LABEL_GAP)
        x = _WIDTH - _RIGHT + 8
        parts.append(f'<text x="{x}" y="{at + 4:.1f}" style="fill:{colour}">{escape(name)}</text>')
    return parts
