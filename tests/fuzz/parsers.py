"""The parsers alone: their errors are their own.

Pieces are read as the whole is.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, Final

from hypothesis import strategies as st

from tests.fuzz import messages
from tests.fuzz.play import Target
from twophase.core.errors import TwophaseError
from twophase.core.message import Message, decode, encode
from twophase.destinations.grpc import GrpcDestination
from twophase.grpc_wire.messages import BrokenMessage, encode_request, parse_request, parse_topic
from twophase.http_client.address import parse_address
from twophase.http_client.outcome import HttpError, HttpResponse
from twophase.http_client.reader import ResponseReader
from twophase.server.codecs.decode import Decoder
from twophase.server.codecs.wire import parse_steps

_ROOM: Final = 1 << 20
RESPONSES: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nx: y\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n\r\nuntil the end",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 409 Conflict\r\ncontent-length: 0\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
)
_responses = st.sampled_from(RESPONSES)


def parser_targets() -> list[Target]:
    """Return the targets that need no server."""
    cuts = st.lists(st.integers(0, 400), max_size=8)
    whole = st.one_of(_responses, messages.damaged(_responses), st.binary(max_size=300))
    grpc = st.one_of(
        messages.grpc_requests(_nowhere).map(encode_request),
        messages.damaged(messages.grpc_requests(_nowhere).map(encode_request)),
        st.binary(max_size=200),
    )
    return [
        Target("responses of branches", st.tuples(whole, cuts), _read_in_pieces),
        Target("JSON of requests", messages.bodies(_nowhere), decode_json),
        Target("steps of gRPC requests", messages.values.map(messages.as_json) | st.binary(max_size=80), decode_steps),
        Target("gRPC messages", grpc, decode_grpc),
        Target("addresses", messages.addresses(_nowhere) | messages.texts | st.text(max_size=60), parse_addresses),
    ]


def _nowhere(number: int) -> str:
    return f"http://127.0.0.1:1/{number}"


def _read(pieces: list[bytes]) -> tuple[Any, ...]:
    """Return a reader's result for these reads, with the end of the stream after them."""
    reader = ResponseReader(body_bytes_max=_ROOM, header_bytes_max=_ROOM)
    reader.begin()
    response: HttpResponse | None = None
    try:
        for piece in pieces:
            if piece and (response := reader.feed(piece)) is not None:
                break
        if response is None:
            response = reader.end_of_stream()
    except HttpError as error:
        return ("refused", error.kind)
    finally:
        reader.dispose()
    return ("incomplete",) if response is None else (response.status, response.body)


def _read_in_pieces(case: tuple[bytes, list[int]]) -> None:
    whole, cuts = case
    edges = sorted({0, len(whole), *(min(cut, len(whole)) for cut in cuts)})
    once = _read([whole])

    assert _read([whole[start:end] for start, end in itertools.pairwise(edges)]) == once
    assert _read([whole[at : at + 1] for at in range(len(whole))]) == once


def read_cut(pieces: list[bytes]) -> None:
    """Check that a response in pieces is read as the whole is."""
    assert _read(pieces) == _read([b"".join(pieces)])


def _decoder() -> Decoder:
    return Decoder(lambda url: None if "://" in url else "no URL.")


def _taken(message: Message) -> None:
    """Check that an accepted message is stored, and read again as the same."""
    assert decode(encode(message)) == message


def decode_json(body: bytes) -> None:
    """Check that a body is refused, or is a message that is stored as it is."""
    with contextlib.suppress(TwophaseError):
        _taken(_decoder().message(body))
    with contextlib.suppress(TwophaseError):
        assert len(_decoder().gid(body).encode()) <= 128


def decode_steps(text: bytes) -> None:
    """Check that the steps of a gRPC request are read or refused."""
    with contextlib.suppress(TwophaseError, UnicodeDecodeError):
        parse_steps(text.decode())


def decode_grpc(raw: bytes) -> None:
    """Check that a gRPC message is refused, or read and written as the same."""
    with contextlib.suppress(BrokenMessage):
        said = parse_request(raw)
        assert parse_request(encode_request(said)) == said
    with contextlib.suppress(BrokenMessage):
        parse_topic(raw)


def parse_addresses(text: str) -> None:
    """Check that an address is refused or understood."""
    with contextlib.suppress(HttpError):
        parse_address(text)
    why = GrpcDestination().accepts(text)
    assert why is None or why.startswith("bad_url: ")
