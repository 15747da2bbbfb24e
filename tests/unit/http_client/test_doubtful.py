"""Answers whose end two clients could see in different places.

None is taken for an answer. A second answer stands behind each, which would count for the next request. The verdict
is the same for all bytes in one read and for each byte in a read of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pytest

from twophase.http_client.outcome import HttpError, HttpErrorKind
from twophase.http_client.reader import ResponseReader

HEAD: Final = b"HTTP/1.1 200 OK\r\n"
LENGTH: Final = b"Content-Length: 2\r\n\r\nhi"
CHUNKED: Final = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKS: Final = b"2\r\nhi\r\n0\r\n\r\n"
BEHIND: Final = b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n"
NO_ANSWER: Final = None
"""The result of an answer in an unknown coding, which ends with its connection."""

DOUBTFUL: Final = {
    **{
        f"coding {line!r}": HEAD + b"Transfer-Encoding" + line + b"\r\n\r\n" + CHUNKS
        for line in (
            *(b": xchunked", b": chunked, identity", b": identity, chunked", b": gzip, chunked", b": identity", b":"),
            *(b": ,chunked", b": chunked,", b': "chunked"', b": chunked;q=1", b" : chunked", b"\t: chunked"),
            *(b":\r\n chunked", b":\n chunked", b": \x0bchunked", b": \x00chunked", b": \xa0chunked", b": chunked\r"),
            *(
                b" x: chunked",
                b" chunked",
                b": chunked\r\nTransfer-Encoding: chunked",
                b": chunked\r\nContent-Length: 2",
            ),
            *(b": identity\r\nTransfer-Encoding: chunked", b": chunked\r\nTransfer-Encoding: identity"),
        )
    },
    **{
        f"header {line!r}": HEAD + line + b"\r\n\r\n" + CHUNKS
        for line in (
            *(
                b" Transfer-Encoding: chunked",
                b"X: y\r\n Transfer-Encoding: chunked",
                b"X: y\nTransfer-Encoding: chunked",
            ),
            *(b"X: y\rTransfer-Encoding: chunked", b"Transfer\\Encoding: chunked"),
        )
    },
    **{
        f"length {value!r}": HEAD + b"Content-Length" + value + b"\r\n\r\nhi"
        for value in (
            *(
                b": +2",
                b": -2",
                b": 0x2",
                b": 0_2",
                b": 0 2",
                b": 2.0",
                b": 2, 2",
                b": 2, 0",
                b":",
                b": \x0b2",
                b": \xa02",
            ),
            *(b": 18446744073709551618", b": 2,", b': "2"', b": 2\r", b":\r\n 2", b" : 2", b"\t: 2", b": \xd9\xa2"),
            *(b": 2\r\nContent-Length: 2", b": 2\r\ncontent-length: 0", b": 0\r\nContent-Length: 2"),
        )
    },
    **{
        f"size {line!r}": CHUNKED + line + b"hi\r\n0\r\n\r\n"
        for line in (
            *(b"0x2\r\n", b"0_2\r\n", b"+2\r\n", b"-2\r\n", b" 2\r\n", b"2 \r\n", b"2\t\r\n", b"\r\n", b"2\n", b"2\r"),
            *(b"2\r\r\n", b"10000000000000002\r\n", b"2,\r\n", b"2x\r\n", b"2;\r\n", b"2;x\ny\r\n", b"2;x\ry\r\n"),
            *(b"2;x\x00\r\n", b"2;x\x01\r\n", b'2;x="y\nz"\r\n'),
        )
    },
    **{
        f"behind a chunk {body!r}": CHUNKED + b"2\r\nhi" + body
        for body in (
            *(b"\n0\r\n\r\n", b"\r0\r\n\r\n", b"0\r\n\r\n", b"XX\r\n0\r\n\r\n", b"\r\n0\n\r\n", b"\r\n0\r\n\n"),
            *(b"\r\n0;x\ny\r\n\r\n", b"\r\n0\r\nX: y\n\r\n", b"\r\n0\r\nX: y\r\n z\r\n\r\n"),
            b"\r\n0\r\nContent-Length: 2\r\n\r\n",
        )
    },
    **{
        f"line {line!r}": line + LENGTH
        for line in (
            *(b"HTTP/1.1 200 OK\n", b" HTTP/1.1 200 OK\r\n", b"http/1.1 200 OK\r\n", b"ICY 200 OK\r\n"),
            *(b"HTTP/0.9 200 OK\r\n", b"HTTP/1.2 200 OK\r\n", b"HTTP/2.0 200 OK\r\n", b"HTTP/1.10 200 OK\r\n"),
            *(b"HTTP/1.1  200 OK\r\n", b"HTTP/1.1\t200 OK\r\n", b"HTTP/1.1 2000 OK\r\n", b"HTTP/1.1 +200 OK\r\n"),
            *(
                b"HTTP/1.1 200.1 OK\r\n",
                b"HTTP/1.1 200 O\rK\r\n",
                b"HTTP/1.1 000 X\r\n",
                b"HTTP/1.1 200 OK\r\n X: y\r\n",
            ),
            b"HTTP/1.1 200 OK\r\nX: y\n",
        )
    },
    "LF at the end of the head": HEAD + b"Content-Length: 2\r\n\nhi",
    "chunks with HTTP/1.0": CHUNKED.replace(b"1.1", b"1.0") + CHUNKS,
    "chunks with HTTP/1.0, kept open": CHUNKED.replace(b"1.1 200 OK", b"1.0 200 OK\r\nConnection: keep-alive") + CHUNKS,
}
TRAILERS: Final = (
    b"X: y",
    b"x-twophase-verdict: committed",
    b"Transfer-Encoding: chunked",
    b"Connection: upgrade\r\nUpgrade: h2c",
    b"Host: evil",
)


def _read(pieces: Iterable[bytes]) -> HttpErrorKind | int | None:
    """Return the status of the answer, the kind of error, or None for no answer."""
    reader = ResponseReader(body_bytes_max=1_000, header_bytes_max=2_000)
    reader.begin()
    try:
        for piece in pieces:
            if (response := reader.feed(piece)) is not None:
                return response.status
        response = reader.end_of_stream()
    except HttpError as error:
        return error.kind
    return None if response is None else response.status


@pytest.mark.parametrize("raw", DOUBTFUL.values(), ids=[ascii(name) for name in DOUBTFUL])
def test_an_answer_of_doubtful_form_is_none(raw: bytes) -> None:
    outcomes = {_read([raw]), _read([raw + BEHIND]), _read(raw[at : at + 1] for at in range(len(raw)))}
    assert outcomes <= {HttpErrorKind.PROTOCOL, NO_ANSWER}


@pytest.mark.parametrize("trailer", TRAILERS)
def test_a_trailer_says_nothing_about_the_answer(trailer: bytes) -> None:
    raw = CHUNKED + b"2\r\nhi\r\n0\r\n" + trailer + b"\r\n\r\n"
    for pieces in ([raw], [raw[at : at + 1] for at in range(len(raw))]):
        reader = ResponseReader(body_bytes_max=1_000, header_bytes_max=2_000)
        reader.begin()
        (response,) = [found for piece in pieces if (found := reader.feed(piece)) is not None]
        assert (response.status, response.body) == (200, b"hi")
        assert response.headers == [(b"transfer-encoding", b"chunked")]


def test_a_trailer_may_end_the_connection() -> None:
    reader = ResponseReader(body_bytes_max=1_000, header_bytes_max=2_000)
    reader.begin()
    assert reader.feed(CHUNKED + b"2\r\nhi\r\n0\r\nConnection: close\r\n\r\n") is not None
    assert not reader.reusable


def test_an_answer_behind_the_one_that_was_asked_for_leaves_no_connection_to_use_again() -> None:
    reader = ResponseReader(body_bytes_max=1_000, header_bytes_max=2_000)
    for raw in (HEAD + LENGTH, CHUNKED + CHUNKS):
        reader.begin()
        response = reader.feed(raw + BEHIND)
        assert response is not None
        assert (response.status, response.body, reader.reusable) == (200, b"hi", False)
        reader = ResponseReader(body_bytes_max=1_000, header_bytes_max=2_000)
