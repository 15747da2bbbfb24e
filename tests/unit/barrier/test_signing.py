"""Calls as the frameworks show them, and the log of those that are refused."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from werkzeug.datastructures import Headers

from twophase.barrier import require_signature, sign_verdict, signing
from twophase.barrier.signing import ReceivedCall, accept, encoded_path, grpc_call, http_call, path_of_wsgi
from twophase.core.errors import CallNotSigned, ConfigurationError, PageRefused
from twophase.core.signature import (
    SIGNATURE_HEADER,
    Signature,
    http_text,
    is_verdict_signed,
    key_of,
    known_keys,
    signed,
)

KEYS: dict[str, str | bytes] = {"old": "0123456789abcdef", "new": b"fedcba9876543210"}
KEY = key_of("new", KEYS["new"])
ALL = (KEY,)
OF_PAGES = [
    {"Sec-Fetch-Site": "cross-site"},
    {"sec-fetch-site": "none"},
    {"host": "shop:8000", "origin": "https://evil.example"},
    {"host": "shop:8000", "origin": "null"},
    {"host": "shop:8000", "origin": "http://shop:8001"},
]


def header(target: str, *, method: str = "POST", oldest: str = "", body: bytes = b"{}") -> str:
    now_ms = time.time_ns() // 1_000_000
    return signed(KEY, now_ms, http_text(now_ms, method, target, oldest, body))


def test_a_framework_without_an_integration_verifies_by_one_call() -> None:
    headers = {"X-Twophase-Signature": header("/in?gid=g", oldest="17"), "X-Twophase-Oldest": "17"}
    signature = require_signature(KEYS, "POST", "/in?gid=g", headers, b"{}")
    assert signature.key == KEY
    for changed in (
        {"method": "GET"},
        {"target": "/in?gid=h"},
        {"body": b"[]"},
        {"headers": headers | {"X-Twophase-Oldest": "18"}},
    ):
        call: dict[str, Any] = {"method": "POST", "target": "/in?gid=g", "headers": headers, "body": b"{}", **changed}
        with pytest.raises(CallNotSigned):
            require_signature(KEYS, **call)
    with pytest.raises(ConfigurationError):
        require_signature({}, "POST", "/in", headers)


def test_a_signature_or_a_time_that_comes_twice_is_refused() -> None:
    value = header("/in", oldest="17")
    once = [("X-Twophase-Signature", value), ("X-Twophase-Oldest", "17")]
    require_signature(KEYS, "POST", "/in", Headers(once), b"{}")
    for again in once:
        with pytest.raises(CallNotSigned):
            require_signature(KEYS, "POST", "/in", Headers([*once, again]), b"{}")


def test_behind_a_proxy_that_rewrites_the_path_as_sent_gives_the_one_that_was_called() -> None:
    headers = {SIGNATURE_HEADER: header("/bank/in?gid=g")}

    def received(**more: Any) -> ReceivedCall:
        return http_call("POST", "/in", "gid=g", headers, lambda: b"{}", peer="", **more)

    assert accept(ALL, received(as_sent=lambda path: f"/bank{path}")) is not None
    with pytest.raises(CallNotSigned, match="not what the key"):
        accept(ALL, received())


def test_metadata_with_two_signatures_is_refused() -> None:
    for values in ((), ("v1", "v1"), (b"v1",)):
        metadata: list[tuple[str, str | bytes]] = [(SIGNATURE_HEADER, value) for value in values]
        with pytest.raises(CallNotSigned):
            accept(ALL, grpc_call("/b.B/In", metadata, b"", peer=""))


def test_the_body_of_a_call_without_a_known_key_is_not_read() -> None:
    def read() -> bytes:
        raise AssertionError("the body was read")

    for value in ({}, {SIGNATURE_HEADER: "v1"}, {SIGNATURE_HEADER: f"v1,kid=other,t=1,s={'A' * 43}="}):
        with pytest.raises(CallNotSigned):
            accept(ALL, http_call("POST", "/in", "", value, read, peer=""))
    assert accept(None, http_call("POST", "/in", "", {}, read, peer="")) is None


def test_only_a_verdict_that_answers_a_verified_question_is_signed() -> None:
    question, verdict = Signature(KEY, 17), {"x-twophase-verdict": "committed"}
    value = sign_verdict(question, "g", verdict, b"{}")["x-twophase-verdict-signature"]
    assert is_verdict_signed(value, question, "g", "committed", b"{}")
    assert sign_verdict(None, "g", verdict, b"{}") == verdict
    assert sign_verdict(question, "g", {}, b"{}") == {}


@pytest.mark.parametrize("headers", OF_PAGES)
def test_a_call_of_a_page_is_refused_where_no_key_tells_callers_apart(headers: dict[str, str]) -> None:
    call = http_call("GET", "/check", "gid=g", headers, bytes, peer="127.0.0.1")
    with pytest.raises(PageRefused):
        accept(None, call)
    with pytest.raises(CallNotSigned):
        accept(known_keys(KEYS), call)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "shop:8000", "user-agent": "Mozilla/5.0"},
        {"host": "shop:8000", "Origin": "http://SHOP:8000"},
        {"host": "shop:8000", "origin": "http://elsewhere", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_a_call_of_a_program_or_of_the_services_own_page_is_taken(headers: dict[str, str]) -> None:
    assert accept(None, http_call("GET", "/check", "gid=g", headers, bytes, peer="127.0.0.1")) is None


def test_the_path_is_taken_as_it_arrived_where_the_server_keeps_it() -> None:
    assert path_of_wsgi({"REQUEST_URI": "/a%2Fb?gid=%2F"}, "/a/b") == "/a%2Fb"
    assert path_of_wsgi({"RAW_URI": "http://bank/a%20b?gid=g"}, "/a b") == "/a%20b"
    assert path_of_wsgi({"RAW_URI": ""}, "/a b/100%") == encoded_path("/a b/100%") == "/a%20b/100%25"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The log, with neither a bound used up nor a warning given before."""
    logger = logging.getLogger("twophase.barrier.signing.refused")
    kept = list(logger.filters)
    logger.filters.clear()
    signing._warn_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        yield caplog
    logger.filters[:] = kept
    signing._warn_once.cache_clear()


def test_refusals_are_logged_in_a_bounded_number_of_lines_without_a_secret(lines: pytest.LogCaptureFixture) -> None:
    now_s = 1000.0
    logging.getLogger("twophase.barrier.signing.refused").addFilter(signing._FewLines(lambda: now_s))
    for _ in range(500):
        with pytest.raises(CallNotSigned):
            accept(ALL, http_call("POST", "/in\n" + "x" * 999, "gid=g", {}, bytes, peer="10.0.0.7"))
    assert len(lines.messages) == 20
    assert lines.messages[0].startswith("TP-1010 of 10.0.0.7 to '/in\\nxxx")
    assert max(map(len, lines.messages)) < 600
    now_s += 10.0
    with pytest.raises(CallNotSigned):
        accept(ALL, http_call("POST", "/in", "gid=g", {SIGNATURE_HEADER: header("/other")}, bytes, peer=""))
    assert lines.messages[-1].endswith("(480 more refusals were not logged)")
    assert not any(str(secret) in line for line in lines.messages for secret in KEYS.values())


@pytest.mark.parametrize(
    ("peers", "warnings"),
    [(("127.0.0.1", "::1", "", "unix:", "testclient"), 0), (("10.0.0.7", "10.0.0.8"), 1), (("2001:db8::1",), 1)],
)
def test_without_keys_the_first_call_from_another_machine_is_warned_of(
    lines: pytest.LogCaptureFixture, peers: tuple[str, ...], warnings: int
) -> None:
    for peer in peers:
        assert accept(None, http_call("GET", "/check", "gid=g", {}, bytes, peer=peer)) is None
    assert len(lines.messages) == warnings
    assert all("keys=" in line for line in lines.messages)
