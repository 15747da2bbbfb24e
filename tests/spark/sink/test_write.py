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
from tests.spark.sink.harness import Harness
from tests.support.secret_files import secret_in
from twophase.barrier.http_answer import HttpReply
from twophase.core.errors import ConfigurationError
from twophase.core.lifecycle import State
from twophase.core.verdict import Verdict
from twophase_spark import register
from twophase_spark.sink import checkback, checkback_server
from twophase_spark.sink.ledger import Decision
from twophase_spark.sink.naming import gid_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def save(frame: DataFrame, harness: Harness, **options: str) -> None:
    frame.write.format("twophase").mode("append").options(**harness.options(**options)).save()


def orders(spark: SparkSession, first: int, last: int, name: str = "concat('o', id)") -> DataFrame:
    register(spark)
    return spark.range(first, last + 1, numPartitions=2).selectExpr("id", f"{name} as name")


def refused(frame: DataFrame, harness: Harness, code: str, **options: str) -> str:
    """Return Spark's text about a `write` that must fail with this code."""
    with pytest.raises(PySparkException) as caught:
        save(frame, harness, **options)
    assert code in str(caught.value)
    return str(caught.value)


def prepared(harness: Harness) -> int:
    return sum(harness.live().values())


def test_one_message_a_row_and_a_key_only_once(spark: SparkSession, harness: Harness) -> None:
    save(orders(spark, 1, 300), harness, connections="2", rowsPerRequest="50")
    harness.until_delivered(300)

    # The same keys once more, with other contents, between new ones: only the new ones are published.
    save(orders(spark, 201, 350, name="'changed'"), harness)

    harness.until_delivered(350)
    assert dict(harness.receiver.counted) == {gid_of("orders", [number]): 1 for number in range(1, 351)}
    assert {"id": 300, "name": "o300"} in harness.receiver.bodies()
    second, first = harness.book.batches("orders")
    assert (first.decision, first.messages) == (Decision.PUBLISHED, 300)
    assert (second.messages, second.published_ms is None) == (50, False)


def test_what_the_coordinator_has_forgotten_is_not_published_again(spark: SparkSession, sqlite_scene: Harness) -> None:
    harness = sqlite_scene
    save(orders(spark, 1, 20), harness)
    harness.until_delivered(20)
    harness.forget_history()

    save(orders(spark, 1, 25), harness)

    harness.until_delivered(25)
    assert set(harness.receiver.counted.values()) == {1}


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
    spark: SparkSession, sqlite_scene: Harness, columns: str, options: dict[str, str], said: str
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


def test_a_failed_write_is_finished_by_the_next_one(spark: SparkSession, sqlite_scene: Harness) -> None:
    harness = sqlite_scene
    good = orders(spark, 1, 30)
    bad = good.mapInArrow(_last_name_missing_once_prepared(harness.folder / "store.db", 15), "id long, name string")
    text = refused(bad, harness, "TP-8101", url="", urlTemplate=harness.receiver.url + "?of=${name}")
    assert "'name' is part of the address" in text
    assert prepared(harness) == 15, "the other partition was prepared"

    save(good, harness, url="", urlTemplate=harness.receiver.url + "?of=${name}")

    harness.until_delivered(30)
    assert dict(harness.receiver.counted) == {gid_of("orders", [number]): 1 for number in range(1, 31)}


def test_a_changed_row_of_a_prepared_key_is_reported(spark: SparkSession, sqlite_scene: Harness) -> None:
    twice = orders(spark, 1, 10).unionAll(orders(spark, 10, 20))
    refused(twice, sqlite_scene, "TP-8101")
    assert prepared(sqlite_scene) == 20

    refused(orders(spark, 1, 20, name="'changed'"), sqlite_scene, "TP-8102")

    assert not sqlite_scene.receiver.calls


def test_given_up_keys_are_reported_or_left_out(spark: SparkSession, harness: Harness) -> None:
    refused(orders(spark, 1, 10).unionAll(orders(spark, 10, 20)), harness, "TP-8101", checkAfter="1")
    [batch] = harness.book.batches("orders")
    gid = gid_of("orders", [5])
    assert harness.book.verdict(gid) is Verdict.IN_PROGRESS
    assert harness.book.give_up(batch.group) is Decision.GIVEN_UP
    harness.until(lambda: harness.state(gid) == "failed", "rolled back by the check-back")

    refused(orders(spark, 15, 30), harness, "TP-8103")
    save(orders(spark, 15, 30), harness, onAbandoned="skip")

    harness.until_delivered(10)
    assert dict(harness.receiver.counted) == {gid_of("orders", [number]): 1 for number in range(21, 31)}


def test_a_failed_write_rolls_back_where_that_is_wanted(spark: SparkSession, sqlite_scene: Harness) -> None:
    refused(orders(spark, 1, 10).unionAll(orders(spark, 10, 20)), sqlite_scene, "TP-8101", onFailure="abandon")

    [batch] = sqlite_scene.book.batches("orders")
    assert batch.decision is Decision.GIVEN_UP


def test_addresses_payloads_and_headers(spark: SparkSession, sqlite_scene: Harness) -> None:
    harness = sqlite_scene
    secret = secret_in(harness.folder / "tenant", "blue\n")
    save(
        orders(spark, 1, 1, name="'a/b \"c\"'").selectExpr(
            "*", "cast(10.5 as decimal(9, 2)) as amount", "timestamp'2026-01-02' as at"
        ),
        harness,
        url="",
        urlTemplate=harness.receiver.url + "/${name}",
        payloadTemplate='{"who":${name},"much":${amount},"when":${at}}',
        branchHeaders=f'{{"x-tenant":"{secret}"}}',
    )

    harness.until_delivered(1)
    [(_, body, headers)] = harness.receiver.calls
    assert body == b'{"who":"a/b \\"c\\"","much":10.50,"when":"2026-01-02T00:00:00Z"}'
    assert headers["x-tenant"] == "blue"
    assert headers["path"].endswith("/in/a%2Fb%20%22c%22")

    harness.receiver.calls.clear()
    to = orders(spark, 2, 3, name=f"concat('{harness.receiver.url}/', id)").withColumnRenamed("name", "to")
    save(to, harness, url="", urlColumn="to", payloadColumns="id")
    for name in ("a", "b"):
        harness.subscribe("rates", f"{harness.receiver.url}/{name}")
    save(orders(spark, 4, 4), harness, url="", topic="rates", payloadColumns="id")

    harness.until(lambda: len(harness.receiver.calls) == 4 and not harness.live(), "two addresses and two subscribers")
    assert sorted((headers["path"], gid, body) for gid, body, headers in harness.receiver.calls) == [
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
        ({"onFailure": "panic"}, "one of keep, abandon"),
        ({"durability": "none"}, "one of submit, check-back"),
    ],
)
def test_what_cannot_work_is_refused_before_a_row_is_read(
    spark: SparkSession, sqlite_scene: Harness, options: dict[str, str], said: str
) -> None:
    frame = orders(spark, 1, 2).selectExpr("*", "double(id) as amount")

    text = refused(frame, sqlite_scene, ConfigurationError.code, **options)

    assert said in text
    assert "s3cr" not in text
    assert not sqlite_scene.book.batches("orders")


def test_another_key_of_the_same_publisher_is_refused(spark: SparkSession, sqlite_scene: Harness) -> None:
    save(orders(spark, 1, 2), sqlite_scene)

    assert "published by 'id'" in refused(orders(spark, 1, 2), sqlite_scene, "TP-7000", keyColumns="name")


def test_submits_that_died_with_the_coordinator_are_found_in_the_ledger(
    spark: SparkSession, sqlite_scene: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With check-back durability a submit may be in memory only.

    The batch counts as published all the same. Until the coordinator is killed, no check-back is answered: on a slow
    machine one would decide a message before its submit.
    """
    harness, answered, killed = sqlite_scene, checkback.answer, threading.Event()

    def answer_when_killed(engine: Engine, parameters: Mapping[str, Any], *_: Any, **_named: Any) -> HttpReply:
        killed.wait(60)
        return answered(engine, parameters)

    monkeypatch.setattr(checkback_server, "answer", answer_when_killed)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes calls, and answers none
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/in"
        save(orders(spark, 1, 20), harness, url=url, durability="check-back", checkAfter="1")
        harness.kill()
        killed.set()
        assert harness.live() == {str(int(State.PREPARED)): 20}
        assert [batch.decision for batch in harness.book.batches("orders")] == [Decision.PUBLISHED]

        harness.start()

        harness.until(lambda: harness.live() == {str(int(State.SUBMITTED)): 20}, "all decided by check-back")


def test_an_overwrite_is_refused(spark: SparkSession, sqlite_scene: Harness) -> None:
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        orders(spark, 1, 2).write.format("twophase").mode("overwrite").options(**sqlite_scene.options()).save()


def test_submits_of_a_batch_that_is_decided_are_made_up_for(spark: SparkSession, sqlite_scene: Harness) -> None:
    harness = sqlite_scene
    save(orders(spark, 1, 10), harness)
    harness.until_delivered(10)
    [batch] = harness.book.batches("orders")
    harness.undo_published(batch.group)

    save(orders(spark, 11, 12), harness)

    harness.until_delivered(12)
    assert all(one.published_ms for one in harness.book.batches("orders"))
    assert rows(harness.store, "select count(*) from attempt") == [(0,)]


def test_a_message_that_an_operator_stopped_is_reported(spark: SparkSession, sqlite_scene: Harness) -> None:
    harness = sqlite_scene
    refused(orders(spark, 1, 10).unionAll(orders(spark, 10, 20)), harness, "TP-8101")
    gid = gid_of("orders", [3])
    harness.stop_by_force(gid)
    assert harness.state(gid) == "failed"

    assert gid in refused(orders(spark, 1, 20), harness, "TP-8103", onAbandoned="skip")
    save(orders(spark, 4, 20), harness)

    harness.until(lambda: len(harness.receiver.counted) == 17, "all but the stopped one and those not written again")
    assert gid not in harness.receiver.counted
