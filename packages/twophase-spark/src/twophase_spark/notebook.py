"""The audit in an existing session: locations in, report and findings out.

The findings are a DataFrame. It writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from pyspark.sql import DataFrame, SparkSession

from twophase_spark.auditing.run import examine, look_into
from twophase_spark.inputs.plan import Plan
from twophase_spark.locations import Role, parse_coordinator, parse_named, require_comparable
from twophase_spark.reports.report import Report
from twophase_spark.rules.comparison import Audited


class Outcome(tuple[Report, DataFrame]):
    """The pair of report and findings, whose findings are released in the end.

    They are released at the end of a `with` block, or by `release`. Until then Spark keeps them in its memory or on its
    disks, because they are what was seen: read anew they would be what is seen by then.
    """

    _audited: Audited

    @classmethod
    def of(cls, report: Report, audited: Audited) -> Self:
        """Return the pair for an audit."""
        outcome = cls((report, audited.findings))
        outcome._audited = audited
        return outcome

    @property
    def report(self) -> Report:
        """The verdict, and what it rests on."""
        return self[0]

    @property
    def findings(self) -> DataFrame:
        """Every message that is not plainly in order; not to be used after `release`."""
        return self[1]

    def release(self) -> None:
        """Release what Spark keeps for the findings. A second call is safe."""
        self._audited.release()

    def __enter__(self) -> Self:
        """Begin the block that uses the findings."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the findings."""
        self.release()


def audit(
    spark: SparkSession,
    coordinators: Sequence[str],
    producers: Sequence[str],
    consumers: Sequence[str],
    ledgers: Sequence[str],
    *,
    grace_s: float,
    late_s: float,
) -> Outcome:
    """See `twophase_spark.audit`."""
    locations = [parse_coordinator(text) for text in coordinators]
    for role, texts in ((Role.PRODUCER, producers), (Role.CONSUMER, consumers), (Role.LEDGER, ledgers)):
        locations += [parse_named(role, text) for text in texts]
    require_comparable(locations)
    cores = spark.sparkContext.defaultParallelism
    plan = Plan(tuple(locations), grace_s=grace_s, late_s=late_s, cores=cores)
    report, audited, _ = examine(spark, plan, look_into(plan))
    return Outcome.of(report, audited)
