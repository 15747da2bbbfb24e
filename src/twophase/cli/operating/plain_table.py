"""Tables of plain text, whose lines other programs can read."""

from __future__ import annotations

from collections.abc import Sequence

from twophase.cli.console import echo


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows, the first of which has the heads, in columns as wide as they need.

    >>> print_table([("TOPIC", "QUEUES"), ("orders", "4")])
    TOPIC   QUEUES
    orders  4
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
