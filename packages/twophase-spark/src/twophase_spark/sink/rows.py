"""The conversion of rows to messages: key, address and payload of each.

An error names the column at fault. A whole Arrow batch is checked before one message of it leaves, and no value of a
row is ever part of an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
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

from twophase.client.transport.wire import Operation, encode_request
from twophase.core.address import why_reserved
from twophase.core.errors import ConfigurationError, RowRefused
from twophase.core.limits import BODY_BYTES_MAX
from twophase.core.message import Branch, Message
from twophase.core.options import Options
from twophase_spark.garbage import collecting_nothing
from twophase_spark.references import looked_up
from twophase_spark.sink.naming import gid_of
from twophase_spark.sink.options import PLACEHOLDER, Publishing

_KEY_TYPES = (StringType, IntegralType, DateType, TimestampType, TimestampNTZType, DecimalType, BinaryType, BooleanType)
_WRITTEN_KEYS = (FloatType, DoubleType, DecimalType, BooleanType)
"""Types of a map's keys that become text here, before JSON is written."""
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


def gids_of(publishing: Publishing, batch: pa.RecordBatch) -> list[str]:
    """Return the gids of a batch's rows, in its order.

    Raises:
        RowRefused: a key is null, or cannot be taken over.
    """
    for name in publishing.key_columns:
        if batch.column(name).null_count:
            raise RowRefused(f"Column {name!r} is part of the key, and null in a row.")
    columns = [_taken(name, batch.column(name)) for name in publishing.key_columns]
    return [gid_of(publishing.publisher, key) for key in zip(*columns, strict=True)]


class RowEncoder:
    """Makes the messages of one DataFrame.

    Arguments:
        publishing: the options.
        schema: the DataFrame's.
        check_url: where the coordinator asks, complete.
    """

    def __init__(self, publishing: Publishing, schema: StructType, check_url: str) -> None:
        self._publishing = publishing
        types = {field.name: field.dataType for field in schema.fields}
        in_json = _in_json(publishing, list(types))
        needed = {*publishing.columns, *in_json}
        self._names = [name for name in types if name in needed]
        written = dict.fromkeys([*in_json, *PLACEHOLDER.findall(publishing.url_template)])
        self._floats = [name for name in written if _contains(types[name], (FloatType, DoubleType))]
        self._times = {name for name in written if _contains(types[name], (TimestampType,))}
        self._maps = [name for name in written if _contains_map_with_keys_to_write(types[name])]
        self._url = _url_of(publishing)
        self._payload = _payload_of(publishing)
        headers = tuple((name, looked_up("branchHeaders", value)) for name, value in publishing.headers)
        options = Options(
            headers=headers,
            explicit_verdict=True,
            strict=True,
            delay_ms=publishing.delay_ms,
            timeout_to_fail_ms=publishing.check_after_ms,
            durability=publishing.durability,
        )
        self._parts = _parts_of_request(check_url, options)

    def encode(self, batch: pa.RecordBatch) -> list[Encoded]:
        """Return the messages of a batch, in its order.

        Raises:
            RowRefused: a key or an address is null, or a row is no message.
        """
        with collecting_nothing():
            return self._encoded(batch)

    def _encoded(self, batch: pa.RecordBatch) -> list[Encoded]:
        publishing = self._publishing
        gids = gids_of(publishing, batch)
        columns = {name: _taken(name, batch.column(name), has_times=name in self._times) for name in self._names}
        for name in self._floats:
            for value in columns[name]:
                _require_finite(name, value)
        for name in self._maps:
            columns[name] = [_with_plain_keys(value) for value in columns[name]]
        rows = zip(*columns.values(), strict=True)
        return [
            self._request(gid, dict(zip(self._names, row, strict=True))) for gid, row in zip(gids, rows, strict=True)
        ]

    def _request(self, gid: str, row: dict[str, Any]) -> Encoded:
        before_url, before_payload, rest = self._parts
        try:
            url, payload = self._url(row), self._payload(row).decode()
            why_not = why_reserved(url)
            if why_not:
                raise RowRefused(f"A row cannot be a message: its address is refused: {why_not}.", gid=gid)
            request = b"".join(
                (b'{"gid":"', gid.encode(), before_url, _encode(url), before_payload, _encode(payload), rest)
            )
        except UnicodeDecodeError:
            raise RowRefused("A row cannot be a message: a payload is not UTF-8 text.", gid=gid) from None
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            raise RowRefused(f"A row cannot be written as JSON: {type(error).__name__}.", gid=gid) from None
        if len(request) > BODY_BYTES_MAX.value:
            raise RowRefused(f"A row cannot be a message: it has more than {BODY_BYTES_MAX.value} bytes.", gid=gid)
        return gid, request


def _parts_of_request(check_url: str, options: Options) -> tuple[bytes, bytes, bytes]:
    """Return the text between gid, address and payload in the request of every row.

    Requests differ in nothing else.
    """
    gid, url, payload = "~gid~", "~url~", "~payload~"
    sample = encode_request(Message(gid, (Branch(url, payload.encode()),), check_url, options), Operation.PREPARE)
    begin, after_gid = sample.split(b'"~gid~', 1)
    assert begin == b'{"gid":', "a request begins with its gid"
    before_url, after_url = after_gid.split(b'"~url~"', 1)
    before_payload, rest = after_url.split(b'"~payload~"', 1)
    return before_url, before_payload, rest


def _taken(name: str, column: pa.Array, *, has_times: bool = False) -> list[Any]:
    """Return the values of a column as Python has them.

    Python has no time after the year 9999 and no struct as a map's key.
    """
    try:
        values = _values(column)
        return [_with_whole_minutes(value) for value in values] if has_times else values
    except (TypeError, ValueError, OverflowError, KeyError, pa.ArrowException) as error:
        raise RowRefused(
            f"Column {name!r} cannot be taken over in a row, {type(error).__name__}: a time outside the years 1 to "
            "9999, a map with one key twice or with structs, lists or maps as keys, or text that is not UTF-8."
        ) from None


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column.

    Those of the usual types are read by NumPy, ten times as fast as one by one.
    """
    kind = column.type
    plain = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_floating(kind)
    if pa.types.is_string(kind) or (plain and not column.null_count):
        return list(column.to_numpy(zero_copy_only=False).tolist())
    return list(column.to_pylist(maps_as_pydicts="strict"))


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


def _contains(kind: DataType, kinds: tuple[type[DataType], ...]) -> bool:
    if isinstance(kind, StructType):
        return any(_contains(field.dataType, kinds) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _contains(kind.elementType, kinds)
    if isinstance(kind, MapType):
        return _contains(kind.keyType, kinds) or _contains(kind.valueType, kinds)
    return isinstance(kind, kinds)


def _contains_map_with_keys_to_write(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_contains_map_with_keys_to_write(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _contains_map_with_keys_to_write(kind.elementType)
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, _WRITTEN_KEYS) or _contains_map_with_keys_to_write(kind.valueType)
    return False


def _with_whole_minutes(value: Any) -> Any:
    """Return the same with times that ISO 8601 can write.

    A zone's local mean time, of the years before its standard time, is off UTC by seconds too. It is written in UTC.
    """
    if isinstance(value, datetime):
        offset = value.utcoffset()
        return value.astimezone(UTC) if offset and offset.seconds % 60 else value
    if isinstance(value, dict):
        return {_with_whole_minutes(key): _with_whole_minutes(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_with_whole_minutes(part) for part in value]
    return value


def _with_plain_keys(value: Any) -> Any:
    """Return the same with the keys of maps as JSON has them.

    A key is text there, and -0.0 is the 0.0 it is equal to.
    """
    if isinstance(value, dict):
        return {_plain_key(key): _with_plain_keys(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_with_plain_keys(part) for part in value]
    return value


def _plain_key(key: Any) -> Any:
    if isinstance(key, Decimal):
        return format(key, "f")
    if isinstance(key, bool):
        return "true" if key else "false"
    return key + 0.0 if isinstance(key, float) else key


def _require_finite(name: str, value: Any) -> None:
    """Refuse a number that JSON does not have, NaN or infinity.

    Null in its place would be another value. Nor may NaN be a map's key.
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            raise RowRefused(f"Column {name!r} is not a number, or infinite, in a row: JSON has neither.")
    elif isinstance(value, dict):
        for key, part in value.items():
            _require_finite(name, key)
            _require_finite(name, part)
    elif isinstance(value, list):
        for part in value:
            _require_finite(name, part)
