"""The plans of the statements that a store really executes.

PostgreSQL reports them to the session, and they are read there: `auto_explain` is loaded for one database, with the
setting that sends every plan as a notice, also those of the statements inside a function. So nothing is guessed about
how the store prepares, caches or parametrizes its statements.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

SETTINGS = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_format": "json",
    "auto_explain.log_level": "notice",
}
"""Settings to which a database must be altered."""

LARGE = frozenset({"message", "history", "attempt", "queue_entry"})
_SCANS = frozenset({"Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan", "Bitmap Index Scan", "Tid Scan"})


class Access(msgspec.Struct, frozen=True):
    """One node of a plan that reads a table."""

    table: str
    kind: str
    index: str
    condition: str


class Plan(msgspec.Struct, frozen=True):
    """One statement as it was executed."""

    text: str
    accesses: list[Access]
    sorted_tables: list[str]
    """Tables whose rows pass a sort."""


def normal(sql: str) -> str:
    r"""Return a statement without comments and layout.

    >>> normal("-- why\nselect  1\n  from t -- it\n")
    'select 1 from t'
    """
    return " ".join(re.sub(r"--[^\n]*", "", sql).split()).rstrip(";")


def inside(function: str) -> list[str]:
    """Return the statements in a plpgsql function, as PostgreSQL reports them.

    Each may stand behind the words of its block.

    >>> inside("as $f$ begin if x then select a, b into c, d from t; y := 1; insert into t values (1); end; $f$")
    ['begin if x then select a, b from t', 'insert into t values (1)']
    """
    body = re.split(r"\$\w*\$", normal(function))[1]
    pieces = (re.sub(r"(?<!insert) into \w+(, \w+)*", "", piece).strip() for piece in body.split(";"))
    return [piece for piece in pieces if re.search(r"\b(select|insert|update|delete)\b", piece)]


def read(notice: str) -> Plan | None:
    """Return the plan in a notice of auto_explain; None for any other notice."""
    _, found, text = notice.partition("plan:\n")
    if not found:
        return None
    told = msgspec.json.decode(text)
    accesses: list[Access] = []
    is_sorted: list[str] = []
    for node, above in _nodes(told["Plan"], ()):
        if node["Node Type"] in _SCANS:
            access = _access(node)
            accesses.append(access)
            if {"Sort", "Incremental Sort"} & set(above):
                is_sorted.append(access.table)
    return Plan(normal(told["Query Text"]), accesses, is_sorted)


def _nodes(node: dict[str, Any], above: tuple[str, ...]) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
    yield node, above
    for child in node.get("Plans", ()):
        inherited = {"Bitmap Heap Relation": node.get("Relation Name", "")}
        is_question = child.get("Parent Relationship") in {"SubPlan", "InitPlan"}
        yield from _nodes(inherited | child, () if is_question else (*above, node["Node Type"]))


def _access(node: dict[str, Any]) -> Access:
    table = node.get("Relation Name") or node.get("Bitmap Heap Relation", "")
    return Access(table, node["Node Type"], node.get("Index Name", ""), node.get("Index Cond", ""))


def complaints(plan: Plan, reads_whole_indexes: bool) -> list[str]:
    """Return the faults of a plan; empty when every large table is read by an index.

    Arguments:
        reads_whole_indexes: for the few statements that may read a covering index from end to end.
    """
    found = []
    for one in plan.accesses:
        if one.table not in LARGE or one.kind == "Bitmap Heap Scan":
            continue
        if one.kind in {"Seq Scan", "Tid Scan"}:
            found.append(f"{one.kind} of {one.table}")
        elif not one.condition and not (reads_whole_indexes and one.kind == "Index Only Scan"):
            found.append(f"{one.kind} of all of {one.index}")
    found += [f"rows of {table} are sorted" for table in plan.sorted_tables if table in LARGE]
    return found
