"""The command line prints foreign texts as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import twophase.cli
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
    made = [path.name for path in folder.rglob("*.py") if " Console(" in path.read_text()]

    assert made == ["console.py"]
