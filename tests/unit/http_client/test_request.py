"""Headers that may be sent, and those that may not."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.http_client.outcome import HttpError, HttpErrorKind, HttpResponse, Outcome
from twophase.http_client.request import HeaderBook, PendingCall, encode_headers
from twophase.http_client.timeouts import Timeouts


def test_headers_keep_their_order_and_spelling() -> None:
    lines = encode_headers([("X-B", "2"), ("x-a", "ü\t1"), ("X-B", ""), ("Accept-Encoding", "gzip")])
    assert lines == "X-B: 2\r\nx-a: ü\t1\r\nX-B: \r\nAccept-Encoding: gzip\r\n"


@pytest.mark.parametrize(
    "name",
    ["", " ", "X Y", "X:", "X\r\nY", "Ü", "X\x00", "X\n", "Content-Length", "TRANSFER-ENCODING", "connection", "Host",
     "Expect", "Upgrade", "TE", "Trailer", "Keep-Alive", "Proxy-Connection"],
)  # fmt: skip
def test_a_name_that_could_change_the_request_is_refused(name: str) -> None:
    with pytest.raises(HttpError) as caught:
        encode_headers([(name, "1")])
    assert caught.value.kind is HttpErrorKind.BAD_HEADER


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nX: y", "a\rX: y", "a\x00", "\x7f", "\x1b[1m", "\ud800"])
def test_a_value_that_could_end_the_header_is_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(HttpError) as caught:
        encode_headers([("X-Token", value)])
    assert caught.value.kind is HttpErrorKind.BAD_HEADER
    assert str(caught.value).startswith("bad_header: the value of header x-token ")
    assert value not in str(caught.value)


@given(st.lists(st.tuples(st.text(max_size=10), st.text(max_size=20)), max_size=4))
def test_whatever_is_accepted_is_one_line_a_header(headers: list[tuple[str, str]]) -> None:
    try:
        encoded = encode_headers(headers).encode()
    except HttpError:
        return
    own = 0 if any(name.lower() == "accept-encoding" for name, _ in headers) else 1
    assert encoded.count(b"\r") == encoded.count(b"\n") == encoded.count(b"\r\n") == len(headers) + own
    assert encoded.endswith(b"\r\n")


def test_the_book_refuses_again_and_forgets_rather_than_grow() -> None:
    book = HeaderBook(entries_max=3)
    for _ in range(2):
        with pytest.raises(HttpError):
            book[("X", "\n"),]
    for number in range(10):
        assert book[("X", str(number)),] == f"X: {number}\r\naccept-encoding: identity\r\n"
    assert len(book) <= 3
    assert book[("X", "9"),] is book[("X", "9"),]


async def test_a_caller_gets_the_first_outcome_only() -> None:
    told: list[Outcome] = []
    timeouts = Timeouts(asyncio.get_running_loop())
    call = PendingCall(b"", b"", told.append, timeouts, 60_000, is_head=False)
    response = HttpResponse(200, [], b"")
    call.finish(response)
    call.finish(HttpError(HttpErrorKind.CLOSED, "later"))
    call.on_timeout()
    assert told == [response]
    assert len(timeouts) == 0
    timeouts.stop()


async def test_a_cancelled_call_reports_no_outcome() -> None:
    told: list[Outcome] = []
    timeouts = Timeouts(asyncio.get_running_loop())
    call = PendingCall(b"", b"", told.append, timeouts, 60_000, is_head=False)
    call.cancel()
    call.finish(HttpResponse(200, [], b""))
    assert told == []
    assert len(timeouts) == 0
    timeouts.stop()
