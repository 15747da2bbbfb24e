"""A task's notes before it prepares, without Spark and coordinator.

It handles some thousand messages at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType

from twophase.core.errors import PublishError, RowGivenUp, RowRefused
from twophase.core.verdict import Verdict
from twophase_spark.sink import batch
from twophase_spark.sink.batch import publish
from twophase_spark.sink.database import engine_of, install_ledger
from twophase_spark.sink.ledger import Batch, Ledger
from twophase_spark.sink.naming import gid_of
from twophase_spark.sink.options import Publishing, parse
from twophase_spark.sink.rows import Encoded
from twophase_spark.sink.task import ROWS_PER_STATEMENT, TaskRun, Written, write

PORTION: list[Encoded] = [(gid_of("orders", [number]), b"{}") for number in range(ROWS_PER_STATEMENT + 500)]
IN_ORDER = sorted(gid for gid, _ in PORTION)
EARLY, LATE = IN_ORDER[7], IN_ORDER[-7]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.db'}"


@pytest.fixture
def ledger(url: str) -> Ledger:
    engine = engine_of(url)
    install_ledger(engine)
    return Ledger(engine)


def run_of(ledger: Ledger, group: str, *, skips: bool = False) -> TaskRun:
    ledger.begin(Batch(group, "orders"), "id")
    return TaskRun(ledger, ledger.begin_run(group), skips=skips)


def test_each_message_stands_in_the_ledger_before_it_may_be_prepared(ledger: Ledger) -> None:
    messages = run_of(ledger, "batch").written_down(list(PORTION))

    first, _ = next(messages)

    assert (ledger.verdict(first), ledger.verdict(EARLY)) == (Verdict.IN_PROGRESS, Verdict.IN_PROGRESS)
    assert ledger.verdict(LATE) is Verdict.UNKNOWN, "it is written down while those before it are prepared"
    assert [first, *(gid for gid, _ in messages)] == IN_ORDER
    assert ledger.verdict(LATE) is Verdict.IN_PROGRESS


def test_what_another_batch_decided_is_left_out_wherever_it_stands(ledger: Ledger) -> None:
    published, given_up = run_of(ledger, "published"), run_of(ledger, "given up")
    ledger.write_down(published.writer, [EARLY, LATE])
    ledger.decide("published", [published.writer], 2)
    ledger.write_down(given_up.writer, [IN_ORDER[8], IN_ORDER[-8]])
    ledger.give_up("given up")
    run = run_of(ledger, "batch", skips=True)

    left = [gid for gid, _ in run.written_down(list(PORTION))]

    assert set(IN_ORDER) - set(left) == {EARLY, LATE, IN_ORDER[8], IN_ORDER[-8]}
    assert run.messages == len(left) == len(IN_ORDER) - 4
    ledger.decide("batch", [run.writer], run.messages)
    assert sorted(gid for page in ledger.messages("batch") for gid in page) == left
    with pytest.raises(RowGivenUp, match="1 rows"):
        list(run_of(ledger, "again").written_down(list(PORTION)))


def test_a_key_that_comes_twice_is_refused_before_anything_is_written(ledger: Ledger) -> None:
    messages = run_of(ledger, "batch").written_down([*PORTION, (LATE, b"{}")])

    with pytest.raises(RowRefused, match="same key"):
        next(messages)
    assert ledger.verdict(EARLY) is Verdict.UNKNOWN


def publishing_to(url: str) -> Publishing:
    """Return options without a coordinator: none runs, and none is needed."""
    return parse(
        {
            "coordinator": "http://127.0.0.1:9",
            "ledger": url,
            "publisher": "orders",
            "keyColumns": "id",
            "checkUrl": "http://127.0.0.1:9/check",
            "url": "http://127.0.0.1:9/in",
        }
    )


def again(url: str, group: str, numbers: Sequence[int]) -> Written:
    """Bring a decided batch back."""
    publishing = publishing_to(url)
    rows = pa.RecordBatch.from_pydict({"id": pa.array(numbers, pa.int64())})
    return write(
        publishing, StructType().add("id", LongType()), publishing.check_url, Batch(group, "orders"), iter([rows])
    )


def test_a_published_batch_comes_back_with_its_rows_only(url: str, ledger: Ledger) -> None:
    elsewhere, given_up, run = (
        run_of(ledger, "elsewhere"),
        run_of(ledger, "given up"),
        run_of(ledger, "batch", skips=True),
    )
    ledger.write_down(elsewhere.writer, [gid_of("orders", [0])])
    ledger.decide("elsewhere", [elsewhere.writer], 1)
    ledger.write_down(given_up.writer, [gid_of("orders", [1])])
    ledger.give_up("given up")
    for _ in run.written_down(list(PORTION)):
        pass
    undecided = run_of(ledger, "undecided")
    ledger.write_down(undecided.writer, [gid_of("orders", [2])])
    ledger.decide("batch", [run.writer], run.messages)
    numbers = range(len(PORTION))

    assert again(url, "batch", numbers).messages == 0

    with pytest.raises(PublishError, match=r"other rows.*Nothing was prepared") as refused:
        again(url, "batch", [*numbers, len(PORTION)])
    assert refused.value.gid == gid_of("orders", [len(PORTION)])
    assert ledger.verdict(refused.value.gid) is Verdict.UNKNOWN
    assert again(url, "given up", [len(PORTION)]).messages == 0


def test_rows_of_a_batch_that_another_run_of_the_query_decided_meanwhile_are_refused(url: str, ledger: Ledger) -> None:
    """Two drivers have a copy of one checkpoint each; both wrote before one decided."""
    first, same, other = (run_of(ledger, "batch") for _ in range(3))
    ledger.write_down(first.writer, [EARLY, LATE])
    ledger.write_down(same.writer, [LATE])
    ledger.write_down(other.writer, [IN_ORDER[8], LATE])
    ledger.decide("batch", [first.writer], 2)
    ledger.set_published("batch", 0)

    publish(publishing_to(url), [Written("batch", first.writer, 2)])
    publish(publishing_to(url), [Written("batch", same.writer, 1)])

    with pytest.raises(PublishError, match="another run of its query") as refused:
        publish(publishing_to(url), [Written("batch", other.writer, 2)])
    assert refused.value.gid == IN_ORDER[8]


def test_what_the_other_run_decided_is_submitted_before_rows_are_refused(
    url: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other run may have ended right behind its decision."""
    first, other = (run_of(ledger, "batch") for _ in range(2))
    ledger.write_down(first.writer, [EARLY])
    ledger.write_down(other.writer, [LATE])
    ledger.decide("batch", [first.writer], 1)
    submitted: list[str] = []
    monkeypatch.setattr(batch, "_submit", lambda _publishing, _ledger, group: submitted.append(group))

    with pytest.raises(PublishError, match="another run of its query"):
        publish(publishing_to(url), [Written("batch", other.writer, 1)])
    assert submitted == ["batch"]
