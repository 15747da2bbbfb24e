"""The result of an audit by service, that is by producer and by consumer.

A class counts for the services that the evidence names: the producer whose verdict is contradicted, the consumer whose
row is missing, doubled or without a message. A message that is not delivered counts for the consumers that it waits
for, one that is undecided for its producer. Where a branch may be any of several consumers', it counts for none.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so

from twophase.core.lifecycle import State
from twophase_spark.locations import Role
from twophase_spark.rules.addresses import begins, branches_of, is_named, of_calls, served_branches
from twophase_spark.rules.classify import EFFECTS_TYPE, STAGED, Columns, columns_of
from twophase_spark.rules.ordinary import sources
from twophase_spark.rules.scope import Scope
from twophase_spark.rules.taxonomy import OPEN, VIOLATIONS, Flag

_NAMES_TYPE = "array<string>"
_PRODUCERS_TYPE = "array<struct<source:string,reason:string>>"
_DIFFERENCES_TYPE = "array<struct<source:string,branch_id:string,agrees:string>>"
_BROKEN = "broken"
"""Mark of a message that is broken at a service, beside the names of its classes."""
_OF_VERDICT = (Flag.LOST, Flag.GHOST, Flag.CONTRARY_VERDICT, Flag.STOPPED)
_ROLES = (Role.PRODUCER, Role.CONSUMER)


class ServiceCount(msgspec.Struct, frozen=True):
    """The numbers of one producer or consumer.

    `messages`: those that have a row in its database, or name it; `branches`: rows of a consumer's barrier in the first
    look, None for a producer; `violations`: messages that are broken there; `counts`: messages by class.
    """

    role: str
    service: str
    messages: int
    branches: int | None
    violations: int
    counts: dict[str, int]


def count_by_service(
    findings: DataFrame | None, scope: Scope, ordinary: Sequence[int], rows: Sequence[int], acknowledged: str
) -> tuple[ServiceCount, ...]:
    """Return the numbers of every producer and consumer of the scope.

    Arguments:
        findings: every message that was looked at closely, classified; None without any.
        scope: what was concluded from.
        ordinary: ordinary messages of each of `ordinary.sources`.
        rows: rows of each of them.
        acknowledged: the column of messages that count in no class.
    """
    counted = {} if findings is None else _counted(findings, scope, acknowledged)
    lines = []
    for (role, name), messages, rows_count in zip(sources(scope), ordinary, rows, strict=True):
        if role in _ROLES:
            found = counted.get((role.value, name), {})
            lines.append(
                ServiceCount(
                    role=role.value,
                    service=name,
                    messages=messages + found.get("", 0),
                    branches=rows_count if role is Role.CONSUMER else None,
                    violations=found.get(_BROKEN, 0),
                    counts={flag.value: found.get(flag.value, 0) for flag in Flag},
                )
            )
    return tuple(lines)


def _counted(findings: DataFrame, scope: Scope, acknowledged: str) -> dict[tuple[str, str], dict[str, int]]:
    """Count messages by service and mark.

    A mark is a class or `_BROKEN`; the empty one stands for every message.
    """
    none = F.array()
    whole = findings.withColumns(
        {
            "flags": F.when(F.col(acknowledged), none.cast(_NAMES_TYPE)).otherwise(F.col("flags")),
            "producers": F.coalesce("producers", none.cast(_PRODUCERS_TYPE)),
            **{side: F.coalesce(side, none.cast(EFFECTS_TYPE)) for side in ("barriers", "ledger", "left_out")},
            "differing": F.coalesce("differing", none.cast(_DIFFERENCES_TYPE)),
        }
    )
    # Columns of their own first: else every entry would carry a copy of its parts.
    made = msgspec.structs.asdict(columns_of(scope))
    staged = whole.withColumns({STAGED + name: column for name, column in made.items()})
    columns = Columns(**{name: F.col(STAGED + name) for name in made})
    named = staged.select("flags", *[names.alias(name) for name, names in _named(columns, scope).items()])
    marked = named.select(F.inline(F.array(*_marks())))
    each = marked.select("role", "mark", F.explode("services").alias("service"))
    found: dict[tuple[str, str], dict[str, int]] = {}
    for row in each.groupBy("role", "service", "mark").count().collect():
        found.setdefault((row["role"], row["service"]), {})[row["mark"]] = row["count"]
    return found


def _named(c: Columns, scope: Scope) -> dict[str, Column]:
    """Return names of services, as columns of one message."""
    producers, missing = _producers(scope), _services(c.missing, scope)
    rows = _names(F.concat("barriers", "ledger"), "source")
    branches = served_branches(branches_of(F.col("message")["branches"]), scope)
    under_way, prepared = c.in_state(State.SUBMITTED, State.SUCCEEDED), c.in_state(State.PREPARED)
    repeated = _where(c.in_state(State.SUCCEEDED) & ~c.consumer_cleaned, missing)
    return {
        "under_way": under_way,
        "producers": producers,
        "undecided": _where(prepared, producers),
        "consumers": _joined(rows, _where(under_way, _services(branches, scope))),
        "waiting": _where(~prepared, missing),
        "doubled": _joined(*_twice(scope)),
        "missing": _joined(repeated, _names(c.unbooked, "source")),
        "differing": _names("differing", "source"),
        "strange": F.when(c.known, _names(c.strange, "source")).otherwise(rows),
        "unguarded": _names(c.unguarded, "source"),
        "left_out": _names(c.left_out, "source"),
    }


def _marks() -> list[Column]:
    """Return (role, mark, services) of one message, as columns over those of `_named`."""
    is_waiting = F.size("waiting") > 0
    waiting = F.when(is_waiting, F.col("waiting")).otherwise(_where(F.col("under_way"), F.col("consumers")))
    of = {
        Role.PRODUCER: {
            **dict.fromkeys(_OF_VERDICT, F.col("producers")),
            **dict.fromkeys(OPEN, F.col("undecided")),
            Flag.UNCHECKED: F.col("producers"),
        },
        Role.CONSUMER: {
            Flag.DUPLICATE_EFFECT: F.col("doubled"),
            Flag.MISSING_EFFECT: F.col("missing"),
            Flag.DIFFERING_EFFECT: F.col("differing"),
            Flag.ORPHAN: F.col("strange"),
            Flag.UNGUARDED_EFFECT: F.col("unguarded"),
            Flag.LEFT_OUT: F.col("left_out"),
            **dict.fromkeys(OPEN, waiting),
            Flag.UNCHECKED: F.col("consumers"),
        },
    }
    marks = [_mark(Role.PRODUCER, "", F.col("producers")), _mark(Role.CONSUMER, "", F.col("consumers"))]
    for role, services in of.items():
        held = {flag: _where(F.array_contains("flags", flag.value), names) for flag, names in services.items()}
        marks += [_mark(role, flag.value, names) for flag, names in held.items()]
        marks.append(_mark(role, _BROKEN, _joined(*[names for flag, names in held.items() if flag in VIOLATIONS])))
    return marks


def _mark(role: Role, mark: str, services: Column) -> Column:
    return F.struct(F.lit(role.value).alias("role"), F.lit(mark).alias("mark"), services.alias("services"))


def _producers(scope: Scope) -> Column:
    """Return the names of a message's producers.

    Its rows name them, or else its check address.
    """
    message = F.col("message")
    named = [F.when(is_named(message, producer), F.lit(producer.name)) for producer in scope.producers]
    by_address = F.array_compact(F.array(*named).cast(_NAMES_TYPE))
    return F.when(F.size("producers") > 0, _names("producers", "source")).otherwise(by_address)


def _services(branches: Column, scope: Scope) -> Column:
    """Return the names of the consumers that serve these branches.

    The longest beginning of an address decides.
    """
    every = [consumer.name for consumer in scope.consumers if not consumer.urls]
    beginnings = [(beginning, consumer.name) for consumer in scope.consumers for beginning in consumer.urls]

    def service(branch: Column) -> Column:
        name = F.lit(every[0] if len(every) == 1 else None).cast("string")
        for beginning, consumer in sorted(beginnings, key=lambda one: len(one[0])):
            name = F.when(begins(branch["url"], [beginning]), F.lit(consumer)).otherwise(name)
        return name

    return F.array_distinct(F.array_compact(F.transform(branches, service)))


def _twice(scope: Scope) -> list[Column]:
    """Return the name of each consumer that has an effect twice.

    An effect that another consumer has, too, counts for both.
    """
    return [_where(_is_twice(consumer.name), F.array(F.lit(consumer.name))) for consumer in scope.consumers] or [
        F.array().cast(_NAMES_TYPE)
    ]


def _is_twice(consumer: str) -> Column:
    branches = branches_of(F.col("message")["branches"])
    booked = F.filter(of_calls(F.col("ledger"), branches), lambda row: row["source"] == consumer)
    called = of_calls(F.col("barriers"), branches)
    here = F.filter(called, lambda row: row["source"] == consumer)
    elsewhere = F.filter(called, lambda row: row["source"] != consumer)
    is_shared = F.size(F.array_intersect(_ids(here), _ids(elsewhere))) > 0
    return (F.size(booked) > F.size(F.array_distinct(booked))) | is_shared


def _ids(rows: Column) -> Column:
    return F.transform(rows, lambda row: row["branch_id"])


def _names(rows: Column | str, field: str) -> Column:
    return F.array_distinct(F.transform(rows, lambda row: row[field]))


def _joined(*names: Column) -> Column:
    return F.array_distinct(F.concat(*names))


def _where(condition: Column, names: Column) -> Column:
    return F.when(condition, names).otherwise(F.array().cast(_NAMES_TYPE))
