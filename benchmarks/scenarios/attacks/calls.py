"""Attacks by the calls that the server makes for a hostile client's messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from benchmarks.scenarios.attacks.client import ADDRESS, PIECE, Victim, produce

_SILENT_PORTS: Final = 9
_ANSWERING_PORTS: Final = 40
_CHECKED_PORTS: Final = 40
_LARGE_FOR_PORTS: Final = 300
_LARGE_BYTES: Final = 512 * 1024
_LONG_ANSWERS: Final = 4
_PATIENCE_S: Final = 600
_ANSWER_BYTES: Final = 1024 * 1024
_DRIP_S: Final = 0.25
_HOSTS: Final = 250

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def _origins(number: int, serve: Serve) -> AsyncIterator[list[str]]:
    """Listen on as many ports of the hostile client; yield their origins.

    They are closed at the end of the block.
    """

    taken: set[asyncio.StreamWriter] = set()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.add(writer)
        with contextlib.suppress(OSError, EOFError):  # the server has given the call up
            await serve(reader, writer)
        writer.close()
        taken.discard(writer)

    servers = [await asyncio.start_server(take, ADDRESS, 0) for _ in range(number)]
    try:
        yield [f"http://{ADDRESS}:{server.sockets[0].getsockname()[1]}" for server in servers]
    finally:
        for server in servers:
            server.close()
        for writer in taken:
            writer.transport.abort()


async def _never_answer(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    while await reader.read(PIECE):
        pass


async def _never_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a call by a body that is long and lacks its end."""
    await reader.read(PIECE)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % _ANSWER_BYTES + bytes(_ANSWER_BYTES - 1))
    await writer.drain()
    await _never_answer(reader, writer)


async def _drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a call by four bytes a second."""
    await reader.read(PIECE)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % _ANSWER_BYTES)
    while not reader.at_eof():
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(_DRIP_S)


def _branch(url: str, timeout_s: int = _PATIENCE_S) -> dict[str, Any]:
    """Return the fields of a message with one branch."""
    return {"steps": [{"action": url}], "payloads": ["{}"], "request_timeout": timeout_s}


@contextlib.asynccontextmanager
async def answering_receiver() -> AsyncIterator[str]:
    """Yield the address of a receiver that takes every call at once."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            await reader.readexactly(int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    async with _origins(1, answer) as (origin,):
        yield f"{origin}/in"


async def silent_receivers(victim: Victim) -> None:
    """Submit messages to nine receivers that take every call and never answer."""
    async with _origins(_SILENT_PORTS, _never_answer) as origins:
        await produce(victim, "submit", lambda number: _branch(f"{origins[number % _SILENT_PORTS]}/in"))


async def large_messages_for_silent_receivers(victim: Victim) -> None:
    """Submit messages of half a MiB to 300 receivers that never answer."""
    large = {"payloads": ["x" * _LARGE_BYTES]}
    async with _origins(_LARGE_FOR_PORTS, _never_answer) as origins:
        await produce(victim, "submit", lambda number: _branch(f"{origins[number % _LARGE_FOR_PORTS]}/in") | large)


async def four_receivers_of_long_answers(victim: Victim) -> None:
    """Submit messages to four receivers, whose answers of 1 MiB never end."""
    async with _origins(_LONG_ANSWERS, _never_end) as origins:
        await produce(victim, "submit", lambda number: _branch(f"{origins[number % _LONG_ANSWERS]}/in"))


async def answers_without_end(victim: Victim) -> None:
    """Submit messages to forty receivers that answer 1 MiB without its end."""
    async with _origins(_ANSWERING_PORTS, _never_end) as origins:
        await produce(victim, "submit", lambda number: _branch(f"{origins[number % _ANSWERING_PORTS]}/in"))


async def silent_check_addresses(victim: Victim) -> None:
    """Prepare messages with forty check addresses that never answer."""
    fields = {"steps": [], "payloads": [], "timeout_to_fail": 1, "request_timeout": _PATIENCE_S}
    async with _origins(_CHECKED_PORTS, _never_answer) as origins:
        await produce(
            victim, "prepare", lambda number: fields | {"query_prepared": f"{origins[number % _CHECKED_PORTS]}/check"}
        )


async def unknown_names(victim: Victim) -> None:
    """Submit messages to names that do not resolve, each of a domain of its own."""
    await produce(victim, "submit", lambda number: _branch(f"http://bank.of-{number}.invalid/in"))


async def dripping_receivers(victim: Victim) -> None:
    """Submit messages to forty receivers that answer four bytes a second."""
    async with _origins(_ANSWERING_PORTS, _drip) as origins:
        await produce(victim, "submit", lambda number: _branch(f"{origins[number % _ANSWERING_PORTS]}/in"))


async def refusing_receivers(victim: Victim) -> None:
    """Submit messages to ever new receivers that refuse connections.

    Each is something to log and to count.
    """

    def receiver(number: int) -> str:
        return f"http://127.1.{number // _HOSTS % _HOSTS}.{number % _HOSTS + 1}:9/in-{number}"

    await produce(victim, "submit", lambda number: _branch(receiver(number)))
