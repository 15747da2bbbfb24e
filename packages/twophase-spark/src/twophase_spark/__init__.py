"""The data pipeline: Spark jobs over coordinator and business databases.

Importing this package imports nothing heavy; `session.open_session` starts Spark, `rules.comparison.compare` needs only
DataFrames. The packages:

* `readers`: databases by their Python drivers; `datasource`: the same tables as a data source of Spark, of which
  `schema` holds tables and columns, `options` those of a read, `partitions` its division into tasks and their work;
* the audit: `inputs` (the rows that it reads), `rules` (their meaning), `reports` (for people and machines), and
  `auditing`, which runs it once or again and again; `lineage` tells a catalogue of its runs;
* `sink`: rows as messages, exactly once a key; `archive`: the lake, copied, checked, purged and queried;
* `cluster`: what executors need.

Around them: `locations` and `fleet` (the databases to audit), `option_table`, `session`, `doctor`, `progress`,
`notebook`, `slo`.

In a notebook:

    from twophase_spark import audit, register

    register(spark)
    spark.read.format("twophase").option("url", "env:STORE_URL").option("table", "history").load()
    with audit(spark, coordinators=["sqlite:///tp.db"], producers=["bank-a=sqlite:///a.db"]) as (report, findings):
        findings.show()
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from twophase_spark.notebook import Outcome

__all__ = ["audit", "consistent_cut", "register"]


def register(spark: SparkSession) -> SparkSession:
    """Register the source "twophase" for `spark.read` and `spark.readStream`.

    It may be registered again.

    Returns:
        The session, so that it can be written around the builder.
    """
    from twophase_spark.datasource.source import TwophaseSource  # noqa: PLC0415 -- PySpark is slow to import

    spark.dataSource.register(TwophaseSource)
    return spark


def consistent_cut(url: str) -> AbstractContextManager[dict[str, str]]:
    """Return options by which several reads see one moment.

    See `datasource.cut.consistent_cut`.
    """
    from twophase_spark.datasource.cut import consistent_cut as cut  # noqa: PLC0415 -- PySpark is slow to import

    return cut(url)


def audit(
    spark: SparkSession,
    coordinators: Sequence[str] = (),
    producers: Sequence[str] = (),
    consumers: Sequence[str] = (),
    ledgers: Sequence[str] = (),
    *,
    config: Path | str | None = None,
    grace_s: float | None = None,
    late_s: float | None = None,
    state: Path | str | None = None,
    baseline: Path | str | None = None,
    since: str | None = None,
    cores: int | None = None,
) -> Outcome:
    """Compare all sides, as `twophase spark audit` does.

    Arguments:
        spark: any session whose executors reach the databases, also one of Spark Connect.
        coordinators, producers, consumers, ledgers: locations as the command takes them.
        config: the command's TOML file; what is given here wins over it.
        grace_s: seconds before suspects are read again, 5 by default.
        late_s: seconds after which an unfinished message is late, 3600 by default.
        state: a file with the verified point; only what came since is audited. The point moves at the end of the
            block, or by `accept`.
        baseline: a file of broken messages that are acknowledged.
        since: a time such as 2026-11-01T12:30+01:00; no coordinator need know what was born before.
        cores: tasks at once; by default what the session says.

    Returns:
        The report, and every message that is not plainly in order: a pair, and a context manager. Spark keeps the
        findings until the end of the block, or until `release` of the pair. `late` of it has what waits.

    Raises:
        ConfigurationError: a location cannot be understood, or there is nothing to compare.
        CannotRead: a database cannot be read.
    """
    from twophase_spark.locations import Role  # noqa: PLC0415 -- PySpark is slow to import
    from twophase_spark.notebook import audit as whole  # noqa: PLC0415 -- the same

    texts = {
        Role.COORDINATOR: coordinators,
        Role.PRODUCER: producers,
        Role.CONSUMER: consumers,
        Role.LEDGER: ledgers,
    }
    asked = {"grace": grace_s, "late": late_s, "since": since, "cores": cores, "state": state, "baseline": baseline}
    given = {name: value for name, value in asked.items() if value is not None}
    return whole(spark, texts, given, None if config is None else Path(config))
