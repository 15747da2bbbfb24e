"""The audit that runs for good: history's stream extends the verified point.

The stream brings the messages that have ended, and every micro-batch extends the verified point. Two records must
agree: Spark's checkpoint (the rows of each batch) and twophase's state (what was verified). A batch is audited,
reported, written into the state, and only then recorded by Spark. After a kill before the state is written, Spark
brings the very same batch again, and it is audited anew. After a kill behind that, Spark brings it again too, and its
number shows that it is done. So nothing is skipped and nothing reported twice, and `batch` in the state is never more
than one ahead of the checkpoint. Where the two do not fit (either was lost, or restored from a backup; a coordinator
was added or removed) the state wins: a new checkpoint begins at the verified point.

Faults that leave no trace in history (an effect of an unknown message, a committed transaction without one, a message
that grew late) are looked for when no batch has come for the interval: rounds without history, between batches.

A violation is reported by the round that first saw it, after its grace time. A stop during a round's wait gives the
round up, so that no grace time is ever cut short: nothing is written, and the next start does it anew.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path

import msgspec
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so
from pyspark.sql.streaming.query import StreamingQuery

from twophase.core.errors import CannotRead, ConfigurationError
from twophase_spark import register
from twophase_spark.auditing.reporter import Reporter
from twophase_spark.auditing.run import Arrived, look_into, run
from twophase_spark.coverage import Coverage
from twophase_spark.datasource.options.address import ENVIRONMENT, require_no_secret
from twophase_spark.inputs.increment import VerifiedPoint, read_state, write_state
from twophase_spark.inputs.plan import Plan
from twophase_spark.inputs.source import local_gids
from twophase_spark.locations import Location, Role
from twophase_spark.reports.report import Report

EVERY_SECONDS = 10.0
ROWS_PER_BATCH_MAX = 100_000
"""Bound on gids that are looked up by key; more would read every database whole."""
NOT_CHECKED = 2
_LOOKS_SECONDS = 0.1
_VARIABLE = "TWOPHASE_AUDIT_STORE_{}"


class Stopped(Exception):
    """An error: a round was given up because a stop was requested."""


class Following(msgspec.Struct, frozen=True):
    """The options of a follower.

    `references`: by coordinator, the source's option `url`, see `references_of`. `show` is called with each report that
    differs from the one before, `failed` with the error that ended a round; `reached` is for tests that end it at a
    point.
    """

    references: dict[str, str]
    stop: threading.Event
    say: Callable[[str], None]
    show: Callable[[Report], None]
    failed: Callable[[Exception], None]
    every_s: float = EVERY_SECONDS
    reached: Callable[[str], None] = lambda _: None


def references_of(locations: Sequence[Location]) -> dict[str, str]:
    """Return the reference of each coordinator's store.

    It is the URL or, when that carries a password, the variable that holds it from now on. Call it before Spark is
    started, whose workers inherit the environment of that moment.
    """
    found: dict[str, str] = {}
    for number, location in enumerate(one for one in locations if one.role is Role.COORDINATOR):
        try:
            found[location.name] = require_no_secret(location.url)
        except ConfigurationError:
            variable = _VARIABLE.format(number)
            os.environ[variable] = location.url
            found[location.name] = ENVIRONMENT + variable
    return found


def checkpoints_of(state: Path) -> Path:
    """Return the folder beside the state where Spark keeps its stream's checkpoint."""
    return state.with_name(f"{state.name}.stream").absolute()


class Follower:
    """One audit that follows history, until its stop is set."""

    def __init__(self, spark: SparkSession, plan: Plan, following: Following) -> None:
        """Keep the arguments; `run` begins."""
        assert plan.state is not None, "there is a verified point to extend"
        self._spark = register(spark)
        self._plan = plan
        self._state_path = plan.state
        self._following = following
        self._lock = threading.Lock()
        """Lets one round run at a time.

        Batches run in a thread of Spark's, rounds without history in this one.
        """
        self._failure: Exception | None = None
        self._code = NOT_CHECKED
        self._teller = Reporter(following.show, following.say)
        self._last = time.monotonic()

    def run(self) -> int:
        """Follow until the stop; return the exit code of the last round.

        Raises:
            ConfigurationError: the state file is no state, or an option cannot work.
        """
        following = self._following
        logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)  # `failed` reports a batch's failure
        while not following.stop.is_set():
            try:
                self._follow()
            except Stopped:
                break
            except ConfigurationError:
                raise
            except Exception as error:  # noqa: BLE001 -- a database that is away now may be back soon
                if following.stop.is_set():
                    break  # a stop of the process group stops Java too: what follows is no failure
                self._fail(error)
            following.stop.wait(following.every_s)
        following.say("stopped")
        return self._code

    def _follow(self) -> None:
        """Run one query until it ends; raise the error that ended it."""
        state = self._fitting_state()
        self._failure = None
        query = self._started(state)
        self._last = time.monotonic()
        following = self._following
        try:
            while query.isActive and not following.stop.wait(_LOOKS_SECONDS):
                if time.monotonic() - self._last >= following.every_s and not _is_starting(query):
                    self._idle_round()
        finally:
            with self._lock:  # the round under way ends by itself: it is whole, or gives up its grace time
                pass
            query.stop()
        if following.stop.is_set():
            raise Stopped
        raise self._failure or query.exception() or CannotRead("The stream ended by itself.")

    def _fitting_state(self) -> VerifiedPoint:
        """Return the verified point with a stream that fits it; make what is missing."""
        coordinators = {
            f"{location.role} {location.name}": location.shown
            for location in self._plan.locations
            if location.role is Role.COORDINATOR
        }
        state = read_state(self._state_path)
        known = {} if state is None else state.sources
        same = coordinators == {name: shown for name, shown in known.items() if name.startswith(Role.COORDINATOR)}
        if state is None or not same:
            with self._lock:
                self._round(self._spark, None)
            state = read_state(self._state_path)
            assert state is not None, "a round writes the state"
        folder = checkpoints_of(self._state_path)
        if not (same and state.stream and _fits(folder / state.stream, state.batch)):
            shutil.rmtree(folder, ignore_errors=True)
            state = msgspec.structs.replace(state, stream=secrets.token_hex(8), batch=-1)
            write_state(self._state_path, state)
        return state

    def _started(self, state: VerifiedPoint) -> StreamingQuery:
        frames = [self._history(name, state.verified.get(name, {})) for name in sorted(self._following.references)]
        milliseconds = max(1, int(self._following.every_s * 1000))
        return (
            reduce(DataFrame.unionAll, frames)
            .writeStream.foreachBatch(self.take)
            .option("checkpointLocation", str(checkpoints_of(self._state_path) / state.stream))
            .trigger(processingTime=f"{milliseconds} milliseconds")
            .start()
        )

    def _history(self, name: str, verified: dict[int, int]) -> DataFrame:
        options = {
            "url": self._following.references[name],
            "columns": "node,seq,gid",
            "onGap": "report",
            "maxRowsPerBatch": str(ROWS_PER_BATCH_MAX),
            "start": json.dumps({str(node): seq for node, seq in verified.items()}),
        }
        frame = self._spark.readStream.format("twophase").options(**options).load()
        return frame.select(F.lit(name).alias("coordinator"), "node", "seq", "gid", "gap_rows")

    def take(self, frame: DataFrame, batch: int) -> None:
        """Audit one micro-batch.

        Spark records it when this returns, and brings it again when it raises.
        """
        with self._lock:
            try:
                if self._following.stop.is_set():
                    raise Stopped
                state = read_state(self._state_path)
                assert state is not None, "there is one before the stream begins"
                if batch <= state.batch:
                    return
                held = frame.persist(StorageLevel.MEMORY_AND_DISK)
                try:
                    self._round(frame.sparkSession, _arrived(held, state, batch))
                finally:
                    held.unpersist()
                self._following.reached("verified")
            except Exception as error:
                self._failure = error
                raise

    def _idle_round(self) -> None:
        """Look for faults that leave no trace in history; a failure costs this round only."""
        with self._lock:
            if self._following.stop.is_set():
                return
            state = read_state(self._state_path)
            assert state is not None, "there is one before the stream begins"
            nothing = local_gids(self._spark, ())
            try:
                self._round(self._spark, Arrived(nothing, state.verified, (), state.batch))
            except (Stopped, ConfigurationError):
                raise
            except Exception as error:  # noqa: BLE001 -- a database that is away now may be back soon
                if not self._following.stop.is_set():
                    self._fail(error)

    def _round(self, spark: SparkSession, arrived: Arrived | None) -> None:
        following = self._following

        def wait(seconds: float) -> None:
            if following.stop.wait(seconds):
                raise Stopped

        sources = look_into(self._plan)
        report = run(spark, self._plan, sources, pause=wait, arrived=arrived, say=_unsaid, follows=True)
        self._last = time.monotonic()
        self._code = report.verdict.exit_code
        state = read_state(self._state_path)
        self._teller.tell(report)
        if arrived is not None and (state is None or state.batch != arrived.batch):
            raise CannotRead("More messages are open or broken than are carried over; the verified point stays.")

    def _fail(self, error: Exception) -> None:
        self._last = time.monotonic()
        self._code = NOT_CHECKED
        self._following.failed(error)


def _is_starting(query: StreamingQuery) -> bool:
    """Return True while the source's Python is being started.

    Spark gives it ten seconds for that: work would delay it.
    """
    return str(query.status["message"]).startswith("Initializing")


def _unsaid(_: str) -> None:
    """Print nothing: rounds are frequent, and only their findings need a line."""


def _arrived(frame: DataFrame, state: VerifiedPoint, batch: int) -> Arrived:
    """Return what a batch has brought: the driver sees a line a node and a line a gap."""
    ends = frame.groupBy("coordinator", "node").agg(F.max("seq").alias("seq")).collect()
    verified = {name: dict(nodes) for name, nodes in state.verified.items()}
    for row in ends:
        nodes = verified.setdefault(row["coordinator"], {})
        nodes[row["node"]] = max(row["seq"], nodes.get(row["node"], 0))
    remarks = tuple(
        Coverage(
            f"coordinator {gap['coordinator']}: {gap['gap_rows']} messages of node {gap['node']}",
            checked=False,
            note=f"history {gap['seq'] - gap['gap_rows'] + 1} to {gap['seq']} was cleaned before this audit read it",
        )
        for gap in frame.where("gap_rows is not null").collect()
        # Another audit of the same state may have verified it while this one was stopped.
        if gap["seq"] > state.verified.get(gap["coordinator"], {}).get(gap["node"], 0)
    )
    return Arrived(frame.where("gid is not null").select("gid"), verified, remarks, batch)


def _fits(checkpoint: Path, batch: int) -> bool:
    """Return True when Spark planned the last batch of the verified point.

    Spark must also have recorded it as done, or be about to.
    """
    planned, noted = (_highest(checkpoint / name) for name in ("offsets", "commits"))
    return planned >= batch and batch - noted in {0, 1}


def _highest(log: Path) -> int:
    """Return the number of the last batch in one of a checkpoint's logs; -1 for none."""
    numbers = [int(path.name) for path in log.iterdir() if path.name.isdigit()] if log.is_dir() else []
    return max(numbers, default=-1)
