"""A row's request, built from parts, is the client's request for the same message."""

from __future__ import annotations

import base64
import hashlib
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    MapType,
    StringType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from twophase.client.transport.wire import Operation, encode_request
from twophase.core.errors import ConfigurationError, RowRefused
from twophase.core.limits import BODY_BYTES_MAX
from twophase.core.message import Branch, Message
from twophase.core.options import Durability, Options
from twophase_spark.sink.naming import gid_of
from twophase_spark.sink.options import parse
from twophase_spark.sink.rows import RowEncoder, require_columns

CHECK = 'http://127.0.0.1:36791/twophase/spark/check?barrier="~payload~"'
ROWS: list[dict[str, Any]] = [
    {"id": 7, "name": 'a "b" \\ ü \x01', "much": Decimal("10.50"), "at": datetime(2026, 1, 2, tzinfo=UTC), "tags": []},
    {"id": -1, "name": None, "much": None, "at": None, "tags": [{"k": 1.5, "on": date(2026, 1, 2)}]},
    {"id": 2**62, "name": "~gid~", "much": Decimal("0.00"), "at": datetime(1970, 1, 1, tzinfo=UTC), "tags": None},
]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("much", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.struct([("k", pa.float64()), ("on", pa.date32())]))),
    ]
)
JSON = msgspec.json.Encoder(decimal_format="number")
MAP_OF_MAPS = pa.map_(pa.string(), pa.map_(pa.float64(), pa.int32()))
BATCH = pa.RecordBatch.from_pylist(ROWS, schema=SCHEMA)
NEEDED = {
    "coordinator": "http://127.0.0.1:36789",
    "ledger": "sqlite:///ledger.db",
    "publisher": "orders",
    "keyColumns": "id",
    "checkUrl": "http://127.0.0.1:36791/twophase/spark/check",
}


def encoder(batch: pa.RecordBatch = BATCH, **options: str) -> RowEncoder:
    return RowEncoder(parse({**NEEDED, "url": "http://b/in", **options}), from_arrow_schema(batch.schema), CHECK)


def said(row: dict[str, Any], url: str, payload: bytes, **options: Any) -> tuple[str, bytes]:
    """Return the request as the client would make it."""
    gid = gid_of("orders", [row["id"]])
    wanted = Options(explicit_verdict=True, strict=True, **{"timeout_to_fail_ms": 60_000, **options})
    return gid, encode_request(Message(gid, (Branch(url, payload),), CHECK, wanted), Operation.PREPARE)


def test_whole_rows() -> None:
    assert encoder().encode(BATCH) == [said(row, "http://b/in", JSON.encode(row)) for row in ROWS]


def test_some_columns_with_headers_and_a_delay() -> None:
    found = encoder(
        payloadColumns="at,id",
        branchHeaders='{"x-tenant":"~url~"}',
        delay="90",
        checkAfter="30",
        durability="check-back",
    ).encode(BATCH)

    options = {
        "headers": (("x-tenant", "~url~"),),
        "delay_ms": 90_000,
        "timeout_to_fail_ms": 30_000,
        "durability": Durability.CHECK_BACK,
    }
    wanted = [{"at": row["at"], "id": row["id"]} for row in ROWS]
    assert found == [
        said(row, "http://b/in", JSON.encode(one), **options) for row, one in zip(ROWS, wanted, strict=True)
    ]


def test_addresses_and_payloads_of_the_row() -> None:
    found = encoder(url="", urlTemplate='http://b/${id}?"~payload~"', payloadTemplate='{"n":${name}}').encode(BATCH)

    wanted = [(f'http://b/{row["id"]}?"~payload~"', b'{"n":' + JSON.encode(row["name"]) + b"}") for row in ROWS]
    assert found == [said(row, url, payload) for row, (url, payload) in zip(ROWS, wanted, strict=True)]


def test_bytes_are_sent_as_they_are_and_must_be_text() -> None:
    batch = pa.RecordBatch.from_pydict({"id": [1, 2], "body": pa.array(["ü".encode(), None], pa.binary())})
    assert encoder(batch, payloadColumn="body").encode(batch) == [
        said({"id": 1}, "http://b/in", "ü".encode()),
        said({"id": 2}, "http://b/in", b""),
    ]
    broken = pa.RecordBatch.from_pydict({"id": [1], "body": pa.array([b"\xff"], pa.binary())})
    with pytest.raises(RowRefused, match="not UTF-8"):
        encoder(broken, payloadColumn="body").encode(broken)


def test_a_row_whose_address_has_a_parameter_of_the_coordinator_is_refused() -> None:
    batch = pa.RecordBatch.from_pydict({"id": [1], "to": ["http://b/in?gid=7"]})
    with pytest.raises(RowRefused, match="'gid', which the coordinator sets"):
        encoder(batch, url="", urlColumn="to").encode(batch)


def test_a_request_larger_than_any_coordinator_takes() -> None:
    batch = pa.RecordBatch.from_pydict({"id": [1], "text": ["x" * BODY_BYTES_MAX.value]})
    with pytest.raises(RowRefused, match="more than"):
        encoder(batch).encode(batch)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([[({"a": 1}, 2)]], pa.map_(pa.struct([("a", pa.int32())]), pa.int32())), "TypeError"),
        (pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32())), "KeyError"),
        (pa.array([253_402_300_800_000_000], pa.timestamp("us", "UTC")), "OverflowError"),
        (pa.array([253_402_300_800_000_000], pa.timestamp("us")), "OverflowError"),
        (pa.array([b"\xff"], pa.binary()).view(pa.string()), "ArrowException"),
    ],
)
@pytest.mark.parametrize("key", ["id", "odd"])
def test_a_value_that_python_does_not_have_is_refused_by_its_column(column: pa.Array, kind: str, key: str) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), column], ["id", "odd"])

    with pytest.raises(RowRefused, match=rf"'odd' cannot be taken over in a row, {kind}: "):
        encoder(batch, keyColumns=key).encode(batch)


def of_one(column: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([1]), column], ["id", "odd"])


@pytest.mark.parametrize(
    "column",
    [
        pa.array([math.inf]),
        pa.array([[(math.nan, 1)]], pa.map_(pa.float64(), pa.int32())),
        pa.array([[{"of": [("a", [(-math.inf, 1)])]}]], pa.list_(pa.struct([("of", MAP_OF_MAPS)]))),
    ],
)
def test_what_is_no_number_is_refused_as_a_maps_key_too(column: pa.Array) -> None:
    with pytest.raises(RowRefused, match="'odd' is not a number, or infinite"):
        encoder(of_one(column)).encode(of_one(column))


def test_what_is_no_number_is_refused_in_an_address() -> None:
    batch = of_one(pa.array([math.nan]))
    with pytest.raises(RowRefused, match="'odd' is not a number, or infinite"):
        encoder(batch, url="", urlTemplate="http://b/${odd}", payloadColumns="id").encode(batch)


@pytest.mark.parametrize(
    ("column", "json"),
    [
        (pa.array([[(-0.0, -0.0), (1.5, 2.0)]], pa.map_(pa.float64(), pa.float64())), b'{"0.0":-0.0,"1.5":2.0}'),
        (pa.array([[(Decimal("1.50"), 1)]], pa.map_(pa.decimal128(9, 2), pa.int32())), b'{"1.50":1}'),
        (pa.array([[(True, 1), (False, None)]], pa.map_(pa.bool_(), pa.int32())), b'{"true":1,"false":null}'),
        (
            pa.array([[{"of": [("a", [(-0.0, 1)])]}]], pa.list_(pa.struct([("of", MAP_OF_MAPS)]))),
            b'[{"of":{"a":{"0.0":1}}}]',
        ),
    ],
)
def test_a_maps_keys_are_the_text_of_what_they_equal(column: pa.Array, json: bytes) -> None:
    [(_, request)] = encoder(of_one(column), payloadTemplate="${odd}").encode(of_one(column))
    assert request == said({"id": 1}, "http://b/in", json)[1]


def test_a_time_of_a_zone_that_had_no_standard_time_yet_is_written_in_utc() -> None:
    noons = [datetime(year, 7, 1, 12, tzinfo=UTC) for year in (1890, 2026)]
    kind = pa.timestamp("us", "Europe/Berlin")
    columns = [pa.array([1, 2]), pa.array(noons, kind), pa.array([[noon] for noon in noons], pa.list_(kind))]
    batch = pa.RecordBatch.from_arrays(columns, ["id", "at", "all"])

    found = [request for _, request in encoder(batch, payloadColumns="at,all").encode(batch)]

    texts = [f'{{"at":"{at}","all":["{at}"]}}' for at in ("1890-07-01T12:00:00Z", "2026-07-01T14:00:00+02:00")]
    wanted = [said({"id": row}, "http://b/in", text.encode())[1] for row, text in enumerate(texts, 1)]
    assert found == wanted


@pytest.mark.parametrize(
    "odd",
    [
        DayTimeIntervalType(),
        YearMonthIntervalType(),
        VariantType(),
        ArrayType(VariantType()),
        StructType().add("of", MapType(StringType(), DayTimeIntervalType())),
    ],
)
def test_a_column_that_has_no_json_is_refused_before_a_row_is_read(odd: DataType) -> None:
    schema = StructType().add("id", "long").add("odd", odd)

    with pytest.raises(ConfigurationError, match=r"Column 'odd' is .*which has no JSON; cast it") as raised:
        require_columns(parse({**NEEDED, "url": "http://b/in"}), schema)
    assert raised.value.code == "TP-7000"
    require_columns(parse({**NEEDED, "url": "http://b/in", "payloadColumns": "id"}), schema)
    require_columns(parse({**NEEDED, "url": "http://b/in", "payloadTemplate": '{"id":${id}}'}), schema)


def test_a_gid_is_base_32_of_the_digest() -> None:
    digest = hashlib.sha256(msgspec.msgpack.encode(["orders", 17, "ü"])).digest()
    assert gid_of("orders", [17, "ü"]) == "spark-" + base64.b32encode(digest).decode().lower()[:32]
