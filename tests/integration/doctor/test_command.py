"""`twophase doctor` as an operator types it: exit code, texts, JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from twophase.barrier import install
from twophase.cli.doctor.command import app
from twophase.cli.findings import Finding, Level, show


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"TWOPHASE_URL": ""})


def test_nothing_bad_ends_with_0(tmp_path: Path) -> None:
    install(f"sqlite:///{tmp_path / 'bank.db'}")
    done = run("--database", f"sqlite:///{tmp_path / 'bank.db'}")
    assert (done.exit_code, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["ok"] * 4


def test_something_bad_ends_with_1_and_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "bank.db").touch()
    done = run("--database", f"sqlite:///{tmp_path / 'bank.db'}")
    assert done.exit_code == 1
    bad, remedy = done.stdout.splitlines()[-2:]
    assert bad.split()[:2] == ["bad", "barrier"]
    assert remedy.lstrip().startswith("→ Run `twophase barrier install")


def test_json_holds_every_finding(tmp_path: Path) -> None:
    done = run("--json", "--database", f"sqlite:///{tmp_path / 'none.db'}", "--server", "http://127.0.0.1:1")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["ok"]) == (1, False)
    assert [(one["level"], one["what"]) for one in told["findings"]] == [("bad", "database"), ("bad", "coordinator")]


def test_without_a_database_the_coordinator_is_looked_at() -> None:
    done = run("--server", "http://127.0.0.1:1")
    assert (done.exit_code, done.stdout.split()[:2]) == (1, ["bad", "coordinator"])


@pytest.mark.parametrize("found", ["[red]x[/]", "pip install 'twophase[mysql]'", "[/x]"])
def test_nothing_in_a_finding_is_markup(found: str, capsys: pytest.CaptureFixture[str]) -> None:
    show(Console(), Finding(Level.BAD, "a driver", found, found))
    assert capsys.readouterr().out.count(found) == 2
