"""The first look: it separates ordinary messages by a few numbers each.

Only the others are examined in full. Nearly every message of a sound system succeeded, was committed, and took effect
once at each branch. To see that, no row need be kept: each side adds to the numbers of its gid. The message subtracts
its branches, each barrier row adds one back, and each ledger row offsets a barrier row: a message in order ends at
zero, both in number and in the exclusive or of the branches' 64-bit hashes. Where consumers serve some addresses only,
the hash has the service in it, too. So the shuffle carries a few words a row
instead of addresses and lists, and the aggregation needs no objects.

A message that might be anything else is never ordinary: one that is not final, is known twice, cannot be read, lacks a
producer, has an effect that contradicts its payload, or does not end at zero. `classify` decides on those. An accident
of the hashes could hide a violation with a chance of one in 2**64 a message.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so

from twophase.core.errors import CannotRead
from twophase.core.lifecycle import State
from twophase_spark.locations import Role
from twophase_spark.rules.addresses import begins, branches_of, is_served, served_branches
from twophase_spark.rules.classify import COMMITTED, ROLLED_BACK, born_too_late
from twophase_spark.rules.facts import PRODUCER_ROW_OF_LEDGER, Inputs
from twophase_spark.rules.scope import Scope
from twophase_spark.session import compiled

_SUCCEEDED, _FAILED, _CHECKED, _PLAIN, _COMMITTED, _ROLLED_BACK, _ODD = (1 << index for index in range(7))
_ORDINARY = (
    0,
    _ROLLED_BACK,
    _SUCCEEDED | _CHECKED | _COMMITTED,
    _SUCCEEDED | _PLAIN,
    _FAILED | _CHECKED | _ROLLED_BACK,
    _FAILED | _PLAIN,
)
"""Bits that the sides of an ordinary message may set together.

0: no side knows a message, only a ledger has rows for no branch.
"""
_EXPECTED = 1 << 7
"""Bit of a gid that was open or broken before.

Without its message, no row that is left of it is ordinary.
"""
_ONE_BOOKED = 1 << 32
"""Effects are counted in the lower half of a long, bookings in the upper.

Both are zero when the sum is.
"""


class Separated(NamedTuple):
    """The result of the first look.

    `ordinary`: the number of such messages; `others`: the gids that are not; `rows`: of each source, in their order;
    `ordinary_of`: the ordinary messages that have rows in each. `held` is the DataFrame persisted for `others`: to be
    unpersisted when they have been used.
    """

    ordinary: int
    others: DataFrame
    others_count: int
    rows: tuple[int, ...]
    ordinary_of: tuple[int, ...]
    held: DataFrame


def sources(scope: Scope) -> list[tuple[Role, str]]:
    """Return the sources that are counted separately: (role, name)."""
    return [
        (Role.COORDINATOR, Role.COORDINATOR.value),
        *((Role.PRODUCER, producer.name) for producer in scope.producers),
        *((Role.CONSUMER, consumer.name) for consumer in scope.consumers),
        *((Role.LEDGER, name) for name in scope.ledgers),
    ]


def separate(inputs: Inputs, scope: Scope, expected: DataFrame | None = None) -> Separated:
    """Separate ordinary messages from the others; reads every input once.

    Arguments:
        inputs: the rows of every side.
        scope: what may be concluded from them.
        expected: gids of which there must be a message; one that has none is among the others.

    Raises:
        CannotRead: a row has no gid.
    """
    by_gid = numbers_by_gid(inputs, scope, expected)
    with compiled(by_gid.sparkSession):
        return _separated(by_gid, len(sources(scope)))


def _separated(by_gid: DataFrame, count: int) -> Separated:
    names = [f"rows{index}" for index in range(count)]
    messages = [f"messages{index}" for index in range(count)]
    # One group for all ordinary messages, one for each other gid: the result is as small as the trouble is.
    counted = (
        by_gid.groupBy(F.when(~F.col("ordinary"), F.col("gid")).alias("gid"))
        .agg(
            F.count_if("told").alias("messages"),
            F.count_if(F.col("gid").isNull()).alias("nameless"),
            *[F.sum(name).alias(name) for name in names],
            *[F.count_if(F.col(name) > 0).alias(told) for name, told in zip(names, messages, strict=True)],
        )
        .persist(StorageLevel.MEMORY_AND_DISK)
    )
    is_other = F.col("gid").isNotNull()
    [row] = counted.agg(
        F.coalesce(F.sum(F.when(~is_other, F.col("messages"))), F.lit(0)).alias("ordinary"),
        F.count("gid").alias("others"),
        F.coalesce(F.sum("nameless"), F.lit(0)).alias("nameless"),
        *[F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in names],
        *[F.coalesce(F.sum(F.when(~is_other, F.col(told))), F.lit(0)).alias(told) for told in messages],
    ).collect()
    assert isinstance(row, Row)
    if row["nameless"]:
        raise CannotRead("Some rows have no gid (null), so nothing can be said about them.")
    rows, ordinary_of = (tuple(row[name] for name in columns) for columns in (names, messages))
    others = counted.where(is_other).select("gid")
    return Separated(row["ordinary"], others, row["others"], rows, ordinary_of, counted)


def numbers_by_gid(inputs: Inputs, scope: Scope, expected: DataFrame | None = None) -> DataFrame:
    """Return one row a gid: (`gid`, `ordinary`, `told`, `rows0`, `rows1`, …).

    A row has the number of rows in each source. `told`: some side has a record of a message; of a gid that is ordinary
    without one, a ledger has rows that are no branch's.
    """
    parts = _parts(inputs, scope)
    in_order: tuple[int, ...] = _ORDINARY
    if expected is not None:
        zero = F.lit(0).cast("bigint")
        parts.append(_numbers(expected, F.lit(-1), F.lit(_EXPECTED), zero, zero))
        in_order = (*_ORDINARY, *(says | _EXPECTED for says in _ORDINARY if says & (_SUCCEEDED | _FAILED)))
    if inputs.differences is not None:
        zero = F.lit(0).cast("bigint")
        says = F.when(F.col("differs"), F.lit(_ODD)).otherwise(F.lit(0))
        parts.append(_numbers(inputs.differences, F.lit(-1), says, zero, zero))
    long = reduce(DataFrame.unionByName, parts)
    # Rows are sent to the gid's partition first, and summed there once. A sum on the way, as `groupBy` alone makes it,
    # saves nothing where nearly every row of a source has a gid of its own: it is one more hash table of everything.
    grouped = (
        long.repartition("gid")
        .groupBy("gid")
        .agg(
            F.bit_or("says").alias("says"),
            F.bit_xor("hashes").alias("hashes"),
            F.sum("count").alias("count"),
            *[F.count_if(F.col("source") == index).alias(f"rows{index}") for index in range(len(sources(scope)))],
        )
    )
    is_sole = F.col("rows0") <= 1  # one row of the coordinators
    ordinary = F.col("says").isin(*in_order) & (F.col("hashes") == 0) & (F.col("count") == 0) & is_sole
    made = {"ordinary": ordinary, "told": F.col("says") != 0}
    return grouped.withColumns(made).drop("says", "hashes", "count")


def _parts(inputs: Inputs, scope: Scope) -> list[DataFrame]:
    """Return every row as (gid, source, says, hashes, count)."""
    indexes = {source: index for index, source in enumerate(sources(scope))}

    def index_of(role: Role) -> Column:
        column = F.lit(-1)
        for (of, name), index in indexes.items():
            if of is role:
                column = F.when(F.col("source") == name, F.lit(index)).otherwise(column)
        return column

    has_ledger = F.col("source").isin(*scope.ledgers) if scope.ledgers else F.lit(False)
    booking = F.xxhash64(F.lit("ledger"), "source", "branch_id")
    booked = ~F.coalesce("branch_id", F.lit("")).isin("", PRODUCER_ROW_OF_LEDGER)
    zero = F.lit(0).cast("bigint")
    return [
        _journal(inputs.journal, scope),
        _numbers(inputs.producers, index_of(Role.PRODUCER), _verdict(F.col("reason")), zero, zero),
        _numbers(
            inputs.consumers,
            index_of(Role.CONSUMER),
            F.lit(0),
            _hash_of(_service_of_source(scope), F.col("branch_id"), scope).bitwiseXOR(
                F.when(has_ledger, booking).otherwise(zero)
            ),
            F.when(has_ledger, F.lit(1 + _ONE_BOOKED)).otherwise(F.lit(1)),
        ),
        _numbers(
            inputs.ledgers,
            index_of(Role.LEDGER),
            F.lit(0),
            F.when(booked, booking).otherwise(zero),
            F.when(booked, F.lit(-_ONE_BOOKED)).otherwise(zero),
        ),
    ]


def _journal(journal: DataFrame, scope: Scope) -> DataFrame:
    branches = branches_of(F.col("branches"))
    count, hashes = _expected(branches, scope)
    succeeded = F.col("state") == int(State.SUCCEEDED)
    state = (
        F.when(succeeded, F.lit(_SUCCEEDED))
        .when(F.col("state") == int(State.FAILED), F.lit(_FAILED))
        .otherwise(F.lit(_ODD))
    )
    checked = F.when(F.col("checked"), F.lit(_CHECKED)).when(~F.col("checked"), F.lit(_PLAIN)).otherwise(F.lit(_ODD))
    elsewhere = count < F.size(branches) if scope.consumers else F.lit(False)
    # Of a message that is not final, or cannot be read, the bits are odd anyway.
    due = F.when(succeeded, F.col("queued")).otherwise(F.array().cast("array<int>"))
    queued_otherwise = F.col("entries") != due
    is_odd = elsewhere | born_too_late(F.col("created_ms"), scope) | F.coalesce(queued_otherwise, F.lit(False))
    odd = F.when(is_odd, F.lit(_ODD)).otherwise(F.lit(0))
    nothing = F.lit(0).cast("bigint")
    return _numbers(
        journal,
        F.lit(0),
        state.bitwiseOR(checked).bitwiseOR(odd),
        F.when(succeeded, hashes).otherwise(nothing),
        F.when(succeeded, -count.cast("bigint")).otherwise(nothing),
    )


def _expected(branches: Column, scope: Scope) -> tuple[Column, Column]:
    """Return the number of branches that must have effects, and a hash of them.

    It is the exclusive or of their hashes. A single branch, as nearly all messages have, is handled separately: Spark
    compiles no function over an array.
    """
    expected = served_branches(branches, scope)
    nothing = F.lit(0).cast("bigint")
    first = F.get(branches, F.lit(0))
    due = is_served(first["url"], scope) if scope.consumers else F.lit(False)
    has_one = F.size(branches) == 1
    count = F.when(has_one, F.when(due, F.lit(1)).otherwise(F.lit(0))).otherwise(F.size(expected))
    all_hashes = F.aggregate(expected, nothing, lambda sofar, one: sofar.bitwiseXOR(_hash_of_branch(one, scope)))
    hash_of_first = F.when(due, _hash_of_branch(first, scope)).otherwise(nothing)
    return count, F.when(has_one, hash_of_first).otherwise(all_hashes)


def _hash_of_branch(branch: Column, scope: Scope) -> Column:
    return _hash_of(_service_of_url(branch["url"], scope), branch["branch_id"], scope)


def _hash_of(service: Column, branch_id: Column, scope: Scope) -> Column:
    return F.xxhash64(service, branch_id) if scope.has_urls else F.xxhash64(branch_id)


def _service_of_source(scope: Scope) -> Column:
    """Return the addresses that a row's service serves, as one text.

    It is empty for every address.
    """
    service = F.lit("")
    for consumer in scope.consumers:
        if consumer.urls:
            service = F.when(F.col("source") == consumer.name, F.lit(_text(consumer.urls))).otherwise(service)
    return service


def _service_of_url(url: Column, scope: Scope) -> Column:
    """Return the same text of the service that an address names.

    The longest beginning decides. Where another service may have served it, too, the message is no ordinary one, and
    the closer look decides.
    """
    beginnings = sorted(
        (beginning, _text(consumer.urls)) for consumer in scope.consumers for beginning in consumer.urls
    )
    service = F.lit("")
    for beginning, text in sorted(beginnings, key=lambda one: len(one[0])):
        service = F.when(begins(url, [beginning]), F.lit(text)).otherwise(service)
    return service


def _text(urls: tuple[str, ...]) -> str:
    return "\n".join(sorted(urls))


def _verdict(reason: Column) -> Column:
    return (
        F.when(reason == COMMITTED, F.lit(_COMMITTED))
        .when(reason == ROLLED_BACK, F.lit(_ROLLED_BACK))
        .otherwise(F.lit(_ODD))
    )


def _numbers(frame: DataFrame, source: Column, says: Column, hashes: Column, count: Column) -> DataFrame:
    return frame.select(
        F.col("gid"),
        source.cast("int").alias("source"),
        says.cast("int").alias("says"),
        hashes.alias("hashes"),
        count.cast("bigint").alias("count"),
    )
