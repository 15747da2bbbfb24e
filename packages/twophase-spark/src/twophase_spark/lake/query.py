"""`twophase spark query`: one SQL query over lake and store.

Its rows go to the terminal or into a pipe.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from twophase.core.errors import ArchiveRefused, ConfigurationError
from twophase_spark.lake.schemas import TABLES
from twophase_spark.lake.tables import Lake, Snapshot
from twophase_spark.lake.views import Sources
from twophase_spark.progress import progress_shown
from twophase_spark.source.cut import consistent_cut
from twophase_spark.source.options.address import locate

_VIEWS = re.compile(r"\b(history|message|attempt|audit_log|queue_entry)\b", re.IGNORECASE)
_TRIES_MAX = 3
_DATA = "22"
"""Class of SQL's states for values that do not fit, as a divisor of zero."""


class Question(msgspec.Struct, frozen=True):
    """A query and its sources.

    `lake`: its place, None for the store alone; `url`: reference to the store's URL, None for the lake alone.
    """

    sql: str
    lake: str | None
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
        ConfigurationError: neither lake nor store.
        ArchiveRefused: the place is no lake.
    """
    if question.lake is None and question.url is None:
        raise ConfigurationError("Give --lake, --store or both.")
    _snapshot(question)


def rows_of(question: Question) -> int:
    """Return the number of rows in the lake, as its files say."""
    lake = _snapshot(question)
    return 0 if lake is None else sum(file.rows for kind in TABLES for file in lake.files(kind))


def ask(spark: SparkSession, question: Question, say: Callable[[str], None]) -> Answer:
    """Run the query; again when an archive added to the lake meanwhile.

    Raises:
        ConfigurationError: Spark does not understand it.
        HistoryGap: the store has forgotten what the lake does not have.
        ArchiveRefused: every time it was asked, an archive added to the lake.
    """
    for _ in range(_TRIES_MAX):
        lake = _snapshot(question)
        with _one_moment(question) as store:
            answer = _asked(spark, Sources(spark, lake, store, payloads=question.payloads), question, say)
        if lake is None or question.url is None or _versions(question) == lake.versions:
            return answer
        say("the lake has grown meanwhile; asking again")
    raise ArchiveRefused(
        f"The lake grew in each of {_TRIES_MAX} tries.", remedy="Query again when the archive has ended."
    )


def _snapshot(question: Question) -> Snapshot | None:
    return None if question.lake is None else Lake(question.lake).snapshot()


def _versions(question: Question) -> tuple[int, ...]:
    lake = _snapshot(question)
    return () if lake is None else lake.versions


def _asked(spark: SparkSession, sources: Sources, question: Question, say: Callable[[str], None]) -> Answer:
    sources.make_views()
    with progress_shown(spark, say):
        try:
            table: pa.Table = spark.sql(question.sql).limit(question.limit + 1).toArrow()
        except AnalysisException as error:
            raise ConfigurationError(f"Spark does not understand the query: {_first_paragraph(error)}") from None
        except PySparkException as error:
            if not (error.getSqlState() or "").startswith(_DATA):
                raise
            raise ConfigurationError(f"Spark cannot compute the query: {_first_paragraph(error)}") from None
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return Answer(list(table.column_names), rows[: question.limit], len(rows) > question.limit)


def _first_paragraph(error: PySparkException) -> str:
    """Return an error's text in front of the query, which Spark repeats."""
    lines = [line.strip() for line in str(error).strip().partition("\n== SQL")[0].splitlines()]
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
