"""The columns of a business table for Spark, from the database's own catalogue."""

from __future__ import annotations

import re

import pyarrow as pa

from twophase_spark.source.schema.sql import column, quoted

_DECIMAL_DIGITS_MAX = 38
_DECIMAL = re.compile(r"(?:numeric|decimal)\((\d+),\s*(\d+)\)(?: unsigned)?")
_PLAIN: dict[str, dict[str, pa.DataType]] = {
    "postgresql": {
        "smallint": pa.int32(),
        "integer": pa.int32(),
        "bigint": pa.int64(),
        "real": pa.float64(),
        "double precision": pa.float64(),
        "boolean": pa.bool_(),
        "bytea": pa.binary(),
        "date": pa.date32(),
        "timestamp with time zone": pa.timestamp("us", "UTC"),
        "timestamp without time zone": pa.timestamp("us"),
    },
    "mysql": {
        "tinyint": pa.int32(),
        "smallint": pa.int32(),
        "mediumint": pa.int32(),
        "int": pa.int64(),
        "bigint": pa.int64(),
        "float": pa.float64(),
        "double": pa.float64(),
        "date": pa.date32(),
        "datetime": pa.timestamp("us"),
    },
}


def arrow_type(engine: str, declared: str) -> pa.DataType:
    """Return the Arrow type of a declared type; text for a type unknown to Spark.

    >>> arrow_type("postgresql", "numeric(18,2)"), arrow_type("postgresql", "uuid"), arrow_type("mysql", "int(11)")
    (Decimal128Type(decimal128(18, 2)), DataType(string), DataType(int64))
    >>> arrow_type("sqlite", "integer"), arrow_type("sqlite", "varchar(9)"), arrow_type("sqlite", "")
    (DataType(int64), DataType(string), DataType(string))
    """
    if engine == "sqlite":
        return _by_affinity(declared)
    exact = _DECIMAL.fullmatch(declared)
    if exact is not None and int(exact[1]) <= _DECIMAL_DIGITS_MAX:
        return pa.decimal128(int(exact[1]), int(exact[2]))
    bare = re.sub(r"\(\d+\)", "", declared)
    if bare == "bigint unsigned":
        return pa.decimal128(20, 0)
    return _PLAIN[engine].get(bare.removesuffix(" unsigned") if engine == "mysql" else bare, pa.string())


def _by_affinity(declared: str) -> pa.DataType:
    """Return the type by SQLite's own rules of affinity.

    Only its whole numbers, floats and blobs are more than text.
    """
    if "int" in declared:
        return pa.int64()
    if any(word in declared for word in ("real", "floa", "doub")):
        return pa.float64()
    return pa.binary() if "blob" in declared else pa.string()


def expression(engine: str, name: str, kind: pa.DataType) -> str:
    """Return the SQL of a column, so that every driver gives equal values.

    Exact numbers and unknown types are selected as text. The column's name is the one in the request: a database by
    itself answers with the name as the table spells it.
    """
    taken = column(engine, name)
    if pa.types.is_decimal(kind) or pa.types.is_string(kind):
        taken = as_text(engine, taken)
    return f"{taken} as {quoted(engine, name)}"


def as_text(engine: str, taken: str) -> str:
    """Return the SQL of a value as text."""
    return f"cast({taken} as {'char' if engine == 'mysql' else 'text'})"


def carried(kind: pa.DataType) -> pa.DataType:
    """Return the type in which `expression` brings a column of type `kind`."""
    return pa.string() if pa.types.is_decimal(kind) else kind
