"""What the soak reads out of its tests' results. No Spark needed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.spark import soak

PLAYED = """<testsuites><testsuite>
<testcase name="test_each_row_once_wherever_the_driver_dies[sqlite]" time="2.5">
  <properties><property name="killed" value="decided"/><property name="killed" value="decided"/></properties>
</testcase>
<testcase classname="" name="tests.spark.source.test_killed" time="0.1"><error message="collection failure"/></testcase>
</testsuite></testsuites>"""


def test_what_was_played_and_what_could_not_be_loaded(tmp_path: Path) -> None:
    results = tmp_path / "results.xml"
    results.write_text(PLAYED)

    played = soak.read(results)

    assert [(one.what, one.engine, one.points.total(), one.failed) for one in played] == [
        ("publishing", "sqlite", 2, False),
        ("tests.spark.source.test_killed", "", 0, True),
    ]
    assert "* tests.spark.source.test_killed, " in soak.report(played)


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
