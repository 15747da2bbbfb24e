"""The replay of the recorded requests, in their order, on one fresh server.

It notes where the server answers otherwise. For an answer that took dtm seconds it polls and does not sleep: a query
whose answer still changes is repeated until the answer is the recorded one, or time is up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from tests.support.fake_coordinator import Response
from tests.support.server_process import ServerProcess
from tests.wire.comparing import deviations
from tests.wire.sink import Sink
from tests.wire.transcripts import SinkCall, Vector

_PATIENCE_S: Final = 60.0
_HASTE_S: Final = 0.3
_AGAIN_S: Final = 0.05


class Outcome(msgspec.Struct, frozen=True):
    """The result of one request.

    `deviations` are sentences; empty when it is as recorded.
    """

    name: str
    status: int
    body: str
    deviations: tuple[str, ...]


async def replay(
    server: ServerProcess, sink: Sink, vectors: Sequence[Vector], is_known_to_differ: Callable[[str], bool]
) -> list[Outcome]:
    """Return every vector's outcome.

    Queries that are known to differ are not repeated for long.
    """
    outcomes: list[Outcome] = []
    cursors: dict[str, str] = {}
    for vector in vectors:
        patience_s = _HASTE_S if is_known_to_differ(vector.name) else _PATIENCE_S
        outcome = await _replayed(server, sink, _with_our_cursor(vector, cursors), patience_s)
        outcomes.append(outcome)
        if vector.request.path.startswith("/api/dtmsvr/all"):
            cursors[_cursor(vector.response.body)] = _cursor(outcome.body)
    return outcomes


def _with_our_cursor(vector: Vector, cursors: dict[str, str]) -> Vector:
    """Continue a page where twophase's own page ended."""
    path, mark, position = vector.request.path.partition("position=")
    if not mark or position not in cursors:
        return vector
    asked = msgspec.structs.replace(vector.request, path=f"{path}{mark}{quote(cursors[position])}")
    return msgspec.structs.replace(vector, request=asked)


def _cursor(body: str) -> str:
    found = msgspec.json.decode(body)
    return str(found.get("next_position", "")) if isinstance(found, dict) else ""


async def _replayed(server: ServerProcess, sink: Sink, vector: Vector, patience_s: float) -> Outcome:
    deadline_s = time.monotonic() + patience_s
    while True:
        response = await _ask(server, vector)
        outcome = _outcome(vector, response)
        is_question = vector.request.method == "GET" and vector.request.path.startswith("/api/dtmsvr/query?")
        if not outcome.deviations or not is_question or time.monotonic() > deadline_s:
            break
        await asyncio.sleep(_AGAIN_S)
    missing = [call for call in vector.sink_calls or () if not await _has_come(sink, call, patience_s)]
    said = tuple(f"{call.method} {call.path} with {call.body!r} did not come" for call in missing)
    return msgspec.structs.replace(outcome, deviations=outcome.deviations + said)


async def _ask(server: ServerProcess, vector: Vector) -> Response:
    asked = vector.request
    body = (asked.body or "").encode()
    head = f"{asked.method} {asked.path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    client = await server.connect()
    try:
        await client.send(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        return await client.response(timeout_s=60)
    finally:
        client.close()


def _outcome(vector: Vector, response: Response) -> Outcome:
    recorded, body = vector.response, response.body.decode()
    said = [] if recorded.status == response.status else [f"status {response.status} instead of {recorded.status}"]
    kind, our_kind = (_media_type(one) for one in (recorded.content_type, response.headers.get("content-type")))
    if kind and kind != our_kind:
        said.append(f"content type {our_kind!r} instead of {kind!r}")
    if not vector.request.path.startswith("/api/metrics"):
        said += deviations(vector.name, recorded.body, body)
    return Outcome(vector.name, response.status, body, tuple(said))


def _media_type(content_type: str | None) -> str:
    return (content_type or "").partition(";")[0].strip().lower()


async def _has_come(sink: Sink, wanted: SinkCall, patience_s: float) -> bool:
    return await sink.until(wanted, patience_s)
