"""A terminal obeys no text of a database, of a lake or of an error."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import Final

import msgspec
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.spark.cases import BROKEN, IN_ORDER
from tests.spark.plant import System, make_system, plant
from tests.spark.truth import nowadays
from twophase_spark.cli.commands import app
from twophase_spark.cli.query import Output, show_rows
from twophase_spark.lake.query import Answer
from twophase_spark.lake.tables import Lake
from twophase_spark.sink.database import engine_of, install_ledger
from twophase_spark.sink.ledger import Batch, Ledger
from twophase_spark.sink.naming import stream_batch

EVIL: Final = "\x1b[2J\u202e--server=x"
SHOWN: Final = r"\x1b[2J\u202e--server=x"
AUDIT: Final = (
    "audit",
    "--grace=0",
    "--coordinator=sqlite:///{system}/tp.db",
    "--producer=bank-a=sqlite:///{system}/a.db",
)
SLO: Final = ("slo", "--coordinator=sqlite:///{system}/tp.db", "--at-least=1", "--attempts=0", "--decision-p99=0.001")
QUERY: Final = ("query", "--store=sqlite:///{system}/tp.db")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture
def system(tmp_path: Path) -> System:
    """A system whose gids and addresses have what a terminal would obey."""
    system = make_system(tmp_path)
    lost = next(case for case in BROKEN if case.flags == ["lost"])
    called = msgspec.structs.replace(IN_ORDER[0], gid=f"{EVIL}2", branches=(("01", f"http://{EVIL}/in"),))
    plant(system, nowadays([msgspec.structs.replace(lost, gid=EVIL), called]))
    return system


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    install_ledger(engine_of(url))
    for query in ("one", "two"):
        Ledger(engine_of(url)).begin(Batch(stream_batch(EVIL, query, 7), EVIL, EVIL, 7), "id")
    return url


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake whose log names a file that is not there."""
    place = tmp_path / "lake"
    Lake(place).create()
    file = {"path": f"dt=2026-11-20/{EVIL}", "partitionValues": {"dt": "2026-11-20"}, "size": 9, "modificationTime": 1}
    commit = place / "history" / "_delta_log" / f"{1:020}.json"
    commit.write_bytes(msgspec.json.encode({"add": {**file, "dataChange": True}}))
    return place


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (AUDIT, 1),
        ((*AUDIT, "--html={system}/report.html"), 1),
        ((*AUDIT, f"--state={{system}}/{EVIL}/state"), 2),
        (SLO, 1),
        ((*SLO, f"--html={EVIL}/x"), 2),
        ((*QUERY, f"select '{EVIL}' as gid"), 0),
        ((*QUERY, f"select 1 as `{EVIL}`"), 0),
        ((*QUERY, f"select `{EVIL}`"), 2),
        (("query", f"--lake={EVIL}", "select 1"), 2),
        (("archive", f"--lake={EVIL}", "--verify"), 2),
        (("archive", "--lake={lake}", "--verify"), 1),
        (("bundle", f"--output={{system}}/{EVIL}"), 0),
        (("doctor", f"--store=file:/nowhere/{EVIL}"), 2),
        (("checkback", "--ledger={ledger}", f"--host={EVIL}"), 2),
        (("abandon", "--ledger={ledger}"), 0),
        (("abandon", "--ledger={ledger}", f"--publisher={EVIL}", "--batch=7"), 1),
        (("abandon", "--ledger={ledger}", f"--publisher={EVIL}", "--batch=8"), 1),
    ],
)
def test_no_text_reaches_the_terminal_as_a_command(
    spark: SparkSession,
    system: System,
    ledger: str,
    lake: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
) -> None:
    monkeypatch.setattr("twophase_spark.session.open_session", lambda settings: contextlib.nullcontext(spark))
    monkeypatch.setenv("COLUMNS", "1000")

    done = CliRunner().invoke(app, [part.format(system=system.folder, ledger=ledger, lake=lake) for part in arguments])

    assert done.exit_code == code, done.output
    assert SHOWN in done.output
    assert [character for character in done.output if not character.isprintable() and character != "\n"] == []


class _Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("output", [Output.CSV, Output.JSON])
def test_rows_are_printable_on_a_terminal(monkeypatch: pytest.MonkeyPatch, output: Output) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(terminal, "utf-8"))

    show_rows(Answer([EVIL], [(EVIL,)], more=False), output)

    printed = terminal.getvalue().decode()
    assert printed.count(r"\u202e--server=x") == 2
    assert all(character.isprintable() or character == "\n" for character in printed)


def test_rows_stay_as_they_are_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for output in (Output.CSV, Output.JSON):
        with (tmp_path / output).open("w", encoding="utf-8") as file:
            monkeypatch.setattr(sys, "stdout", file)
            show_rows(Answer(["gid"], [(EVIL,)], more=False), output)

    assert (tmp_path / "csv").read_text() == f"gid\n{EVIL}\n"
    assert msgspec.json.decode((tmp_path / "json").read_bytes()) == [{"gid": EVIL}]
    assert "\u202e" in (tmp_path / "json").read_text()
