"""Peers that misbehave.

Each is answered with the error that RFC 9113 names, and costs a bounded amount.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.grpc_server.http2.peer import CALL, PLAIN, Peer, answers
from twophase.grpc_server.http2 import frames
from twophase.grpc_server.http2.limits import BLOCK_BYTES_MAX, TURN_BYTES, Limits
from twophase.grpc_server.status import framed

OPEN = frames.header_frames(1, PLAIN)


def _peer(**limits: float) -> Peer:
    peer = Peer(Limits(**limits))  # type: ignore[arg-type]  # numbers of either kind
    peer.greet()
    assert peer.given_up is None
    return peer


CONNECTION_FAULTS = [
    ("a frame too long", (b"\0\x40\x01\0\0\0\0\0\1"), frames.FRAME_SIZE_ERROR),
    ("data without a stream", frames.frame(frames.DATA, 0, 0, b"x"), frames.PROTOCOL_ERROR),
    ("data of an idle stream", frames.frame(frames.DATA, 0, 1, b"x"), frames.PROTOCOL_ERROR),
    ("headers without a stream", frames.frame(frames.HEADERS, 4, 0, PLAIN), frames.PROTOCOL_ERROR),
    ("an even stream", frames.header_frames(2, PLAIN), frames.PROTOCOL_ERROR),
    ("a number that has passed", frames.header_frames(5, PLAIN) + frames.header_frames(3, PLAIN), 1),
    ("continuation of nothing", frames.frame(frames.CONTINUATION, 4, 1, PLAIN), frames.PROTOCOL_ERROR),
    ("a block interrupted", frames.frame(frames.HEADERS, 0, 1, PLAIN) + frames.frame(frames.PING, 0, 0, bytes(8)), 1),
    ("a push", frames.frame(frames.PUSH_PROMISE, 4, 1, bytes(8)), frames.PROTOCOL_ERROR),
    ("only padding", OPEN + frames.frame(frames.DATA, frames.PADDED, 1, b"\x05abc"), frames.PROTOCOL_ERROR),
    ("a block that is none", frames.header_frames(1, b"\xff\xff\xff"), frames.COMPRESSION_ERROR),
    ("an index of nothing", frames.header_frames(1, b"\xc8"), frames.COMPRESSION_ERROR),
    ("a table that is not allowed", frames.header_frames(1, b"\x3f\xe1\x1f" + PLAIN), frames.COMPRESSION_ERROR),
    ("settings of a stream", frames.frame(frames.SETTINGS, 0, 1), frames.PROTOCOL_ERROR),
    ("settings cut off", frames.frame(frames.SETTINGS, 0, 0, bytes(5)), frames.FRAME_SIZE_ERROR),
    ("an acknowledgement that says more", frames.frame(frames.SETTINGS, 1, 0, bytes(6)), frames.FRAME_SIZE_ERROR),
    ("a window too large", frames.settings({frames.INITIAL_WINDOW_SIZE: 1 << 31}), frames.FLOW_CONTROL_ERROR),
    ("no frame size", frames.settings({frames.MAX_FRAME_SIZE: 100}), frames.PROTOCOL_ERROR),
    ("no push or not", frames.settings({frames.ENABLE_PUSH: 2}), frames.PROTOCOL_ERROR),
    ("a ping of a stream", frames.frame(frames.PING, 0, 1, bytes(8)), frames.PROTOCOL_ERROR),
    ("a ping cut off", frames.frame(frames.PING, 0, 0, bytes(7)), frames.FRAME_SIZE_ERROR),
    ("a reset of an idle stream", frames.reset(1, 8), frames.PROTOCOL_ERROR),
    ("a reset cut off", OPEN + frames.frame(frames.RST_STREAM, 0, 1, bytes(3)), frames.FRAME_SIZE_ERROR),
    ("no more window", frames.window_update(0, 0), frames.PROTOCOL_ERROR),
    ("far too much window", frames.window_update(0, frames.NUMBER_MAX), frames.FLOW_CONTROL_ERROR),
    ("a window of an idle stream", frames.window_update(7, 1), frames.PROTOCOL_ERROR),
    ("a priority without a stream", frames.frame(frames.PRIORITY, 0, 0, bytes(5)), frames.PROTOCOL_ERROR),
]


@pytest.mark.parametrize(
    ("sent", "code"), [row[1:] for row in CONNECTION_FAULTS], ids=[r[0] for r in CONNECTION_FAULTS]
)
async def test_a_fault_of_the_connection_ends_it_with_its_code(sent: bytes, code: int) -> None:
    peer = _peer()
    peer.send(sent)
    assert peer.given_up == code
    assert peer.transport.eof
    peer.send(peer.call(9))  # the connection is no longer read
    assert peer.received == []


def _block(*fields: tuple[str, str], instead: bool = False) -> bytes:
    pairs = fields if instead else (*CALL, *fields)
    return b"".join(frames.field(name.encode(), value.encode()) for name, value in pairs)


def _without(name: str) -> list[tuple[str, str]]:
    return [pair for pair in CALL if pair[0] != name]


OF_HTTP_1 = [
    *(("transfer-encoding", value) for value in ("chunked", "identity", "")),
    *(("connection", "te"), ("keep-alive", "5"), ("proxy-connection", "close"), ("upgrade", "h2c")),
]
LENGTHS = ["+5", "-6", "0x6", "6, 6", "6.0", "6 ", "", "1_0", "18446744073709551622"]
STREAM_FAULTS = [
    ("capitals", _block(("X-Name", "1")), b""),
    ("an empty name", _block(("", "1")), b""),
    ("a line break", _block(("x-name", "1\r\n2")), b""),
    *(
        (f"{name!r} as a name", _block((name, "1")), b"")
        for name in ("x y", "x:y", "x\r\ny", "x\0", "\x7f", "é", "x-Y")
    ),
    *((f"a value of {value!r}", _block(("x-name", value)), b"") for value in ("1\n", "1\r2", "1\x002")),
    ("a header of HTTP/1", _block(("connection", "close")), b""),
    *((f"{name} of HTTP/1", _block((name, value)), b"") for name, value in OF_HTTP_1),
    *((f"te {value!r}", _block(("te", value)), b"") for value in ("gzip", "trailers, gzip", "chunked", "")),
    ("no path", _block(*(pair for pair in CALL if pair[0] != ":path"), instead=True), b""),
    ("an empty path", _block((":method", "POST"), (":scheme", "http"), (":path", ""), instead=True), b""),
    ("a path twice", _block((":path", "/x"), *CALL, instead=True), b""),
    ("a pseudo-header late", _block((":authority", "x")), b""),
    *((f"{name} twice", _block((name, value), *CALL, instead=True), b"") for name, value in CALL[:4]),
    *((f"{name} late", _block(*_without(name), (name, value), instead=True), b"") for name, value in CALL[:4]),
    *(
        (f"{name} of two lines", _block((name, f"{value}\r\nx: y"), *_without(name), instead=True), b"")
        for name, value in CALL[:4]
    ),
    ("a path with a NUL", _block((":path", "/s/Echo\0"), *_without(":path"), instead=True), b""),
    ("a status", _block((":status", "200"), *CALL, instead=True), b""),
    ("another protocol", _block((":protocol", "websocket"), *CALL, instead=True), b""),
    ("a pseudo-header without a name", _block((":", "x"), *CALL, instead=True), b""),
    *((f"a content-length of {value!r}", _block(("content-length", value)), b"") for value in LENGTHS),
    ("two content-lengths", _block(("content-length", "6"), ("content-length", "6")), b""),
    ("too much content", _block(("content-length", "5")), frames.frame(frames.DATA, 1, 1, framed(b"m"))),
    ("too little content", _block(("content-length", "9")), frames.frame(frames.DATA, 1, 1, framed(b"m"))),
    ("a window unchanged", PLAIN, frames.window_update(1, 0)),
    ("itself as its parent", PLAIN, frames.frame(frames.PRIORITY, 0, 1, b"\0\0\0\1\x10")),
    ("headers in the middle", PLAIN, frames.header_frames(1, frames.field(b"x", b"1"))),
    *(
        (f"trailers with {name!r}", PLAIN, frames.header_frames(1, frames.field(name, value), frames.END_STREAM))
        for name, value in ((b"transfer-encoding", b"chunked"), (b"connection", b"close"), (b"X-Name", b"1"))
    ),
    ("trailers with a path", PLAIN, frames.header_frames(1, frames.field(b":path", b"/"), frames.END_STREAM)),
]


@pytest.mark.parametrize(("block", "more"), [row[1:] for row in STREAM_FAULTS], ids=[row[0] for row in STREAM_FAULTS])
async def test_a_fault_of_a_request_resets_it_and_the_others_go_on(block: bytes, more: bytes) -> None:
    peer = _peer()
    peer.send(frames.header_frames(1, block) + more)
    resets = [frame for frame in peer.said if frame.kind == frames.RST_STREAM]
    assert [(frame.stream, frame.code) for frame in resets] == [(1, frames.PROTOCOL_ERROR)]
    peer.send(peer.call(3))
    assert answers(peer.said)[3].headers["grpc-status"] == "0"
    assert not peer.connection.streams


async def test_data_and_headers_after_the_end_are_answered_as_such() -> None:
    peer = Peer(holds=True)
    peer.greet()
    peer.send(peer.call(1))
    peer.send(frames.frame(frames.DATA, 0, 1, b"x"))
    assert peer.said[-1].code == frames.STREAM_CLOSED
    assert len(peer.held) == 1
    peer.held[0][0].finish(peer.echo(b""))  # the stream has ended already
    peer.send(peer.call(3) + frames.header_frames(3, PLAIN, frames.END_STREAM))
    assert peer.said[-1].code == frames.STREAM_CLOSED
    peer = _peer()
    peer.send(peer.call(1) + frames.header_frames(1, PLAIN, frames.END_STREAM))
    assert peer.given_up == frames.STREAM_CLOSED


FLOODS = {
    "pings": lambda number: frames.frame(frames.PING, 0, 0, bytes(8)),
    "settings": lambda number: frames.settings({}),
    "empty frames": lambda number: (OPEN if not number else b"") + frames.frame(frames.DATA, 0, 1),
    "priorities": lambda number: frames.frame(frames.PRIORITY, 0, 1, bytes(5)),
    "unknown frames": lambda number: frames.frame(77),
    "rapid resets": lambda number: frames.header_frames(2 * number + 1, PLAIN) + frames.reset(2 * number + 1, 8),
    "requests that are none": lambda number: frames.header_frames(2 * number + 1, b"\x88", frames.END_STREAM),
    "data of a stream that was reset": lambda number: (
        frames.header_frames(1, b"\x88") if not number else frames.frame(frames.DATA, 0, 1, b"x")
    ),
    "headers of a stream that was reset": lambda number: (
        frames.header_frames(1, b"\x88") if not number else frames.header_frames(1, PLAIN)
    ),
    "ends of a stream that was reset": lambda number: (
        frames.header_frames(1, b"\x88") if not number else 2 * frames.frame(frames.DATA, frames.END_STREAM, 1)
    ),
    "empty continuations": lambda number: (
        frames.frame(frames.CONTINUATION, 0, 1) if number else frames.frame(frames.HEADERS, 0, 1, PLAIN)
    ),
}


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_ends_the_connection(kind: str) -> None:
    peer = _peer(oddities_max=50)
    for number in range(60):
        peer.send(FLOODS[kind](number))
    assert peer.given_up == frames.ENHANCE_YOUR_CALM
    assert peer.transport.eof
    assert len(peer.transport.written) < 5_000


def _measured(peer: Peer, number: int) -> bytes:
    """Return a call, and what grpc-go sends for its answer."""
    ping = frames.frame(frames.PING, 0, 0, bytes(8))
    return peer.call(2 * number + 1) + frames.window_update(0, 5) + ping


async def test_a_client_that_pings_once_for_each_answer_is_no_flood() -> None:
    peer = _peer(updates_max=1_000)
    for number in range(1_100):
        peer.send(_measured(peer, number))
    assert peer.given_up is None
    assert len(peer.received) == 1_100


async def test_clients_of_one_address_that_ping_once_for_each_answer_are_read() -> None:
    peer = _peer(per_address_percent=50)
    for _ in range(4):
        for number in range(1_000):
            peer.send(_measured(peer, number))
        assert not peer.connection.held
        assert peer.given_up is None
        peer.connect()
        peer.greet()
    assert len(peer.received) == 4_000


async def test_requests_of_before_the_sweep_and_numbers_left_out_allow_no_pings() -> None:
    for later in (b"", _peer().call(1_000_001)):
        peer = _peer(oddities_max=50)
        for number in range(100):
            peer.send(peer.call(2 * number + 1))
        peer.connection.check(1.0)
        peer.send(later)
        peer.send(60 * frames.frame(frames.PING, 0, 0, bytes(8)))
        assert peer.given_up == frames.ENHANCE_YOUR_CALM


async def test_changes_of_a_window_are_bounded() -> None:
    peer = _peer(updates_max=50)
    peer.send(50 * frames.window_update(0, 1000))
    assert peer.given_up is None
    peer.send(frames.window_update(0, 1000))
    assert peer.given_up == frames.ENHANCE_YOUR_CALM


async def test_one_frame_with_very_many_settings_ends_the_connection() -> None:
    peer = _peer()
    one = frames.settings({frames.INITIAL_WINDOW_SIZE: 70_000})[frames.HEAD_BYTES :]
    peer.send(frames.frame(frames.SETTINGS, 0, 0, 64 * one))
    assert peer.given_up is None
    peer.send(frames.frame(frames.SETTINGS, 0, 0, 65 * one))
    assert peer.given_up == frames.ENHANCE_YOUR_CALM


async def test_the_last_data_of_many_refused_requests_is_not_counted() -> None:
    peer = _peer(oddities_max=50, streams_max=1)
    peer.send(OPEN)
    for number in range(1, 50):
        peer.send(peer.call(2 * number + 1))
    assert peer.given_up is None


async def test_a_long_read_ends_the_turn_and_the_next_turn_reads_on() -> None:
    peer = _peer()
    calls = b"".join(peer.call(2 * number + 1, bytes(100)) for number in range(200))
    assert len(calls) > TURN_BYTES
    peer.send(calls[: TURN_BYTES - 1])
    assert peer.transport.reading
    received = len(peer.received)
    peer.connection.data_received(calls[TURN_BYTES - 1 :] + frames.frame(frames.DATA, 0, 399, bytes(TURN_BYTES)))
    assert not peer.transport.reading
    assert received < len(peer.received) < 200
    while peer.connection._later:
        assert not peer.transport.reading
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(peer.received) == 200
    assert peer.transport.reading


async def test_a_new_turn_does_not_read_from_a_peer_that_reads_nothing() -> None:
    peer = _peer()
    peer.connection.data_received(frames.frame(77, 0, 0, bytes(8192)) * 2 + peer.call(1) + peer.call(3))
    peer.connection.pause_writing()
    await asyncio.sleep(0)
    assert not peer.transport.reading
    assert peer.received == []
    peer.connection.resume_writing()
    await asyncio.sleep(0)
    assert peer.transport.reading
    assert peer.received == [b"m", b"m"]


async def test_the_rest_of_a_read_goes_with_its_peer() -> None:
    peer = _peer()
    peer.connection.data_received(frames.frame(77, 0, 0, bytes(8192)) * 4 + peer.call(1))
    peer.connection.connection_lost(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert peer.received == []


async def test_the_count_begins_anew_with_each_sweep() -> None:
    peer = _peer(oddities_max=50, updates_max=50)
    for second in range(5):
        for _ in range(40):
            peer.send(frames.frame(frames.PING, 0, 0, bytes(8)) + frames.window_update(0, 1000))
        peer.connection.check(float(second))
    assert peer.given_up is None


async def test_a_block_of_headers_without_end_is_not_kept() -> None:
    peer = _peer()
    peer.send(frames.frame(frames.HEADERS, 0, 1, PLAIN))
    for _ in range(BLOCK_BYTES_MAX // frames.DEFAULT_FRAME_BYTES + 1):
        peer.send(frames.frame(frames.CONTINUATION, 0, 1, bytes(frames.DEFAULT_FRAME_BYTES)))
    assert peer.given_up == frames.ENHANCE_YOUR_CALM


async def test_headers_that_unfold_to_too_much_are_not_unfolded() -> None:
    peer = Peer()
    peer.greet(acknowledges=False)
    bomb = frames.field(b"x-large", b"v" * 3_900)
    peer.send(frames.header_frames(1, PLAIN + b"\x40" + bomb[1:] + b"\xbe" * 10_000))
    assert peer.given_up == frames.COMPRESSION_ERROR


async def test_headers_somewhat_too_large_are_refused_by_name() -> None:
    peer = _peer(header_list_bytes_max=1_000)
    peer.send(peer.call(1, block=PLAIN + frames.field(b"x-large", b"v" * 900)))
    found = answers(peer.said)[1]
    assert (found.headers["grpc-status"], found.headers["grpc-message"]) == (
        "8",
        "metadata: at most 1000 bytes are read.",
    )


async def test_more_requests_at_once_than_allowed_are_refused_unread() -> None:
    peer = Peer(Limits(streams_max=2), holds=True)
    peer.greet()
    peer.send(peer.call(1) + peer.call(3) + peer.call(5))
    assert [(frame.stream, frame.code) for frame in peer.said if frame.kind == frames.RST_STREAM] == [
        (5, frames.REFUSED_STREAM)
    ]
    assert len(peer.held) == 2


async def test_calls_beyond_the_bound_are_refused_also_when_their_callers_have_gone() -> None:
    peer = Peer(calls_max=2, holds=True)
    peer.greet()
    peer.send(peer.call(1) + peer.call(3) + frames.reset(1, 8) + frames.reset(3, 8) + peer.call(5))
    assert answers(peer.said)[5].headers["grpc-status"] == "8"
    for call, message in peer.held:
        call.finish(peer.echo(message))
    peer.holds = False
    peer.send(peer.call(7))
    assert answers(peer.said)[7].headers["grpc-status"] == "0"
    assert peer.services.calls == 0


async def test_more_than_the_window_is_not_kept() -> None:
    peer = _peer()
    peer.send(OPEN + frames.frame(frames.DATA, 0, 1, (90_000).to_bytes(5, "big")[-5:] + bytes(10_000)))
    said = peer.said
    granted = sum(
        int.from_bytes(frame.payload, "big") for frame in said if frame.kind == frames.WINDOW_UPDATE and frame.stream
    )
    assert granted == 90_005 - frames.DEFAULT_WINDOW
    for _ in range(8):
        peer.send(frames.frame(frames.DATA, 0, 1, bytes(10_000)))
    peer.send(frames.frame(frames.DATA, 0, 1, bytes(6)))
    assert peer.said[-1].code == frames.FLOW_CONTROL_ERROR


async def test_who_does_not_read_is_not_read_from_and_then_cut_off() -> None:
    peer = _peer(write_s=5.0)
    peer.connection.pause_writing()
    assert not peer.transport.reading
    peer.connection.check(4.0)
    peer.connection.resume_writing()
    assert (peer.transport.reading, peer.transport.aborted) == (True, False)
    peer.connection.pause_writing()
    peer.connection.check(6.0)
    assert peer.transport.aborted


async def test_who_opens_no_window_is_cut_off() -> None:
    peer = Peer(Limits(write_s=5.0))
    peer.greet((frames.INITIAL_WINDOW_SIZE, 0))
    peer.send(peer.call(1))
    peer.connection.check(4.0)
    assert not peer.transport.aborted
    peer.connection.check(6.0)
    assert peer.transport.aborted


async def test_a_request_that_does_not_become_whole_is_ended() -> None:
    peer = _peer(request_s=5.0, idle_s=75.0)
    peer.send(OPEN + frames.frame(frames.DATA, 0, 1, b"\0\0"))
    peer.connection.check(6.0)
    said = peer.said
    assert answers(said)[1].headers["grpc-status"] == "1"
    assert said[-1].code == frames.NO_ERROR


async def test_who_says_nothing_is_let_go() -> None:
    peer = Peer(Limits(handshake_s=5.0))
    peer.connection.check(6.0)
    assert peer.transport.aborted
    idle = _peer(idle_s=5.0, linger_s=2.0)
    idle.connection.check(6.0)
    assert idle.given_up == frames.NO_ERROR
    assert idle.transport.eof
    idle.connection.check(9.0)
    assert idle.transport.aborted


async def test_a_peer_that_is_silent_while_it_waits_is_asked_whether_it_lives() -> None:
    peer = Peer(Limits(idle_s=5.0), holds=True)
    peer.greet()
    peer.send(peer.call(1))
    peer.connection.check(6.0)
    assert [frame.kind for frame in peer.said if frame.kind == frames.PING]
    peer.port.now_s = 6.0
    peer.send(frames.frame(frames.PING, frames.ACK, 0, b"twophase"))
    peer.connection.check(10.0)
    assert not peer.transport.aborted
    peer.connection.check(12.0)
    peer.connection.check(17.0)
    assert peer.transport.aborted
