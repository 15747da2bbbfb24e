"""A benchmark shows its progress: a bar on a terminal, a line a run in a log."""

from __future__ import annotations

import io

from rich.console import Console

from benchmarks.results.progress import shown

_LINES = "… 1 of 2: null, 2,000 messages\n… 2 of 2: sqlite, 2,000 messages\n"


def _told(*, terminal: bool, kind: str = "xterm") -> str:
    """Return the output of two runs of two seconds, and of their reported warm-up."""
    written = io.StringIO()
    environment = {"TERM": kind}  # not this process's: a terminal may be anything
    console = Console(file=written, force_terminal=terminal, width=80, height=25, _environ=environment)
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


def test_a_terminal_that_cannot_draw_gets_the_lines_of_a_log() -> None:
    drawn = _told(terminal=True, kind="dumb")

    assert drawn == _LINES


def test_a_log_gets_one_plain_line_for_each_run() -> None:
    assert _told(terminal=False) == _LINES
