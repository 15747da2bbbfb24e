"""Some messages of every class, with the rows of each side.

Their number is bounded, however many were found.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Any

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so

from twophase_spark.rules.facts import IN_PART
from twophase_spark.rules.repairs import Evidence, Repair, repairs_of
from twophase_spark.rules.scope import ServiceScope
from twophase_spark.rules.settle import LACKING
from twophase_spark.rules.taxonomy import Flag

SAMPLES_PER_FLAG = 20
ROWS_PER_SIDE = 50
"""Rows shown of a gid and side: a million bookings need not all be shown."""


class Finding(msgspec.Struct, frozen=True):
    """One message that is not in order, with the rows of each side, and the repairs.

    `differing`: effects that contradict the payload, with the condition that says so.
    """

    gid: str
    flags: tuple[str, ...]
    unknown: tuple[str, ...]
    message: dict[str, Any] | None
    producers: tuple[dict[str, Any], ...]
    barriers: tuple[dict[str, Any], ...]
    ledger: tuple[dict[str, Any], ...]
    repairs: tuple[Repair, ...]
    differing: tuple[dict[str, Any], ...] = ()


def chosen(counted: list[Any]) -> set[str]:
    """Return the first gids of every class that occurs, in flight excepted.

    Arguments:
        counted: for each combination of `flags`, the first of its `gids`, at least SAMPLES_PER_FLAG of them if it has
            that many. The first ones of a class are among the first ones of the combinations it occurs in.
    """
    found: set[str] = set()
    for flag in Flag:
        if flag is not Flag.IN_FLIGHT:
            gids = itertools.chain.from_iterable(row["gids"] for row in counted if flag.value in row["flags"])
            found.update(heapq.nsmallest(SAMPLES_PER_FLAG, gids))
    return found


def sample(findings: DataFrame, gids: set[str], services: tuple[ServiceScope, ...]) -> tuple[Finding, ...]:
    """Return the findings of these gids, with the rows of each side.

    Arguments:
        findings: as `classify` and `settle` make them.
        gids: as `chosen`; of none, nothing is asked.
        services: the consumers, and where their rows are.
    """
    if not gids:
        return ()
    sides = ("producers", "barriers", "ledger", "left_out", "differing", *LACKING)
    some = findings.where(F.col("gid").isin(*sorted(gids))).select(
        "gid",
        "flags",
        "unknown",
        "message",
        *[F.slice(side, 1, ROWS_PER_SIDE).alias(side) for side in sides],
    )
    found = [_finding(row.asDict(recursive=True), services) for row in some.collect()]
    order = [flag.value for flag in Flag]
    return tuple(sorted(found, key=lambda one: (order.index(one.flags[0]), one.gid)))


def _finding(row: dict[str, Any], services: tuple[ServiceScope, ...]) -> Finding:
    flags = tuple(row["flags"])
    effects = [effect["source"] for side in ("barriers", "ledger", "left_out") for effect in row[side] or ()]
    booked = [(one["source"], one["branch_id"]) for side in ("ledger", "left_out") for one in row[side] or ()]
    barred = {(one["source"], one["branch_id"]) for one in row["barriers"] or ()}
    whole = {(source, branch_id.removesuffix(IN_PART)) for source, branch_id in booked}
    evidence = Evidence(
        missing=tuple(row["missing"] or ()),
        unbooked=tuple((one["source"], one["branch_id"]) for one in row["unbooked"] or ()),
        unguarded=tuple((one["source"], one["branch_id"]) for one in row["unguarded"] or ()),
        in_part=tuple((source, name.removesuffix(IN_PART)) for source, name in booked if name.endswith(IN_PART)),
        unbarred=tuple(sorted(whole - barred)),
        effects=tuple(sorted(set(effects))),
        services=services,
    )
    return Finding(
        gid=row["gid"],
        flags=flags,
        unknown=tuple(row["unknown"]),
        message=row["message"],
        producers=tuple(row["producers"] or ()),
        barriers=tuple(row["barriers"] or ()),
        ledger=tuple(row["ledger"] or ()),
        repairs=repairs_of(row["gid"], flags, row["message"], evidence),
        differing=tuple(row["differing"] or ()),
    )
