"""The inputs of an audit from databases: in parallel by slices, then by gid.

By slices is the first pass, by gid the second. Few rows are read by the driver (`ahead`). Of more, one Spark task reads
one slice and hands over Arrow batches (`mapInArrow`), so that rows never pass through the driver and the same code runs
on a cluster whose executors reach the databases. Spark's own Python data sources are not used: each one costs a
planning process of its own, they prune no columns, and in Spark 4.3 filters pushed into one use of a source leak into
its other uses, which would make an anti join report "nothing is wrong".
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so

from twophase_spark.inputs.agreement import Agreement, differences_of
from twophase_spark.inputs.ahead import Kept
from twophase_spark.locations import Location, Role
from twophase_spark.readers.probe import Slice, Source, horizon_ms
from twophase_spark.readers.rows import arrow_schema, read_gids, read_slice
from twophase_spark.rules.comparison import Again, Look
from twophase_spark.rules.facts import LEFT_OUT, Inputs, whole_effects
from twophase_spark.rules.scope import ProducerScope, Scope, ServiceScope, Table
from twophase_spark.schemas import spark_schema

GIDS_ON_DRIVER_MAX = 25_000
"""Bound on gids that are looked up by key on the driver.

That needs no Python worker.
"""
GIDS_BY_KEY_MAX = 200_000
"""Bound on gids that are looked up by key by Spark's tasks.

More are found by reading everything once more: a ledger without an index on its gid would else be read whole for every
few thousand of them.
"""
BROADCAST_GIDS_MAX = 1_000_000
SKEW_TOLERATED_MS = 2_000
"""Bound of a skew: reading a clock over a network takes time."""
_ROLES = (Role.COORDINATOR, Role.PRODUCER, Role.CONSUMER, Role.LEDGER)


def read_all(spark: SparkSession, sources: Sequence[Source]) -> Inputs:
    """Return every row of every source; nothing is read before a job asks for it."""
    return _whole(Inputs(*(_all_of(spark, role, _with_role(sources, role)) for role in _ROLES)), sources)


def inputs_of(spark: SparkSession, sources: Sequence[Source], tables: Mapping[str, pa.Table]) -> Inputs:
    """Return rows that were read already, by role."""
    return _whole(Inputs(*(_local(spark, role, tables.get(role)) for role in _ROLES)), sources)


def read_again(spark: SparkSession, sources: Sequence[Source], gids: Sequence[str]) -> Inputs:
    """Return the rows of some gids, read here and now."""
    return inputs_of(spark, sources, tables_of(sources, gids))


def tables_of(sources: Sequence[Source], gids: Sequence[str]) -> dict[str, pa.Table]:
    """Return the rows of some gids by role.

    They are read here and now, each database in one snapshot.
    """
    found: dict[Role, list[pa.RecordBatch]] = {role: [] for role in _ROLES}
    for role in _ROLES:
        for source in _with_role(sources, role):
            found[role] += read_gids(source, gids)
    return {role: pa.Table.from_batches(batches, arrow_schema(role)) for role, batches in found.items()}


def rows_of(spark: SparkSession, sources: Sequence[Source], gids: DataFrame, count: int) -> Inputs:
    """Return the rows of these gids in every source.

    They are read by key while they are few, else by reading everything once more.
    """
    if count <= GIDS_ON_DRIVER_MAX:
        return read_again(spark, sources, _listed(gids))
    if count <= GIDS_BY_KEY_MAX:
        return _whole(Inputs(*(_by_key(spark, role, _with_role(sources, role), gids) for role in _ROLES)), sources)
    chosen = F.broadcast(gids) if count <= BROADCAST_GIDS_MAX else gids
    return read_all(spark, sources).each(lambda frame: frame.join(chosen, "gid", "left_semi"))


def few_gids(sources: Sequence[Source], known: Iterable[str]) -> list[str] | None:
    """Return the gids of these sources' rows, and the known ones.

    They are read here and now; None when they are too many. A run to which little is new has few of them, and needs no
    job of Spark's to find them.
    """
    found = set(known)
    for source in sources:
        for part in source.slices:
            for batch in read_slice(source, part, is_shared=True):
                found.update(batch.column("gid").to_pylist())
                if len(found) > GIDS_ON_DRIVER_MAX:
                    return None
    return sorted(found)


def local_gids(spark: SparkSession, gids: Sequence[str]) -> DataFrame:
    """Return these gids as a DataFrame with the column gid."""
    return spark.createDataFrame(pa.table({"gid": pa.array(gids, pa.string())}), "gid string")


def _by_key(spark: SparkSession, role: Role, sources: list[Source], gids: DataFrame) -> DataFrame:
    if not sources:
        return _local(spark, role)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            chosen = batch.column(0).to_pylist()
            for source in sources:
                yield from read_gids(source, chosen)

    return gids.select("gid").mapInArrow(read, spark_schema(arrow_schema(role)))


def scope_of(sources: Sequence[Source], as_of_ms: int, late_ms: int, since_ms: int = 0) -> Scope:
    """Return the scope of conclusions from these sources, with their present horizons.

    A horizon is compared with times that the coordinator's clock made: where a database's clock differs, rows between
    the two may have been cleaned as well. Nor is a coordinator expected to know a message that was born before
    `since_ms`.
    """
    producers = _with_role(sources, Role.PRODUCER)
    reference_ms = reference_skew_ms(sources)
    ledgers = {source.location.name: source.location for source in _with_role(sources, Role.LEDGER)}
    return Scope(
        as_of_ms=as_of_ms,
        late_ms=late_ms,
        history_horizon_ms=max(since_ms, _highest(_with_role(sources, Role.COORDINATOR), reference_ms)),
        producer_horizon_ms=_highest(producers, reference_ms),
        consumer_horizon_ms=_highest(_with_role(sources, Role.CONSUMER), reference_ms),
        producers=tuple(
            ProducerScope(source.location.name, source.identity, source.location.urls) for source in producers
        ),
        consumers=tuple(_service(source.location, ledgers) for source in _with_role(sources, Role.CONSUMER)),
        ledgers=tuple(ledgers),
    )


def _service(consumer: Location, ledgers: Mapping[str, Location]) -> ServiceScope:
    service = ServiceScope(consumer.name, consumer.urls, Table(consumer.table, consumer.engine))
    ledger = ledgers.get(consumer.name)
    if ledger is None:
        return service
    table = Table(ledger.table, ledger.engine, ledger.gid_column, ledger.branch_column, ledger.agrees)
    return msgspec.structs.replace(service, ledger=table)


def reference_skew_ms(sources: Sequence[Source]) -> int:
    """Return how far the coordinators' clock is ahead of this machine's.

    Of several, it is the one furthest behind, by which the fewest messages are late.
    """
    return min((source.skew_ms for source in _with_role(sources, Role.COORDINATOR)), default=0)


def skew_against(source: Source, reference_ms: int) -> int:
    """Return how far a database's clock is from the coordinators'; 0 when it is small."""
    skew_ms = source.skew_ms - reference_ms
    return skew_ms if abs(skew_ms) > SKEW_TOLERATED_MS else 0


def again_from(
    spark: SparkSession,
    sources: Sequence[Source],
    scope: Scope,
    since_ms: int = 0,
    agreements: Sequence[Agreement] = (),
    kept: Kept | None = None,
) -> Again:
    """Return closer looks at these sources, for `rules.comparison.compare`.

    Arguments:
        agreements: of ledgers whose effects are compared with their payloads.
        kept: the rows that are compared, where they were kept.
    """

    looks = _Looks(spark, sources, agreements, kept)

    def now() -> Scope:
        found = [msgspec.structs.replace(source, horizon_ms=horizon_ms(source)) for source in sources]
        return scope_of(found, scope.as_of_ms, scope.late_ms, since_ms)

    return Again(looks.first, looks.second, now)


class _Looks:
    """The looks of one audit; see `rules.comparison.Again`.

    Payloads are read beside the rows, so where they are compared, no row is known to be unchanged. What ledgers'
    conditions leave out is read by gid only, and not with the slices.
    """

    def __init__(
        self, spark: SparkSession, sources: Sequence[Source], agreements: Sequence[Agreement], kept: Kept | None
    ) -> None:
        self._spark = spark
        self._sources = sources
        self._left_out = left_out_of(sources)
        self._agreements = agreements
        self._kept = None if agreements else kept

    def first(self, gids: DataFrame, count: int) -> Look:
        """Return the rows of these gids, read by gid.

        Slices may have a message's effect without the message, which came between them. What the slices had as it is
        now has stood since they were read.
        """
        before = self._kept
        look = self.second(gids, count)
        if before is None or not look.is_unchanged:
            return look
        return Look(look.inputs, before.read_s)

    def second(self, gids: DataFrame, count: int) -> Look:
        if count <= GIDS_ON_DRIVER_MAX and not self._agreements:
            some = _listed(gids)
            tables = tables_of(self._sources, some)
            left_out = tables_of(self._left_out, some)[Role.LEDGER]
            before, self._kept = self._kept, Kept({**tables, LEFT_OUT: left_out}, time.monotonic())
            is_unchanged = before is not None and before.has(some, self._kept.tables)
            inputs = inputs_of(self._spark, self._sources, tables)
            if left_out.num_rows:
                effects = inputs_of(self._spark, self._left_out, {Role.LEDGER: left_out}).ledgers
                inputs = inputs._replace(left_out=effects)
            return Look(inputs, self._kept.read_s, is_unchanged)
        self._kept = None
        inputs = rows_of(self._spark, self._sources, gids, count)
        if self._left_out:
            inputs = inputs._replace(left_out=rows_of(self._spark, self._left_out, gids, count).ledgers)
        if count > GIDS_ON_DRIVER_MAX:
            inputs = inputs.each(lambda frame: frame.localCheckpoint(eager=True))
        by_key = count <= GIDS_BY_KEY_MAX
        differing = differences_of(self._spark, self._sources, self._agreements, gids, by_key=by_key)
        return Look(inputs._replace(differences=differing), time.monotonic())


def left_out_of(sources: Sequence[Source]) -> list[Source]:
    """Return the ledgers that have a condition, with the opposite one.

    It is true for the rows that theirs leaves out, also for those for which theirs has no answer (null).
    """
    found = []
    for source in _with_role(sources, Role.LEDGER):
        if source.location.where:
            where = f"case when ({source.location.where}) then 1 else 0 end = 0"
            location = msgspec.structs.replace(source.location, where=where)
            found.append(msgspec.structs.replace(source, location=location))
    return found


def _listed(gids: DataFrame) -> list[str]:
    return sorted(row["gid"] for row in gids.collect())


def _whole(inputs: Inputs, sources: Sequence[Source]) -> Inputs:
    """Return the inputs with one row for each effect of a ledger that has several."""
    ledgers = [source.location for source in _with_role(sources, Role.LEDGER) if source.location.rows_per_effect > 1]
    several = {location.name: location.rows_per_effect for location in ledgers}
    return inputs._replace(ledgers=whole_effects(inputs.ledgers, several))


def _with_role(sources: Iterable[Source], role: Role) -> list[Source]:
    return [source for source in sources if source.location.role is role]


def _highest(sources: list[Source], reference_ms: int) -> int:
    horizons = (source.horizon_ms + abs(skew_against(source, reference_ms)) for source in sources if source.horizon_ms)
    return max(horizons, default=0)


def _all_of(spark: SparkSession, role: Role, sources: list[Source]) -> DataFrame:
    work: list[tuple[Source, Slice]] = [(source, part) for source in sources for part in source.slices]
    if not work:
        return _local(spark, role)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_slice(*work[number])

    numbers = spark.range(0, len(work), numPartitions=len(work))
    return numbers.mapInArrow(read, spark_schema(arrow_schema(role)))


def _local(spark: SparkSession, role: Role, table: pa.Table | None = None) -> DataFrame:
    schema = arrow_schema(role)
    # PySpark cannot convert a table without any batch when a column of it is nested (ArrowInvalid).
    rows = table if table and table.num_rows else pa.Table.from_batches([pa.RecordBatch.from_pylist([], schema=schema)])
    # Each batch becomes a partition, and a task of its own.
    return spark.createDataFrame(rows.combine_chunks(), schema=spark_schema(schema))
