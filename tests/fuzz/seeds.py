"""Right bytes of each door, from which changes begin.

Beside them stand the words that mean something there.
"""

from __future__ import annotations

import json
from typing import Any, Final

from benchmarks.load import http2
from tests.fuzz.parsers import RESPONSES
from twophase.core.many import PREPARE_PATH, SUBMIT_PATH
from twophase.grpc_server.http2 import frames
from twophase.grpc_server.status import framed
from twophase.grpc_wire.messages import SERVICE, Request, encode_request
from twophase.server.identity.scopes import ROUTES, Scope

URL: Final = "http://127.0.0.1:9/in"
_BARE: Final = frozenset(
    {"/health/live", "/health/ready", "/api/ping", "/metrics", "/api/metrics", "/api/dtmsvr/version"}
)
_CHANGING: Final = {Scope.OPERATE, Scope.TOPICS, Scope.ADMIN}


def message(gid: str, **more: Any) -> dict[str, Any]:
    """Return a message that is taken."""
    fields = {"gid": gid, "trans_type": "msg", "steps": [{"action": URL}], "payloads": ['{"amount":30}']}
    return fields | {"query_prepared": "http://127.0.0.1:9/check"} | more


BODIES: Final = [
    json.dumps(one).encode()
    for one in (
        message("seed-1"),
        message("seed-2", timeout_to_fail=10, retry_interval=3, request_timeout=2, concurrent=True),
        message("seed-3", custom_data='{"delay":5}', branch_headers={"x-tenant": "a"}, protocol="http"),
        message("seed-4", steps=[{"action": "topic://seed"}], delay_ms=1_000, explicit_verdict=True),
        message("seed-5", steps=[{"action": URL}, {"action": URL}], payloads=["{}", ""], open=True),
        {"gid": "seed-1"},
        {"gid": "seed-2", "reason": "an operator's words", "override": True},
        {"jsonrpc": "2.0", "id": "1", "method": "submit", "params": message("seed-6")},
        {"jsonrpc": "2.0", "id": 7, "method": "newGid"},
        {"messages": [message("seed-7"), message("seed-8")]},
        {"gids": ["seed-1", "seed-9"]},
        {"topic": "seed", "url": URL, "remark": "a remark"},
        {"to": URL, "from": URL, "reason": "moved", "dry_run": True},
        {"url": URL},
    )
]


def _requests() -> list[bytes]:
    found = []
    for number, route in enumerate(one for one in ROUTES if not one.startswith(("json-rpc", "/dtmgimp", "/grpc"))):
        verb, _, path = route.rpartition(" ")
        path = path.replace("{gid:path}", "seed-1").replace("{name:path}", "seed").replace("{name}", "seed")
        for method in [verb] if verb else ["POST", "GET"]:
            body = BODIES[number % len(BODIES)] if method == "POST" else b""
            query = "" if method == "POST" or path in _BARE else "?gid=seed-1&limit=10&topic=seed&url=" + URL
            found.append(_request(method, path + query, body))
    decisions = ("/api/dtmsvr/prepare", "/api/dtmsvr/submit", "/api/dtmsvr/abort", "/api/json-rpc")
    found += [_request("POST", path, body) for path in decisions for body in BODIES]
    found += [_request("POST", path, body) for path in (PREPARE_PATH, SUBMIT_PATH) for body in BODIES[-5:-3]]
    chunks = b"5\r\n" + BODIES[0][:5] + b"\r\n%x\r\n" % (len(BODIES[0]) - 5) + BODIES[0][5:] + b"\r\n0\r\n\r\n"
    head = b"POST /api/dtmsvr/submit HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    return [*found, head + chunks, found[0] + found[-1] + found[1]]


def _operators() -> list[bytes]:
    """Return every body for every route of operators, and batches of JSON-RPC."""
    found = []
    for route in (one for one, scopes in ROUTES.items() if scopes & _CHANGING and not one.startswith("/dtmgimp")):
        verb, _, path = route.rpartition(" ")
        path = path.replace("{gid:path}", "seed-1").replace("{name:path}", "seed").replace("{name}", "seed")
        targets = (path, f"{path}?gid=seed-2&topic=seed&url={URL}")
        found += [_request(verb or "POST", target, body) for body in BODIES for target in targets]
    calls = [body for body in BODIES if b"jsonrpc" in body]
    batches = [b"[%b]" % b",".join(some) for some in (calls, calls * 40, [], BODIES, [calls[0], b"1", calls[1], b"[]"])]
    return [*found, *(_request("POST", "/api/json-rpc", batch) for batch in batches * 4)]


def _request(method: str, path: str, body: bytes) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


HTTP: Final = _requests()
OPERATORS: Final = _operators()
"""Requests of operators and administrators, and batches of JSON-RPC."""
HTTP_WORDS: Final = [
    *(b"\r\n", b"\r\n\r\n", b"\n", b" ", b"\x00", b"HTTP/1.0", b"HTTP/2.0", b"GET ", b"POST ", b"HEAD ", b"OPTIONS * "),
    *(b"Content-Length: 0\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n"),
    *(b"Expect: 100-continue\r\n", b"Upgrade: h2c\r\n", b"Host: a\r\n", b"Origin: http://evil.test\r\n", b"0\r\n\r\n"),
    *(b"%00", b"%2f..%2f", b"/t/tp_x/", b"?gid=", b"&", b"=", b"\xff\xfe", b"Authorization: Bearer x\r\n", b"x" * 300),
]
JSON_WORDS: Final = [
    *(b'"', b"{", b"}", b"[", b"]", b",", b":", b"null", b"true", b"[[[[[[", b"\\u0000", b"\\ud800", b"\xed\xa0\x80"),
    *(b'"gid"', b'"steps"', b'"payloads"', b'"custom_data"', b'"topic://"', b'"FAILURE"', b"1e999", b"-0", b"\xff"),
    *(b'"branch_headers"', b'"query_prepared"', b'"wait_result":true', b'"protocol":"grpc"', b'{"delay":1e400}'),
]

_REQUESTS: Final = [
    encode_request(
        Request(gid=f"seed-{number}", trans_type="msg", steps=json.dumps([{"action": URL}]), payloads=[b"\x08\x1e"])
    )
    for number in range(3)
]
GRPC_MESSAGES: Final = [
    *_REQUESTS,
    encode_request(Request(gid="seed-3", trans_type="msg", steps="[]", branch_headers={"a": "b"}, delay_ms=7)),
    b"\n\x04seed\x12\x15http://127.0.0.1:9/in\x1a\x01r",
    b"",
]
_GREETING: Final = frames.PREFACE + frames.settings({}) + frames.frame(frames.SETTINGS, frames.ACK)


def _calls() -> list[bytes]:
    found = []
    for method in ("Prepare", "Submit", "Abort", "NewGid", "Subscribe", "Unsubscribe", "DeleteTopic"):
        block = http2.head(f"/{SERVICE}/{method}", "localhost")
        for raw in GRPC_MESSAGES:
            opened = frames.header_frames(1, block)
            body = frames.frame(frames.DATA, frames.END_STREAM, 1, framed(raw))
            found.append(_GREETING + opened + body)
    health = frames.header_frames(3, http2.head("/grpc.health.v1.Health/Check", "localhost"))
    some = frames.frame(frames.DATA, frames.END_STREAM, 3, framed(b""))
    control = [
        frames.window_update(0, 1_000),
        frames.frame(frames.PING, 0, 0, bytes(8)),
        frames.frame(frames.RST_STREAM, 0, 1, b"\x00\x00\x00\x08"),
        frames.frame(frames.PRIORITY, 0, 1, b"\x00\x00\x00\x03\x10"),
        frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, b"\x82"),
        frames.frame(frames.GOAWAY, 0, 0, bytes(8)),
    ]
    return [*found, found[0] + health + some, *(found[1] + one + health + some for one in control)]


GRPC: Final = _calls()
GRPC_WORDS: Final = [
    frames.PREFACE,
    *(frames.frame(kind, 0, stream, b"") for kind in range(10) for stream in (0, 1, 3)),
    frames.settings({frames.MAX_CONCURRENT_STREAMS: 0}),
    frames.window_update(1, 2**31 - 1),
    *(b"\x00", b"\xff", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00\x00", b"\x82", b"\x40\x01a\x01b", b"\x3f\xe1\x7f"),
]

RESPONSE_WORDS: Final = [
    *(b"\r\n", b"\r\n\r\n", b"0\r\n\r\n", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"\x00", b"\xff"),
    *(b"content-length: 5\r\n", b"transfer-encoding: chunked\r\n", b"connection: close\r\n", b"ffffffffffffffff\r\n"),
]
RESPONSE_BYTES: Final = list(RESPONSES)
STEPS: Final = [json.dumps(one).encode() for one in ([{"action": URL}], [{"action": URL, "compensate": ""}], [], None)]
ADDRESSES: Final = [
    *(b"http://127.0.0.1:9/in?x=y", b"https://[::1]:443/a%20b", b"grpc://bank-b:58080/bank.Bank/In", b"topic://seed/2"),
    *(b"json-rpc://bank-b/rpc", b"bank-b:58080/bank.Bank/In", b"http://user:pw@bank/x#y"),
]
ADDRESS_WORDS: Final = [
    *(b"://", b"@", b"#", b"?", b"%", b"%00", b"[", b"]", b":", b":99999", b"..", b"\\", b" ", b"\t", b"\r\n", b"\x7f"),
    *("☃".encode(), "．".encode(), b"0x7f.1", b"127.1", b"&gid=1", b"&barrier=", b"localhost", b"xn--"),
]
