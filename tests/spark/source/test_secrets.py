"""A password is nowhere but in the file that holds it: not in plans, the event log, Spark's own log, or errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.source.stores import PostgresUnderTest, finish

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.timeout(400)]

PROGRAM = """
import sys
from pathlib import Path
from twophase.spark import register
from twophase.spark import session as ours

good, bad, folder = sys.argv[1:4]
log = {"enabled": "true", "dir": Path(folder).as_uri(), "compress": "false"}
extra = tuple((f"spark.eventLog.{name}", value) for name, value in log.items())
settings = ours.SessionSettings(cores=1, memory_mb=512, name="secrets", short=True, extra=extra)
with ours.open_session(settings) as spark:
    spark.sparkContext.setLogLevel("INFO")
    register(spark)
    read = spark.read.format("twophase").option("table", "history")
    frame = read.option("url", good).load()
    frame.explain(True)
    frame.createOrReplaceTempView("history")
    spark.sql("explain extended select * from history where seq > 1").show(truncate=False)
    print(frame.count(), "rows read")
    print(frame._jdf.queryExecution().toString())
    query = spark.readStream.format("twophase").option("url", good).load().writeStream.format("noop")
    query = query.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except Exception as error:
        sys.exit(str(error))
    query.explain(True)
    for url in (bad, "postgresql://me:s3cr%zz@h/db"):
        try:
            read.option("url", url).load().count()
        except Exception as error:
            print(error, file=sys.stderr)
"""


def test_the_password_is_nowhere(postgres_store: PostgresUnderTest, tmp_path: Path) -> None:
    finish(postgres_store, 1, 1, 3)
    password = postgres_store.dsn.partition("://")[2].partition("@")[0].partition(":")[2]
    assert len(password) > 7
    wrong = tmp_path / "wrong-url"
    wrong.write_text(postgres_store.dsn.replace(password, f"{password}wrong"))
    events = tmp_path / "events"
    events.mkdir()

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, postgres_store.url, f"file:{wrong}", str(events)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3_000:]
    assert "3 rows read" in done.stdout
    assert "TP-8002" in done.stderr
    assert "TP-7000" in done.stderr
    written = [file.read_text(errors="replace") for file in events.rglob("*") if file.is_file()]
    assert any("twophase" in text for text in written), "the event log tells of the source"
    for text in (done.stdout, done.stderr, *written):
        assert password not in text
        assert "s3cr" not in text
