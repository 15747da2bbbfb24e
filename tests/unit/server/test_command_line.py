"""The `twophase` command finds its commands in a table.

It imports only what the command uses.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from twophase.cli import app as command_line
from twophase.cli import entry
from twophase.core.limits import LIMITS
from twophase.server.setting_table import describe

ROOT = Path(__file__).parents[3]

runner = CliRunner()


def test_help_lists_every_command_without_importing_any() -> None:
    script = (
        "import sys; from twophase.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in sys.modules if m in ('starlette', 'pyspark', 'uvicorn', 'twophase.cli.server')])"
    )
    done = subprocess.run([sys.executable, "-c", script, "--help"], capture_output=True, text=True, check=True)
    for command in command_line.COMMANDS:
        assert command.name in done.stdout
        assert command.summary in done.stdout
    assert done.stdout.rstrip().endswith("[]")


@pytest.mark.parametrize(
    "start",
    ["from twophase.cli import entry; entry.main()", "import runpy; runpy.run_module('twophase', run_name='__main__')"],
)
def test_the_base_installation_says_which_extra_brings_the_command(start: str) -> None:
    script = f"import sys; sys.modules['typer'] = None; {start}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "twophase: the command needs the package 'typer'. Run: pip install 'twophase[server]',"
        " 'twophase[operator]' for the commands to a server elsewhere,"
        " or 'twophase[sqlalchemy]' for `twophase barrier` alone\n"
    )


def test_the_script_is_the_entry_that_needs_no_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"twophase": f"{entry.__name__}:{entry.main.__name__}"}


@pytest.mark.parametrize("command", command_line.COMMANDS, ids=lambda command: command.name)
def test_every_command_of_the_table_exists(command: command_line.LazyCommand) -> None:
    assert find_spec(command.module) is not None
    result = runner.invoke(command_line.app, [command.name, "--help"])
    assert result.exit_code == 0, result.output


def test_an_operators_machine_needs_no_library_of_the_server() -> None:
    script = (
        "import sys, importlib; from twophase.cli.app import COMMANDS\n"
        "for name in ('starlette', 'structlog', 'prometheus_client', 'twophase.server'): sys.modules[name] = None\n"
        "for one in COMMANDS:\n"
        "    if one.extra == 'operator': importlib.import_module(one.module); print(one.name)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        *("doctor", "status", "messages", "explain", "topic", "queues", "groups", "halves", "letters", "log")
    ]


def test_server_help_documents_every_setting() -> None:
    result = runner.invoke(command_line.app, ["server", "--help"], terminal_width=200)
    for setting in describe():
        assert setting.variable in result.output
        assert setting.default in result.output


@pytest.mark.parametrize("command", [[], ["server"], ["barrier", "install"]], ids=["twophase", "server", "install"])
def test_help_shows_examples_a_line_each(command: list[str]) -> None:
    output = runner.invoke(command_line.app, [*command, "--help"], terminal_width=80).output
    _, _, after = output.partition("Examples:\n")
    examples = [line.strip() for line in after.partition("\n\n")[0].splitlines()]
    assert len(examples) >= 3
    assert all(" ".join(["twophase", *command]) in example for example in examples)


@pytest.mark.parametrize(
    "command",
    [["server"], ["limits"], ["barrier"], ["barrier", "install"], ["spark"], ["spark", "audit"]],
    ids=" ".join,
)
def test_every_help_looks_the_same(command: list[str]) -> None:
    output = runner.invoke(command_line.app, [*command, "--help"], terminal_width=80).output
    assert output.startswith("Usage: ")
    assert "completion" not in output
    assert "─" not in output


def test_help_of_the_audit_shows_how_a_location_is_written() -> None:
    output = runner.invoke(command_line.app, ["spark", "audit", "--help"], terminal_width=80).output
    assert "NAME=URL#TABLE?gid=COLUMN&branch=COLUMN" in output
    assert max(map(len, output.splitlines())) <= 80


def test_the_examples_of_the_server_are_options_it_has() -> None:
    output = runner.invoke(command_line.app, ["server", "--help"], terminal_width=200).output
    _, _, after = output.partition("Examples:\n")
    options = set(re.findall(r" (--[a-z-]+)", after.partition("\n\n")[0]))
    assert options
    before = output.partition("Examples:")[0]
    assert [option for option in options if not re.search(rf"{option}[ ,]", before)] == []
    assert "completion" not in before


def test_limits_prints_every_limit() -> None:
    result = runner.invoke(command_line.app, ["limits"])
    for limit in LIMITS:
        assert limit.name in result.output
        assert str(limit.value) in result.output


def test_version_is_printed() -> None:
    result = runner.invoke(command_line.app, ["--version"])
    assert result.output.startswith("twophase ")


def test_an_unknown_command_is_refused() -> None:
    assert runner.invoke(command_line.app, ["nosuch"]).exit_code == 2


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "typer_is_missing", None)
    missing = command_line.LazyCommand("server", "typer_is_missing", "server", "x")
    monkeypatch.setattr(command_line, "_BY_NAME", {"server": missing})
    result = runner.invoke(command_line.app, ["server"])
    assert result.exit_code == 2
    assert "pip install 'twophase[server]'" in result.output


def test_a_fault_inside_a_command_is_not_taken_for_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = command_line.LazyCommand("server", "twophase.cli.nosuch.inner", "server", "x")
    monkeypatch.setattr(command_line, "_BY_NAME", {"server": broken})
    result = runner.invoke(command_line.app, ["server"])
    assert isinstance(result.exception, ModuleNotFoundError)
