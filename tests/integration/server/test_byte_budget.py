"""Unfinished requests and answers of all connections together are bounded.

Others go on meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import json
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.integration.grpc_server.served import serving
from tests.integration.server.running import running
from tests.support.fake_coordinator import Client, get, listening, post, prepare
from tests.support.waiting import until
from tests.unit.grpc_server.http2.peer import PLAIN
from twophase.grpc_server.http2 import frames
from twophase.grpc_server.http2.limits import Limits
from twophase.http_client.byte_budget import FREE_BYTES, MEBIBYTE, NO_ROOM, ByteBudget
from twophase.http_client.client import HttpClient
from twophase.http_client.outcome import HttpError, HttpErrorKind
from twophase.server.http_port.connection import Connection

_PATIENCE_S = 60.0


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_one_address_keeps_its_share_and_whole_requests_pass() -> None:
    budget = ByteBudget(64 * MEBIBYTE)
    largest = 0
    async with listening(per_address_percent=25, budget=budget) as wire:
        hoarders = [await wire.connect() for _ in range(8)]
        for client in hoarders:
            client.writer.write(post("/api/dtmsvr/prepare", bytes(4 * MEBIBYTE))[:-1000])
        answers = [asyncio.create_task(client.response()) for client in hoarders]
        async with asyncio.timeout(_PATIENCE_S):
            while sum(answer.done() for answer in answers) < 4:
                largest = max(largest, budget.used)
                await asyncio.sleep(0)
        assert 8 * MEBIBYTE < largest <= 16 * MEBIBYTE
        for answer in answers:
            if answer.done():
                assert answer.result().status == 503
                assert json.loads(answer.result().body)["code"] == "TP-3001"
            answer.cancel()
        assert (await (await wire.connect()).ask(prepare("whole"))).status == 200
        other = Client(*await asyncio.open_connection("127.0.0.1", wire.port, local_addr=("127.0.0.2", 0)))
        assert (await other.ask(post("/api/dtmsvr/prepare", bytes(4 * MEBIBYTE)))).status == 400
        await _closed(other.writer)
        for client in hoarders:
            await _closed(client.writer)
        await until(lambda: wire.listener.connections <= 1)
        assert budget.used == 0


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "unfinished"])
async def test_a_request_that_waits_behind_another_counts_until_it_is_answered(*, whole: bool) -> None:
    budget = ByteBudget(64 * MEBIBYTE)
    async with listening(per_address_percent=25, budget=budget) as wire:
        wire.coordinator.holds = True
        clients = [await wire.connect() for _ in range(8)]
        for number, client in enumerate(clients):
            behind = post("/api/ping", bytes(4 * MEBIBYTE - 1000))
            client.writer.write(prepare(f"g{number}") + (behind if whole else behind[:-1]))
        codes: list[str] = []
        wire.listener.port.refused = codes.append
        await until(lambda: len(codes) == 4 and 0 < 16 * MEBIBYTE - budget.used < 4_000 + 4 * FREE_BYTES)
        for number in range(8):
            wire.coordinator.release(f"g{number}")
        if not whole:
            for client in clients:
                client.writer.write(b"\0")
        answers = [[one.status for one in await client.responses(2)] for client in clients]
        assert sorted(answers) == [[200, 200]] * 4 + [[200, 503]] * 4
        await until(lambda: not budget.used)


async def test_the_heads_of_requests_that_wait_count_too() -> None:
    budget = ByteBudget(64 * MEBIBYTE)
    ping = get("/api/ping", *(f"x-{number}: 1" for number in range(1_000)))
    async with listening(budget=budget) as wire:
        wire.coordinator.holds = True
        client = await wire.connect()
        client.writer.write(prepare("g") + ping * 20)
        await until(lambda: budget.used > 20 * len(ping) - FREE_BYTES)
        wire.coordinator.release("g")
        assert {one.status for one in await client.responses(21)} == {200}
        await until(lambda: budget.used == 0)
        assert (await client.ask(ping)).status == 200
        await until(lambda: budget.used == 0)


@pytest.mark.parametrize("part", ["head", "body", "trailers"])
async def test_the_head_of_an_unfinished_request_counts_with_its_headers(part: str) -> None:
    budget = ByteBudget(64 * MEBIBYTE)
    headers = [f"x{number}:1" for number in range(6_000)]
    request = post("/api/dtmsvr/prepare", b"[]", *headers)
    sent, begun = request[: request.index(b"\r\n\r\n")] if part == "head" else request[:-1], b""
    if part == "trailers":
        request = post("/api/dtmsvr/prepare", b"", "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"")
        begun = request + b"2\r\n[]\r\n"
        sent = begun + b"0\r\n" + "\r\n".join(headers).encode()
        request = sent + b"\r\n\r\n"
    async with listening(per_address_percent=25, budget=budget) as wire:
        clients = [await wire.connect() for _ in range(4)]
        for client in clients:
            client.writer.write(begun)
        connections = wire.listener.port.state.connections
        await until(lambda: not begun or sum(isinstance(one, Connection) and one.reading for one in connections) == 8)
        for client in clients:
            client.writer.write(sent[len(begun) :])
        await until(lambda: budget.used > 4 * 6_000 * 192)
        for client in clients:
            client.writer.write(request[len(sent) :])
            assert (await client.response()).status == 400
        assert budget.used == 0
        hoarders = [await wire.connect() for _ in range(16)]
        for client in hoarders:
            client.writer.write(sent)
        await until(lambda: wire.listener.connections < 20)
        assert budget.used <= 16 * MEBIBYTE
    assert budget.used == 0


async def test_the_head_of_a_request_under_way_counts_until_it_is_answered() -> None:
    budget = ByteBudget(64 * MEBIBYTE)
    query = get("/api/dtmsvr/query?gid=g", *(f"x{number}:1" for number in range(6_000)))
    async with listening(budget=budget) as wire:
        wire.coordinator.query_waits = asyncio.Event()
        client = await wire.connect()
        client.writer.write(query)
        await until(lambda: budget.used > 6_000 * 192)
        wire.coordinator.query_waits.set()
        assert (await client.response()).status == 200
        await until(lambda: budget.used == 0)


async def test_a_client_that_leaves_gives_back_what_its_waiting_requests_kept() -> None:
    budget = ByteBudget(64 * MEBIBYTE)
    async with listening(budget=budget) as wire:
        wire.coordinator.holds = True
        client = await wire.connect()
        client.writer.write(prepare("g") + post("/api/ping", bytes(40_000)) + get("/api/ping"))
        await until(lambda: budget.used > 40_000 - FREE_BYTES)
        client.reset()
        await until(lambda: not budget.used)


async def test_a_request_in_pieces_gives_back_what_it_kept() -> None:
    budget = ByteBudget()
    async with listening(budget=budget) as wire:
        client = await wire.connect()
        request = post("/api/ping", bytes(40_000))
        await client.send(request[:-10])
        await until(lambda: budget.used)
        assert (await client.ask(request[-10:])).status == 200
        await until(lambda: budget.used == 0)  # the answer may be read before the server's turn ends


@pytest.mark.parametrize("streams", [False, True])
async def test_a_grpc_message_beyond_the_budget_is_refused(*, streams: bool) -> None:
    budget = ByteBudget(2 * MEBIBYTE)
    async with serving(budget=budget) as served, grpc.aio.insecure_channel(served.address) as channel:

        async def echoed(size: int) -> int:
            if not streams:
                ask: Any = channel.unary_unary("/s/Echo")
                return len(await ask(bytes(size), timeout=_PATIENCE_S))
            chat: Any = channel.stream_stream("/s/Chat")
            return sum([len(answer) async for answer in chat(iter([bytes(size)]), timeout=_PATIENCE_S)])

        assert await echoed(MEBIBYTE) == MEBIBYTE
        assert budget.used == 0
        others = budget.account("others", share_percent=100)
        assert others.keep(2 * MEBIBYTE - 1000)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await echoed(MEBIBYTE)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert caught.value.details() == NO_ROOM
        assert await echoed(500) == 500
        others.release()
        await until(lambda: budget.used == 0)


def _hello_without_window(path: bytes) -> bytes:
    """Return the beginning of a compressed stream whose answers are not taken."""
    block = PLAIN.replace(b"\x07/s/Echo", bytes((len(path),)) + path) + frames.field(b"grpc-encoding", b"gzip")
    return frames.PREFACE + frames.settings({frames.INITIAL_WINDOW_SIZE: 0}) + frames.header_frames(1, block)


def _keeps(budget: ByteBudget, size: int) -> bool:
    return budget.used >= size


def _compressed(size: int) -> bytes:
    content = gzip.compress(bytes(size), mtime=0)
    return b"\1" + len(content).to_bytes(4, "big") + content


async def test_compressed_messages_of_a_stream_count_as_what_they_become() -> None:
    """The first is with the method until the second is asked for; the others wait."""
    budget = ByteBudget(32 * MEBIBYTE)
    async with serving(budget=budget) as served:
        host, _, port = served.address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(_hello_without_window(b"/s/Chat"))
        for number in range(1, 8):
            writer.write(frames.frame(frames.DATA, 0, 1, _compressed(MEBIBYTE)))
            await until(partial(_keeps, budget, number * MEBIBYTE - FREE_BYTES))
        for _ in range(9):
            writer.write(frames.frame(frames.DATA, 0, 1, _compressed(4 * MEBIBYTE)))
        await until(lambda: budget.used <= MEBIBYTE)
        writer.write(frames.settings({frames.INITIAL_WINDOW_SIZE: 1 << 30}) + frames.window_update(0, 1 << 30))
        async with asyncio.timeout(_PATIENCE_S):
            received = b""
            while NO_ROOM.encode() not in received:
                received = received[-1000:] + await reader.read(1 << 16)
        await until(lambda: budget.used == 0)
        await _closed(writer)


async def test_a_stream_that_was_cut_holds_no_message() -> None:
    """It is garbage in a cycle, which the collector may not look at for long."""
    budget = ByteBudget(32 * MEBIBYTE)
    async with serving(budget=budget) as served:
        host, _, port = served.address.partition(":")
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(3):
                _, writer = await asyncio.open_connection(host, int(port))
                writer.write(_hello_without_window(b"/s/Chat"))
                for number in range(1, 6):
                    writer.write(frames.frame(frames.DATA, 0, 1, _compressed(MEBIBYTE)))
                    await until(partial(_keeps, budget, number * MEBIBYTE - FREE_BYTES))
                writer.transport.abort()
                await until(lambda: budget.used == 0)
                await asyncio.sleep(0)
            assert tracemalloc.get_traced_memory()[0] < 4 * MEBIBYTE
        finally:
            tracemalloc.stop()
            gc.enable()


async def test_a_message_of_health_and_reflection_is_short(tmp_path: Path) -> None:
    """They need no token, and keep a message for as long as the client likes."""
    async with running(tmp_path, grpc_port=0) as one:
        target = one.server.urls[1].removeprefix("grpc://")
        async with grpc.aio.insecure_channel(target) as channel:
            check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
            watch: Any = channel.stream_stream("/grpc.health.v1.Health/Watch")
            reflect: Any = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")

            async def code_of(message: bytes) -> list[str]:
                calls = [check(message, timeout=_PATIENCE_S)]
                calls += [ask(iter([message]), timeout=_PATIENCE_S) for ask in (watch, reflect)]
                return [(await call.code()).name for call in calls]

            assert await code_of(b"\xff" * 1_000) == ["INVALID_ARGUMENT"] * 3
            assert await code_of(b"\xff" * 20_000) == ["RESOURCE_EXHAUSTED"] * 3


async def test_one_address_holds_its_share_of_the_grpc_connections() -> None:
    greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    async with serving(Limits(connections_max=4, per_address_percent=25)) as served:
        host, _, port = served.address.partition(":")

        async def greeted(address: str) -> asyncio.StreamWriter | None:
            reader, writer = await asyncio.open_connection(host, port, local_addr=(address, 0))
            writer.write(greeting)
            async with asyncio.timeout(_PATIENCE_S):
                with contextlib.suppress(ConnectionError):
                    if await reader.read(9):
                        return writer
            await _closed(writer)
            return None

        first = await greeted("127.0.0.1")
        assert first is not None
        assert await greeted("127.0.0.1") is None
        other = await greeted("127.0.0.2")
        assert other is not None
        await _closed(first)
        async with asyncio.timeout(_PATIENCE_S):
            while (again := await greeted("127.0.0.1")) is None:
                await asyncio.sleep(0)
        await _closed(again)
        await _closed(other)


async def test_an_answer_beyond_the_budget_is_none_and_the_next_call_goes_on() -> None:
    long = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = MEBIBYTE if b"/long" in head else 2 * FREE_BYTES
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size - 1))
        if size == 2 * FREE_BYTES:
            await long.wait()
        writer.write(b"x")
        await _closed(writer)

    budget = ByteBudget(MEBIBYTE // 2)
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client = HttpClient(response_bytes_max=4 * MEBIBYTE, budget=budget)
    short = asyncio.create_task(client.fetch("GET", f"{url}/short", timeout_ms=30_000))
    await until(lambda: budget.used)
    with pytest.raises(HttpError) as caught:
        await client.fetch("GET", f"{url}/long", timeout_ms=30_000)
    assert caught.value.kind is HttpErrorKind.NO_ROOM
    long.set()
    assert (await short).body == bytes(2 * FREE_BYTES - 1) + b"x"
    await client.close()
    assert budget.used == 0
    server.close()
