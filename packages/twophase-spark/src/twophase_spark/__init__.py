"""The data pipeline: Spark jobs over coordinator and business databases.

Importing this package imports nothing heavy; `session.open_session` starts Spark, `rules.comparison.compare` needs only
DataFrames. The packages:

* `readers`: databases by their Python drivers; `source`: the same tables as a data source of Spark, of which `schema`
  holds tables and columns, `options` those of a read, `partitions` its division into tasks and their work;
* the audit: `inputs` (the rows that it reads), `rules` (their meaning), `reports` (for people and machines), and
  `auditing`, which runs it once or again and again; `lineage` tells a catalogue of its runs;
* `sink`: rows as messages, exactly once a key; `lake`: the archive, copied, checked, purged and queried;
* `cluster`: what executors need.

Around them: `locations` and `fleet` (the databases to audit), `option_table`, `session`, `doctor`, `progress`, `lag`,
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
    from pyspark.sql.streaming.query import StreamingQuery

    from twophase_spark.lag import StreamLag
    from twophase_spark.notebook import Outcome
    from twophase_spark.sink.progress import SinkProgress

__all__ = ["audit", "consistent_cut", "register", "sink_progress", "stream_lag"]


def register(spark: SparkSession) -> SparkSession:
    """Register the source "twophase" for `spark.read` and `spark.readStream`.

    It may be registered again.

    Returns:
        The session, so that it can be written around the builder.
    """
    from twophase_spark.source.data_source import TwophaseSource  # noqa: PLC0415 -- PySpark is slow to import

    spark.dataSource.register(TwophaseSource)
    return spark


def consistent_cut(url: str) -> AbstractContextManager[dict[str, str]]:
    """Return options by which several reads see one moment.

    See `source.cut.consistent_cut`.
    """
    from twophase_spark.source.cut import consistent_cut as cut  # noqa: PLC0415 -- PySpark is slow to import

    return cut(url)


def stream_lag(query: StreamingQuery) -> StreamLag | None:
    """Return how far a query is behind the store that it follows, as it reported last.

    Arguments:
        query: a stream of the source "twophase", perhaps with other sources; also of Spark Connect.

    Returns:
        `rows` that it has not read, `seconds` since the oldest of them was written (0 without one), and `reported_at`:
        a query that waits for a database or a coordinator makes no report. Before the first report, and for a query
        without such a source, it returns None.

    >>> from types import SimpleNamespace
    >>> source = SimpleNamespace(latestOffset='{"1": 90, "lag": {"rows": 4, "ms": 1500}}')
    >>> report = SimpleNamespace(sources=[source], timestamp="2026-11-26T17:36:27.005Z")
    >>> lag = stream_lag(SimpleNamespace(lastProgress=report))
    >>> lag.rows, lag.seconds
    (4, 1.5)
    """
    from twophase_spark.lag import stream_lag as lag  # noqa: PLC0415 -- costs nothing when it is not called

    return lag(query)


def sink_progress(ledger: str, publisher: str, query: StreamingQuery | None = None) -> SinkProgress | None:
    """Return the state of a publisher's latest batch, from its ledger.

    It is known while the coordinator does not answer, too.

    Arguments:
        ledger: as the sink's option: env:NAME, file:PATH, or a URL without password.
        publisher: the sink's option.
        query: the query that publishes, for the number of rows that were left out.

    Returns:
        The batch with its decision, messages and times; see `sink.progress.SinkProgress`. None before the first batch.

    Raises:
        LedgerUnavailable: the database cannot be read, or is no ledger.
        ConfigurationError: `ledger` carries a password, or names nothing.

    Example:
        progress = sink_progress("env:LEDGER_URL", "orders", query)
        if progress is not None and progress.waiting_s > 60:
            print(f"batch {progress.batch} is {progress.decision} for {progress.waiting_s:.0f} s")
    """
    from twophase_spark.sink.progress import sink_progress as progress  # noqa: PLC0415 -- SQLAlchemy is slow to import

    return progress(ledger, publisher, query)


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
        config: the command's TOML file; what is given here wins over it. The reports, findings and baseline that it
            names are written before this returns; `every` and `memory` of it are for the command only.
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
