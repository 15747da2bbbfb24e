"""Whoever waits for a benchmark sees how far it is: a bar on a terminal, a line a run in a log."""

from __future__ import annotations

import io

from rich.console import Console

from twophase.bench.results.progress import shown


def _told(*, terminal: bool) -> str:
    """What is written while two runs of two seconds pass, with a warm-up that is told of as well."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=terminal, width=80)
    with shown(console, 2, 2.0) as on_step:
        for name in ("null", "sqlite"):
            for tenth in range(21):
                on_step(name, tenth / 10, tenth * 100)
    return written.getvalue()


def test_a_terminal_is_shown_a_bar_that_moves() -> None:
    drawn = _told(terminal=True)

    assert "null" in drawn
    assert "sqlite" in drawn
    assert "1,000 msg/s" in drawn
    assert "━" in drawn
    assert len(set(drawn.split("\r"))) >= 8  # four pictures a run, half a second apart


def test_a_log_gets_one_plain_line_for_each_run() -> None:
    assert _told(terminal=False) == "… 1 of 2: null, 2,000 messages\n… 2 of 2: sqlite, 2,000 messages\n"
