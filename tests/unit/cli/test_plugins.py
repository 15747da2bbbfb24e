"""Commands of other distributions: found by entry points, imported when run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from twophase.cli import app as command_line
from twophase.cli import plugins

runner = CliRunner()
Add = Callable[..., None]


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Add:
    """Install a distribution with one command; the command's source is given."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "KNOWN", (plugins.Plugin("known", "known-dist", "Known."),))

    def install(command: str, source: str, distribution: str = "other") -> None:
        module = f"{distribution}_{command}_commands"
        sys.modules.pop(module, None)
        (tmp_path / f"{module}.py").write_text(source)
        described = tmp_path / f"{distribution}-1.0.dist-info"
        described.mkdir()
        (described / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\nSummary: All of {distribution}.\n"
        )
        (described / "entry_points.txt").write_text(f"[{plugins.GROUP}]\n{command} = {module}:app\n")

    return install


GOOD = """
import typer
app = typer.Typer(add_completion=False)
@app.command()
def run() -> None:
    typer.echo("ran")
"""


def test_an_installed_command_is_listed_and_runs(add: Add) -> None:
    add("greet", GOOD)

    assert "greet     All of other." in runner.invoke(command_line.app, ["--help"]).output
    assert runner.invoke(command_line.app, ["greet"]).output == "ran\n"


def test_help_imports_no_plug_in(add: Add) -> None:
    add("greet", "raise SystemExit('imported')")

    assert runner.invoke(command_line.app, ["--help"]).exit_code == 0
    assert "other_greet_commands" not in sys.modules


def test_completion_of_a_command_imports_no_command(add: Add) -> None:
    add("greet", "raise SystemExit('imported')")
    group = typer.main.get_command(command_line.app)

    items = group.shell_complete(group.make_context("twophase", [], resilient_parsing=True), "")

    names = [item.value for item in items]
    assert {"server", "known", "greet"} <= set(names)
    assert "other_greet_commands" not in sys.modules


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import nosuchlibrary", "the package 'nosuchlibrary' is incomplete or missing"),
        ("1 / 0", "other cannot be loaded: ZeroDivisionError: division by zero"),
        ("from twophase import nosuch", "other cannot be loaded: ImportError: cannot import name 'nosuch'"),
        ("app = 1", "other cannot be loaded: "),
        ("", "other cannot be loaded: AttributeError: "),
    ],
)
def test_a_broken_plug_in_says_so_in_a_line_and_exits_2(add: Add, source: str, reason: str) -> None:
    add("greet", source)

    done = runner.invoke(command_line.app, ["greet"])

    assert done.exit_code == 2
    assert isinstance(done.exception, SystemExit)
    assert done.output.startswith(f"twophase greet: {reason}")
    assert done.output.endswith("Run: pip install other\n")
    assert done.output.count("\n") == 1


def test_a_broken_plug_in_disturbs_no_other_command(add: Add) -> None:
    add("greet", "1 / 0")

    assert runner.invoke(command_line.app, ["limits"]).exit_code == 0
    assert "greet" in runner.invoke(command_line.app, ["--help"]).output


def test_a_known_command_that_is_not_installed_names_its_distribution(add: Add) -> None:
    done = runner.invoke(command_line.app, ["known"])

    assert done.exit_code == 2
    assert done.output == "twophase known: the package known-dist is not installed. Run: pip install known-dist\n"


def test_a_plug_in_replaces_no_command_of_twophase(add: Add) -> None:
    add("limits", GOOD)

    assert runner.invoke(command_line.app, ["limits"]).output != "ran\n"
    assert "All of other." not in runner.invoke(command_line.app, ["--help"]).output


def test_a_command_of_twophase_looks_for_no_plug_in(add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(**_: str) -> None:
        raise AssertionError("looked")

    monkeypatch.setattr(plugins, "entry_points", found)

    assert runner.invoke(command_line.app, ["limits"]).exit_code == 0


def test_help_with_spark_installed_imports_nothing_of_it() -> None:
    script = (
        "import sys; from twophase.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith(('twophase_spark', 'pyspark'))])"
    )
    done = subprocess.run([sys.executable, "-c", script, "--help"], capture_output=True, text=True, check=True)
    assert "spark     Audit" in done.stdout
    assert done.stdout.endswith("[]\n")
