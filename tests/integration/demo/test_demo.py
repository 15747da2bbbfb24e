"""`make demo` plays every case, proves that nothing was lost, and ends by itself.

It also notices a broken promise.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from demo import __main__ as demo
from demo.show import Show
from demo.stage import Stage
from demo.story import Scene
from examples.banks.processes import ROOT
from tests.servers.missing import not_tested
from twophase.core.errors import ConfigurationError
from twophase_spark._java import find_java

CASES = (
    "success",
    "crash after commit, before submit",
    "crash before commit",
    "check-back while the transaction is in progress",
    "check-back before the transaction started",
    "receiver down",
    "coordinator down",
)


def _tamper(database: Path, statement: str) -> None:
    with closing(sqlite3.connect(database, timeout=10)) as connection, connection:
        connection.execute(statement)


def _ghost(stage: Stage, *_: object) -> None:
    """Add an effect in bank B that belongs to no transfer of bank A."""
    _tamper(stage.bank_b_db, "insert into ledger (gid, branch_id, amount) values ('nobody-sent-this', '01', 5)")


def _nobody_says_anything(*_: object) -> list[Any]:
    return []


@pytest.fixture
def java(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Find Java, without which Spark cannot run; skip the test where it is missing."""
    try:
        find_java(tmp_path_factory.mktemp("java"))
    except ConfigurationError as error:
        not_tested("Spark", error.message)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for temporary folders, so that leftovers are seen."""
    made = tmp_path / "temporary"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    monkeypatch.setenv("TMPDIR", str(made))
    return made


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.timeout(300)
def test_it_plays_every_case_and_proves_the_end_of_it(java: None, folders: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "demo", "--transfers", "5", "--report", str(tmp_path / "report")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    table = " ".join(done.stdout.replace("│", " ").split())
    assert table.count("as promised") == len(CASES)
    assert "Every promise was kept." in done.stdout
    report = json.loads((tmp_path / "report" / "audit.json").read_text())
    assert report["verdict"] == "clean"
    assert (tmp_path / "report" / "audit.html").stat().st_size > 0
    assert [entry.name for entry in folders.iterdir() if entry.name.startswith("twophase-demo")] == []
    assert _processes_left(str(folders)) == []


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.timeout(300)
def test_a_broken_promise_is_seen_by_books_and_audit_and_by_the_exit_code(
    java: None, folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "_crowd", _ghost)
    monkeypatch.setattr(demo, "_story", _nobody_says_anything)
    monkeypatch.setattr(sys, "argv", ["demo", "--report", str(tmp_path / "report")])
    handler = signal.getsignal(signal.SIGTERM)
    try:
        code = demo.main()
    finally:
        signal.signal(signal.SIGTERM, handler)

    assert code == 1
    said = capfd.readouterr().out
    assert "MONEY IS NOT CONSERVED" in said
    assert "A promise was broken." in said
    assert json.loads((tmp_path / "report" / "audit.json").read_text())["verdict"] == "violations"


@pytest.mark.parametrize(
    ("bank", "statement", "balanced"),
    [
        ("b", "select 1", True),
        ("a", "update account set balance = balance - 1", False),
        ("b", "insert into ledger (gid, branch_id, amount) values ('g', '01', 1)", False),
        ("a", "insert into transfer_out (transfer_id, gid, amount) values ('t', 'g', 1)", False),
    ],
    ids=["untouched", "money gone", "effect of nothing", "transfer without effect"],
)
def test_the_books_are_compared(tmp_path: Path, bank: str, statement: str, balanced: bool) -> None:
    stage = Stage(tmp_path)
    _tamper(stage.bank_a_db if bank == "a" else stage.bank_b_db, statement)
    assert Show(Console(quiet=True)).ledgers(stage) is balanced


@pytest.mark.parametrize("as_expected", [True, False])
@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("audited", [True, False])
def test_each_kind_of_proof_alone_decides_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_expected: bool, balanced: bool, audited: bool
) -> None:
    scene = Scene("case", "nobody", "not asked", "delivered once", 0.1, as_expected)
    monkeypatch.setattr(Stage, "start", _nobody_says_anything)
    monkeypatch.setattr(Stage, "unfinished", lambda _: set())
    monkeypatch.setattr(Show, "ledgers", lambda *_: balanced)
    monkeypatch.setattr(demo, "_crowd", _nobody_says_anything)
    monkeypatch.setattr(demo, "_story", lambda *_: [scene])
    monkeypatch.setattr(demo, "_audit", lambda *_: audited)
    monkeypatch.setattr(sys, "argv", ["demo"])

    code = demo._play(Stage(tmp_path), Show(Console(quiet=True)), demo._options())

    assert code == (0 if as_expected and balanced and audited else 1)


def _processes_left(text: str) -> list[str]:
    """Return the processes of `_processes_naming` that still run.

    They have as long as an end may take.
    """
    pause = threading.Event()
    for _ in range(600):
        if not _processes_naming(text):
            break
        pause.wait(0.05)
    return _processes_naming(text)


def _processes_naming(text: str) -> list[str]:
    """Return the command lines on this machine that name `text`, without the test's."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            try:
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if text in line:
                found.append(line)
    return found
