"""The Python of the pages about Spark, run as printed but for its addresses."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.docs.pages import ROOT
from tests.spark.cases import Case
from tests.spark.plant import make_system, plant
from tests.spark.sink.conftest import sqlite_scene
from tests.spark.sink.harness import Harness
from tests.spark.source.stores import SqliteUnderTest, append, finish, gid_of
from tests.spark.truth import nowadays
from tests.support.secret_files import secret_in

__all__ = ["sqlite_scene"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
_PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(name: str) -> list[str]:
    """Return the Python of a page, block by block."""
    return _PYTHON.findall((ROOT / "docs" / name).read_text("utf-8"))


def run(block: str, places: Mapping[str, object], names: dict[str, Any]) -> None:
    """Run a block in the scope of those before it.

    Arguments:
        places: what stands instead of the printed addresses.
    """
    for printed, place in places.items():
        block = block.replace(printed, str(place))
    exec(compile(block, "page", "exec"), names)


def test_the_page_about_reading(spark: SparkSession, tmp_path: Path) -> None:
    store = SqliteUnderTest(tmp_path)
    finish(store, 1, 1, 3)
    append(store, "orders", 0, 0, 4)
    store.many(
        "insert into queue_progress (consumers, topic, queue, next_number, unfinished, changed_ms) "
        "values ('billing', 'orders', 0, ?, x'', 0)",
        [(2,)],
    )
    with closing(sqlite3.connect(tmp_path / "b.db")) as bank, bank:
        bank.execute("create table booking (transfer text, step text, amount integer)")
        bank.execute("insert into booking values (?, '01', 30)", (gid_of(1, 1),))
    places = {
        "file:/run/secrets/store": store.url,
        "file:/run/secrets/bank-b": secret_in(tmp_path / "bank-url", f"sqlite:///{tmp_path / 'b.db'}"),
        '"attempts")': f'"{tmp_path / "attempts"}")',
        '"lake"': f'"{tmp_path / "lake"}"',
        '"lake-checkpoint"': f'"{tmp_path / "lake-checkpoint"}"',
    }
    names: dict[str, Any] = {}

    for block in blocks("how-to/read-with-spark.md"):
        run(block, places, names)

    assert names["behind"].count() == 3
    assert names["ledger"].collect() == [(gid_of(1, 1), "01", 30)]
    assert spark.read.parquet(str(tmp_path / "lake")).count() == 3
    assert (tmp_path / "attempts" / "_SUCCESS").is_file()


def test_the_short_examples_of_other_pages(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = SqliteUnderTest(tmp_path)
    finish(store, 1, 1, 3)
    places = {"file:/run/secrets/store": store.url, "env:STORE": store.url}
    names: dict[str, Any] = {"spark": spark}
    for page in ("how-to/spark-cluster.md", "how-to/audit-log.md"):
        for block in blocks(page):
            run(block, places, names)
    rows = spark.readStream.format("twophase").option("url", store.url).option("table", "history").load()
    writing = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    names["query"] = writing.trigger(availableNow=True).start()
    names["query"].awaitTermination()

    for block in blocks("reference/spark-source.md"):
        run(block, places, names)

    assert names["lag"].rows == 0
    assert "0 rows, the oldest for 0.0 s, reported at 20" in capsys.readouterr().out


def test_the_page_about_publishing(spark: SparkSession, sqlite_scene: Harness, tmp_path: Path) -> None:
    options = sqlite_scene.options()
    places = {
        "http://twophase:36789": options["coordinator"],
        "file:/run/secrets/ledger": options["ledger"],
        "http://checkback:36791/twophase/spark/check": options["checkUrl"],
        "http://shipping/": options["url"] + "/",
        "/data/checkpoints/orders": tmp_path / "checkpoint",
    }
    frame, addressed, streamed = blocks("how-to/publish-from-spark.md")
    [progress] = blocks("reference/spark-sink.md")
    names: dict[str, Any] = {"orders": spark.sql("select id as order_id, 'nl' as country from range(3)")}
    names["spark"] = spark

    run(frame, places, names)
    one = {name: value for name, value in names["publish"].items() if name != "url"}
    more = {**names, "orders": spark.sql("select 3 as order_id, 'nl' as country"), "publish": one}
    run(f'(orders.write.format("twophase").mode("append").options(**publish)\n{addressed}.save())', places, more)
    rows = tmp_path / "rows"
    rows.mkdir()
    (rows / "0.json").write_text('{"order_id":4}\n')
    names["orders"] = spark.readStream.schema("order_id long").json(str(rows))
    run(f"query = {streamed}", places, names)
    names["query"].processAllAvailable()
    run(progress, places, names)
    names["query"].stop()

    sqlite_scene.until_delivered(5)
    assert sum(sqlite_scene.receiver.counted.values()) == 5
    assert {"order": 3} in sqlite_scene.receiver.bodies()
    assert names["progress"].decision == "published"


def test_the_page_about_audits(spark: SparkSession, tmp_path: Path) -> None:
    system = make_system(tmp_path)
    plant(system, nowadays([Case("dropped", "lost", None, "msg", (), ())]))
    places = {
        "postgresql://audit@db/twophase": f"sqlite:///{system.coordinator}",
        "postgresql://audit@db-a/bank": f"sqlite:///{system.bank_a}",
        "postgresql://audit@db-b/bank": f"sqlite:///{system.bank_b}",
    }
    names: dict[str, Any] = {"spark": spark}
    [block] = blocks("how-to/read-an-audit.md")

    run(block, places, names)

    assert names["report"].result.counts["lost"] == 1
