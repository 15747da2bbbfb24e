"""Attacks by the calls that the server makes for a hostile client's messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from benchmarks.scenarios.attacks.client import ADDRESS, PIECE, produce

_SILENT_PORTS: Final = 9
_ANSWERING_PORTS: Final = 40
_CHECKED_PORTS: Final = 40
_PATIENCE_S: Final = 600
_ANSWER_BYTES: Final = 1024 * 1024

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _origins(number: int, serve: Serve) -> list[str]:
    """Listen on as many ports of the hostile client; return their origins."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):  # the server has given the call up
            await serve(reader, writer)
        writer.close()

    servers = [await asyncio.start_server(take, ADDRESS, 0) for _ in range(number)]
    return [f"http://{ADDRESS}:{server.sockets[0].getsockname()[1]}" for server in servers]


async def _never_answer(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    while await reader.read(PIECE):
        pass


async def _never_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a call by a body that is long and lacks its end."""
    await reader.read(PIECE)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % _ANSWER_BYTES + bytes(_ANSWER_BYTES - 1))
    await writer.drain()
    await _never_answer(reader, writer)


def _branch(url: str, timeout_s: int = _PATIENCE_S) -> dict[str, Any]:
    """Return the fields of a message with one branch."""
    return {"steps": [{"action": url}], "payloads": ["{}"], "request_timeout": timeout_s}


async def silent_receivers(http: int, _grpc: int) -> None:
    """Submit messages to nine receivers that take every call and never answer."""
    origins = await _origins(_SILENT_PORTS, _never_answer)
    await produce(http, "submit", lambda number: _branch(f"{origins[number % _SILENT_PORTS]}/in"))


async def answers_without_end(http: int, _grpc: int) -> None:
    """Submit messages to forty receivers that answer 1 MiB without its end."""
    origins = await _origins(_ANSWERING_PORTS, _never_end)
    await produce(http, "submit", lambda number: _branch(f"{origins[number % _ANSWERING_PORTS]}/in"))


async def silent_check_addresses(http: int, _grpc: int) -> None:
    """Prepare messages with forty check addresses that never answer."""
    origins = await _origins(_CHECKED_PORTS, _never_answer)
    fields = {"steps": [], "payloads": [], "timeout_to_fail": 1, "request_timeout": _PATIENCE_S}
    await produce(
        http, "prepare", lambda number: fields | {"query_prepared": f"{origins[number % _CHECKED_PORTS]}/check"}
    )


async def unknown_names(http: int, _grpc: int) -> None:
    """Submit messages to names that do not resolve, each of a domain of its own."""
    await produce(http, "submit", lambda number: _branch(f"http://bank.of-{number}.invalid/in"))
