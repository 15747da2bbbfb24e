"""grpcio's clients against the port.

The tests cover unary calls, streams, metadata, deadlines, cancellation, compression and long messages.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.integration.grpc_server.served import MESSAGE_BYTES_MAX, Served, serving
from tests.support.waiting import until
from twophase.grpc_server.http2.control import Control
from twophase.grpc_server.http2.frames import ACK, DEFAULT_WINDOW, PING
from twophase.grpc_server.http2.limits import Limits

Code = grpc.StatusCode


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as one:
        yield one
        assert one.crashes == [] or [str(error) for error in one.crashes] == ["secret"]


@pytest.fixture
async def channel(served: Served) -> AsyncIterator[grpc.aio.Channel]:
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(served.address, options) as one:
        yield one


def unary(channel: grpc.aio.Channel, name: str = "Echo") -> Any:
    return channel.unary_unary(f"/s/{name}")


async def test_metadata_goes_both_ways(served: Served, channel: grpc.aio.Channel) -> None:
    sent = (("x-text", "a b"), ("x-data-bin", b"\xff\x00\x01"))
    for _ in range(3):  # the third block is one that is remembered
        call = unary(channel)(b"m", metadata=sent, timeout=20)
        assert await call == b"m"
        assert ("x-size", "1") in tuple(await call.trailing_metadata())
    for metadata in served.metadata:
        assert {pair for pair in metadata if pair[0].startswith("x-")} == set(sent)


async def test_a_refusal_has_its_code_text_and_metadata(channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await unary(channel)(b"refuse", timeout=20)
    said = caught.value
    assert (said.code(), said.details()) == (Code.ABORTED, "größer, 100 %")
    assert {("x-why", "because"), ("x-data-bin", b"\xff\x00")} <= set(said.trailing_metadata())


async def test_many_calls_at_once_are_answered_each_with_its_own(channel: grpc.aio.Channel) -> None:
    messages = [b"%d" % number for number in range(2_000)]
    assert await asyncio.gather(*(unary(channel)(one, timeout=20) for one in messages)) == messages


@pytest.mark.parametrize(
    "compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate]
)
async def test_long_messages_arrive_whole(channel: grpc.aio.Channel, compression: grpc.Compression) -> None:
    messages = [
        bytes((number,)) * size for number, size in enumerate((0, 1, 65_530, 65_531, 1 << 20, MESSAGE_BYTES_MAX))
    ]
    calls = [unary(channel)(one, timeout=20, compression=compression) for one in messages]
    assert await asyncio.gather(*calls) == messages


async def test_a_bomb_is_refused_and_the_connection_goes_on(channel: grpc.aio.Channel) -> None:
    for compression in (grpc.Compression.Gzip, grpc.Compression.NoCompression):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unary(channel)(bytes(30 << 20), timeout=20, compression=compression)
        assert caught.value.code() is Code.RESOURCE_EXHAUSTED
        assert await unary(channel)(b"on", timeout=20) == b"on"


async def test_a_coroutine_answers_refuses_and_crashes_in_words(channel: grpc.aio.Channel) -> None:
    assert await unary(channel, "Later")(b"abc", timeout=20) == b"cba"
    for message, code, text in ((b"end", Code.NOT_FOUND, "no such thing"), (b"crash", Code.UNKNOWN, "our own fault.")):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unary(channel, "Later")(message, timeout=20)
        assert (caught.value.code(), caught.value.details()) == (code, text)


async def test_a_caller_that_goes_cancels_the_coroutine(served: Served, channel: grpc.aio.Channel) -> None:
    call = unary(channel, "Later")(b"wait", timeout=20)
    await until(lambda: served.services.calls == 1)
    call.cancel()
    await until(lambda: served.services.calls == 0)
    assert served.ended == ["cancelled"]


async def test_a_deadline_ends_the_call(served: Served, channel: grpc.aio.Channel) -> None:
    assert await unary(channel)(b"m", timeout=20) == b"m"  # the connection stands: only the call's own time is left
    calls = [unary(channel, name)(message, timeout=4) for name, message in (("Later", b"wait"), ("Echo", b"never"))]
    for call in calls:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is Code.DEADLINE_EXCEEDED
    # The call by callback was never answered.
    await until(lambda: (served.services.calls, served.unanswered) == (1, 1))


async def test_a_stream_goes_both_ways_message_by_message(served: Served, channel: grpc.aio.Channel) -> None:
    chat: Any = channel.stream_stream("/s/Chat")(timeout=20)
    for message in (b"one", b"", b"x" * 200_000, b"four"):
        await chat.write(message)
        assert await chat.read() == message
    await chat.done_writing()
    assert await chat.read() is grpc.aio.EOF
    assert await chat.code() is Code.OK
    assert served.ended == ["to its end"]


async def test_a_stream_that_crashes_or_is_left_ends(served: Served, channel: grpc.aio.Channel) -> None:
    chat: Any = channel.stream_stream("/s/Chat")(timeout=20)
    await chat.write(b"crash")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await chat.read()
    assert (caught.value.code(), caught.value.details()) == (Code.UNKNOWN, "our own fault.")
    left: Any = channel.stream_stream("/s/Chat")(timeout=20)
    await left.write(b"one")
    assert await left.read() == b"one"
    left.cancel()
    await until(lambda: not served.services.streams)
    assert served.ended == ["cancelled"]


def streaming_call(served: Served) -> Any:
    (call,) = served.services.streams
    return call


async def test_what_is_sent_waits_for_who_reads(served: Served, channel: grpc.aio.Channel) -> None:
    count: Any = channel.unary_stream("/s/Count")
    slow = count(b"400 100000", timeout=20)
    assert (await slow.read())[:1] == b"0"
    call = streaming_call(served)
    outbox, before = call.connection.outbox, -1
    while before != served.sent:  # the client may widen its window once or twice, as it learns about the connection
        await until(lambda: call.debt >= outbox.initial)
        before = served.sent
        for _ in range(20):  # everything else that the client may send comes with these, on the same connection
            await unary(channel)(b"m", timeout=20)
    assert (call.debt >= outbox.initial, outbox.waits) == (True, True)
    assert 0 < served.sent < 400
    for index in range(1, 400):
        assert (await slow.read()).startswith(b"%d\0" % index)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await slow.read()
    assert (caught.value.code(), caught.value.details()) == (Code.OUT_OF_RANGE, "that was all")
    assert ("x-count", "400") in tuple(await slow.trailing_metadata())


async def test_who_is_not_read_waits(served: Served, channel: grpc.aio.Channel) -> None:
    """The server takes no more than a window from a stream that no handler reads."""
    silent: Any = channel.stream_stream("/s/Count")(timeout=20)
    await silent.write(b"1000000 100000")
    writing = asyncio.ensure_future(_write_for_ever(silent))
    await until(lambda: served.sent > 0)
    call = streaming_call(served)
    await until(lambda: call.window == 0)
    for _ in range(20):  # everything else that the client may send comes with these, on the same connection
        await unary(channel)(b"m", timeout=20)
    assert (call.window, call._unread <= DEFAULT_WINDOW) == (0, True)
    writing.cancel()
    silent.cancel()
    await until(lambda: not served.services.streams)


async def _write_for_ever(call: Any) -> None:
    while True:
        await call.write(bytes(10_000))


async def test_keepalive_pings_are_answered(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    pings: list[bytes] = []
    take_other = Control.take_other

    def count(self: Control, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == PING and not flags & ACK:
            pings.append(payload)
        take_other(self, kind, flags, stream, payload)

    monkeypatch.setattr(Control, "take_other", count)
    options = [
        ("grpc.keepalive_time_ms", 50),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.bdp_probe", 0),
    ]
    async with grpc.aio.insecure_channel(served.address, options) as channel:
        call = unary(channel, "Later")(b"wait", timeout=20)
        await until(lambda: len(pings) >= 2)  # the next one comes when the last was answered
        served.hold.set()
        assert await call == b"tiaw"


async def test_going_away_ends_what_is_under_way_and_takes_no_more(served: Served, channel: grpc.aio.Channel) -> None:
    call = unary(channel, "Later")(b"wait", timeout=20)
    await until(lambda: served.services.calls == 1)
    served.port.leave()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await unary(channel)(b"m", timeout=20)
    assert caught.value.code() is Code.UNAVAILABLE
    served.hold.set()
    assert await call == b"tiaw"
    assert await served.port.closed(20)


async def test_who_is_turned_away_comes_back_later() -> None:
    async with serving(Limits(connections_max=1)) as served:
        apart = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(served.address, apart) as first:
            assert await unary(first)(b"m", timeout=20) == b"m"
            async with grpc.aio.insecure_channel(served.address, apart) as second:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await unary(second)(b"m", timeout=20)
                assert caught.value.code() is Code.UNAVAILABLE
                await first.close()
                assert await unary(second)(b"m", timeout=20, wait_for_ready=True) == b"m"


async def test_the_clients_with_threads_are_served_too(served: Served) -> None:
    answers: list[bytes] = []

    def ask(channel: grpc.Channel, number: int) -> None:
        call: Any = channel.unary_unary("/s/Echo")
        answers.extend(call(b"%d-%d" % (number, index), timeout=20) for index in range(50))

    def main() -> None:
        with grpc.insecure_channel(served.address) as channel:
            threads = [threading.Thread(target=ask, args=(channel, number)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    await asyncio.to_thread(main)
    assert sorted(answers) == sorted(b"%d-%d" % (number, index) for number in range(8) for index in range(50))


async def test_grpcio_keeps_no_table_when_asked(served: Served, channel: grpc.aio.Channel) -> None:
    """Without a table the client's headers are cheap to read.

    After the first calls each block is one that is remembered.
    """
    for _ in range(5):
        await unary(channel)(b"m")
    known = served.port.known
    before = len(known.without_table)
    assert before
    for _ in range(20):
        await unary(channel)(b"m")
    assert len(known.without_table) == before
