"""Pieces become messages, compressed or not, and never longer than allowed."""

from __future__ import annotations

import gzip
import itertools
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.grpc_server.incoming import Compressed, Incoming
from twophase.grpc_server.status import Ended, Status, framed


def _compressed(data: bytes) -> bytes:
    return b"\1" + framed(data)[1:]


@given(st.lists(st.binary(max_size=50), max_size=5), st.lists(st.integers(0, 300), max_size=10))
def test_messages_are_the_same_however_they_are_cut(messages: list[bytes], cuts: list[int]) -> None:
    data = b"".join(map(framed, messages))
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    incoming, found = Incoming(b"identity", 100, list[int]().append), list[bytes | Compressed]()
    for start, stop in itertools.pairwise(edges):
        found += [message for message, _ in incoming.feed(data[start:stop])]
    assert found == messages
    assert (incoming.unfinished, incoming.missing) == (0, 0)


@pytest.mark.parametrize(("encoding", "compress"), [(b"gzip", gzip.compress), (b"deflate", zlib.compress)])
def test_compressed_messages_are_read(encoding: bytes, compress: object) -> None:
    assert callable(compress)
    data = _compressed(compress(b"x" * 90))
    unfolded: list[int] = []
    assert Incoming(encoding, 100, unfolded.append).feed(data) == [(b"x" * 90, len(data))]
    assert unfolded == [90]


# A test is named by its data, and each worker of a run names it anew, so the data has no time stamp.
FAULTS = [
    (b"gzip", _compressed(gzip.compress(bytes(200_000), mtime=0)), Status.RESOURCE_EXHAUSTED, "at least 1001 bytes"),
    (b"gzip", _compressed(b"nothing of the kind"), Status.INVALID_ARGUMENT, "cannot be decompressed"),
    (b"gzip", _compressed(gzip.compress(b"x" * 100, mtime=0)[:-9]), Status.INVALID_ARGUMENT, "cut off"),
    (b"gzip", _compressed(2 * gzip.compress(b"x", mtime=0)), Status.INVALID_ARGUMENT, "more behind it"),
    (b"deflate", _compressed(zlib.compress(b"x") + b"x"), Status.INVALID_ARGUMENT, "more behind it"),
    (b"snappy", _compressed(b"x"), Status.UNIMPLEMENTED, "identity, deflate, gzip"),
    (b"identity", _compressed(b"x"), Status.UNIMPLEMENTED, "identity, deflate, gzip"),
    (b"identity", b"\2" + framed(b"x")[1:], Status.INVALID_ARGUMENT, "begins with neither 0 nor 1"),
    (b"identity", framed(b"x" * 1_001)[:5], Status.RESOURCE_EXHAUSTED, "at least 1001 bytes, at most 1000"),
]


@pytest.mark.parametrize(("encoding", "data", "status", "text"), FAULTS)
def test_what_cannot_be_taken_is_refused_by_name(encoding: bytes, data: bytes, status: Status, text: str) -> None:
    with pytest.raises(Ended) as caught:
        Incoming(encoding, 1_000, list[int]().append).feed(data)
    assert caught.value.status is status
    assert text in caught.value.message


def test_what_is_missing_is_known_as_soon_as_the_message_says_so() -> None:
    incoming = Incoming(b"identity", 1_000, list[int]().append)
    assert (incoming.feed(framed(b"x" * 900)[:4]), incoming.missing) == ([], 0)
    assert (incoming.feed(framed(b"x" * 900)[4:10]), incoming.missing) == ([], 895)


LONG = bytes(300_000)


@pytest.mark.parametrize(
    ("encoding", "data", "counted"),
    [
        (b"gzip", gzip.compress(LONG, mtime=0), 300_000),
        (b"deflate", zlib.compress(LONG), 1032 * len(zlib.compress(LONG))),
    ],
)
def test_a_message_that_becomes_long_is_decompressed_only_when_it_is_asked_for(
    encoding: bytes, data: bytes, counted: int
) -> None:
    unfolded: list[int] = []
    ((message, size),) = Incoming(encoding, 1_000_000, unfolded.append).feed(_compressed(data))
    assert isinstance(message, Compressed)
    assert (len(message), size, unfolded) == (len(data), len(data) + 5, [counted])
    assert message.plain() == LONG


LATER = [
    (gzip.compress(LONG, mtime=0)[:-4] + (70_000).to_bytes(4, "little"), Status.RESOURCE_EXHAUSTED, "at most 70000"),
    (gzip.compress(bytes(1_000_001), mtime=0), Status.RESOURCE_EXHAUSTED, "at most 1000000 are read"),
    (gzip.compress(LONG, mtime=0)[:-6], Status.INVALID_ARGUMENT, "cut off"),
    (
        gzip.compress(LONG, mtime=0)[:-8] + bytes(4) + len(LONG).to_bytes(4, "little"),
        Status.INVALID_ARGUMENT,
        "cannot be decompressed",
    ),
]


@pytest.mark.parametrize(("data", "status", "text"), LATER)
def test_a_long_message_is_refused_when_it_is_decompressed(data: bytes, status: Status, text: str) -> None:
    """The first announces less than it becomes: no more than that is decompressed."""
    ((message, _),) = Incoming(b"gzip", 1_000_000, list[int]().append).feed(_compressed(data))
    assert isinstance(message, Compressed)
    with pytest.raises(Ended) as caught:
        message.plain()
    assert caught.value.status is status
    assert text in caught.value.message
