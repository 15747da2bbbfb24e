"""A program that audits and reads through Spark Connect.

    python -m tests.spark.connected FOLDER

The databases are those of `plant.make_system` in FOLDER. The server is the one that comes with PySpark.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from tests.spark.plant import System
from twophase_spark import audit, register

SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""Settings for inputs of some rows."""


def main(folder: Path) -> int:
    """Print what was found, as JSON."""
    system = System(folder)
    _, producer, consumer, ledger = (argument.partition("=")[2] for argument in system.arguments)
    builder = SparkSession.builder.remote("local[2]")
    for name, value in SMALL.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    ledger += "&agrees=payload='{}'+and+ledger.amount=30"
    store = f"sqlite:///{system.coordinator}"
    with audit(spark, [store], [producer], [consumer], [ledger], grace_s=0, late_s=1e12) as outcome:
        report, findings = outcome
        found = {row["gid"]: list(row["flags"]) for row in findings.select("gid", "flags").collect()}
        late = outcome.late.count()
    rows = register(spark).read.format("twophase").options(url=f"sqlite:///{system.bank_a}", table="barrier").load()
    said = {"verdict": report.verdict.value, "found": found, "late": late, "rows": rows.count()}
    sys.stdout.write(msgspec.json.encode(said).decode() + "\n")
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
