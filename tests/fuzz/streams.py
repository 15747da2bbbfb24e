"""Streams of bytes that look like HTTP.

Several requests stand on one connection, framed well or badly, cut anywhere.
"""

from __future__ import annotations

import itertools
from typing import Final

from hypothesis import strategies as st

from tests.fuzz.messages import damaged

_PATHS: Final = (
    b"/api/dtmsvr/prepare", b"/api/dtmsvr/submit", b"/api/dtmsvr/abort", b"/api/dtmsvr/submit/", b"/api/ping",
    b"/api/dtmsvr/query?gid=fuzz-1", b"/api/dtmsvr/query", b"/api/json-rpc", b"/metrics", b"/health/ready", b"/",
    b"http://localhost/api/ping", b"/api/ping#x", b"http://other.test/api/dtmsvr/prepare?x=y", b"*", b"//", b"/%00",
    b"/api/dtmsvr/../ping", b"/" + b"p" * 70_000,
    b"/api/twophase/horizon?check=%ff&barrier=", b"\xff\xfe", b"",
)  # fmt: skip
_METHODS: Final = (b"POST", b"POST", b"POST", b"GET", b"PUT", b"OPTIONS", b"DELETE", b"CONNECT", b"PRI", b"post", b"")
_VERSIONS: Final = (b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/0.9", b"HTP/1.1", b"")
_HEADERS: Final = (
    b"host: a", b"host: localhost", b"origin: null", b"sec-fetch-site: none",
    b"connection: close", b"connection: keep-alive", b"connection: upgrade",
    b"upgrade: h2c", b"upgrade: websocket", b"expect: 100-continue", b"expect: something", b"content-length: 0",
    b"content-length: -1", b"content-length: 5, 5", b"content-length: 99999999999999999999", b"x: " + b"y" * 9_000,
    b"transfer-encoding: gzip", b"transfer-encoding: chunked, chunked", b" folded: yes", b"no colon", b": no name",
    b"nul: a\x00b", b"bare: a\nb: c", b"content-type: text/xml", b"\xff: \xff", b"cookie: " + b"c=1; " * 400,
)  # fmt: skip
_BODIES: Final = (
    b"", b"{}", b'{"gid":"fuzz-1","trans_type":"msg"}', b'{"gid":"fuzz-2"}', b"null", b"[", b"\xff" * 40,
    b'{"jsonrpc":"2.0","id":"1","method":"newGid"}',
)  # fmt: skip


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Draw one request, more or less."""
    body = draw(st.sampled_from(_BODIES) | st.binary(max_size=60))
    lines = [
        b" ".join([draw(st.sampled_from(_METHODS)), draw(st.sampled_from(_PATHS)), draw(st.sampled_from(_VERSIONS))])
    ]
    lines += draw(st.sampled_from([[b"Host: localhost"]] * 5 + [[]]))
    lines += draw(st.lists(st.sampled_from(_HEADERS), max_size=3))
    framing = draw(st.integers(0, 5))
    if framing <= 1:
        lines.append(b"content-length: %d" % len(body))
    elif framing == 2:
        lines.append(b"content-length: %d" % draw(st.integers(0, 200)))
    elif framing <= 4:
        lines.append(b"transfer-encoding: chunked")
        body = draw(chunked(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@st.composite
def chunked(draw: st.DrawFn, body: bytes) -> bytes:
    """Draw a body in chunks, with extensions and trailers, now and then wrong."""
    edges = sorted({0, len(body), *draw(st.lists(st.integers(0, len(body)), max_size=3))})
    pieces = []
    for start, end in itertools.pairwise(edges):
        size = end - start + draw(st.sampled_from([0, 0, 0, 0, 1, -1, 2**64]))
        extension = draw(st.sampled_from([b"", b"", b";a=b", b';q="' + b"z" * 300 + b'"', b" "]))
        pieces.append(b"%x%b\r\n%b\r\n" % (max(0, size), extension, body[start:end]))
    trailer = draw(st.sampled_from([b"", b"", b"x: y\r\n", b"content-length: 3\r\n", b"t: " + b"u" * 9_000 + b"\r\n"]))
    return b"".join(pieces) + draw(st.sampled_from([b"0\r\n", b"0\r\n", b"00000\r\n", b""])) + trailer + b"\r\n"


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """Draw up to four requests one after the other, whole or damaged, in pieces."""
    one = requests()
    stream = b"".join(draw(st.lists(one | damaged(one) | st.binary(max_size=80), min_size=1, max_size=4)))
    cuts = draw(st.lists(st.integers(0, len(stream)), max_size=6))
    edges = sorted({0, len(stream), *cuts})
    return [stream[start:end] for start, end in itertools.pairwise(edges)]
