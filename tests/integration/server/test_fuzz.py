"""Any input at all: the answer is valid HTTP, and the server lives on.

Only messages reach the coordinator.
"""

from __future__ import annotations

import asyncio
import itertools
import json

import httptools
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fake_coordinator import get, listening, message, post
from twophase.core.gid import validate_gid

FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
fields = st.sampled_from(
    ["gid", "trans_type", "steps", "payloads", "query_prepared", "protocol", "custom_data", "wait_result",
     "timeout_to_fail", "branch_headers", "delay_ms", "durability", "open", "Gid", "STEPS"]
)  # fmt: skip
requests = st.dictionaries(fields, json_values, max_size=8).map(
    lambda changed: {**json.loads(message("g1")), **changed}
)


class _Statuses:
    """A reader of responses that fails on anything that is not HTTP."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self._parser = httptools.HttpResponseParser(self)

    def on_message_complete(self) -> None:
        self.seen.append(self._parser.get_status_code())

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)


async def _talk(port: int, pieces: list[bytes]) -> list[int]:
    """Send pieces, end sending, and read until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    statuses = _Statuses()
    try:
        for piece in pieces:
            if writer.is_closing():  # the server answered damage, and closed
                break
            writer.write(piece)
            await asyncio.sleep(0)
        if not writer.is_closing():  # the server may have answered the last request, and closed
            writer.write_eof()
        async with asyncio.timeout(60):
            while data := await reader.read(65536):
                statuses.feed(data)
    except ConnectionError:
        pass
    finally:
        writer.close()
    return statuses.seen


def _run(pieces: list[bytes]) -> tuple[list[int], list[tuple[str, str]]]:
    async def attack() -> tuple[list[int], list[tuple[str, str]]]:
        async with listening() as wire:
            statuses = await _talk(wire.port, pieces)
            heard = list(wire.coordinator.heard)
            assert await _talk(wire.port, [get("/api/ping", "Connection: close")]) == [200]
        return statuses, heard

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(attack())


@FUZZ
@given(body=st.binary(max_size=300))
def test_any_bytes_as_a_body_get_one_answer(body: bytes) -> None:
    statuses, heard = _run([post("/api/dtmsvr/prepare", body, "Connection: close")])
    assert len(statuses) == 1
    assert (statuses[0] == 200) == bool(heard)


@FUZZ
@given(request=requests)
def test_any_json_gets_200_and_is_heard_or_an_error_and_is_not(request: object) -> None:
    body = json.dumps(request).encode()
    statuses, heard = _run([post("/api/dtmsvr/submit", body, "Connection: close")])
    assert len(statuses) == 1
    assert statuses[0] == 200 or 400 <= statuses[0] <= 500  # 500 where dtm demands it
    assert (statuses[0] == 200) == (len(heard) == 1)
    for _, gid in heard:
        assert validate_gid(gid) == gid


@FUZZ
@given(pieces=st.lists(st.binary(max_size=200), max_size=6))
def test_any_bytes_as_http_leave_the_server_alive(pieces: list[bytes]) -> None:
    statuses, heard = _run(pieces)
    assert heard == []
    assert all(status >= 400 for status in statuses)


@FUZZ
@given(
    cuts=st.lists(st.integers(1, 2_000), max_size=12),
    flips=st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 255)), max_size=3),
)
def test_damaged_pipelines_are_answered_in_order_until_the_damage(
    cuts: list[int], flips: list[tuple[int, int]]
) -> None:
    stream = bytearray(
        post("/api/dtmsvr/prepare", message("g1"))
        + get("/api/ping")
        + post("/api/dtmsvr/submit", message("g2"))
        + post("/api/dtmsvr/abort", b'{"gid":"g3"}')
        + get("/api/dtmsvr/newGid", "Connection: close")
    )
    for position, value in flips:
        stream[position % len(stream)] = value
    edges = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
    pieces = [bytes(stream[a:b]) for a, b in itertools.pairwise(edges)]
    statuses, _ = _run(pieces)
    assert len(statuses) <= 6
    if not flips:
        assert statuses == [200] * 5
