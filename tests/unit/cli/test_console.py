"""The command line prints foreign texts as they stand."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

import twophase.cli
from twophase.cli.console import plain_console
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
