"""Effects compared with their payloads, by the condition of their ledger.

A ledger may have a condition `agrees` in Spark's SQL, on `payload` (the text that was sent) and `ledger` (its row). It
is asked for each effect whose message is known. Where it is false, the effect differs; where it has no answer (null),
that is counted and remarked. With aggregate functions in it, it is asked once for all rows of an effect; without, each
row must agree.

Promises: no value of a payload or a row leaves this module, only answers do. No payload can end an audit: the condition
is evaluated with ANSI mode off, in which a text that is no number is null instead of an error that repeats the text. A
ledger's value that is not of its column's type does end it: as null, a wrong amount would have no answer.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BooleanType

from twophase.core.errors import CannotRead, ConfigurationError
from twophase_spark.locations import Location, Role
from twophase_spark.readers.bodies import calls_of, decoded
from twophase_spark.readers.database import Database, counting, open_database
from twophase_spark.readers.ids import in_one_spelling, is_given
from twophase_spark.readers.probe import ENTRIES, Slice, Source
from twophase_spark.readers.rows import asked_only, condition_of, effects_of, values_of
from twophase_spark.readers.snapshot import of_type
from twophase_spark.rules.addresses import begins
from twophase_spark.source.schema.ledger import arrow_type, carried, expression

_ANSI = "spark.sql.ansi.enabled"
_COLUMN = re.compile(r"\bledger\s*\.\s*`?(\w+)", re.IGNORECASE)
_TEXT = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
"""A text in Spark's SQL: what stands in it is no column."""
_IDS = [pa.field("gid", pa.string(), nullable=False), pa.field("branch_id", pa.string())]
_PAYLOADS = pa.schema([*_IDS, pa.field("url", pa.string()), pa.field("payload", pa.string())])
_TABLES = ("message", "history")
_PARTS = 4
"""Partitions of the effects that do not agree, which are few."""
_Read = Callable[[Source, Database, str, str, Sequence[object]], Iterator[pa.RecordBatch]]


class Agreement(msgspec.Struct, frozen=True):
    """The condition of one ledger.

    `urls`: the beginnings of the branches that its consumer serves, empty for every one; `columns`: those that the
    condition names, with their types; `is_of_effects`: it has aggregate functions, so that it is one answer an effect.
    """

    source: Source
    urls: tuple[str, ...]
    columns: dict[str, pa.DataType]
    is_of_effects: bool = False

    @property
    def text(self) -> str:
        """The condition."""
        return self.source.location.agrees

    @property
    def schema(self) -> pa.Schema:
        """The columns of the ledger's rows."""
        return pa.schema([*_IDS, pa.field("ledger", pa.struct(list(self.columns.items())))])


def agreements_of(sources: Sequence[Source]) -> list[Agreement]:
    """Return the conditions of ledgers, with the types of the columns in them.

    Raises:
        ConfigurationError: a condition names no column of its ledger, or one that it does not have.
        CannotRead: a ledger cannot be read.
    """
    urls = {source.location.name: source.location.urls for source in sources if source.location.role is Role.CONSUMER}
    ledgers = [one for one in sources if one.location.role is Role.LEDGER and one.location.agrees]
    return [Agreement(one, urls.get(one.location.name, ()), _columns(one.location)) for one in ledgers]


def _columns(location: Location) -> dict[str, pa.DataType]:
    named = sorted({name.lower() for name in _COLUMN.findall(_TEXT.sub("''", location.agrees))})
    if not named:
        raise _refused(location, "it names no column of the ledger, as ledger.amount does")
    with open_database(location) as database:
        declared = database.column_types(location.table)
    unknown = [name for name in named if name not in declared]
    if unknown:
        known = ", ".join(sorted(declared))
        raise _refused(location, f"table {location.table} has no column {', '.join(unknown)}; it has {known}")
    return {name: arrow_type(location.engine, declared[name]) for name in named}


def checked(spark: SparkSession, agreement: Agreement) -> Agreement:
    """Return the condition as Spark understands it, asked of no rows.

    Raises:
        ConfigurationError: it is no SQL, names something that is not there, or has an answer other than true or false.
    """
    columns = from_arrow_schema(agreement.schema, prefer_timestamp_ntz=True).add("payload", "string")
    nothing = spark.createDataFrame([], columns)
    location = agreement.source.location
    with _lenient(spark):
        try:
            kind = _of_rows(nothing, agreement.text).schema["answer"].dataType
        except PySparkException as error:
            if error.getCondition() != "MISSING_GROUP_BY":
                raise _refused(location, _without_plan(error)) from None
            agreement = msgspec.structs.replace(agreement, is_of_effects=True)
            try:
                kind = _of_effects(nothing, agreement.text).schema["answer"].dataType
            except PySparkException as second:
                raise _refused(location, _without_plan(second)) from None
    if not isinstance(kind, BooleanType):
        raise _refused(location, f"its answer is {kind.simpleString()}, and must be true or false")
    return agreement


def _refused(location: Location, why: str) -> ConfigurationError:
    return ConfigurationError(f"--ledger {location.name}: agrees={location.agrees!r}: {why}.")


def _without_plan(error: PySparkException) -> str:
    """Return the first line of an error; position and plan stand in later ones."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].partition(" SQLSTATE")[0].rstrip(".") if lines else type(error).__name__


def differences_of(
    spark: SparkSession,
    sources: Sequence[Source],
    agreements: Sequence[Agreement],
    gids: DataFrame | None,
    *,
    by_key: bool,
) -> DataFrame | None:
    """Return the effects that do not agree, as `schemas.DIFFERENCE`.

    They are read and compared here and now.

    Arguments:
        spark: the session.
        sources: every source of the audit.
        agreements: as `checked` returned them; of none, None is returned.
        gids: the gids whose effects are compared; None for all.
        by_key: they are looked up by key; else everything is read.

    Raises:
        CannotRead: a database cannot be read, or a condition fails in spite of all.
    """
    if not agreements:
        return None
    reading = _Reading(spark, gids, by_key)
    coordinators = [source for source in sources if source.location.role is Role.COORDINATOR]
    payloads = reading.rows(coordinators, _PAYLOADS, _payloads)
    with _lenient(spark):
        found = [_compared(one, payloads, reading) for one in agreements]
        whole = found[0]
        for one in found[1:]:
            whole = whole.unionByName(one)
        try:
            # Repartitioned, because a plan with a checkpoint that is partitioned by columns is not found in Spark's
            # cache again (4.3), and planning it anew runs out of memory.
            return whole.repartition(_PARTS).localCheckpoint(eager=True)
        except PySparkException as error:
            condition = error.getCondition()
            if condition is None or "TP-" in str(error):  # a database that cannot be read
                raise
            names = ", ".join(one.source.location.name for one in agreements)
            raise CannotRead(f"The condition `agrees` of a ledger ({names}) could not be asked: {condition}.") from None


def _compared(agreement: Agreement, payloads: DataFrame, reading: _Reading) -> DataFrame:
    """Return the effects of one ledger that do not agree."""
    served = begins(F.col("url"), agreement.urls) if agreement.urls else F.lit(True)
    # A gid at two coordinators has two payloads: its effect must agree with one of them.
    texts = payloads.where(served).groupBy("gid", "branch_id").agg(F.collect_set(F.struct("payload")).alias("texts"))
    effects = reading.rows([agreement.source], agreement.schema, _values(agreement))
    pairs = effects.join(texts, ["gid", "branch_id"]).select("gid", "branch_id", "ledger", F.inline("texts"))
    text = agreement.text
    answers = _of_effects(pairs, text) if agreement.is_of_effects else _all_of(_of_rows(pairs, text))
    best = F.max("answer").alias("best"), F.count_if(F.col("answer").isNull()).alias("nulls")
    is_open = F.col("best").isNull() | (F.col("nulls") > 0)
    return (
        answers.groupBy("gid", "branch_id")
        .agg(*best)
        .where(~F.coalesce("best", F.lit(False)))
        .select(
            F.lit(agreement.source.location.name).alias("source"),
            "gid",
            "branch_id",
            F.lit(text).alias("agrees"),
            F.when(~is_open, F.lit(True)).alias("differs"),
        )
    )


def _of_rows(pairs: DataFrame, text: str) -> DataFrame:
    """Ask of each row."""
    return pairs.select("gid", "branch_id", "payload", F.expr(text).alias("answer"))


def _of_effects(pairs: DataFrame, text: str) -> DataFrame:
    """Ask once of all rows of an effect."""
    return pairs.groupBy("gid", "branch_id", "payload").agg(F.expr(text).alias("answer"))


def _all_of(answers: DataFrame) -> DataFrame:
    """Return one answer an effect: false when some row does not agree."""
    answer = F.col("answer")
    all_agree = F.when(F.count_if(~answer) > 0, F.lit(False)).when(F.count_if(answer.isNull()) == 0, F.lit(True))
    return answers.groupBy("gid", "branch_id", "payload").agg(all_agree.alias("answer"))


@contextlib.contextmanager
def _lenient(spark: SparkSession) -> Iterator[None]:
    """Turn ANSI mode off for the block."""
    before = spark.conf.get(_ANSI)
    spark.conf.set(_ANSI, "false")
    try:
        yield
    finally:
        spark.conf.set(_ANSI, str(before))


class _Reading(NamedTuple):
    """The way in which rows are read: all, or those of some gids."""

    spark: SparkSession
    gids: DataFrame | None
    by_key: bool

    def rows(self, sources: Sequence[Source], schema: pa.Schema, read: _Read) -> DataFrame:
        """Return the rows that `read` yields.

        Arguments:
            sources: where to read.
            schema: of the rows.
            read: (source, database, table, condition in SQL, its parameters) -> batches.
        """
        columns = from_arrow_schema(schema, prefer_timestamp_ntz=True)
        if self.gids is not None and self.by_key:

            def chosen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                for batch in batches:
                    for source in sources:
                        yield from _read_gids(source, batch.column(0).to_pylist(), read)

            return self.gids.select("gid").mapInArrow(chosen, columns)
        work = [(source, part) for source in sources for part in source.slices if part.table != ENTRIES]

        def whole(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    source, part = work[number]
                    yield from _read_slice(source, part, read)

        found = self.spark.range(0, len(work), numPartitions=max(len(work), 1)).mapInArrow(whole, columns)
        return found if self.gids is None else found.join(self.gids, "gid", "left_semi")


def _read_slice(source: Source, part: Slice, read: _Read) -> Iterator[pa.RecordBatch]:
    with open_database(source.location) as database:
        yield from read(source, database, part.table, condition_of(part), ())


def _read_gids(source: Source, gids: Sequence[str], read: _Read) -> Iterator[pa.RecordBatch]:
    location = source.location
    tables = _TABLES if location.role is Role.COORDINATOR else (location.table,)
    column = location.gid_column if location.role is Role.LEDGER else "gid"
    with open_database(location) as database:
        for some in values_of(source, gids):
            for table in tables:
                found = read(source, database, table, f"{column} in ({', '.join('?' * len(some))})", some)
                yield from asked_only(source, gids, found)


def _payloads(
    source: Source, database: Database, table: str, where: str, parameters: Sequence[object]
) -> Iterator[pa.RecordBatch]:
    """Yield the payloads of every call of these messages, as text.

    Bytes that are no text are null.
    """
    statement = f"select gid, body from {table} where {where}"  # noqa: S608 -- our names and conditions
    for lot in database.lots(statement, parameters):
        found = zip(lot, decoded([body for _, body in lot]), strict=True)
        readable = [(gid, message) for (gid, _), message in found if message is not None]
        gids, messages = zip(*readable, strict=True) if readable else ((), ())
        calls = calls_of(messages)
        ends = itertools.pairwise(calls.offsets)
        each = [gid for gid, (first, end) in zip(gids, ends, strict=True) for _ in range((end or 0) - (first or 0))]
        of_calls = pa.array(each, pa.string())
        columns = [
            in_one_spelling(of_calls) if source.unspells else of_calls,
            pa.array(calls.ids, pa.string()),
            pa.array([branch.url for branch in calls.branches], pa.string()),
            pa.array([_text(branch.payload) for branch in calls.branches], pa.string()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=_PAYLOADS)


def _text(payload: bytes) -> str | None:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None


def _values(agreement: Agreement) -> _Read:
    """Return the reader of the ledger's rows: ids, and the columns in the condition."""
    location, columns = agreement.source.location, agreement.columns
    chosen = [expression(location.engine, name, kind) for name, kind in columns.items()]
    names = [f"{location.gid_column} as gid", f"{location.branch_column} as branch_id", *chosen]
    is_counted = is_given(location.gid_column, agreement.source.gids) + counting(location)

    def read(
        source: Source, database: Database, table: str, where: str, parameters: Sequence[object]
    ) -> Iterator[pa.RecordBatch]:
        statement = f"select {', '.join(names)} from {table} where {where} and {is_counted}"  # noqa: S608 -- validated
        for lot in database.lots(statement, parameters):
            gids, branches, *values = zip(*lot, strict=True)
            ids = effects_of(source, gids, branches)
            rows = pa.StructArray.from_arrays(
                [_typed(source, name, one, kind) for (name, kind), one in zip(columns.items(), values, strict=True)],
                fields=list(agreement.schema.field("ledger").type),
            )
            found = [ids.column("gid"), ids.column("branch_id"), rows]
            yield pa.RecordBatch.from_arrays(found, schema=agreement.schema)

    return read


def _typed(source: Source, name: str, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    try:
        return of_type(values, carried(kind)).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        location = source.location
        raise CannotRead(
            f"ledger {location.name}, {location.shown}: column {name} has values that are not {kind}."
        ) from None
