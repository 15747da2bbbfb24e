"""The driver's work on a batch that is written, without Spark.

The tests show what is submitted, and what is reported.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType
from sqlalchemy import text
from typer.testing import CliRunner

from tests.spark.sink.harness import Harness
from twophase.client.transport.wire import Operation, encode_request
from twophase.core.errors import ContraryDecision, PublishError
from twophase.core.many import OneResult
from twophase.core.message import Branch, Message
from twophase.core.options import Options
from twophase_spark.cli.commands import app
from twophase_spark.sink.batch import publish
from twophase_spark.sink.bulk import BulkClient
from twophase_spark.sink.ledger import Batch, Decision, Ledger
from twophase_spark.sink.naming import gid_of, stream_batch
from twophase_spark.sink.options import parse
from twophase_spark.sink.task import Written
from twophase_spark.sink.writer import BatchWriter

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
GROUP = stream_batch("orders", "query", 1)
GIDS = [gid_of("orders", [number]) for number in range(10)]


def written(harness: Harness, gids: list[str], *, prepared: bool = True, check_after_ms: int = 60_000) -> Written:
    """Return one run of a task, in the state that it leaves."""
    harness.book.begin(Batch(GROUP, "orders", "query", 1), "id")
    writer = harness.book.begin_run(GROUP)
    harness.book.write_down(writer, gids)
    check = f"{harness.checkback.url}?barrier={harness.book.identity()}"
    branch, options = (
        Branch(harness.receiver.url, b"{}"),
        Options(explicit_verdict=True, timeout_to_fail_ms=check_after_ms),
    )
    messages = [(gid, encode_request(Message(gid, (branch,), check, options), Operation.PREPARE)) for gid in gids]

    def settled(_: str, result: OneResult) -> None:
        assert not result.code

    if prepared:
        with BulkClient(harness.url) as client:
            client.prepare(messages, 3, settled)
    return Written(GROUP, writer, len(gids))


def forget(harness: Harness, rows: str) -> None:
    """Delete rows of the ledger."""
    with harness.engine.begin() as connection:
        connection.execute(text(f"delete from {rows}"))


def test_only_the_run_that_counts_is_submitted(sqlite_scene: Harness) -> None:
    harness = sqlite_scene
    written(harness, GIDS)
    winner = written(harness, GIDS[:6])

    publish(parse(harness.options()), [winner])

    harness.until(lambda: len(harness.receiver.counted) == 6, "six")
    assert dict(harness.receiver.counted) == dict.fromkeys(GIDS[:6], 1)
    assert {harness.state(gid) for gid in GIDS[6:]} == {"prepared"}


@pytest.mark.parametrize("table", ["message", "writer", "batch"])
def test_a_ledger_that_lost_rows_of_a_batch_publishes_none_of_it(sqlite_scene: Harness, table: str) -> None:
    """It crashed without its newest commits, or a standby that lacked them took over."""
    harness = sqlite_scene
    publishing = parse(harness.options())
    kept, lost = written(harness, GIDS[:6]), written(harness, GIDS[6:])
    condition = f"group_id = '{GROUP}'" if table == "batch" else f"writer = {lost.writer}"
    forget(harness, f"twophase_spark_{table} where {condition}")

    with pytest.raises(PublishError, match="The ledger has lost rows"):
        publish(publishing, [kept, lost])

    assert harness.book.decision(GROUP) is Decision.OPEN
    assert {harness.state(gid) for gid in GIDS} == {"prepared"}
    publish(publishing, [written(harness, GIDS[:6]), written(harness, GIDS[6:])])
    harness.until_delivered(10)
    assert dict(harness.receiver.counted) == dict.fromkeys(GIDS, 1)


def test_a_batch_whose_decision_was_lost_before_its_submits_comes_back(
    sqlite_scene: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = sqlite_scene
    publishing = parse(harness.options())
    winner = written(harness, GIDS)
    decide = Ledger.decide

    def decide_in_vain(ledger: Ledger, group: str, winners: list[int], messages: int) -> Decision:
        decision = decide(ledger, group, winners, messages)
        forget(harness, f"barrier where gid = '{group}'")
        return decision

    monkeypatch.setattr(Ledger, "decide", decide_in_vain)

    with pytest.raises(PublishError, match="no decision any more"):
        publish(publishing, [winner])

    monkeypatch.undo()
    publish(publishing, [winner])
    harness.until_delivered(10)


@pytest.mark.parametrize("others", [0, 6])
def test_a_batch_whose_decision_was_lost_while_it_came_back_is_not_published_in_part(
    sqlite_scene: Harness, others: int
) -> None:
    """A task that met the decision recorded nothing."""
    harness = sqlite_scene
    publishing = parse(harness.options())
    met = Written(GROUP, 0, 0)
    rest = [written(harness, GIDS[:others])] if others else []
    if not rest:
        harness.book.begin_run(GROUP)

    with pytest.raises(PublishError, match="no decision any more"):
        publish(publishing, [met, *rest])

    assert harness.book.decision(GROUP) is Decision.OPEN


def test_what_an_operator_stopped_before_is_reported_once(sqlite_scene: Harness) -> None:
    harness = sqlite_scene
    winner = written(harness, GIDS)
    harness.stop_by_force(GIDS[3])
    publishing = parse(harness.options())

    with pytest.raises(ContraryDecision, match="1 messages"):
        publish(publishing, [winner])
    publish(publishing, [winner])

    harness.until_delivered(9)
    assert GIDS[3] not in harness.receiver.counted


def test_a_coordinator_that_knows_nothing_of_it_is_reported(sqlite_scene: Harness) -> None:
    winner = written(sqlite_scene, GIDS, prepared=False)

    with pytest.raises(PublishError, match="TP-2004") as refused:
        publish(parse(sqlite_scene.options()), [winner])

    assert not sqlite_scene.receiver.calls
    [batch] = sqlite_scene.book.batches("orders")
    assert (batch.decision, batch.published_ms) == (Decision.PUBLISHED, None)

    # The batch was delivered, and the coordinator has forgotten it; an operator abandons it, and the publisher
    # continues.
    command = re.search(r"`twophase spark (abandon [^`]+)`", refused.value.remedy)
    assert command is not None
    done = CliRunner().invoke(app, [*command[1].split(), "--ledger", sqlite_scene.ledger])
    assert (done.exit_code, "left to the check-backs" in done.output) == (0, True)
    publish(parse(sqlite_scene.options()), [winner])


def test_nothing_is_submitted_of_what_was_given_up_meanwhile(sqlite_scene: Harness) -> None:
    winner = written(sqlite_scene, GIDS)
    sqlite_scene.book.give_up(GROUP)

    publish(parse(sqlite_scene.options()), [winner])

    assert {sqlite_scene.state(gid) for gid in GIDS} == {"prepared"}, "until the check-back rolls them back"
    assert not sqlite_scene.receiver.calls


def test_a_coordinator_that_restarts_is_waited_for(sqlite_scene: Harness) -> None:
    harness = sqlite_scene
    winner = written(harness, GIDS)
    harness.kill()
    harness.start()

    publish(parse(harness.options()), [winner])

    harness.until_delivered(10)
    assert dict(harness.receiver.counted) == dict.fromkeys(GIDS, 1)


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (Decision.PUBLISHED, "was decided before it failed: it is published"),
        (Decision.OPEN, "could not be given up now"),
        (Decision.GIVEN_UP, ""),
    ],
)
def test_a_failed_write_says_what_it_could_not_abandon(
    sqlite_scene: Harness,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    decision: Decision,
    said: str,
) -> None:
    schema = StructType().add("id", LongType())
    writer = BatchWriter(sqlite_scene.options(onFailure="abandon"), schema)
    task = writer.write(iter([pa.RecordBatch.from_pydict({"id": [1]})]))
    if decision is Decision.PUBLISHED:
        sqlite_scene.book.decide(task.group, [task.writer], task.messages)
    elif decision is Decision.OPEN:
        monkeypatch.setattr(Ledger, "give_up", lambda *_: Decision.OPEN)  # another process has locked the decision

    writer.abort([task])

    assert sqlite_scene.book.decision(task.group) is decision
    assert said in caplog.text if said else not caplog.text
