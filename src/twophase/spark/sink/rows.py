"""Rows become messages: key, address and payload of each, or an error that says which column is at fault.

A whole Arrow batch is looked at before one message of it leaves, and no value of a row is ever part of an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CalendarIntervalType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
    VariantType,
    YearMonthIntervalType,
)

from twophase.client.wire import Operation, encode_request
from twophase.core.errors import ConfigurationError, InvalidRequest, RowRefused
from twophase.core.message import Branch, Message, Options
from twophase.spark.sink.naming import gid_of
from twophase.spark.sink.options import PLACEHOLDER, Publishing
from twophase.spark.sink.secret import looked_up

_KEY_TYPES = (StringType, IntegralType, DateType, TimestampType, TimestampNTZType, DecimalType, BinaryType, BooleanType)
_NO_JSON = (CalendarIntervalType, DayTimeIntervalType, YearMonthIntervalType, VariantType, UserDefinedType)
_encode = msgspec.json.Encoder(decimal_format="number").encode
Encoded = tuple[str, bytes]
"""A message's gid, and the request that prepares it."""


def require_columns(publishing: Publishing, schema: StructType) -> None:
    """Refuse a DataFrame whose rows cannot be messages, before any is read.

    Raises:
        ConfigurationError: a column is missing, or of a type that cannot be a key, an address or JSON.
    """
    types = {field.name: field.dataType for field in schema.fields}
    if len(types) != len(schema.fields):
        raise ConfigurationError("Two columns of the DataFrame have the same name.")
    for name in publishing.columns:
        if name not in types:
            raise ConfigurationError(f"The DataFrame has no column {name!r}; it has {', '.join(types)}.")
    for name in publishing.key_columns:
        if not isinstance(types[name], _KEY_TYPES):
            raise ConfigurationError(
                f"Column {name!r} is {types[name].simpleString()}; a key is text, a whole number, a decimal, a date, a "
                "timestamp, a boolean or bytes, of which equal ones are always written the same."
            )
    for name, allowed in ((publishing.url_column, StringType), (publishing.payload_column, (StringType, BinaryType))):
        if name and not isinstance(types[name], allowed):
            raise ConfigurationError(f"Column {name!r} is {types[name].simpleString()}, text is needed.")
    for name in _in_json(publishing, list(types)):
        if _contains(types[name], _NO_JSON):
            raise ConfigurationError(
                f"Column {name!r} is {types[name].simpleString()}, which has no JSON; cast it, or name the columns to "
                "send with option payloadColumns."
            )


class RowEncoder:
    """Makes the messages of one DataFrame.

    Arguments:
        publishing: what is wanted.
        schema: the DataFrame's.
        check_url: where the coordinator asks, complete.
    """

    def __init__(self, publishing: Publishing, schema: StructType, check_url: str) -> None:
        self._publishing = publishing
        self._check_url = check_url
        headers = tuple((name, looked_up("branchHeaders", value)) for name, value in publishing.headers)
        self._options = Options(headers=headers, explicit_verdict=True, timeout_to_fail_ms=publishing.check_after_ms)
        types = {field.name: field.dataType for field in schema.fields}
        self._floats = [
            name for name in _in_json(publishing, list(types)) if _contains(types[name], (FloatType, DoubleType))
        ]
        self._url = _url_of(publishing)
        self._payload = _payload_of(publishing)

    def encode(self, batch: pa.RecordBatch) -> Iterator[Encoded]:
        """The messages of a batch, in its order.

        Raises:
            RowRefused: a key or an address is null, or a row is no message.
        """
        publishing = self._publishing
        for name in publishing.key_columns:
            if batch.column(name).null_count:
                raise RowRefused(f"Column {name!r} is part of the key, and null in a row.")
        for row in batch.to_pylist(maps_as_pydicts="strict"):
            for name in self._floats:
                _require_finite(name, row[name])
            gid = gid_of(publishing.publisher, [row[name] for name in publishing.key_columns])
            try:
                branch = Branch(self._url(row), self._payload(row))
                message = Message(gid, (branch,), self._check_url, self._options)
                yield gid, encode_request(message, Operation.PREPARE)
            except InvalidRequest as error:
                raise RowRefused(f"A row is no message: {error.message}", gid=gid) from None
            except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
                raise RowRefused(f"A row cannot be written as JSON: {type(error).__name__}.", gid=gid) from None


def _url_of(publishing: Publishing) -> Callable[[dict[str, Any]], str]:
    if publishing.url:
        return lambda _: publishing.url
    if publishing.url_column:
        return lambda row: _present(publishing.url_column, row)
    return lambda row: PLACEHOLDER.sub(lambda found: quote(_text(found[1], row), safe=""), publishing.url_template)


def _payload_of(publishing: Publishing) -> Callable[[dict[str, Any]], bytes]:
    if publishing.payload_column:
        return lambda row: _as_bytes(row[publishing.payload_column])
    if publishing.payload_template:
        return lambda row: _filled(publishing.payload_template, row)
    if publishing.payload_columns:
        return lambda row: _encode({name: row[name] for name in publishing.payload_columns})
    return _encode


def _filled(template: str, row: dict[str, Any]) -> bytes:
    filled = PLACEHOLDER.sub(lambda found: _encode(row[found[1]]).decode(), template).encode()
    msgspec.json.decode(filled, type=msgspec.Raw)
    return filled


def _present(name: str, row: dict[str, Any]) -> str:
    value = row[name]
    if not value:
        raise RowRefused(f"Column {name!r} is the address, and null or empty in a row.")
    return str(value)


def _text(name: str, row: dict[str, Any]) -> str:
    value = row[name]
    if value is None:
        raise RowRefused(f"Column {name!r} is part of the address, and null in a row.")
    return value if isinstance(value, str) else _encode(value).decode().strip('"')


def _as_bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


def _in_json(publishing: Publishing, names: list[str]) -> list[str]:
    if publishing.payload_column:
        return []
    if publishing.payload_template:
        return PLACEHOLDER.findall(publishing.payload_template)
    return list(publishing.payload_columns) or names


def _contains(kind: DataType, wanted: tuple[type[DataType], ...]) -> bool:
    if isinstance(kind, StructType):
        return any(_contains(field.dataType, wanted) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _contains(kind.elementType, wanted)
    if isinstance(kind, MapType):
        return _contains(kind.keyType, wanted) or _contains(kind.valueType, wanted)
    return isinstance(kind, wanted)


def _require_finite(name: str, value: Any) -> None:
    """JSON has no NaN and no infinity, and null in their place would be another value."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise RowRefused(f"Column {name!r} is not a number, or infinite, in a row: JSON has neither.")
    elif isinstance(value, dict):
        for part in value.values():
            _require_finite(name, part)
    elif isinstance(value, list):
        for part in value:
            _require_finite(name, part)
