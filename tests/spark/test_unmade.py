"""No file of an older success outlives a run that failed.

That holds whatever way it failed. No Spark needed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from twophase.core.errors import CannotRead
from twophase_spark import slo
from twophase_spark.cli import audit as spark_audit
from twophase_spark.cli.commands import app
from twophase_spark.cli.ending import exit_codes
from twophase_spark.inputs.plan import Plan
from twophase_spark.lineage.sending import Lineage
from twophase_spark.reports import report
from twophase_spark.reports.unmade import AUDIT_FORMAT, SLO_FORMAT, ReportFiles

AWAY = "bank-a is <away>"


@pytest.fixture
def files(tmp_path: Path) -> ReportFiles:
    """Reports of an older run."""
    paths = [tmp_path / name for name in ("audit.html", "audit.json", "audit.xml")]
    for path in paths:
        path.write_text("clean")
    return ReportFiles(html=paths[0], json=paths[1], junit=paths[2])


def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace what a round needs a session for."""
    monkeypatch.setattr("twophase_spark.progress.progress_shown", lambda _spark, _say: contextlib.nullcontext())
    monkeypatch.setattr("twophase_spark.session.fitted", lambda *_: contextlib.nullcontext())


def require_not_made(files: ReportFiles, why: str) -> None:
    """Assert that each of them reports that there is no verdict, and why."""
    assert files.html is not None
    assert files.json is not None
    page, plain = files.html.read_text(), msgspec.json.decode(files.json.read_bytes())
    assert "<h1>Could not check</h1>" in page
    assert why.replace("<", "&lt;").replace(">", "&gt;") in page
    assert (plain["format"], plain["verdict"]) == (files.format, "not-made")
    assert why in plain["sentence"]
    if files.junit is not None:
        suite = ET.parse(files.junit).getroot()
        assert [suite.get(name) for name in ("tests", "errors", "failures", "skipped")] == ["1", "1", "0", "0"]
        assert why in suite.find("testcase/error").get("message", "")  # type: ignore[union-attr]


def test_an_audit_that_cannot_be_made(files: ReportFiles) -> None:
    done = CliRunner().invoke(
        app,
        ["audit", "--coordinator=mongo://x", f"--html={files.html}", f"--json={files.json}", f"--junit={files.junit}"],
    )

    assert done.exit_code == 2
    require_not_made(files, "must begin with")


def test_an_audit_whose_database_is_away(files: ReportFiles, tmp_path: Path) -> None:
    config = tmp_path / "audit.toml"
    config.write_text(
        f'[audit]\nhtml = "{files.html}"\njson = "{files.json}"\njunit = "{files.junit}"\n'
        '[[coordinator]]\nurl = "sqlite:///none.db"\n[[producer]]\nname = "a"\nurl = "sqlite:///a.db"\n'
    )

    done = CliRunner().invoke(app, ["audit", f"--config={config}"])

    assert done.exit_code == 2, done.stderr
    require_not_made(files, "there is no file none.db")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ('[[coordinator]]\nurl = "postgresql://a:${NOWHERE_SET}@db/t"', "NOWHERE_SET is not set"),
        ('[[coordinator]]\nulr = "sqlite:///c.db"', "Did you mean url?"),
        ('[[coordinator]]\nurl = "mongo://x"', "must begin with"),
        ("findings = 5", "in [audit], findings"),
        ("", "No coordinator is named"),
    ],
)
def test_an_audit_whose_file_is_wrong(files: ReportFiles, tmp_path: Path, wrong: str, why: str) -> None:
    config = tmp_path / "audit.toml"
    config.write_text(f'[audit]\nhtml = "{files.html}"\njson = "{files.json}"\n{wrong}\n')

    done = CliRunner().invoke(app, ["audit", f"--config={config}", f"--junit={files.junit}"])

    assert done.exit_code == 2, done.stderr
    require_not_made(files, why)


@pytest.mark.parametrize("asked", [True, False])
def test_a_path_that_is_no_utf8(files: ReportFiles, asked: bool) -> None:
    flags = [f"--html={files.html}", f"--json={files.json}", f"--junit={files.junit}"] if asked else []

    done = CliRunner().invoke(app, ["audit", "--config=/none-\udcff.toml", *flags])

    assert (done.exit_code, "cannot be read" in done.stderr) == (2, True), done.stderr
    if asked:
        require_not_made(files, "none-?.toml cannot be read")


def test_no_password_is_shown_or_written(files: ReportFiles) -> None:
    flags = [f"--html={files.html}", f"--json={files.json}", f"--junit={files.junit}"]

    done = CliRunner().invoke(app, ["audit", "--producer=postgresql://me:s3cr@h/db", *flags])
    assert (done.exit_code, "NAME=URL" in done.stderr, "s3cr" in done.stderr) == (2, True, False)
    files.say_not_made("postgresql://me:s3cr@h/db is away")

    require_not_made(files, "postgresql://h/db is away")
    assert not any("s3cr" in path.read_text() for path in (files.html, files.json, files.junit) if path is not None)


@pytest.mark.parametrize(
    ("error", "code"), [(OSError("No space left on device"), 2), (KeyboardInterrupt(), 130), (CannotRead(AWAY), 2)]
)
def test_what_goes_wrong_after_the_reports_takes_nothing_back(
    files: ReportFiles, error: BaseException, code: int
) -> None:
    def after_the_reports() -> None:
        with exit_codes(files):
            files.made = True
            raise error

    with pytest.raises(typer.Exit) as ended:
        after_the_reports()

    assert ended.value.exit_code == code
    assert files.html is not None
    assert files.html.read_text() == "clean"


def test_a_report_that_could_not_be_shown_stands(files: ReportFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report of one round must stand.

    The verified point has moved, and no later round would report this one's messages again.
    """
    stop: list[str] = []
    monkeypatch.setattr("twophase_spark.auditing.run.run", lambda *_, **__: None)
    monkeypatch.setattr("twophase_spark.auditing.run.look_into", lambda _: [])
    without_spark(monkeypatch)
    nothing: Any = None

    def show(*_: object) -> None:
        raise OSError("No space left on device")

    def say(text: str) -> None:
        stop.append(text)
        if "could not check" in text:
            os.kill(os.getpid(), signal.SIGTERM)

    assert spark_audit._rounds(nothing, plan_of(files), files, say, show, Lineage(None)) == 2
    assert any("No space left" in text for text in stop)
    assert files.html is not None
    assert files.html.read_text() == "clean"


def test_a_measurement_that_cannot_be_made(files: ReportFiles) -> None:
    done = CliRunner().invoke(
        app, ["slo", "--coordinator=sqlite:///none.db", f"--html={files.html}", f"--json={files.json}"]
    )

    assert done.exit_code == 2
    require_not_made(ReportFiles(files.html, files.json, format=SLO_FORMAT), "there is no file none.db")


def fail(*_: object, **__: object) -> None:
    raise CannotRead(AWAY)


def plan_of(files: ReportFiles) -> Plan:
    return Plan((), html=files.html, json=files.json, junit=files.junit, memory_mb=512, cores=1, every_s=0.001)


def test_a_round_that_could_not_be_made(files: ReportFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twophase_spark.auditing.run.run", fail)
    without_spark(monkeypatch)
    nothing: Any = None

    def say(text: str) -> None:
        if "could not check" in text:
            os.kill(os.getpid(), signal.SIGTERM)

    assert spark_audit._rounds(nothing, plan_of(files), files, say, nothing, Lineage(None)) == 2
    require_not_made(files, AWAY)


def test_a_stop_cuts_no_grace_time_short(files: ReportFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that a waiting round misses may only be late."""

    def run(*_: object, pause: Callable[[float], None], run_id: str) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        pause(600)
        raise AssertionError("it did not wait")

    monkeypatch.setattr("twophase_spark.auditing.run.run", run)
    without_spark(monkeypatch)
    nothing: Any = None
    said: list[str] = []

    assert spark_audit._rounds(nothing, plan_of(files), files, said.append, nothing, Lineage(None)) == 2
    assert said == ["stopped"], "no round failed, and none was shown"


def test_the_formats_are_those_of_the_reports() -> None:
    assert (AUDIT_FORMAT, SLO_FORMAT) == (report.FORMAT, slo.FORMAT)


def test_they_are_written_where_there_is_no_pyspark(files: ReportFiles) -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from twophase_spark.cli.commands import app\n"
        f"app(['audit', '--coordinator=sqlite:///x.db', '--producer=a=sqlite:///a.db', '--html={files.html}',"
        f" '--json={files.json}', '--junit={files.junit}'])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    require_not_made(files, "pyspark")


def test_reports_are_the_users_alone(tmp_path: Path) -> None:
    """The command sets its umask: gids, addresses and reasons stand in a report."""
    reports = [tmp_path / name for name in ("r.html", "r.json", "r.xml")]
    options = [f"--{kind}={path}" for kind, path in zip(("html", "json", "junit"), reports, strict=True)]
    command = [sys.executable, "-m", "twophase", "spark", "audit", "--coordinator=sqlite:////nowhere/x.db", *options]

    done = subprocess.run(command, capture_output=True, check=False, umask=0o022)

    assert done.returncode == 2
    assert {path.stat().st_mode & 0o777 for path in reports} == {0o600}
