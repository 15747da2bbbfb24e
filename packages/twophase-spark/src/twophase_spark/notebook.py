"""The audit in an existing session: locations in, report and findings out.

The findings are a DataFrame. It writes the verified point, when it was given a file for it, and what its file asks for.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so

from twophase_spark.auditing.run import examine, look_into, write
from twophase_spark.fleet import reports_named
from twophase_spark.inputs.increment import VerifiedPoint, write_state
from twophase_spark.inputs.plan import plan_of, require_folders
from twophase_spark.lineage.sending import lineage_sent
from twophase_spark.locations import Role
from twophase_spark.reports.report import Report
from twophase_spark.reports.unmade import STOPPED, ReportFiles, last_line
from twophase_spark.rules.comparison import Audited
from twophase_spark.rules.taxonomy import Flag

CORES_OF_CONNECT = 8
"""Tasks at once that an audit plans for when its session does not say how many."""


class Outcome(tuple[Report, DataFrame]):
    """The pair of report and findings, whose findings are released in the end.

    They are released at the end of a `with` block, or by `release`. Until then Spark keeps them in its memory or on its
    disks, because they are what was seen: read anew they would be what is seen by then.
    """

    _audited: Audited
    _after: VerifiedPoint | None
    _state: Path | None

    @classmethod
    def of(cls, report: Report, audited: Audited, after: VerifiedPoint | None, state: Path | None) -> Self:
        """Return the pair for an audit, with the verified point behind it and its file."""
        outcome = cls((report, audited.findings))
        outcome._audited, outcome._after, outcome._state = audited, after, state
        return outcome

    @property
    def report(self) -> Report:
        """The verdict, and what it rests on."""
        return self[0]

    @property
    def findings(self) -> DataFrame:
        """Every message that is not plainly in order; not to be used after `release`."""
        return self[1]

    @property
    def late(self) -> DataFrame:
        """The messages that are late or parked, the oldest first.

        It is not to be used after `release`. Its columns are gid, flags, state (its number), producer, created_at,
        attempts, age (in seconds).
        """
        message = F.col("message")
        waiting = self[1].where(F.arrays_overlap("flags", F.array(F.lit(Flag.LATE.value), F.lit(Flag.PARKED.value))))
        rows = waiting.select(
            "gid",
            "flags",
            message["state"].alias("state"),
            message["producer"].alias("producer"),
            F.timestamp_millis(message["created_ms"]).alias("created_at"),
            message["attempts"].alias("attempts"),
            ((F.lit(self[0].result.as_of_ms) - message["created_ms"]) / 1000).alias("age"),
        )
        return rows.orderBy(F.desc("age"))

    def accept(self) -> None:
        """Move the verified point of `state` to this audit. A second call is safe.

        Call it when the report has been kept: the next audit looks only at what came since.
        """
        if self._after is not None and self._state is not None:
            write_state(self._state, self._after)

    def release(self) -> None:
        """Release what Spark keeps for the findings. A second call is safe."""
        self._audited.release()

    def __enter__(self) -> Self:
        """Begin the block that uses the findings."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the findings; without an error, move the verified point."""
        self.release()
        if error is None:
            self.accept()


def audit(
    spark: SparkSession, texts: Mapping[Role, Sequence[str]], asked: Mapping[str, object], config: Path | None
) -> Outcome:
    """See `twophase_spark.audit`."""
    with _reporting({} if config is None else reports_named(config)) as files:
        plan = plan_of(asked, texts, config, cores=_cores_of(spark))
        require_folders(plan)
        with lineage_sent(logging.getLogger(__name__).warning) as lineage, lineage.run(plan) as told:
            report, audited, after = examine(spark, plan, look_into(plan), run_id=told.run_id)
            try:
                write(report, audited, plan)
            except BaseException:
                audited.release()
                raise
            files.made = True
            told.checked(report)
    return Outcome.of(report, audited, after, plan.state)


@contextlib.contextmanager
def _reporting(named: Mapping[str, Path]) -> Iterator[ReportFiles]:
    """Write every failure into the reports that were asked for.

    So no old success stays there.
    """
    files = ReportFiles(named.get("html"), named.get("json"), named.get("junit"))
    try:
        yield files
    except KeyboardInterrupt:
        files.say_not_made(STOPPED)
        raise
    except Exception as error:
        files.say_not_made(f"Could not check. {last_line(error)}")
        raise


def _cores_of(spark: SparkSession) -> int:
    """Return the number of tasks that a session runs at once.

    A session of Spark Connect does not say it.
    """
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkException:
        return CORES_OF_CONNECT
