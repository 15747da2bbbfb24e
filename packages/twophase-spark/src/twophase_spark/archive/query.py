"""`twophase spark query`: one SQL query over lake and store.

Its rows go to the terminal or into a pipe.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from twophase.core.errors import ArchiveRefused, ConfigurationError
from twophase_spark.archive.checking import require_lake
from twophase_spark.archive.lake import Lake
from twophase_spark.archive.views import Sources
from twophase_spark.datasource.cut import consistent_cut
from twophase_spark.datasource.options.address import locate
from twophase_spark.progress import progress_shown

SMALL_ROWS_MAX = 100_000
_READS = re.compile(r"\s*\(*\s*(select|with|values|from|table|describe|desc|show|explain)\b", re.IGNORECASE)
_VIEWS = re.compile(r"\b(history|message|attempt)\b", re.IGNORECASE)
_REPORTED = ("Describe", "Explain", "Show")
_CATALYST = "org.apache.spark.sql.catalyst"
_LOGICAL = f"{_CATALYST}.plans.logical"
_WRITES = (f"{_LOGICAL}.Command", f"{_LOGICAL}.ParsedStatement", f"{_LOGICAL}.InsertIntoDir")
"""Classes of statements in Spark's plan that have an effect.

Spark runs them at once, not when rows are read; and `with …` and `from …` begin both queries and statements, so the
text does not show the difference.
"""
_RUNS_PROGRAMS = f"{_LOGICAL}.ScriptTransformation"
_CALLS_JAVA = f"{_CATALYST}.expressions.CallMethodViaReflection"
_EXPLAINS = "org.apache.spark.sql.execution.command.ExplainCommand"
_NO_JAVA = "Only queries are run that call no methods of Java: reflect, java_method and try_reflect are refused."
_NO_QUERY = "Only queries are run: select …, with … select, show …, describe …."
_TRIES_MAX = 3


class Question(msgspec.Struct, frozen=True):
    """A query and its sources.

    `url`: reference to the store's URL, None for the lake alone.
    """

    sql: str
    lake: Path | None
    url: str | None
    limit: int
    payloads: bool = False


class Answer(msgspec.Struct, frozen=True):
    """Rows, each with a value a column; `more`: there are others behind the limit."""

    names: list[str]
    rows: list[tuple[Any, ...]]
    more: bool


def require_sound(question: Question) -> None:
    """Refuse a query that cannot work, before Spark is started.

    Raises:
        ConfigurationError: neither lake nor store, or not a query.
        ArchiveRefused: the folder is no lake.
    """
    if question.lake is None and question.url is None:
        raise ConfigurationError("Give --lake, --store or both: what the query is asked of.")
    if not _READS.match(question.sql):
        raise ConfigurationError(_NO_QUERY)
    if question.lake is not None:
        require_lake(Lake(question.lake))


def is_small(question: Question) -> bool:
    """Return True when compiling code would take longer than reading the lake."""
    if question.lake is None:
        return True
    files = [file for manifest in Lake(question.lake).manifests() for file in manifest.files]
    return sum(file.facts.rows for file in files) <= SMALL_ROWS_MAX


def ask(spark: SparkSession, question: Question, say: Callable[[str], None]) -> Answer:
    """Run the query; again when an archive moved rows from store to lake meanwhile.

    Raises:
        ConfigurationError: Spark does not understand it.
        HistoryGap: the store has forgotten what the lake does not have.
        ArchiveRefused: every time it was asked, an archive added to the lake.
    """
    lake = None if question.lake is None else Lake(question.lake)
    for _ in range(_TRIES_MAX):
        rounds = _rounds(lake)
        with _one_moment(question) as store:
            answer = _asked(spark, Sources(spark, lake, store, payloads=question.payloads), question, say)
        if question.url is None or _rounds(lake) == rounds:
            return answer
        say("the lake has grown meanwhile; asking again")
    raise ArchiveRefused(
        f"The lake grew in each of {_TRIES_MAX} tries.", remedy="Ask again when the archive has come to its end."
    )


def _rounds(lake: Lake | None) -> int:
    return 0 if lake is None else len(lake.manifests())


def _asked(spark: SparkSession, sources: Sources, question: Question, say: Callable[[str], None]) -> Answer:
    sources.make_views()
    with progress_shown(spark, say):
        try:
            found = _query(spark, question.sql)
            table: pa.Table = found.limit(question.limit + 1).toArrow()
        except AnalysisException as error:
            raise ConfigurationError(f"Spark does not understand the query: {_first_paragraph(error)}") from None
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return Answer(list(table.column_names), rows[: question.limit], len(rows) > question.limit)


def _query(spark: SparkSession, sql: str) -> DataFrame:
    """Return the query, of which nothing has run yet.

    Its plan is checked as it was parsed, because Spark runs a statement as soon as it is analysed; and once more when
    every name in it stands for its plan.

    Raises:
        ConfigurationError: it is no query, or calls methods of Java.
        AnalysisException: Spark does not understand it.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 -- PySpark has no parser of its own
    session: Any = spark._jsparkSession  # noqa: SLF001 -- the same
    state = session.sessionState()
    programs, java, explains, *writes = (
        jvm.java.lang.Class.forName(name) for name in (_RUNS_PROGRAMS, _CALLS_JAVA, _EXPLAINS, *_WRITES)
    )
    parsed = state.sqlParser().parsePlan(sql)
    _refuse(parsed, [programs, *writes])
    meant = parsed
    while explains.isInstance(meant):
        meant = meant.logicalPlan()
    analyzed = state.executePlan(meant, jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()).analyzed()
    if meant is parsed:
        _refuse(analyzed, [programs])
    # The explained plan is checked, too: Spark makes a plan the shorter by computing what needs no table.
    _refuse_java(analyzed, java)
    return spark.sql(sql)


def _refuse(plan: Any, kinds: Sequence[Any]) -> None:
    """Raise an error when a plan has a node of these kinds.

    The node may be in a `with`, or in a subquery of an expression, too.
    """
    for node in _nodes(plan):
        if not _is_reported(node) and any(kind.isInstance(node) for kind in kinds):
            raise ConfigurationError(_NO_QUERY)


def _refuse_java(plan: Any, java: Any) -> None:
    """Raise an error when an expression calls a method of Java, by any function."""
    for node in _nodes(plan):
        # Most nodes are deterministic: the expressions of their many columns need not be fetched one by one.
        if node.deterministic():
            continue
        left = _each(node.expressions())
        while left:
            expression = left.pop()
            if java.isInstance(expression):
                raise ConfigurationError(_NO_JAVA)
            left += _each(expression.children())


def _nodes(plan: Any) -> Iterator[Any]:
    """Yield every node of a plan.

    Of a statement such as `explain`, whose plan is not run, only the node itself is yielded.
    """
    left = [plan]
    while left:
        node = left.pop()
        yield node
        left += _each(node.children())
        if not _is_reported(node):
            left += _each(node.innerChildren()) + _each(node.subqueries())


def _is_reported(node: Any) -> bool:
    name: str = node.nodeName()
    return name.startswith(_REPORTED)


def _each(found: Any) -> list[Any]:
    return [found.apply(index) for index in range(found.size())]


def _first_paragraph(error: AnalysisException) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines()]
    return " ".join(lines[: lines.index("")] if "" in lines else lines[:1])


@contextlib.contextmanager
def _one_moment(question: Question) -> Iterator[Mapping[str, str] | None]:
    """Yield options that name the store; several tables are read as of one moment.

    PostgreSQL lends a snapshot for nothing; a SQLite store is copied for it, so only when it is needed.
    """
    if question.url is None:
        yield None
    elif locate(question.url, "store").engine == "sqlite" and len(set(_VIEWS.findall(question.sql.lower()))) < 2:
        yield {"url": question.url}
    else:
        with consistent_cut(question.url) as options:
            yield options


def as_json(answer: Answer) -> bytes:
    """Return the rows as a list of objects; bytes as base64.

    Raises:
        ConfigurationError: two columns have one name.
    """
    twice = sorted({name for name in answer.names if answer.names.count(name) > 1})
    if twice:
        raise ConfigurationError(f"Two columns are called {twice}; give them names of their own with `as`.")
    rows = [dict(zip(answer.names, row, strict=True)) for row in answer.rows]
    return msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n"


def as_csv(answer: Answer) -> str:
    """Return the rows with a line of names.

    A value that is not plain is JSON, and null is empty.

    >>> as_csv(Answer(["gid", "branches"], [("a,b", [1]), (None, None)], more=False))
    'gid,branches\\n"a,b",[1]\\n,\\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(answer.names)
    writer.writerows([as_text(value) for value in row] for row in answer.rows)
    return text.getvalue()


def as_text(value: object) -> str:
    r"""Return a value as the text of one cell.

    >>> as_text("x"), as_text(None), as_text(True), as_text({"a": b"\x00"})
    ('x', '', 'true', '{"a":"AA=="}')
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float | Decimal | date | datetime) and not isinstance(value, bool):
        return str(value)
    return msgspec.json.encode(value).decode().strip('"' if isinstance(value, bytes) else "")
