"""The fate of payload values: the page's table, and values that JSON cannot carry."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import math
import re
import types
import uuid
from pathlib import Path
from typing import Any

import pydantic
import pytest

from twophase import Client, Message, RetryPolicy
from twophase.errors import InvalidRequest, LimitExceeded

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "payloads.md"
SERVER = "http://localhost:36789"


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int


class Order(pydantic.BaseModel):
    pieces: int
    due: dt.date


def sent(payload: Any) -> bytes:
    (branch,) = Message(SERVER).add("http://b/1", payload).branches
    return branch.payload


def rows() -> list[tuple[str, str]]:
    """Return the Python value and the JSON of every row of the page's table."""
    return re.findall(r"^\| [^|]+ \| `(.+?)` \| `(.+?)` \|", PAGE.read_text(), re.MULTILINE)


NAMES = {
    "Colour": Colour,
    "Decimal": decimal.Decimal,
    "Order": Order,
    "Point": Point,
    "UUID": uuid.UUID,
    "UTC": dt.UTC,
    **{name: getattr(dt, name) for name in ("date", "datetime", "time", "timedelta")},
}


@pytest.mark.parametrize(("value", "json"), rows(), ids=lambda text: text)
def test_payload_becomes_what_the_page_says(value: str, json: str) -> None:
    assert sent(eval(value, dict(NAMES))).decode() == json


def test_the_page_has_a_table() -> None:
    assert len(rows()) > 12


class Row(pydantic.BaseModel):
    """A row of SQLModel: pydantic writes only what SQLAlchemy has loaded."""

    pieces: int
    due: dt.date | None = None
    _sa_instance_state: Any = pydantic.PrivateAttr()

    def expire(self, *names: str) -> Row:
        for name in names:
            del vars(self)[name]
        self._sa_instance_state = types.SimpleNamespace(unloaded={*names, "a_relationship"})
        return self


def test_a_row_whose_fields_are_expired_is_refused() -> None:
    assert sent(Row(pieces=2).expire()) == b'{"pieces":2,"due":null}'
    for payload in (Row(pieces=2).expire("due", "pieces"), {"rows": [Row(pieces=2).expire("due", "pieces")]}):
        with pytest.raises(InvalidRequest, match="Row is a row whose due, pieces is not loaded, as after a commit"):
            sent(payload)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda number: number, "payload"),
        (lambda number: {"a": None, "items": [{"price": 1.0}, {"price": number}]}, "payload['items'][1]['price']"),
        (Point, "payload['x']"),
        (lambda number: (1, {number}), "payload[1][0]"),
    ],
    ids=["alone", "in a list of dicts", "in a dataclass", "in a set"],
)
def test_a_number_that_json_has_not_is_refused_by_its_path(wrap: Any, path: str, number: float) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(f"{path} is {number}")):
        sent(wrap(number))


def test_a_number_that_json_has_not_is_found_in_a_model() -> None:
    class Price(pydantic.BaseModel):
        price: float

    with pytest.raises(InvalidRequest, match=re.escape("payload['prices'][0]['price'] is nan")):
        sent({"prices": [Price(price=math.nan)]})


@pytest.mark.parametrize("number", [decimal.Decimal("NaN"), decimal.Decimal("-Infinity"), decimal.Decimal("sNaN")])
def test_a_decimal_that_is_no_number_is_refused_by_its_path(number: decimal.Decimal) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(f"payload['price'] is {number}")):
        sent({"price": number})


@pytest.mark.parametrize("key", [math.nan, math.inf, -math.inf, decimal.Decimal("NaN")])
def test_a_key_that_is_no_number_is_refused(key: object) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(f"payload['prices'].keys() is {key}")):
        sent({"prices": {key: 1}})


def test_a_models_secret_is_refused_instead_of_sent_as_stars() -> None:
    class Login(pydantic.BaseModel):
        password: pydantic.SecretStr

    class Note(pydantic.BaseModel):
        text: str

    with pytest.raises(InvalidRequest, match=r"Login holds a secret, whose JSON is stars; give its get_secret"):
        sent({"login": Login(password=pydantic.SecretStr("hidden"))})
    assert sent(Note(text="**********")) == b'{"text":"**********"}'


@pytest.mark.parametrize("word", ["NaN", "Infinity", "nan", "inf"])
def test_a_text_that_looks_like_no_number_is_sent(word: str) -> None:
    assert sent({word: word}) == f'{{"{word}":"{word}"}}'.encode()


def test_the_word_null_in_a_text_is_no_reason_to_refuse() -> None:
    assert sent({"null": "null", "none": None, "x": 1.5}) == b'{"null":"null","none":null,"x":1.5}'


def test_spans_of_time_are_taken_where_seconds_are() -> None:
    minute = dt.timedelta(minutes=1)
    message = Client(SERVER, retry=RetryPolicy(total=minute), timeout=minute).message(delay=minute, check_after=minute)
    assert (message._draft.options.delay_ms, message._draft.options.timeout_to_fail_ms) == (60_000, 60_000)
    with pytest.raises(InvalidRequest, match="delay"):
        Message(SERVER, delay=-minute)
    with pytest.raises(LimitExceeded):
        Message(SERVER, delay=dt.timedelta.max)
