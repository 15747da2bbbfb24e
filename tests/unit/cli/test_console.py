"""The command line prints foreign texts as they stand."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.progress import Progress
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

import twophase.cli
from twophase.cli.console import echo, plain_console
from twophase.core.printable import PrintableStream
from twophase_spark.cli.commands import app
from twophase_spark.doctor import Finding

STRANGE = "pip install 'twophase-spark[sqlite]' [/x] [red] :smile:"


def test_the_doctor_of_spark_prints_what_it_found_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = [Finding("SQLite", good=True, found=STRANGE), Finding("Java", good=False, found=STRANGE, remedy=STRANGE)]
    monkeypatch.setattr("twophase_spark.doctor.examine", lambda *_: iter(findings))

    done = CliRunner().invoke(app, ["doctor"])

    assert done.exit_code == 2
    assert done.stdout.count(STRANGE) == 3


def test_every_console_of_the_command_line_reads_no_markup() -> None:
    folder = Path(twophase.cli.__file__).parent
    made = [path.name for path in folder.rglob("*.py") if re.search(r"Console\(\w", path.read_text())]

    assert made == ["console.py"]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_terminal_obeys_no_text_that_a_console_prints(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> None:
    evil, shown = "\x1b[2J\u202e", r"\x1b[2J\u202e"
    if is_terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
    console = plain_console(width=80)
    console.file = io.StringIO()
    table = Table(evil)
    table.add_row(evil)
    for one in (evil, Text(evil, style="bold"), table):
        console.print(one)

    printed = console.file.getvalue()
    assert printed.count(shown) == 4
    assert evil not in printed
    assert "\u202e" not in printed
    assert ("\x1b[1m" in printed) is is_terminal


class Screen(io.StringIO):
    """A terminal that keeps what it is sent."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("shown", ["bar", "status"])
def test_a_terminal_obeys_the_codes_of_a_progress_bar_and_none_of_a_text_beside_it(
    shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", PrintableStream(screen))
    console = plain_console(stderr=True)

    with Progress(console=console, transient=True) if shown == "bar" else console.status("looking …") as live:
        if isinstance(live, Progress):
            live.advance(live.add_task("redrive", total=2))
            live.refresh()
        echo("card\x1b[2J", err=True)

    assert "\x1b[?25l" in screen.getvalue(), "the cursor is hidden"
    assert [code for code in ("\\x1b", "\\r") if code in screen.getvalue().replace(r"card\x1b[2J", "")] == []
    assert r"card\x1b[2J" in screen.getvalue()
