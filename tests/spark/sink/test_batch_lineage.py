"""Lineage of the sink: events of batches that are really published."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from tests.spark.sink.harness import Harness
from tests.spark.sink.test_publishing import GIDS, GROUP, written
from tests.spark.test_lineage import by_model
from twophase.core.errors import PublishError
from twophase_spark.lineage import batches
from twophase_spark.sink.writer import BatchWriter, StreamWriter

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
ROWS = StructType([StructField("id", LongType())])
Events = Callable[[], list[dict[str, Any]]]


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    with mock.patch.dict(os.environ):
        for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
            del os.environ[name]
        yield


@pytest.fixture
def events(tmp_path: Path) -> Events:
    file = tmp_path / "events.jsonl"
    for name, value in {"TYPE": "file", "LOG_FILE_PATH": str(file), "APPEND": "true"}.items():
        os.environ[f"OPENLINEAGE__TRANSPORT__{name}"] = value
    return lambda: [json.loads(line) for line in file.read_text().splitlines()]


def test_a_batch_tells_what_it_published_and_where_it_is_decided(sqlite_scene: Harness, events: Events) -> None:
    os.environ["OPENLINEAGE_NAMESPACE"] = "bank"
    BatchWriter(sqlite_scene.options(), ROWS).commit([written(sqlite_scene, GIDS)])

    start, end = events()

    assert [event["eventType"] for event in (start, end)] == ["START", "COMPLETE"]
    assert start["run"]["runId"] == end["run"]["runId"]
    assert (end["job"]["namespace"], end["job"]["name"]) == ("bank", "twophase.publish.orders")
    assert end["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    messages, decision = end["outputs"]
    assert (messages["namespace"], messages["name"]) == (sqlite_scene.url, "messages")
    assert messages["outputFacets"]["outputStatistics"]["rowCount"] == len(GIDS)
    ledger = sqlite_scene.ledger.removeprefix("sqlite:///")
    assert (decision["namespace"], decision["name"]) == (f"sqlite://{ledger}", "barrier"), (
        "as an audit names a producer"
    )
    assert not any(gid in json.dumps([start, end]) for gid in GIDS)
    for event in (start, end):
        by_model(event)


def test_a_batch_of_a_stream_that_comes_back_is_the_same_run(sqlite_scene: Harness, events: Events) -> None:
    winner = written(sqlite_scene, GIDS)
    for _ in range(2):
        StreamWriter(sqlite_scene.options(), ROWS).commit([winner], 1)

    told = events()

    assert [event["eventType"] for event in told] == ["START", "COMPLETE"] * 2
    assert len({event["run"]["runId"] for event in told}) == 1
    assert {event["job"]["facets"]["jobType"]["processingType"] for event in told} == {"STREAMING"}


def test_a_batch_that_cannot_be_submitted_fails(sqlite_scene: Harness, events: Events) -> None:
    winner = written(sqlite_scene, GIDS, prepared=False)
    with pytest.raises(PublishError):
        StreamWriter(sqlite_scene.options(), ROWS).commit([winner], 1)

    end = events()[-1]

    assert end["eventType"] == "FAIL"
    assert end["run"]["facets"]["errorMessage"]["message"].startswith(PublishError.code)
    assert "outputFacets" not in end["outputs"][0] or not end["outputs"][0]["outputFacets"]


def test_a_batch_without_rows_is_no_run(sqlite_scene: Harness, events: Events) -> None:
    StreamWriter(sqlite_scene.options(), ROWS).commit([None], 1)

    with pytest.raises(FileNotFoundError):
        events()


def test_a_backend_that_hangs_fails_no_batch(
    sqlite_scene: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(batches, "WAIT_S_MAX", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = {"TYPE": "http", "URL": f"http://127.0.0.1:{silent.getsockname()[1]}", "TIMEOUT": "3"}
        for name, value in settings.items():
            os.environ[f"OPENLINEAGE__TRANSPORT__{name}"] = value
        os.environ["OPENLINEAGE__TRANSPORT__RETRY"] = '{"total": 0}'
        BatchWriter(sqlite_scene.options(), ROWS).commit([written(sqlite_scene, GIDS)])

    sqlite_scene.until_delivered(len(GIDS))
    assert "the batch is not affected" in caplog.text
    assert sqlite_scene.book.find("orders", GROUP)[0].published_ms is not None
