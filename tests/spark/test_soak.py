"""The soak reads its tests' results. No Spark needed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.spark import soak

PLAYED = """<testsuites><testsuite>
<testcase name="test_each_row_once_wherever_the_driver_dies[sqlite]" time="2.5">
  <properties><property name="killed" value="decided"/><property name="killed" value="decided"/>
  <property name="database" value="SQLite 3.50"/><property name="rows" value="200"/><property name="once" value="199"/>
  </properties>
</testcase>
<testcase name="test_each_row_once_wherever_the_driver_dies[postgres]" time="3">
  <properties><property name="killed" value="decided"/></properties><failure message="rows are missing"/>
</testcase>
<testcase classname="" name="tests.spark.source.test_killed" time="0.1"><error message="collection failure"/></testcase>
</testsuite></testsuites>"""


def test_what_was_played_and_what_could_not_be_loaded(tmp_path: Path) -> None:
    results = tmp_path / "results.xml"
    results.write_text(PLAYED)

    played = soak.read(results)

    assert [(one.what, one.engine, one.points.total(), one.failed) for one in played] == [
        ("publishing", "sqlite", 2, False),
        ("publishing", "postgres", 1, True),
        ("tests.spark.source.test_killed", "", 0, True),
    ]
    page = soak.report(played, "make soak PARTS=spark")
    for line in (
        "* tests.spark.source.test_killed, ",
        "| command | `make soak PARTS=spark` |",
        f"| publishing | sqlite | 2 | 200 | 199 | 2 | {soak.PROMISES['publishing']} |",
        "| publishing | postgres | 1 | not counted | not counted | 3 | **not so** |",
        "| publishing | sqlite | decided | 2 |",
        "| publishing | postgres | decided | 1 |",
    ):
        assert line in page.splitlines()
    [versions] = [line for line in page.splitlines() if line.startswith("| versions |")]
    assert all(name in versions for name in ("twophase ", "PySpark ", "Java ", "Python ", "SQLite 3.50"))


def test_an_unknown_part_is_refused() -> None:
    root = Path(soak.__file__).parents[2]
    makefile = (root / "Makefile").read_text().replace("soak: ready", "soak:")  # the environment is there already

    done = subprocess.run(
        ["make", "-f", "-", "soak", "PARTS=sparks"],
        input=makefile,
        capture_output=True,
        text=True,
        cwd=root,
        check=False,
    )

    assert (done.returncode, "unknown: sparks" in done.stderr) == (2, True), done.stderr
