"""The statements of the source, for three databases.

Names in them were validated, and values cannot be anything else. Values stand in the text, because PostgreSQL's COPY,
by which ADBC reads, takes no parameters. Numbers are written as digits and texts as hexadecimal digits, so no value can
end a literal.
"""

from __future__ import annotations

from collections.abc import Iterable

from twophase_spark.source.schema.tables import STORED

BODY = "body"
_NARROW = dict.fromkeys(STORED, "gid") | {"audit_log": "seq", "queue_progress": "queue"}
"""A column that is read of a table when none of its own was asked for."""


def literal(engine: str, value: object) -> str:
    r"""Return a value in a statement of `engine`.

    >>> literal("sqlite", 7), literal("sqlite", "a'b"), literal("mysql", "é")
    ('7', "cast(x'612762' as text)", "_utf8mb4 x'c3a9'")
    >>> print(literal("postgresql", "'"))
    U&'\+000027'
    """
    if isinstance(value, int):
        return str(int(value))
    assert isinstance(value, str), "keys are whole numbers and texts"
    if engine == "postgresql":  # a constant, not a function's result: that would bring a collation of its own
        return "U&'" + "".join(f"\\+{ord(character):06x}" for character in value) + "'"
    digits = value.encode().hex()
    if engine == "mysql":
        return f"_utf8mb4 x'{digits}'"
    return f"cast(x'{digits}' as text)"


def quoted(engine: str, name: str) -> str:
    """Return a name exactly as it is spelt, whatever it holds.

    >>> quoted("postgresql", "Amount"), quoted("sqlite", "a`b")
    ('"Amount"', '`a``b`')
    """
    mark = '"' if engine == "postgresql" else "`"  # SQLite takes `"x"` for a text where there is no column x
    return mark + name.replace(mark, 2 * mark) + mark


def column(engine: str, name: str) -> str:
    """Return a column that was named in any case.

    The name may mean something else, too: PostgreSQL's `user` is a value.

    >>> column("postgresql", "User"), column("mysql", "User")
    ('"user"', '`User`')
    """
    return quoted(engine, name.lower() if engine == "postgresql" else name)


def select(columns: Iterable[str], table: str, conditions: Iterable[str] = (), order: str = "") -> str:
    """Return one statement.

    >>> select(["gid", "seq"], "history", ["node = 1", "seq > 7"], "seq")
    'select gid, seq from history where node = 1 and seq > 7 order by seq'
    """
    where = " and ".join(conditions)
    text = f"select {', '.join(columns)} from {table}"  # noqa: S608 -- our names, validated names, literals as above
    return text + (f" where {where}" if where else "") + (f" order by {order}" if order else "")


def span(engine: str, key: str, first: object | None, end: object | None) -> list[str]:
    """Return the conditions of `first` ≤ `key` < `end`, each None for open.

    >>> span("sqlite", "seq", 1, 9), span("sqlite", "seq", None, None)
    (['seq >= 1', 'seq < 9'], [])
    """
    conditions = [] if first is None else [f"{key} >= {literal(engine, first)}"]
    return conditions if end is None else [*conditions, f"{key} < {literal(engine, end)}"]


def milliseconds(engine: str, column: str) -> str:
    """Return the SQL of a time of dtm's barrier columns as milliseconds since 1970."""
    if engine == "postgresql":
        return f"floor(extract(epoch from {column}) * 1000)::bigint"
    if engine == "mysql":
        return f"cast(floor(unix_timestamp({column}) * 1000) as signed)"
    return f"cast(round((julianday({column}) - 2440587.5) * 86400000) as integer)"


def stored_columns(table: str, columns_: Iterable[str], body_columns: frozenset[str]) -> list[str]:
    """Return the columns of a coordinator's table that a read of these columns takes.

    They are the columns themselves, and the body for its parts.

    >>> stored_columns("message", ["gid", "seq", "branches"], frozenset({"branches"}))
    ['gid', 'body']
    """
    names = list(columns_)
    taken = [name for name in names if name in STORED[table]]
    return [*taken, BODY] if body_columns.intersection(names) else taken or [_NARROW[table]]
