"""Bodies as the types of handlers, and texts that tell no value."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from twophase.client.queues import payloads
from twophase.client.queues.payloads import plain, read_as, require_readable
from twophase.core.errors import ConfigurationError, PayloadUnreadable


class Model(BaseModel):
    order: int


@dataclass
class Outer:
    model: Model
    kind: Literal["paid", "sent"] = "paid"


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (b"\xff", bytes, b"\xff"),
        ("ü".encode(), str, "ü"),
        (b'{"order":7}', Model, Model(order=7)),
        (b'[{"order":7}]', list[Model], [Model(order=7)]),
        (b'{"model":{"order":7}}', Outer, Outer(Model(order=7))),
        (b'{"a":[1]}', Any, {"a": [1]}),
        (b"7", int | None, 7),
    ],
)
def test_a_body_is_read_as_its_type(body: bytes, kind: Any, expected: Any) -> None:
    require_readable(kind)
    assert read_as(body, kind) == expected


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b"\xff", str, "not UTF-8"),
        (b"secret", Model, "json_invalid at the top"),
        (b'{"order":"secret"}', Model, "int_parsing at order"),
        (b'{"model":{"order":"secret"}}', Outer, "int_parsing at order - at `$.model`"),
        (b'{"model":{"order":7},"kind":"secret"}', Outer, "Invalid enum value … - at `$.kind`"),
        (b'{"kind":"paid","secret', Outer, "truncated"),
        (b'"secret"', int, "Expected `int`, got `str`"),
    ],
)
def test_a_body_that_cannot_be_read_is_told_without_its_values(body: bytes, kind: Any, text: str) -> None:
    with pytest.raises(PayloadUnreadable) as caught:
        read_as(body, kind)
    assert text in caught.value.message
    assert "secret" not in caught.value.message
    assert caught.value.__cause__ is None or "secret" not in str(caught.value.__cause__)


@dataclass
class Chain:
    value: complex
    rest: Chain | None


@pytest.mark.parametrize("kind", [int | Literal[b"x"], complex, list[complex], Chain, Model | complex])
def test_a_type_that_no_json_is_read_as_is_refused(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match="no JSON can be read"):
        require_readable(kind)


def test_a_compressed_body_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(b"x" * 1_000)
    assert plain(packed, "gzip") == b"x" * 1_000
    assert plain(packed, "identity") == packed
    assert plain(packed + gzip.compress(b"y"), "gzip") == b"x" * 1_000 + b"y", "gzip may have several members"
    with pytest.raises(PayloadUnreadable, match="not gzip"):
        plain(b"no gzip", "gzip")
    with pytest.raises(PayloadUnreadable, match="truncated"):
        plain(packed[:-4], "gzip")
    monkeypatch.setattr(payloads, "PLAIN_BYTES_MAX", 999)
    with pytest.raises(PayloadUnreadable, match="more than 999"):
        plain(packed, "gzip")
