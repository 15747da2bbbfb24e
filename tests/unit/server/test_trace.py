"""The headers of a request that its message carries on, however they are spelled.

A request without any pays little.
"""

from __future__ import annotations

import pytest

from twophase.server.codecs.trace import TRACE_BYTES_MAX, TraceHeaders, names_of

PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
USUAL = {b"Host": b"c", b"Content-Length": b"12", b"Content-Type": b"application/json", b"User-Agent": b"x"}


@pytest.mark.parametrize("spelled", [b"traceparent", b"Traceparent", b"TraceParent", b"TRACEPARENT", b"tRaCePaReNt"])
def test_a_header_is_found_however_it_is_spelled(spelled: bytes) -> None:
    headers = TraceHeaders()
    for _ in range(3):
        assert not headers.in_none_of(USUAL | {spelled: PARENT})
        assert headers.of(USUAL | {spelled: PARENT}) == (("traceparent", PARENT.decode()),)


def test_names_that_were_seen_before_are_looked_at_once() -> None:
    headers = TraceHeaders()
    assert not headers.in_none_of(USUAL)
    assert headers.of(USUAL) == ()
    assert headers.in_none_of(USUAL)
    assert not headers.in_none_of(USUAL | {b"Accept": b"*/*"})


def test_only_the_names_chosen_go_on() -> None:
    headers = TraceHeaders(names_of("x-request-id, baggage"))
    sent = {b"X-Request-Id": b"7", b"baggage": b"a=b", b"traceparent": PARENT}
    assert headers.of(sent) == (("x-request-id", "7"), ("baggage", "a=b"))
    assert TraceHeaders(()).of(sent) == ()


@pytest.mark.parametrize("value", [b"", b"\x00", b"a\x7f", b"\xc3\xbc", b"x" * (TRACE_BYTES_MAX + 1)])
def test_a_value_that_cannot_go_on_is_left_out_and_nothing_is_refused(value: bytes) -> None:
    sent = {b"traceparent": value, b"tracestate": b"a=b"}
    assert TraceHeaders().of(sent) in ((("tracestate", "a=b"),), ())


def test_what_goes_on_is_bounded_in_all() -> None:
    headers = TraceHeaders(tuple(f"x{number}" for number in range(16)))
    found = headers.of({f"x{number}".encode(): b"y" * 1_000 for number in range(16)})
    assert 0 < sum(len(name) + len(value) for name, value in found) <= TRACE_BYTES_MAX


def test_names_that_strangers_make_up_do_not_stay_for_ever() -> None:
    headers = TraceHeaders()
    for number in range(10_000):
        headers.of({b"x-%d" % number: b"1"})
    assert len(headers._others) <= 1024
    assert headers.of({b"traceparent": PARENT})


def test_a_long_name_that_a_stranger_makes_up_is_not_kept() -> None:
    headers, long = TraceHeaders(), b"x" * 60_000
    assert headers.of({long: b"1", b"Accept": b"*/*"}) == ()
    assert headers.in_none_of({b"Accept": b"*/*"})
    assert not headers.in_none_of({long: b"1"})
