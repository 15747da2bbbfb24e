"""Requests as hypothesis strategies: nearly right ones, and wrong ones.

The nearly right ones get far; the wrong ones are wrong in every field. Addresses that could be called lead to
`Branches` on this machine, whatever was drawn: a fuzzer must not call others.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from hypothesis import strategies as st

from twophase.core.many import MESSAGES_MAX, PREPARE_PATH, SUBMIT_PATH
from twophase.grpc_wire.messages import Request
from twophase.server.codecs.wire import WireRequest

GIDS: Final = tuple(f"fuzz-{number}" for number in range(12))
"""A few gids, so that requests meet."""

TOPICS: Final = ("fuzz", "fuzz/2")

_TOUCHY: Final = (
    "",
    " ",
    "\x00",
    "\r\n",
    "é",
    "𝔘",
    "\ud800",
    "FAILURE",
    "ONGOING",
    "null",
    "A" * 129,
    "a\nb;c\r",
    "../..",
    "%00",
)
texts = st.sampled_from(_TOUCHY) | st.text(max_size=30)
numbers = (
    st.integers()
    | st.floats()
    | st.sampled_from([0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 1e308, -0.0, 86_400, 10**30])
)
gids = st.sampled_from(GIDS) | texts
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
_FIELDS: Final = tuple(WireRequest.__struct_fields__)
_payloads = st.sampled_from(["{}", '{"a":1}', "", "[]", "FAILURE", "x" * 70_000]) | texts


def addresses(url: Callable[[int], str]) -> st.SearchStrategy[str]:
    """Draw addresses of branches, some of which cannot be called."""
    return st.integers(0, 40).map(url) | st.sampled_from(
        ["", "http://127.0.0.1:1/closed", "http://[::1]:1/", "ftp://127.0.0.1/", "grpc://127.0.0.1:1/a.B/C",
         "127.0.0.1:1/a.B/C", "http://127.0.0.1:99999/", "http://user:pw@127.0.0.1:1/", "topic://none",
         "topic://", "topic://fuzz", "topic://fuzz/2",
         "http://127.0.0.1:1/?a=b&c#d", "http://\u2603", "HTTP://127.0.0.1:1", "json-rpc://127.0.0.1:1/", "//x", "http:///"]
    )  # fmt: skip


@st.composite
def sensible(draw: st.DrawFn, url: Callable[[int], str]) -> dict[str, Any]:
    """Draw a request that may well be accepted."""
    steps = draw(st.integers(0, 3))
    request: dict[str, Any] = {
        "gid": draw(st.sampled_from(GIDS)),
        "trans_type": "msg",
        "steps": [{"action": draw(addresses(url))} for _ in range(steps)],
        "payloads": [draw(_payloads) for _ in range(steps)],
    }
    options: dict[str, st.SearchStrategy[Any]] = {
        "query_prepared": addresses(url),
        "protocol": st.sampled_from(["http", "grpc", "json-rpc", "", None]),
        "custom_data": st.sampled_from(["", '{"delay":1}', '{"delay":-1}', "{", "null", '{"delay":1e400}']),
        "wait_result": st.booleans(),
        "timeout_to_fail": st.sampled_from([0, 1, 3]),
        "request_timeout": st.sampled_from([0, 1]),
        "branch_headers": st.dictionaries(texts, texts | st.none(), max_size=3),
        "concurrent": st.booleans(),
        "delay_ms": st.integers(-1, 2_000),
        "open": st.booleans(),
        "explicit_verdict": st.booleans(),
        "durability": st.sampled_from(["submit", "check-back", ""]),
    }
    for name in draw(st.lists(st.sampled_from(sorted(options)), max_size=5, unique=True)):
        request[name] = draw(options[name])
    return request


@st.composite
def hostile(draw: st.DrawFn, url: Callable[[int], str]) -> dict[str, Any]:
    """Draw a sensible request with some fields replaced by anything.

    Keys may be in another case, or unknown.
    """
    request = draw(sensible(url))
    names = st.sampled_from(_FIELDS) | st.sampled_from([name.upper() for name in _FIELDS]) | texts
    request.update(draw(st.dictionaries(names, values, max_size=4)))
    return request


@st.composite
def many(draw: st.DrawFn, url: Callable[[int], str]) -> tuple[str, bytes, int | None]:
    """Draw a path that takes many messages at once, a body, and the outcomes' number.

    The number may be undefined; then it is `None`.
    """
    path, field = draw(st.sampled_from([(PREPARE_PATH, "messages"), (SUBMIT_PATH, "messages"), (SUBMIT_PATH, "gids")]))
    right: st.SearchStrategy[Any] = sensible(url) if field == "messages" else st.sampled_from(GIDS)
    wrong: st.SearchStrategy[Any] = hostile(url) if field == "messages" else gids
    several = st.lists(right, max_size=6, unique_by=_gid_of)
    if draw(st.integers(0, 2)) == 0:
        items: Any = draw(st.one_of(st.lists(right | wrong | values, max_size=6), _about_the_most, values))
        body = draw(st.sampled_from([{field: items}, {field.upper(): items}, {field: [], "more": items}, items]))
        raw = st.just(as_json(body))
        return path, draw(raw | damaged(raw)), None
    items = draw(several)
    return path, as_json({field: items}), len(items)


def _gid_of(item: Any) -> Any:
    return item["gid"] if isinstance(item, dict) else item


_about_the_most = st.integers(MESSAGES_MAX - 1, MESSAGES_MAX + 1).map(lambda count: [f"many-{n}" for n in range(count)])


@st.composite
def topic_requests(draw: st.DrawFn, url: Callable[[int], str]) -> bytes:
    """Draw a `DtmTopicRequest`: three texts."""
    texts_of = [draw(st.sampled_from(TOPICS) | texts), draw(addresses(url)), draw(texts)]
    encoded = [text.encode("utf-8", "surrogatepass")[:127] for text in texts_of]
    return b"".join(bytes([number << 3 | 2, len(one)]) + one for number, one in enumerate(encoded, 1))


def as_json(value: object) -> bytes:
    """Return JSON as other languages write it.

    It may have NaN, and lone surrogates by their escapes.
    """
    return json.dumps(value).encode()


def bodies(url: Callable[[int], str]) -> st.SearchStrategy[bytes]:
    """Draw bodies of requests: JSON of all kinds, JSON cut or flipped, any bytes."""
    whole = st.one_of(sensible(url), hostile(url), values).map(as_json)
    deep = st.integers(1, 3_000).map(lambda depth: b'{"steps":' + b"[" * depth)
    return st.one_of(whole, whole, damaged(whole), st.binary(max_size=200), deep)


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Draw bytes with some flipped, cut off, or doubled."""
    raw = bytearray(draw(whole))
    for _ in range(draw(st.integers(1, 3))):
        if raw:
            raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    cut = draw(st.integers(0, len(raw)))
    return bytes(raw[:cut] if draw(st.booleans()) else raw + raw[cut:])


@st.composite
def grpc_requests(draw: st.DrawFn, url: Callable[[int], str]) -> Request:
    """Draw a `DtmRequest`; its steps are JSON text, right or wrong."""
    steps = [{"action": draw(addresses(url))} for _ in range(draw(st.integers(0, 3)))]
    text = draw(st.sampled_from([json.dumps(steps), json.dumps(steps), "", "null", "[", '[{"ACTION":"x"}]', "{}"]))
    small = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2)
    name = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    return Request(
        gid=draw(st.sampled_from(GIDS) | name),
        trans_type=draw(st.sampled_from(["msg", "msg", "msg", "saga", ""])),
        steps=text,
        payloads=[draw(st.binary(max_size=40)) for _ in steps] if draw(st.booleans()) else [],
        query_prepared=draw(addresses(url)),
        custom_data=draw(st.sampled_from(["", "", '{"delay":1}', "{"])),
        wait_result=draw(st.booleans()),
        timeout_to_fail=draw(st.just(0) | small),
        retry_interval=draw(st.just(0) | small),
        request_timeout=draw(st.just(0) | st.just(1) | small),
        branch_headers=draw(st.dictionaries(name, name, max_size=2)),
        concurrent=draw(st.booleans()),
        delay_ms=draw(st.just(0) | small),
        open=draw(st.booleans()),
        explicit_verdict=draw(st.booleans()),
        durability=draw(st.sampled_from(["", "", "submit", "check-back", "x"])),
    )
