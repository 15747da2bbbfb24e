"""The one module that prints, and the streams that guard what others print.

The first half looks at the sources: each way of printing that goes past `twophase.cli.console` fails, unless it stands
in `PERMITTED`. The second half has commands print in other ways, as libraries and errors do.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from twophase.cli.console import on_terminal

ROOT: Final = Path(__file__).parents[3]
SOURCES: Final = ("src/twophase/cli", "src/twophase/dtm_import", "packages/twophase-spark/src/twophase_spark")
PERMITTED: Final = {
    ("src/twophase/cli/console.py", "sys.stderr"): "puts the guarded streams in place",
    ("src/twophase/cli/console.py", "sys.stdout"): "the same",
    ("src/twophase/cli/console.py", "typer.confirm"): "its question is printable",
    ("src/twophase/cli/console.py", "typer.echo"): "its text is printable",
    ("src/twophase/cli/entry.py", "sys.stderr"): "prints one constant text where typer is missing",
    ("twophase_spark/cli/query.py", "sys.stdout"): "printable on a terminal; a file gets every character",
}
_LIBRARIES: Final = frozenset({"typer", "click", "rich"})
_PRINTING: Final = frozenset(
    {
        *("echo", "secho", "confirm", "prompt", "progressbar", "pause", "edit", "echo_via_pager", "clear", "getchar"),
        *("print", "print_json", "inspect", "get_console", "Console"),
    }
)
_STREAMS: Final = frozenset({"stdout", "stderr", "__stdout__", "__stderr__"})
_SAFE: Final = frozenset({"isatty", "flush", "fileno"})
_NEED_A_CONSOLE: Final = frozenset({"Progress", "Live", "Status", "Prompt", "Confirm", "RichHandler"})
_CONSOLES: Final = frozenset({"console", "plain_console", "_console"})


def ways_past(source: str) -> Iterator[str]:
    """Yield each way of printing in a source that goes past `twophase.cli.console`."""
    tree = ast.parse(source)
    safe = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in _SAFE}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from _imported(node)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner, name = node.value.id, node.attr
            if owner == "sys" and name in _STREAMS and id(node) not in safe:
                yield f"sys.{name}"
            elif owner in _LIBRARIES and name in _PRINTING:
                yield f"{owner}.{name}"
        if isinstance(node, ast.Call):
            yield from _called(node)


def _imported(node: ast.ImportFrom) -> Iterator[str]:
    for alias in node.names:
        if node.module == "sys" and alias.name in _STREAMS:
            yield f"sys.{alias.name}"
        elif node.module in _LIBRARIES and alias.name in _PRINTING:
            yield f"{node.module}.{alias.name}"


def _called(node: ast.Call) -> Iterator[str]:
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if isinstance(function, ast.Name) and name in {"print", "input", "Console"}:
        yield name
    elif isinstance(function, ast.Attribute) and name == "print" and _maker(function.value) not in _CONSOLES:
        yield f"{ast.unparse(function.value)}.print"
    elif name in _NEED_A_CONSOLE and "console" not in {keyword.arg for keyword in node.keywords}:
        yield f"{name} without a console"
    elif ast.unparse(function) == "os.write":
        yield "os.write"


def _maker(value: ast.expr) -> str:
    made = value.func if isinstance(value, ast.Call) else value
    return made.id if isinstance(made, ast.Name) else ""


def test_no_source_of_a_command_prints_past_the_one_module() -> None:
    found = set()
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.py")):
            shown = path.relative_to(ROOT).as_posix().removeprefix("packages/twophase-spark/src/")
            found |= {(shown, way) for way in ways_past(path.read_text())}
    assert found == PERMITTED.keys()


@pytest.mark.parametrize(
    ("source", "way"),
    [
        ("print(text)", "print"),
        ("input(text)", "input"),
        ("typer.secho(text)", "typer.secho"),
        ("click.echo(text)", "click.echo"),
        ("from typer import echo", "typer.echo"),
        ("from rich import print", "rich.print"),
        ("from sys import stdout", "sys.stdout"),
        ("sys.stdout.write(text)", "sys.stdout"),
        ("sys.stderr.buffer.write(text)", "sys.stderr"),
        ("out = sys.__stderr__", "sys.__stderr__"),
        ("print_to(sys.stdout)", "sys.stdout"),
        ("os.write(2, text)", "os.write"),
        ("Console().print(text)", "Console"),
        ("self.out.print(text)", "self.out.print"),
        ("Progress(transient=True)", "Progress without a console"),
    ],
)
def test_each_way_past_it_is_seen(source: str, way: str) -> None:
    assert way in list(ways_past(source))


def test_what_prints_nothing_is_none() -> None:
    source = "sys.stdout.isatty(); sys.stderr.flush(); console.print(x); plain_console().print(x); Progress(console=c)"
    assert list(ways_past(source)) == []


EVIL: Final = "card\x1b[2J\x1b]0;owned\x07\x9b2K\u202edesrever"
SHOWN: Final = r"card\x1b[2J\x1b]0;owned\x07\x9b2K\u202edesrever"
_MAIN: Final = "import sys; from twophase.cli.app import main; evil = {evil!r}; "


@pytest.mark.parametrize(
    "program",
    [
        "sys.argv[1:] = [evil]; main()",
        "sys.argv[1:] = ['status', '--' + evil]; main()",
        "sys.argv[1:] = ['token', 'list', '--tokens', '/nowhere/' + evil]; main()",
        "sys.argv[1:] = ['server', '--config', '/nowhere/' + evil]; main()",
        "from twophase.cli import app; app.app = lambda **_: print(evil); main()",
        "from twophase.cli import app; app.app = lambda **_: print(evil, file=sys.stderr); main()",
        "from twophase.cli import app; app.app = lambda **_: sys.stdout.writelines([evil]); main()",
        "from twophase.cli import app; app.app = lambda **_: 1 / int(evil); main()",
        "from twophase.cli import app; import warnings; app.app = lambda **_: warnings.warn(evil); main()",
        "from twophase.cli import app; import logging; app.app = lambda **_: logging.warning(evil); main()",
        "from twophase.cli import app; app.app = lambda **_: sys.exit(evil); main()",
        (
            "from twophase.cli import app; import threading;"
            " app.app = lambda **_: threading.Thread(target=int, args=(evil,)).start(); main()"
        ),
    ],
)
def test_nothing_that_a_process_of_a_command_prints_is_obeyed(program: str) -> None:
    command = [sys.executable, "-c", _MAIN.format(evil=EVIL) + program]

    done = subprocess.run(command, capture_output=True, check=False, env={"PATH": "", "PYTHONUTF8": "1"})

    printed = (done.stdout + done.stderr).decode()
    assert SHOWN in printed or SHOWN.replace("\\", "\\\\") in printed, printed
    assert [character for character in printed if not character.isprintable() and character not in "\n\t"] == []


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_an_output_that_takes_no_more_is_one_line_and_an_exit_code(stream: str, *, at_once: bool) -> None:
    """The output goes to a full disk, at once or from the buffer at the end."""
    program = _MAIN.format(evil="") + "from twophase.cli import app; app.app = lambda **_: "
    with Path("/dev/full").open("w") as full:
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: full}
        done = subprocess.run(
            [sys.executable, "-c", f"{program}print(1, file=sys.{stream}, flush={at_once}); main()"],
            check=False, env=_buffered(), **streams,
        )  # fmt: skip

    told = "The output cannot be written: No space left on device. What the command did before stays done.\n"
    assert (done.returncode, done.stderr) == (1, told.encode() if stream == "stdout" else None)


def test_a_reader_that_has_gone_ends_the_command_without_a_word() -> None:
    program = _MAIN.format(evil="") + "from twophase.cli import app; app.app = lambda **_: print(1); main()"
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=writing, stderr=subprocess.PIPE, check=False, env=_buffered()
        )
    finally:
        os.close(writing)

    assert (done.returncode, done.stderr) == (1, b"")


def _buffered() -> dict[str, str]:
    """Return an environment in which Python buffers its output, as it usually does."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def test_a_process_without_standard_output_has_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    assert not on_terminal()
