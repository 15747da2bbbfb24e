"""Blocks of headers are remembered only where they mean the same.

This holds whatever a peer does with its table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hpack import Decoder, Encoder
from hpack.exceptions import HPACKError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.grpc_server.http2.peer import CALL, PLAIN, Peer, answers
from twophase.grpc_server.http2 import frames
from twophase.grpc_server.http2.faults import ConnectionFault
from twophase.grpc_server.http2.frames import field
from twophase.grpc_server.http2.headers import (
    BLOCKS_REMEMBERED_MAX,
    FIELDS_MAX,
    VARYING_BYTES_MAX,
    Blocks,
    Fields,
    Known,
    Malformed,
)
from twophase.grpc_server.http2.limits import Limits

_PAIRS = st.lists(
    st.tuples(st.sampled_from(["x-a", "x-b", "traceparent", "user-agent"]), st.text("ab01-", max_size=8)), max_size=5
)


def _known() -> Known[Fields]:
    return Known(lambda fields: fields, 100_000, 100_000)


def _raw(pairs: object) -> Fields:
    assert isinstance(pairs, list)
    return [(name.encode(), value.encode()) for name, value in pairs]


@given(st.lists(_PAIRS, min_size=1, max_size=12), st.integers(0, 12), st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_what_is_remembered_is_what_was_sent(
    requests: list[list[tuple[str, str]]], settled_after: int, obeys: bool, huffman: bool
) -> None:
    """Two peers share the memory of blocks.

    Each has its own table until the server's settings are acknowledged; one peer keeps its table even then.
    """
    known = _known()
    peers = [(Blocks(known), Encoder(), obeys), (Blocks(known), Encoder(), True)]
    for number, pairs in enumerate(requests * 2):
        for blocks, encoder, gives_up_its_table in peers:
            if number == settled_after:
                blocks.settled()
                if gives_up_its_table:
                    encoder.header_table_size = 0
            block = encoder.encode([*CALL, *pairs], huffman=huffman)
            found = blocks.known.get(block)
            assert (blocks.read(block) if found is None else found) == _raw([*CALL, *pairs])


def test_a_block_that_needs_no_table_is_remembered_at_once() -> None:
    known = _known()
    first, second = Blocks(known), Blocks(known)
    first.read(PLAIN)
    assert second.known[PLAIN] == _raw(list(CALL))


def test_a_peer_without_a_table_is_remembered_whatever_it_says() -> None:
    known, encoder = _known(), Encoder()
    blocks = Blocks(known)
    blocks.read(encoder.encode(CALL))
    assert not known.always
    blocks.settled()
    encoder.header_table_size = 0
    blocks.read(encoder.encode(CALL))
    again = encoder.encode(CALL)
    for _ in range(2):  # at the first reading each of its fields is new
        assert blocks.known.get(again) is None
        blocks.read(again)
    assert blocks.known[again] == _raw(list(CALL))
    assert not known.always


def test_what_is_remembered_is_bounded() -> None:
    known = _known()
    blocks = Blocks(known)
    for number in range(BLOCKS_REMEMBERED_MAX + 10):
        blocks.read(PLAIN + field(b"traceparent", b"%d" % number))
    assert len(known.always) <= BLOCKS_REMEMBERED_MAX
    blocks.read(PLAIN + field(b"x-long", bytes(b"v" * 5_000)))
    assert all(len(block) < 5_000 for block in known.always)


def test_what_only_one_client_sends_reaches_no_other() -> None:
    async def main() -> None:
        peer = Peer()
        peer.greet()
        for stream, name in ((1, b"one"), (3, b"two"), (5, b"one")):
            peer.send(peer.call(stream, name, PLAIN + field(b"x-name", name)))
        assert [one.body[5:] for one in answers(peer.said).values()] == [b"one", b"two", b"one"]

    asyncio.run(main())


async def test_fields_are_remembered_one_by_one_where_there_is_no_table() -> None:
    """Each request has a block of its own, as tracing makes them.

    Only the fields that are new in it are decoded.
    """
    peer = Peer()
    peer.greet()
    peer.encoder.header_table_size = 0
    for number in range(5):
        block = peer.encoder.encode([*CALL, ("traceparent", f"00-{number:032x}-{number:016x}-01")])
        peer.send(peer.call(2 * number + 1, block=block))
    assert all(one.headers["grpc-status"] == "0" for one in answers(peer.said).values())
    known = peer.port.known.fields
    assert [name for name, _ in known.values()].count(b":path") == 1
    assert [name for name, _ in known.values()].count(b"traceparent") == 4  # not that of the first block


BROKEN = [
    (b"\x82\x20", "a change of the table after a field"),
    (b"\x21" + PLAIN, "a table that is not allowed"),
    (b"\x00\x05ab", "a name cut off"),
    (b"\x00\x01a\x05ab", "a value cut off"),
    (b"\x00\x7f\xff\xff\xff\xff\xff\xff\x01a", "a number too long"),
    (b"\xff", "a number cut off"),
    (b"\xbe", "an index of the table that there is not"),
    (b"\x80", "the index 0"),
    (PLAIN + b"\x90" * 5_000, "more than may be unfolded"),
]


@pytest.mark.parametrize(("block", "_why"), BROKEN, ids=[row[1] for row in BROKEN])
async def test_a_block_that_cannot_be_decoded_ends_the_connection_without_a_table_too(block: bytes, _why: str) -> None:
    peer = Peer()
    peer.greet()
    peer.send(peer.call(1, block=b"\x20" + PLAIN))
    assert answers(peer.said)[1].ended
    peer.send(frames.header_frames(3, block))
    assert peer.given_up == frames.COMPRESSION_ERROR


def _many(fields: int, number: int = 0) -> bytes:
    """Return a block of this number of fields, most of them in a byte each."""
    return PLAIN + field(b"x-new", b"%d" % number) + b"\x90" * (fields - len(CALL) - 1)


@pytest.mark.parametrize("keeps_table", [True, False], ids=["with a table", "without a table"])
async def test_a_block_of_too_many_fields_ends_the_connection_before_they_are_made(*, keeps_table: bool) -> None:
    for fields in (FIELDS_MAX, FIELDS_MAX + 1):
        peer = Peer()
        peer.greet()
        peer.send(peer.call(1, block=PLAIN if keeps_table else b"\x20" + PLAIN))
        decoded = peer.connection._blocks.decoded
        peer.send(peer.call(3, block=_many(fields)))
        if fields == FIELDS_MAX:
            assert answers(peer.said)[3].ended
        else:
            assert peer.connection._blocks.decoded == decoded
            assert peer.given_up == frames.COMPRESSION_ERROR


@pytest.mark.parametrize("keeps_table", [True, False], ids=["with a table", "without a table"])
async def test_too_many_new_fields_in_a_second_end_the_connection(*, keeps_table: bool) -> None:
    peer = Peer(Limits(fields_max=1_000))
    peer.greet()
    peer.send(peer.call(1, block=PLAIN if keeps_table else b"\x20" + PLAIN))
    calls = 0
    while not peer.connection.deaf and calls < 100:
        calls += 1
        peer.send(peer.call(2 * calls + 1, block=_many(100, calls)))
    assert 5 <= calls <= 15
    assert peer.given_up == frames.ENHANCE_YOUR_CALM
    assert b"too many new headers" in peer.transport.written


async def test_fields_that_were_seen_before_and_those_of_another_second_do_not_count() -> None:
    peer = Peer(Limits(fields_max=100))
    peer.greet()
    peer.send(peer.call(1, block=b"\x20" + PLAIN))
    for second in (1, 2):
        peer.connection.check(second)
        for number in range(90):  # one new field each, as tracing makes them
            traced = PLAIN + field(b"traceparent", b"%d-%d" % (second, number))
            peer.send(peer.call(2 * (90 * second + number) + 1, block=traced))
    assert not peer.connection.deaf


@given(st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_block_means_what_the_library_says_it_means(block: bytes) -> None:
    known = _known()
    blocks = Blocks(known)
    blocks.settled()
    blocks.decode(b"\x20")
    library = Decoder()
    library.header_table_size = 0
    library.max_allowed_table_size = 0
    try:
        expected = [(bytes(name), bytes(value)) for name, value in library.decode(block, raw=True)]
    except HPACKError:
        with pytest.raises(ConnectionFault):
            blocks.decode(block)
    else:
        assert blocks.decode(block) == blocks.decode(block) == expected


def _varying(read: list[Fields]) -> Known[Fields]:
    """Remember blocks but for `x-id`, and note what is read."""

    def noted(fields: Fields) -> Fields:
        read.append(fields)
        return fields

    return Known(noted, 100_000, 100_000, b"x-id")


def _block(*pairs: tuple[str, str]) -> bytes:
    return b"".join(field(name.encode(), value.encode()) for name, value in pairs)


def _without_table(known: Known[Fields]) -> Blocks[Fields]:
    blocks = Blocks(known)
    blocks.settled()
    blocks.decode(b"\x20")
    return blocks


def test_calls_that_differ_in_the_varying_header_alone_are_read_once() -> None:
    read: list[Fields] = []
    blocks = _without_table(_varying(read))

    for number in range(3):
        blocks.read(_block(*CALL, ("x-a", "1"), ("x-id", f"{number}")))

    assert len(read) == 1


def test_a_call_that_differs_in_another_header_is_read_anew() -> None:
    read: list[Fields] = []
    blocks = _without_table(_varying(read))

    for value in ("1", "2"):
        found = blocks.read(_block(*CALL, ("x-id", value), ("x-a", value)))
        assert (b"x-a", value.encode()) in found

    assert len(read) == 2


def test_a_varying_header_of_two_lines_is_refused_in_a_known_call_too() -> None:
    blocks = _without_table(_varying([]))
    blocks.read(_block(*CALL, ("x-id", "1")))

    with pytest.raises(Malformed):
        blocks.read(_block(*CALL, ("x-id", "1\r\nx-a: 1")))


def test_a_varying_header_in_front_of_a_pseudo_header_is_refused_in_a_known_call_too() -> None:
    blocks = _without_table(_varying([]))
    blocks.read(_block(*CALL, ("x-id", "1")))

    with pytest.raises(Malformed):
        blocks.read(_block(("x-id", "1"), *CALL))


def test_a_call_with_a_long_varying_header_is_read_as_it_is() -> None:
    read: list[Fields] = []
    blocks = _without_table(_varying(read))
    blocks.read(_block(*CALL, ("x-id", "1")))

    blocks.read(_block(*CALL, ("x-id", "1" * (VARYING_BYTES_MAX + 1))))

    assert len(read) == 2


def test_a_forgotten_call_is_read_anew_with_its_varying_header() -> None:
    read: list[Fields] = []
    known = _varying(read)
    _without_table(known).read(_block(*CALL, ("x-id", "1")))

    known.forget()
    _without_table(known).read(_block(*CALL, ("x-id", "2")))

    assert len(read) == 2


def test_calls_that_are_known_but_for_the_varying_header_are_bounded() -> None:
    known = _varying([])
    blocks = _without_table(known)

    for number in range(BLOCKS_REMEMBERED_MAX + 1):
        blocks.read(_block(*CALL, ("x-a", f"{number}"), ("x-id", "1")))

    assert 0 < len(known.around) <= BLOCKS_REMEMBERED_MAX


_IDS = st.text("01af-", max_size=12) | st.sampled_from(["\x04x-id\x01", "\0", "\n"])
_OTHERS = st.text("01", max_size=3) | st.sampled_from(["\x04x-id\x012", "\x04x-id\x01", "x-id", "\x04x-id"])


@given(st.lists(st.tuples(_IDS, _OTHERS, st.booleans(), st.booleans()), min_size=1, max_size=12))
@settings(max_examples=300, deadline=None)
def test_a_call_means_the_same_with_and_without_the_memory_of_its_varying_header(
    calls: list[tuple[str, str, bool, bool]],
) -> None:
    remembers = _without_table(_varying([]))
    for id_, other, is_first, huffman in calls:
        pairs = [("x-a", other), ("x-id", id_)]
        encoder = Encoder()
        encoder.header_table_size = 0
        encoder.encode([])
        block = encoder.encode([*CALL, *(pairs if is_first else reversed(pairs))], huffman=huffman)
        told = [_meaning(blocks, block) for blocks in (_without_table(_varying([])), remembers, remembers)]
        assert told[0] == told[1] == told[2]


def _meaning(blocks: Blocks[Fields], block: bytes) -> Fields | None:
    """Return what a call means but for its id; None for what is no call."""
    try:
        return [pair for pair in blocks.known.get(block) or blocks.read(block) if pair[0] != b"x-id"]
    except Malformed:
        return None


def test_a_known_call_that_ends_within_its_varying_header_cannot_be_decoded() -> None:
    blocks = _without_table(_varying([]))
    block = _block(*CALL, ("x-id", "12"))
    blocks.read(block)

    with pytest.raises(ConnectionFault):
        blocks.read(block[:-1])


def test_a_known_call_with_a_varying_header_that_is_badly_packed_cannot_be_decoded() -> None:
    blocks = _without_table(_varying([]))
    blocks.read(_block(*CALL) + b"\0\x04x-id\x81\x07")  # "0"

    with pytest.raises(ConnectionFault):
        blocks.read(_block(*CALL) + b"\0\x04x-id\x81\x00")
    assert len(blocks._shared.around) == 1


@pytest.mark.parametrize(
    "looks_like_it",
    [
        lambda value: field(b"x-a", b"\x04x-id\x01" + value),
        lambda value: b"\x0f\x04x-id\x01" + value + b"." * 115,  # `accept`, with 120 = x bytes
    ],
    ids=["within another value", "at the begin of a field"],
)
def test_what_looks_like_the_varying_header_is_read(looks_like_it: Callable[[bytes], bytes]) -> None:
    blocks = _without_table(_varying([]))

    for value in (b"1", b"2"):
        assert any(value in found for _, found in blocks.read(_block(*CALL) + looks_like_it(value))[len(CALL) :])
