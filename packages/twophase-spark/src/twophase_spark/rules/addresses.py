"""Services by their addresses: who serves a branch, and whose check address it is."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so

from twophase.core.address import TOPIC_PREFIX
from twophase.core.queue_message import QUEUE_PREFIX
from twophase_spark.rules.scope import ProducerScope, Scope

_BRANCHES_TYPE = "array<struct<branch_id:string,url:string>>"
_ENDS = ("/", "?", "#", ":", "&")
"""The characters behind the end of a part of an address."""
_JOINTS = frozenset({*_ENDS, "="})
"""The characters with which a beginning ends a part itself."""


def branches_of(branches: Column) -> Column:
    """Return a message's branches; empty when they are not known."""
    return F.coalesce(branches, F.array().cast(_BRANCHES_TYPE))


def served_branches(branches: Column, scope: Scope) -> Column:
    """Return the branches whose effects the given consumers must have."""
    if not scope.consumers:
        return F.slice(branches, 1, 0)
    return F.filter(branches, lambda branch: is_served(branch["url"], scope))


def of_calls(effects: Column, branches: Column) -> Column:
    """Return the effects that are not of branches to queues.

    Such a branch takes effect once in each group of consumers, which no number of rows can contradict.
    """
    queued = F.transform(
        F.filter(branches, lambda branch: _is_queue(branch["url"])), lambda branch: branch["branch_id"]
    )
    return F.filter(effects, lambda row: ~F.coalesce(F.array_contains(queued, row["branch_id"]), F.lit(False)))


def is_served(url: Column, scope: Scope) -> Column:
    """Return True when one of the consumers serves this address.

    A topic that was not expanded yet names no consumer. Nor does a queue: its groups may be any services.
    """
    is_called = ~url.startswith(TOPIC_PREFIX) & ~_is_queue(url)
    if any(not consumer.urls for consumer in scope.consumers):
        return is_called
    return is_called & begins(url, [beginning for consumer in scope.consumers for beginning in consumer.urls])


def belongs(row: Column, branch: Column, scope: Scope) -> Column:
    """Return True for an effect of this branch in a service that serves it."""
    served = F.lit(False)
    for consumer in scope.consumers:
        here = row["source"] == consumer.name
        if consumer.urls:
            here &= begins(branch["url"], consumer.urls)
        served |= here
    return (row["branch_id"] == branch["branch_id"]) & served


def is_named(message: Column, producer: ProducerScope) -> Column:
    """Return True when a message's check address names this producer.

    The identity decides where both sides have one: several databases may stand behind one address.
    """
    identity = message["identity"]
    by_address = F.coalesce(begins(message["check_url"], producer.check_urls), F.lit(False))
    if producer.identity is None:
        return by_address
    return F.when(identity.isNull(), by_address).otherwise(identity == producer.identity)


def begins(url: Column, beginnings: Sequence[str]) -> Column:
    """Return True for an address with one of these beginnings.

    A beginning ends where a part of the address does: `http://bank-a` is one of `http://bank-a/check` and
    `http://bank-a:80`, and not of `http://bank-ab`.
    """
    found = F.lit(False)
    for beginning in beginnings:
        starts = url.startswith(beginning)
        if beginning and beginning[-1] not in _JOINTS:
            starts &= F.substring(url, len(beginning) + 1, 1).isin("", *_ENDS)
        found |= starts
    return found


def _is_queue(url: Column) -> Column:
    return url.startswith(QUEUE_PREFIX)
