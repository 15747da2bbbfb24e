"""Flow control: no window is ever exceeded, and everything arrives in order."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.waiting import until
from tests.unit.grpc_server.http2.peer import PLAIN, Frame, Peer, answers
from twophase.grpc_server.http2 import frames
from twophase.grpc_server.http2.limits import RECEIVE_WINDOW, Limits
from twophase.grpc_server.status import Status, framed
from twophase.http_client.byte_budget import FREE_BYTES


class Windows:
    """The windows that the peer has allowed; sending more fails the test."""

    def __init__(self, initial: int) -> None:
        self.connection = frames.DEFAULT_WINDOW
        self.initial = initial
        self.spent: dict[int, int] = {}

    def take(self, said: list[Frame]) -> list[Frame]:
        for frame in said:
            if frame.kind == frames.DATA:
                size = len(frame.payload)
                self.connection -= size
                self.spent[frame.stream] = self.spent.get(frame.stream, 0) + size
                assert self.connection >= 0
                assert self.spent[frame.stream] <= self.initial
        return said


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=5),
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 500)), max_size=40),
)
@settings(max_examples=60, deadline=None)
def test_no_window_is_exceeded_and_everything_arrives(
    sizes: list[int], initial: int, opened: list[tuple[int, int]]
) -> None:
    async def main() -> None:
        peer, windows = Peer(), Windows(initial)
        peer.greet((frames.INITIAL_WINDOW_SIZE, initial))
        messages = [bytes((index,)) * size for index, size in enumerate(sizes)]
        peer.send(b"".join(peer.call(2 * index + 1, message) for index, message in enumerate(messages)))
        said = windows.take(peer.said)
        for index, by in opened:
            stream = 2 * index - 1 if 0 < index <= len(sizes) else 0
            if stream:
                windows.spent[stream] = windows.spent.get(stream, 0) - by
            else:
                windows.connection += by
            peer.send(frames.window_update(stream, by))
            said += windows.take(peer.said)
        windows.initial = 1_000
        peer.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 1_000}))
        said += windows.take(peer.said)
        found = answers(said)
        assert [found[2 * index + 1].body for index in range(len(sizes))] == [framed(one) for one in messages]
        assert all(one.ended for one in found.values())
        assert not peer.connection.streams

    asyncio.run(main())


async def test_an_answer_whose_caller_goes_is_not_sent() -> None:
    peer = Peer()
    peer.greet((frames.INITIAL_WINDOW_SIZE, 3))
    peer.send(peer.call(1) + peer.call(3))
    peer.send(frames.reset(1, frames.CANCEL))
    peer.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 100}))
    found = answers(peer.said)
    assert (found[1].ended, found[3].ended) == (False, True)
    assert not peer.connection.outbox.waits


async def test_a_wide_window_is_not_filled_faster_than_the_socket_takes_it() -> None:
    peer = Peer()
    peer.greet((frames.INITIAL_WINDOW_SIZE, frames.NUMBER_MAX))
    peer.send(frames.window_update(0, 1 << 30) + frames.header_frames(1, PLAIN))
    stream, outbox = peer.connection.streams[1], peer.connection.outbox
    peer.said.clear()
    await outbox.message(stream, b"one")
    peer.connection.pause_writing()
    sending = asyncio.ensure_future(outbox.message(stream, b"two"))
    await asyncio.sleep(0)
    assert not sending.done()
    peer.connection.resume_writing()
    await sending
    assert [frame.payload for frame in peer.said if frame.kind == frames.DATA] == [b"one", b"two"]


async def test_a_stream_may_wait_for_its_reader_longer_than_an_answer() -> None:
    peer = Peer(Limits(write_s=5.0))
    peer.greet((frames.INITIAL_WINDOW_SIZE, 0))
    peer.send(frames.header_frames(1, PLAIN))
    sending = asyncio.ensure_future(peer.connection.outbox.message(peer.connection.streams[1], b"one"))
    await asyncio.sleep(0)
    peer.connection.check(20.0)
    assert not peer.transport.aborted
    peer.send(peer.call(3))
    peer.connection.check(20.0)
    assert peer.transport.aborted
    sending.cancel()


@pytest.mark.parametrize(("long_bytes_max", "at_once"), [(40_000, 1), (70_000, 2)])
async def test_long_messages_are_let_in_one_after_the_other_and_all_of_them(long_bytes_max: int, at_once: int) -> None:
    peer = Peer(Limits(long_bytes_max=long_bytes_max))
    peer.greet()
    message = bytes(99_000)
    left = {stream: framed(message) for stream in (1, 3, 5)}
    room = dict.fromkeys(left, frames.DEFAULT_WINDOW)
    connection = RECEIVE_WINDOW
    peer.send(b"".join(frames.header_frames(stream, PLAIN) for stream in left))
    most = 0
    while any(left.values()):
        before = sum(map(len, left.values()))
        for stream, data in left.items():
            piece = data[: min(room[stream], 16_384)]
            if piece:
                left[stream] = data[len(piece) :]
                room[stream] -= len(piece)
                connection -= len(piece)
                peer.send(frames.frame(frames.DATA, 0 if left[stream] else frames.END_STREAM, stream, piece))
        for frame in peer.said:
            if frame.kind == frames.WINDOW_UPDATE and frame.stream:
                room[frame.stream] += int.from_bytes(frame.payload, "big")
                assert room[frame.stream] <= len(left[frame.stream]), "what the message needs, and no more"
        most = max(most, sum(stream.granted > 0 for stream in peer.connection.streams.values()))
        assert sum(map(len, left.values())) < before, "somebody may always go on"
    await until(lambda: len(peer.received) == len(left))  # each is handled in a turn of its own
    assert peer.received == [message] * 3
    assert most == at_once


async def test_the_connections_window_is_given_back_as_it_is_used() -> None:
    peer = Peer()
    peer.greet()
    peer.said.clear()
    given, sent = 0, 0
    for number in range(100):
        peer.send(peer.call(2 * number + 1, bytes(60_000)[:16_000]))
        sent += 16_005
        given += sum(
            int.from_bytes(frame.payload, "big")
            for frame in peer.said
            if frame.kind == frames.WINDOW_UPDATE and not frame.stream
        )
        assert sent - given <= RECEIVE_WINDOW // 2 + 16_384


@pytest.mark.parametrize("end", ["reset", "goes", "faults", "completes"])
async def test_an_unfinished_message_counts_against_the_budget_until_it_ends(end: str) -> None:
    peer = Peer()
    budget = peer.port.budget
    peer.greet()
    half = FREE_BYTES // 2 + 1_000
    message = framed(bytes(2 * half))
    for stream in (1, 3):
        peer.send(frames.header_frames(stream, PLAIN) + frames.frame(frames.DATA, 0, stream, message[:half]))
    assert budget.used == 2_000
    if end == "completes":
        for stream in (1, 3):
            peer.send(frames.frame(frames.DATA, frames.END_STREAM, stream, message[half:]))
    elif end == "reset":
        for stream in (1, 3):
            peer.send(frames.reset(stream, frames.NO_ERROR))
    elif end == "faults":
        peer.send(frames.frame(frames.DATA, 0, 0, b"x"))
    else:
        peer.connection.connection_lost(None)
    assert budget.used == 0
    peer.connection.connection_lost(None)
    assert budget.used == 0


@pytest.mark.parametrize("end", ["reset", "goes", "faults", "completes", "is refused"])
async def test_long_headers_count_against_the_budget_until_their_request_ends(end: str) -> None:
    peer = Peer(Limits(streams_max=3))
    budget = peer.port.budget
    peer.greet()
    streams, long = (1, 3, 5), [PLAIN + frames.field(b"x", bytes((120, 97 + number)) * 6_000) for number in range(4)]
    for stream, block in zip(streams, long, strict=False):
        peer.send(frames.header_frames(stream, block))
    assert 3 * 12_000 < budget.used + FREE_BYTES < 3 * 14_000
    if end == "completes":
        for stream in streams:
            peer.send(frames.frame(frames.DATA, frames.END_STREAM, stream, framed(b"m")))
        assert all(answer.ended for answer in answers(peer.said).values())
    elif end == "reset":
        for stream in streams:
            peer.send(frames.reset(stream, frames.NO_ERROR))
    elif end == "faults":
        peer.send(frames.frame(frames.DATA, 0, 0, b"x"))
    elif end == "is refused":
        used = budget.used
        peer.send(frames.header_frames(7, long[3]))
        assert peer.said[-1].code == frames.REFUSED_STREAM
        assert budget.used == used
        peer.connection.connection_lost(None)
    else:
        peer.connection.connection_lost(None)
    assert budget.used == 0
    peer.connection.connection_lost(None)
    assert budget.used == 0


async def test_a_request_whose_headers_the_budget_has_no_room_for_may_be_sent_again() -> None:
    peer = Peer()
    peer.greet()
    budget = peer.port.budget
    others = budget.account("others", share_percent=100)
    assert others.keep(budget.bytes_max + FREE_BYTES)
    block = PLAIN + frames.field(b"x", b"v" * FREE_BYTES)
    peer.send(frames.header_frames(1, block))
    assert [frame.code for frame in peer.said if frame.kind == frames.RST_STREAM] == [frames.REFUSED_STREAM]
    others.release()
    peer.send(peer.call(3, block=block))
    assert answers(peer.said)[3].body == framed(b"m")
    assert budget.used == 0


async def test_a_message_that_asked_for_room_and_was_given_up_is_not_kept() -> None:
    peer = Peer(Limits(long_bytes_max=40_000))
    peer.greet()
    long = framed(bytes(99_000))[:60_000]
    peer.send(frames.header_frames(1, PLAIN) + b"".join(_pieces(1, long, ends=False)))
    tracemalloc.start()
    try:
        for stream in range(3, 103, 2):
            peer.send(frames.header_frames(stream, PLAIN) + b"".join(_pieces(stream, long)))
            assert answers(peer.said)[stream].headers["grpc-status"] == str(Status.INVALID_ARGUMENT.value)
            peer.transport.written.clear()
            peer._taken = 0
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 10 * len(long)
    peer.send(frames.header_frames(103, PLAIN) + b"".join(_pieces(103, long, ends=False)))
    assert [stream.asks for stream in peer.connection.streams.values()] == [False, True]
    peer.send(frames.reset(1, frames.CANCEL))
    assert [stream.asks for stream in peer.connection.streams.values()] == [False]


@pytest.mark.parametrize("end", ["reset", "goes", "reads"])
async def test_an_answer_counts_against_the_budget_until_it_is_read(end: str) -> None:
    peer = Peer()
    budget = peer.port.budget
    peer.greet((frames.INITIAL_WINDOW_SIZE, 0))
    size = FREE_BYTES + 1_000
    for stream in (1, 3):
        peer.send(frames.header_frames(stream, PLAIN) + b"".join(_pieces(stream, framed(bytes(size)))))
    assert FREE_BYTES + 2 * 1_000 < budget.used < FREE_BYTES + 2 * 1_100
    if end == "reset":
        for stream in (1, 3):
            peer.send(frames.reset(stream, frames.NO_ERROR))
    elif end == "goes":
        peer.connection.connection_lost(None)
    else:
        for stream in (1, 3):
            peer.send(frames.window_update(stream, 2 * size))
        assert {number: answer.ended for number, answer in answers(peer.said).items()} == {1: True, 3: True}
    assert budget.used == 0


async def test_an_answer_that_the_budget_has_no_room_for_is_a_refusal() -> None:
    peer = Peer()
    peer.greet((frames.INITIAL_WINDOW_SIZE, 0))
    budget = peer.port.budget
    others = budget.account("others", share_percent=100)
    assert others.keep(budget.bytes_max + FREE_BYTES)
    peer.send(frames.header_frames(1, PLAIN) + b"".join(_pieces(1, framed(bytes(FREE_BYTES + 1_000)))))
    assert peer.received, "the request itself passes"
    assert answers(peer.said)[1].headers["grpc-status"] == str(Status.RESOURCE_EXHAUSTED.value)


def _pieces(stream: int, data: bytes, *, ends: bool = True) -> list[bytes]:
    """Return the frames of a call's data."""
    cut = frames.DEFAULT_FRAME_BYTES
    return [
        frames.frame(
            frames.DATA, frames.END_STREAM if ends and at + cut >= len(data) else 0, stream, data[at : at + cut]
        )
        for at in range(0, len(data), cut)
    ]
