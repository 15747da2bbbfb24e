"""A long request is refused by the number of its values, before they are made."""

from __future__ import annotations

import json
import string
from itertools import islice, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.core.errors import LimitExceeded
from twophase.core.limits import BODY_BYTES_MAX
from twophase.grpc_wire.messages import Request, count_fields, encode_request, parse_request
from twophase.server.codecs.decode import Decoder
from twophase.server.codecs.values import require_values
from twophase.server.codecs.wire import parse_steps

_NAMES = ["".join(letters).encode() for letters in islice(product(string.ascii_letters, repeat=4), 200_000)]
_HEADERS = b",".join(b'"%b":""' % name for name in _NAMES)
_HEAD = b'{"gid":"g","trans_type":"msg",'
LARGE = {
    "headers": _HEAD + b'"branch_headers":{%b}}' % _HEADERS,
    "headers twice": _HEAD + b'"branch_headers":{%b},"branch_headers":{}}' % _HEADERS,
    "headers in capitals": _HEAD + b'"Branch_Headers":{%b}}' % _HEADERS,
    "steps": _HEAD + b'"steps":[%b]}' % b",".join([b"{}"] * 1_000_000),
    "members of a step": _HEAD + b'"steps":[{%b}]}' % _HEADERS,
    "payloads": _HEAD + b'"payloads":[%b]}' % b",".join([b'""'] * 1_000_000),
    "nulls": _HEAD + b'"payloads":[%b]}' % b",".join([b"null"] * 800_000),
    "members": b"{%b}" % b",".join(b'"%b":1' % name for name in _NAMES),
    "escapes": _HEAD + b'"payloads":[%b]}' % b",".join([b'"\\\\"'] * 100_000),
}


@pytest.mark.parametrize("kind", LARGE)
def test_a_large_body_of_small_values_is_refused_before_they_are_made(kind: str) -> None:
    raw = LARGE[kind]
    assert len(raw) <= BODY_BYTES_MAX.value
    for read in (Decoder(lambda url: None).message, Decoder(lambda url: None).gid):
        with pytest.raises(LimitExceeded, match="values of a request is 10001 values or more, at most 10000"):
            read(raw)


def test_large_steps_of_a_grpc_request_are_counted_too() -> None:
    with pytest.raises(LimitExceeded, match="values of a request"):
        parse_steps(json.dumps([{"a": "b"}] * 100_000))


def test_the_largest_message_passes() -> None:
    payload = json.dumps([{"name": 'a, "b" \\ c'}] * 1_500)
    fields: dict[str, Any] = {
        "gid": "g",
        "trans_type": "msg",
        "steps": [{"action": f"http://b/{number}", "data": ""} for number in range(63)],
        "payloads": [payload] * 63,
        "branch_headers": {f"x-{number}": "1, 2, 3" for number in range(64)},
        "x": [{"y": number} for number in range(1_000)],
    }
    raw = json.dumps(fields).encode()
    assert len(raw) > BODY_BYTES_MAX.value * 3 // 4
    assert len(Decoder(lambda url: None).message(raw).branches) == 63


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('ab,"\\[{é\n', max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('a,"\\', max_size=3), inner, max_size=4),
    max_leaves=20,
)


def _texts_and_commas(value: object) -> tuple[int, int]:
    if isinstance(value, str):
        return 1, 0
    if isinstance(value, dict):
        found = [_texts_and_commas(one) for pair in value.items() for one in pair]
    elif isinstance(value, list):
        found = [_texts_and_commas(one) for one in value]
    else:
        return 0, 0
    return sum(texts for texts, _ in found), sum(commas for _, commas in found) + max(0, len(value) - 1)


@given(value=_JSON, most=st.integers(0, 12), escapes=st.booleans())
def test_texts_and_commas_are_counted_whatever_stands_in_the_texts(value: Any, most: int, *, escapes: bool) -> None:
    raw = json.dumps(value, ensure_ascii=escapes).encode()
    if max(_texts_and_commas(value)) <= most:
        require_values(raw, most)
    else:
        with pytest.raises(LimitExceeded):
            require_values(raw, most)


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        (Request(gid="g", trans_type="msg", payloads=[b""] * 7), 9),
        (Request(gid="g", branch_headers={f"x{n}": "" for n in range(7)}, delay_ms=300), 10),
        (Request(payloads=[b"\x1a\x02\x0a\x00"] * 3), 3),
        (Request(), 0),
    ],
)
def test_the_fields_of_a_grpc_request_are_counted(request_: Request, fields: int) -> None:
    raw = encode_request(request_)
    assert count_fields(raw, 100) == fields
    assert count_fields(raw, fields - 1) == fields if fields else True


def test_fields_hidden_behind_an_unknown_group_are_counted() -> None:
    """A group holds what looks like options that reach far beyond it."""
    inside = b"\x0a\xff\xff\x7f"
    hidden = b"\xa3\x06\x1a" + bytes([len(inside)]) + inside + b"\xa4\x06"
    raw = hidden + encode_request(Request(gid="g", payloads=[b""] * 50))
    assert parse_request(raw).payloads == [b""] * 50
    assert count_fields(raw, 1_000) >= 51


@given(st.binary(max_size=60))
def test_any_bytes_can_be_counted(raw: bytes) -> None:
    assert 0 <= count_fields(raw, 5) <= 6
