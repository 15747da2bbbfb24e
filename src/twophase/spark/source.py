"""From databases to the inputs of an audit: the first pass in parallel by slices, the second by gid.

One Spark task reads one slice and hands over Arrow batches (`mapInArrow`), so that rows never pass through the driver
and the same code runs on a cluster whose executors reach the databases. Spark's own Python data sources were not
taken: each one costs a planning process of its own, they prune no columns, and in Spark 4.3 filters pushed into one
use of a source leak into its other uses, which would make an anti join say "nothing is wrong".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from twophase.spark.classify import Scope, ServiceScope
from twophase.spark.facts import Inputs
from twophase.spark.locations import Role
from twophase.spark.readers.probe import Slice, Source, horizon_ms
from twophase.spark.readers.rows import arrow_schema, read_gids, read_slice
from twophase.spark.schemas import spark_schema

_ROLES = (Role.COORDINATOR, Role.PRODUCER, Role.CONSUMER, Role.LEDGER)


def read_all(spark: SparkSession, sources: Sequence[Source]) -> Inputs:
    """Every row of every source; nothing is read before a job asks for it."""
    return Inputs(*(_all_of(spark, role, _with_role(sources, role)) for role in _ROLES))


def read_again(spark: SparkSession, sources: Sequence[Source], gids: Sequence[str]) -> Inputs:
    """The rows of some gids, read here and now, each database in one snapshot."""
    return Inputs(
        *(
            _local(spark, role, [batch for source in _with_role(sources, role) for batch in read_gids(source, gids)])
            for role in _ROLES
        )
    )


def scope_of(sources: Sequence[Source], as_of_ms: int, late_ms: int) -> Scope:
    """What may be concluded from these sources, with their horizons as they were found."""
    producers = _with_role(sources, Role.PRODUCER)
    identities = [source.identity for source in producers]
    return Scope(
        as_of_ms=as_of_ms,
        late_ms=late_ms,
        history_horizon_ms=_highest(_with_role(sources, Role.COORDINATOR)),
        producer_horizon_ms=_highest(producers),
        consumer_horizon_ms=_highest(_with_role(sources, Role.CONSUMER)),
        producers=tuple(source.location.name for source in producers),
        identities=None if None in identities else tuple(identity for identity in identities if identity is not None),
        consumers=tuple(
            ServiceScope(source.location.name, source.location.urls) for source in _with_role(sources, Role.CONSUMER)
        ),
        ledgers=tuple(source.location.name for source in _with_role(sources, Role.LEDGER)),
    )


def rereading(
    spark: SparkSession, sources: Sequence[Source], scope: Scope
) -> Callable[[Sequence[str]], tuple[Inputs, Scope]]:
    """The second pass over these sources, for `audit.audit`.

    The horizons are read after the rows: who cleans raises the horizon in the transaction of the deletes, so rows
    that were cleaned meanwhile are known to be.
    """

    def again(gids: Sequence[str]) -> tuple[Inputs, Scope]:
        inputs = read_again(spark, sources, gids)
        now = [msgspec.structs.replace(source, horizon_ms=horizon_ms(source)) for source in sources]
        return inputs, scope_of(now, scope.as_of_ms, scope.late_ms)

    return again


def _with_role(sources: Iterable[Source], role: Role) -> list[Source]:
    return [source for source in sources if source.location.role is role]


def _highest(sources: list[Source]) -> int:
    return max((source.horizon_ms for source in sources), default=0)


def _all_of(spark: SparkSession, role: Role, sources: list[Source]) -> DataFrame:
    work: list[tuple[Source, Slice]] = [(source, part) for source in sources for part in source.slices]
    if not work:
        return _local(spark, role, [])

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_slice(*work[number])

    numbers = spark.range(0, len(work), numPartitions=len(work))
    return numbers.mapInArrow(read, spark_schema(arrow_schema(role)))


def _local(spark: SparkSession, role: Role, batches: list[pa.RecordBatch]) -> DataFrame:
    schema = arrow_schema(role)
    # PySpark cannot convert a table without any batch when a column of it is nested (ArrowInvalid).
    table = pa.Table.from_batches(batches or [pa.RecordBatch.from_pylist([], schema=schema)], schema=schema)
    return spark.createDataFrame(table, schema=spark_schema(schema))
