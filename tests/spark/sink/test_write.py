"""`df.write.format("twophase")`: one message a row, once a key.

A batch with a bad row publishes nothing.
"""

from __future__ import annotations

import contextlib
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import RecordBatch
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from sqlalchemy import Engine

from tests.crash.checker import rows
from tests.spark.sink.scene import Scene
from twophase.barrier.http_answer import HttpReply
from twophase.core.errors import ConfigurationError
from twophase.core.lifecycle import State
from twophase.core.verdict import Verdict
from twophase_spark import register
from twophase_spark.sink import checkback
from twophase_spark.sink.ledger import Decision
from twophase_spark.sink.naming import gid_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def save(frame: DataFrame, scene: Scene, **options: str) -> None:
    frame.write.format("twophase").mode("append").options(**scene.options(**options)).save()


def orders(spark: SparkSession, first: int, last: int, name: str = "concat('o', id)") -> DataFrame:
    register(spark)
    return spark.range(first, last + 1, numPartitions=2).selectExpr("id", f"{name} as name")


def refused(frame: DataFrame, scene: Scene, code: str, **options: str) -> str:
    """Return Spark's text about a `write` that must fail with this code."""
    with pytest.raises(PySparkException) as caught:
        save(frame, scene, **options)
    assert code in str(caught.value)
    return str(caught.value)


def prepared(scene: Scene) -> int:
    return sum(scene.live().values())


def test_one_message_a_row_and_a_key_only_once(spark: SparkSession, scene: Scene) -> None:
    save(orders(spark, 1, 300), scene, connections="2", rowsPerRequest="50")
    scene.until_delivered(300)

    # The same keys once more, with other contents, between new ones: only the new ones are published.
    save(orders(spark, 201, 350, name="'changed'"), scene)

    scene.until_delivered(350)
    assert dict(scene.receiver.counted) == {gid_of("orders", [number]): 1 for number in range(1, 351)}
    assert {"id": 300, "name": "o300"} in scene.receiver.bodies()
    second, first = scene.book.batches("orders")
    assert (first.decision, first.messages) == (Decision.PUBLISHED, 300)
    assert (second.messages, second.published_ms is None) == (50, False)


def test_what_the_coordinator_has_forgotten_is_not_published_again(spark: SparkSession, sqlite_scene: Scene) -> None:
    scene = sqlite_scene
    save(orders(spark, 1, 20), scene)
    scene.until_delivered(20)
    scene.forget_history()

    save(orders(spark, 1, 25), scene)

    scene.until_delivered(25)
    assert set(scene.receiver.counted.values()) == {1}


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("if(id = 7, null, id) as id, 'x' as name", {}, "'id' is part of the key, and null"),
        ("if(id = 7, 8, id) as id, 'x' as name", {}, "same key"),
        ("id % 10 as id, 'x' as name", {}, "same key"),
        ("id, if(id = 7, double('NaN'), 1) as amount", {}, "'amount' is not a number"),
        ("id, if(id = 7, null, 'http://b/in') as to", {"url": "", "urlColumn": "to"}, "'to' is the address, and null"),
        ("id, if(id = 7, 'ftp://b', 'http://b/in') as to", {"url": "", "urlColumn": "to"}, "steps[0].action"),
        ("id, repeat('x', 1100000) as name", {"rowsPerRequest": "1"}, "payload is"),
    ],
)
def test_nothing_is_published_of_a_batch_with_a_bad_row(
    spark: SparkSession, sqlite_scene: Scene, columns: str, options: dict[str, str], said: str
) -> None:
    register(spark)
    frame = spark.range(1, 21, numPartitions=2).selectExpr(*_split(columns))

    text = refused(frame, sqlite_scene, "TP-8101", **options)

    assert said in text
    assert not sqlite_scene.receiver.calls
    assert {batch.decision for batch in sqlite_scene.book.batches("orders")} <= {Decision.OPEN}


def _split(columns: str) -> Iterator[str]:
    """Yield the expressions of a list in which brackets may contain commas."""
    depth, start = 0, 0
    for place, character in enumerate(columns):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            yield columns[start:place]
            start = place + 1
    yield columns[start:]


def _last_name_missing_once_prepared(
    store: Path, count: int
) -> Callable[[Iterator[RecordBatch]], Iterator[RecordBatch]]:
    """Spoil order 30, but only after `count` messages are prepared.

    A task that fails stops the others, wherever they are.
    """

    def spoiled(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            names = batch.column("name").to_pylist()
            if names[-1] == "o30":
                names[-1] = None
                end = time.monotonic() + 60
                with contextlib.closing(sqlite3.connect(store)) as database:
                    while database.execute("select count(*) from message").fetchone()[0] < count:
                        if time.monotonic() > end:
                            raise TimeoutError("the other partition was not prepared")
                        time.sleep(0.05)
            yield RecordBatch.from_pydict({"id": batch.column("id"), "name": pa.array(names, pa.string())})

    return spoiled


def test_a_failed_write_is_finished_by_the_next_one(spark: SparkSession, sqlite_scene: Scene) -> None:
    scene = sqlite_scene
    good = orders(spark, 1, 30)
    bad = good.mapInArrow(_last_name_missing_once_prepared(scene.folder / "store.db", 15), "id long, name string")
    text = refused(bad, scene, "TP-8101", url="", urlTemplate=scene.receiver.url + "?of=${name}")
    assert "'name' is part of the address" in text
    assert prepared(scene) == 15, "the other partition was prepared"

    save(good, scene, url="", urlTemplate=scene.receiver.url + "?of=${name}")

    scene.until_delivered(30)
    assert dict(scene.receiver.counted) == {gid_of("orders", [number]): 1 for number in range(1, 31)}


def test_a_changed_row_of_a_prepared_key_is_reported(spark: SparkSession, sqlite_scene: Scene) -> None:
    twice = orders(spark, 1, 10).unionAll(orders(spark, 10, 20))
    refused(twice, sqlite_scene, "TP-8101")
    assert prepared(sqlite_scene) == 20

    refused(orders(spark, 1, 20, name="'changed'"), sqlite_scene, "TP-8102")

    assert not sqlite_scene.receiver.calls


def test_given_up_keys_are_reported_or_left_out(spark: SparkSession, scene: Scene) -> None:
    refused(orders(spark, 1, 10).unionAll(orders(spark, 10, 20)), scene, "TP-8101", checkAfter="1")
    [batch] = scene.book.batches("orders")
    gid = gid_of("orders", [5])
    assert scene.book.verdict(gid) is Verdict.IN_PROGRESS
    assert scene.book.give_up(batch.group) is Decision.GIVEN_UP
    scene.until(lambda: scene.state(gid) == "failed", "rolled back by the check-back")

    refused(orders(spark, 15, 30), scene, "TP-8103")
    save(orders(spark, 15, 30), scene, onAbandoned="skip")

    scene.until_delivered(10)
    assert dict(scene.receiver.counted) == {gid_of("orders", [number]): 1 for number in range(21, 31)}


def test_a_failed_write_rolls_back_where_that_is_wanted(spark: SparkSession, sqlite_scene: Scene) -> None:
    refused(orders(spark, 1, 10).unionAll(orders(spark, 10, 20)), sqlite_scene, "TP-8101", onFailure="abandon")

    [batch] = sqlite_scene.book.batches("orders")
    assert batch.decision is Decision.GIVEN_UP


def test_addresses_payloads_and_headers(spark: SparkSession, sqlite_scene: Scene) -> None:
    scene = sqlite_scene
    secret = scene.folder / "tenant"
    secret.write_text("blue\n")
    save(
        orders(spark, 1, 1, name="'a/b \"c\"'").selectExpr(
            "*", "cast(10.5 as decimal(9, 2)) as amount", "timestamp'2026-01-02' as at"
        ),
        scene,
        url="",
        urlTemplate=scene.receiver.url + "/${name}",
        payloadTemplate='{"who":${name},"much":${amount},"when":${at}}',
        branchHeaders=f'{{"x-tenant":"file:{secret}"}}',
    )

    scene.until_delivered(1)
    [(_, body, headers)] = scene.receiver.calls
    assert body == b'{"who":"a/b \\"c\\"","much":10.50,"when":"2026-01-02T00:00:00Z"}'
    assert headers["x-tenant"] == "blue"
    assert headers["path"].endswith("/in/a%2Fb%20%22c%22")

    scene.receiver.calls.clear()
    to = orders(spark, 2, 3, name=f"concat('{scene.receiver.url}/', id)").withColumnRenamed("name", "to")
    save(to, scene, url="", urlColumn="to", payloadColumns="id")
    for name in ("a", "b"):
        scene.subscribe("rates", f"{scene.receiver.url}/{name}")
    save(orders(spark, 4, 4), scene, url="", topic="rates", payloadColumns="id")

    scene.until(lambda: len(scene.receiver.calls) == 4 and not scene.live(), "two addresses and two subscribers")
    assert sorted((headers["path"], gid, body) for gid, body, headers in scene.receiver.calls) == [
        ("/in/2", gid_of("orders", [2]), b'{"id":2}'),
        ("/in/3", gid_of("orders", [3]), b'{"id":3}'),
        ("/in/a", gid_of("orders", [4]), b'{"id":4}'),
        ("/in/b", gid_of("orders", [4]), b'{"id":4}'),
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"publisher": ""}, "publisher is missing"),
        ({"keyColumns": "nr"}, "no column 'nr'"),
        ({"keyColumns": "amount"}, "a key is text"),
        ({"topic": "orders"}, "exclude each other"),
        ({"ledger": "postgresql://me:s3cr@db/x"}, "must not carry a password"),
        ({"authorization": "s3cr"}, "env:NAME or file:PATH"),
        ({"coordinator": "http://me:s3cr@h"}, "must not carry a login"),
        ({"checkAfter": "0"}, "checkAfter"),
        ({"speed": "9"}, "no option 'speed'"),
        ({"payloadColumn": "amount"}, "text is needed"),
        ({"onFailure": "panic"}, "keep or abandon"),
        ({"durability": "none"}, "submit or check-back"),
    ],
)
def test_what_cannot_work_is_refused_before_a_row_is_read(
    spark: SparkSession, sqlite_scene: Scene, options: dict[str, str], said: str
) -> None:
    frame = orders(spark, 1, 2).selectExpr("*", "double(id) as amount")

    text = refused(frame, sqlite_scene, ConfigurationError.code, **options)

    assert said in text
    assert "s3cr" not in text
    assert not sqlite_scene.book.batches("orders")


def test_another_key_of_the_same_publisher_is_refused(spark: SparkSession, sqlite_scene: Scene) -> None:
    save(orders(spark, 1, 2), sqlite_scene)

    assert "published by 'id'" in refused(orders(spark, 1, 2), sqlite_scene, "TP-7000", keyColumns="name")


def test_submits_that_died_with_the_coordinator_are_found_in_the_ledger(
    spark: SparkSession, sqlite_scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With check-back durability a submit may be in memory only.

    The batch counts as published all the same. Until the coordinator is killed, no check-back is answered: on a slow
    machine one would decide a message before its submit.
    """
    scene, answered, killed = sqlite_scene, checkback.answer, threading.Event()

    def answer_when_killed(engine: Engine, parameters: Mapping[str, Any]) -> HttpReply:
        killed.wait(60)
        return answered(engine, parameters)

    monkeypatch.setattr(checkback, "answer", answer_when_killed)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes calls, and answers none
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/in"
        save(orders(spark, 1, 20), scene, url=url, durability="check-back", checkAfter="1")
        scene.kill()
        killed.set()
        assert scene.live() == {str(int(State.PREPARED)): 20}
        assert [batch.decision for batch in scene.book.batches("orders")] == [Decision.PUBLISHED]

        scene.start()

        scene.until(lambda: scene.live() == {str(int(State.SUBMITTED)): 20}, "all decided by check-back")


def test_an_overwrite_is_refused(spark: SparkSession, sqlite_scene: Scene) -> None:
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        orders(spark, 1, 2).write.format("twophase").mode("overwrite").options(**sqlite_scene.options()).save()


def test_submits_of_a_batch_that_is_decided_are_made_up_for(spark: SparkSession, sqlite_scene: Scene) -> None:
    scene = sqlite_scene
    save(orders(spark, 1, 10), scene)
    scene.until_delivered(10)
    [batch] = scene.book.batches("orders")
    scene.undo_published(batch.group)

    save(orders(spark, 11, 12), scene)

    scene.until_delivered(12)
    assert all(one.published_ms for one in scene.book.batches("orders"))
    assert rows(scene.store, "select count(*) from attempt") == [(0,)]


def test_a_message_that_an_operator_stopped_is_reported(spark: SparkSession, sqlite_scene: Scene) -> None:
    scene = sqlite_scene
    refused(orders(spark, 1, 10).unionAll(orders(spark, 10, 20)), scene, "TP-8101")
    gid = gid_of("orders", [3])
    scene.stop_by_force(gid)
    assert scene.state(gid) == "failed"

    assert gid in refused(orders(spark, 1, 20), scene, "TP-8103", onAbandoned="skip")
    save(orders(spark, 4, 20), scene)

    scene.until(lambda: len(scene.receiver.counted) == 17, "all but the stopped one and those not written again")
    assert gid not in scene.receiver.counted
