"""The response is the same however its bytes are split into reads.

So is the verdict on its form.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import httptools
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from twophase.http_client.outcome import HttpError, HttpErrorKind, HttpResponse, split_headers
from twophase.http_client.reader import HEADS_MAX, KnownHeads, ResponseReader

Seen = tuple[int, list[tuple[bytes, bytes]], bytes, bool]

TOKEN = st.text("abcXYZ019-_!~", min_size=1, max_size=12).map(str.encode)
VALUE = st.text("abc XYZ\t019;=,\"'", max_size=20).map(str.encode)
BODY = st.binary(max_size=300)


def _read(pieces: Iterable[bytes], *, is_head: bool = False, then_closed: bool = False) -> Seen | HttpErrorKind | None:
    """Return the result of the pieces: a response or the kind of error.

    None means that more bytes are needed. The result is the same where no head is known, where its own head is known
    from a response in one piece, and where the known heads are many.
    """
    pieces = list(pieces)
    known, full = KnownHeads(), KnownHeads()
    _read_once([b"".join(pieces)], known, is_head=False)
    while len(full) < HEADS_MAX:
        full.learn(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: %d\r\n\r\n" % len(full), 200, 0)
    results = [
        _read_once(pieces, heads, is_head=is_head, then_closed=then_closed) for heads in (KnownHeads(), known, full)
    ]
    assert results[0] == results[1] == results[2]
    return results[0]


def _read_once(
    pieces: Iterable[bytes], heads: KnownHeads, *, is_head: bool, then_closed: bool = False
) -> Seen | HttpErrorKind | None:
    reader = ResponseReader(body_bytes_max=1000, header_bytes_max=2000, heads=heads)
    reader.begin(is_head=is_head)
    response: HttpResponse | None = None
    try:
        for piece in pieces:
            response = reader.feed(piece)
            if response is not None:
                break
    except HttpError as error:
        return error.kind
    if response is None and then_closed:
        response = reader.end_of_stream()
    if response is None:
        return None
    return response.status, response.headers, response.body, reader.reusable


def _pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts} - {0}), len(data)]
    return [data[edges[i] : edges[i + 1]] for i in range(len(edges) - 1) if edges[i] < edges[i + 1]]


@st.composite
def responses(draw: st.DrawFn) -> tuple[bytes, Seen]:
    """Draw a well-formed response and what must be read from it.

    The response does not end with the connection.
    """
    status = draw(st.sampled_from([200, 201, 404, 409, 425, 500, 599]))
    headers = [
        (name, value)
        for name, value in draw(st.lists(st.tuples(TOKEN, VALUE), max_size=6))
        if name.lower() not in {b"connection", b"upgrade", b"content-length", b"transfer-encoding"}
    ]
    body = draw(BODY)
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * draw(st.integers(0, 2))
    keeps = draw(st.booleans())
    lines = list(headers) + ([] if keeps else [(b"Connection", b"close")])
    if draw(st.booleans()):
        lines.append((b"Content-Length", str(len(body)).encode()))
        wire_body = body
    else:
        lines.append((b"Transfer-Encoding", b"Chunked"))
        chunks = _pieces(body, draw(st.lists(st.integers(0, 300), max_size=5)))
        wire_body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
        wire_body += b"0\r\n" + draw(st.sampled_from([b"", b"X-Trailer: t\r\n"])) + b"\r\n"
    head = b"HTTP/1.1 %d %s\r\n" % (status, draw(st.sampled_from([b"OK", b"", b"Some Reason"])))
    wire = interim + head + b"".join(b"%s: %s\r\n" % line for line in lines) + b"\r\n" + wire_body
    return wire, (status, [(name.lower(), value.strip(b" \t")) for name, value in lines], body, keeps)


@given(responses(), st.lists(st.integers(0, 2000), max_size=30))
def test_a_response_is_read_the_same_however_it_is_split(sample: tuple[bytes, Seen], cuts: list[int]) -> None:
    wire, expected = sample
    assert _read(_pieces(wire, cuts)) == expected


@given(responses())
def test_a_response_is_read_the_same_byte_by_byte(sample: tuple[bytes, Seen]) -> None:
    wire, expected = sample
    assert _read(bytes([byte]) for byte in wire) == expected


@given(responses(), st.integers(0, 10_000))
def test_a_response_cut_short_is_never_taken_for_one(sample: tuple[bytes, Seen], cut: int) -> None:
    wire, _ = sample
    assert _read([wire[: cut % len(wire)]], then_closed=True) is None


@given(responses(), st.binary(min_size=1, max_size=40), st.lists(st.integers(0, 2000), max_size=10))
def test_bytes_after_a_response_change_nothing_in_it(sample: tuple[bytes, Seen], more: bytes, cuts: list[int]) -> None:
    wire, expected = sample
    seen = _read([*_pieces(wire, cuts)[:-1], _pieces(wire, cuts)[-1] + more])
    assert isinstance(seen, tuple)
    assert seen[:3] == expected[:3]
    blank = not more.strip(b"\r\n")
    assert seen[3] is False or (expected[3] and blank), "reusable only when nothing but line ends followed"


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=10))
def test_any_bytes_give_a_response_an_error_or_nothing(data: bytes, cuts: list[int]) -> None:
    whole = _read([data])
    split = _read(_pieces(data, cuts))
    assert isinstance(whole, HttpErrorKind) == isinstance(split, HttpErrorKind)


@given(responses(), responses(), st.lists(st.integers(0, 2000), max_size=10))
def test_one_response_after_another_leaves_nothing_behind(
    first: tuple[bytes, Seen], second: tuple[bytes, Seen], cuts: list[int]
) -> None:
    reader = ResponseReader(body_bytes_max=1000, header_bytes_max=2000)
    if not first[1][3]:
        return  # the connection ends with it
    for wire, expected in (first, second):
        reader.begin()
        assert not reader.started
        outcomes = [reader.feed(piece) for piece in _pieces(wire, cuts)]
        response = outcomes[-1]
        assert response is not None
        assert (response.status, response.headers, response.body, reader.reusable) == expected
        assert outcomes[:-1] == [None] * (len(outcomes) - 1)


def test_the_answer_to_head_is_complete_with_its_headers() -> None:
    wire = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    assert _read([wire], is_head=True) == (200, [(b"content-length", b"5")], b"", False)
    assert _read([wire + b"abcde"], is_head=True) == (200, [(b"content-length", b"5")], b"", False)


@pytest.mark.parametrize("cut", range(1, 22))
def test_a_body_that_ends_with_the_connection(cut: int) -> None:
    wire = b"HTTP/1.1 200 OK\r\n\r\nall of it"
    assert _read([wire[:cut], wire[cut:]]) is None
    assert _read([wire[:cut], wire[cut:]], then_closed=True) == (200, [], b"all of it", False)


def test_a_body_of_exactly_the_longest_length_is_read_and_one_byte_more_is_not() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
    seen = _read([head % 1000, b"y" * 1000])
    assert isinstance(seen, tuple)
    assert len(seen[2]) == 1000
    assert _read([head % 1001, b"y" * 1001]) is HttpErrorKind.TOO_LARGE


def test_one_response_may_be_longer_than_others() -> None:
    reader = ResponseReader(body_bytes_max=1000, header_bytes_max=2000)
    wire = b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n" + b"y" * 1001
    reader.begin(body_bytes_max=1001)
    response = reader.feed(wire)
    assert response is not None
    assert len(response.body) == 1001
    reader.begin()
    with pytest.raises(HttpError) as caught:
        reader.feed(wire)
    assert caught.value.kind is HttpErrorKind.TOO_LARGE


def test_a_known_head_is_read_without_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = KnownHeads()
    answer = b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\nX-A: 7\r\n\r\nhi"
    assert _read_once([answer], heads, is_head=False) == (409, [(b"content-length", b"2"), (b"x-a", b"7")], b"hi", True)
    monkeypatch.setattr(ResponseReader, "on_headers_complete", None)
    again = _read_once([answer.replace(b"hi", b"ho")], heads, is_head=False)
    assert again == (409, [(b"content-length", b"2"), (b"x-a", b"7")], b"ho", True)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi", id="ends the connection"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", id="chunks"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", id="interim"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi\r\n", id="bytes behind it"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: %b\r\nContent-Length: 2\r\n\r\nhi" % (b"a" * 1024), id="long"),
    ],
)
def test_a_head_of_a_special_response_is_not_remembered(answer: bytes) -> None:
    heads = KnownHeads()
    assert _read_once([answer], heads, is_head=False) is not None
    assert heads == {}


def test_a_known_head_keeps_the_bound_of_each_response() -> None:
    heads = KnownHeads()
    reader = ResponseReader(body_bytes_max=10, header_bytes_max=2000, heads=heads)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world"
    reader.begin(body_bytes_max=11)
    assert reader.feed(answer) is not None
    assert len(heads) == 1
    reader.begin()
    with pytest.raises(HttpError, match="more than 10 bytes"):
        reader.feed(answer)


def test_known_heads_are_bounded() -> None:
    heads = KnownHeads()
    for number in range(3 * HEADS_MAX):
        heads.learn(b"HTTP/1.1 200 OK\r\nDate: %d\r\n\r\n" % number, 200, 0)
        assert len(heads) <= HEADS_MAX


def test_progress_is_reported_in_words() -> None:
    reader = ResponseReader(body_bytes_max=1000, header_bytes_max=2000)
    assert reader.progress() == "without an answer"
    reader.feed(b"HTTP/1.1 ")
    assert reader.progress() == "before the headers were complete"
    reader.feed(b"200 OK\r\n\r\nabc")
    assert reader.progress() == "after 3 bytes of the body"


class _Watcher:
    """The parser's own reading of the headers."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.final: list[tuple[bytes, bytes]] | None = None
        self.parser = httptools.HttpResponseParser(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        if self.parser.get_status_code() >= 200 and self.final is None:
            self.final = self.headers
        self.headers = []


@given(
    st.lists(
        st.sampled_from(
            [b"HTTP/1.1 103 Hints", b"HTTP/1.1 200 OK", b"HTTP/1.1 100", b" ", b"\t", b"\r\n", b"\r\n", b"\n", b"\r",
             b"A", b":", b": ", b"x", b"\x80", b"\x0b", b"\x00", b"Content-Length: 0", b"b:", b"\r\n\r\n"]
        ),
        max_size=25,
    ).map(b"".join)
)  # fmt: skip
@example(b"HTTP/1.1 200 OK\r\nA: x\nB: y\r\n\r\n")
@example(b"HTTP/1.1 200 OK\r\nA: x\x0b\r\n\r\n")
@example(b"\r\n\r\nHTTP/1.1 103 Hints\r\n\r\n\r\nHTTP/1.1 200 OK\r\nA:\t\r\n\r\n")
@example(b"HTTP/1.1  103 Hints\r\n\r\nHTTP/1.1 200 OK\r\nb:x\r\n\r\n")
def test_headers_are_taken_apart_as_the_parser_does(more: bytes) -> None:
    for received in (more, b"HTTP/1.1 200 OK\r\n" + more + b"\r\n\r\n"):
        watcher = _Watcher()
        with contextlib.suppress(httptools.HttpParserError):
            watcher.parser.feed_data(received)
        if watcher.final is not None:
            assert split_headers(received) == watcher.final
