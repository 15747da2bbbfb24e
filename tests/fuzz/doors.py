"""Both ports and all parsers in this process, for cases by the million.

A server is whole but for its sockets: connections are made by hand, and a destination in memory answers each call. A
case fails when it is answered by a 5xx that is ours, when a parser raises what is not its own error, or when anything
logs a fault. Cases of a port are played in lots, as many clients of one server do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from structlog.testing import capture_logs

from benchmarks.servers.processes import memory_bytes
from tests.fuzz import checks, compressed, parsers, rocketmq, rules, seeds
from tests.fuzz.checks import Questions, Signatures
from tests.fuzz.guarded import NAME_WORDS, NAMES, Guarded
from tests.fuzz.mutation import Mutator
from tests.fuzz.play import Tally
from tests.support.memory_transport import MemoryTransport
from twophase.destinations.base import Answer, Call
from twophase.grpc_server.http2.connection import Connection as GrpcConnection
from twophase.grpc_server.http2.frames import GOAWAY, HEAD, HEAD_BYTES, INTERNAL_ERROR, RST_STREAM
from twophase.server.app import Server
from twophase.server.http_port.connection import Connection as HttpConnection
from twophase.server.settings import Settings

LOT: Final = 64
MEMORY_GROWTH_MAX: Final = 400 * 1024 * 1024
_TURNS: Final = 6
_SETTLED_S: Final = 0.001
_TEXTS_KEPT: Final = 5
_STATUS: Final = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_OK: Final = Answer(200, b"{}")
_SETTINGS: Final[dict[str, Any]] = {
    "http_port": 0,
    "grpc_port": 0,
    "rocketmq_port": 0,
    "retry_first_ms": 20,
    "check_back_first_ms": 20,
    "timeout_to_fail_ms": 1_000,
    "probe_check_addresses": False,
    "drain_timeout_ms": 5_000,
}
Case = list[bytes]
"""The reads of one connection."""


class _EveryAddress:
    """A destination that takes every address, and answers each call at once."""

    def accepts(self, url: str) -> str | None:
        return None if "://" in url else "no URL."

    def key(self, url: str) -> str:
        return "/".join(url.split("/")[:3])

    def call(self, call: Call, on_answer: Callable[[Answer], None]) -> None:
        assert call.url, "an address is called"
        asyncio.get_running_loop().call_soon(on_answer, _OK)

    async def stop(self) -> None:
        """Nothing to close."""


class Door(msgspec.Struct, frozen=True):
    """A door, and its part of all cases, in percent."""

    name: str
    percent: int
    draw: Callable[[int], Callable[[], Case]]
    """Returns, for a seed, what draws the cases."""
    play: Callable[[Sequence[Case]], Awaitable[None]]


class Ports:
    """Both ports of a server, played without sockets."""

    def __init__(self, server: Server) -> None:
        self.server = server
        api = server._grpc._api
        assert api is not None
        self._grpc_port = cast("Any", api._listener._port)
        assert server._rocketmq is not None
        self._rocketmq_port = cast("Any", server._rocketmq._listener._port)
        self.statuses: set[int] = set()
        """The statuses that were answered over HTTP."""
        self.frames = 0
        """The frames that were answered over HTTP/2."""

    async def http(self, cases: Sequence[Case]) -> None:
        """Play the HTTP port."""
        wires = [MemoryTransport() for _ in cases]
        loop = asyncio.get_running_loop()
        connections = [HttpConnection(self.server.listener.port, loop) for _ in cases]
        await self._exchange(connections, wires, cases)
        for wire, case in zip(wires, cases, strict=True):
            self.require_ours(bytes(wire.written), case)

    def require_ours(self, said: bytes, case: Case) -> None:
        """Check all answers of a connection."""
        assert b"Traceback" not in said, f"{said[:500]!r}, to {case!r}"
        for status, body in _responses(said):
            self.statuses.add(status)
            rules.require_ours(status, body, repr(case)[:2000])

    async def grpc(self, cases: Sequence[Case]) -> None:
        """Play the gRPC port."""
        await self._http2(self._grpc_port, cases)

    async def rocketmq(self, cases: Sequence[Case]) -> None:
        """Play the port for RocketMQ's clients."""
        await self._http2(self._rocketmq_port, cases)

    async def _http2(self, port: Any, cases: Sequence[Case]) -> None:
        wires = [MemoryTransport() for _ in cases]
        connections = [GrpcConnection(port) for _ in cases]
        await self._exchange(connections, wires, cases)
        for wire, case in zip(wires, cases, strict=True):
            for kind, payload in _frames(bytes(wire.written)):
                self.frames += 1
                code = payload[4:8] if kind == GOAWAY else payload[:4] if kind == RST_STREAM else b""
                assert int.from_bytes(code, "big") != INTERNAL_ERROR, f"an internal error, to {case!r}"
                assert rules.FAULT.encode() not in payload, f"{payload!r}, to {case!r}"

    async def _exchange(
        self, connections: Sequence[Any], wires: Sequence[MemoryTransport], cases: Sequence[Case]
    ) -> None:
        """Connect, send what was drawn as fast as it is read, wait a little, and hang up."""
        for connection, wire in zip(connections, wires, strict=True):
            connection.connection_made(wire)
        left = [list(case) for case in cases]
        for _ in range(_TURNS):
            for connection, wire, pieces in zip(connections, wires, left, strict=True):
                if pieces and wire.reading and not wire.closed:
                    connection.data_received(pieces.pop(0))
            await asyncio.sleep(0)
        await asyncio.sleep(_SETTLED_S)
        for connection in connections:
            connection.connection_lost(None)


class Doors:
    """The doors of two servers and of a service's routes; `opened` makes them.

    Arguments:
        open_one: a server that knows no client.
        guarded_one: one that knows its clients by `guarded`.
        questions: the routes.
    """

    def __init__(self, open_one: Server, guarded_one: Server, guarded: Guarded, questions: Questions) -> None:
        self.open = Ports(open_one)
        self.guarded = Ports(guarded_one)
        self._clients = guarded
        self._questions = questions
        self._signatures = Signatures()
        self.encrypted = 0
        """The connections that were answered over TLS."""
        self._trouble: list[str] = []

    def all(self) -> list[Door]:
        """Return every door."""
        words, clients, guarded = seeds.HTTP_WORDS + seeds.JSON_WORDS, self._clients, self.guarded
        questions = [*self._signatures.seeds, *self._questions.seeds]
        return [
            Door("HTTP", 14, _drawing(seeds.HTTP, words), self.open.http),
            Door("operators, topics and batches", 8, _drawing(seeds.OPERATORS, words), self.open.http),
            Door("HTTP with tokens", 10, _drawing(clients.requests, words + clients.words), guarded.http),
            Door("HTTP/2 and gRPC", 9, _drawing(seeds.GRPC, seeds.GRPC_WORDS), self.open.grpc),
            Door("gRPC with tokens", 6, _drawing(clients.calls, seeds.GRPC_WORDS + clients.words), guarded.grpc),
            Door("RocketMQ's port", 8, _drawing(rocketmq.CALLS, rocketmq.CALL_WORDS), self.open.rocketmq),
            Door("RocketMQ's port with tokens", 4, _drawing(*clients.rocketmq), guarded.rocketmq),
            Door("compressed gRPC", 5, compressed.drawing, self.open.grpc),
            Door("HTTP over TLS", 1, clients.drawing_tls, self._tls),
            _parser("names in certificates", 3, NAMES, NAME_WORDS, _whole(self._check_name)),
            _parser("signed calls", 7, self._signatures.seeds, checks.WORDS, _whole(self._signatures.check)),
            _parser("check-back route", 1, questions, checks.WORDS, _whole(self._questions.check)),
            _parser("check-back server of Spark", 1, self._questions.seeds, checks.WORDS, self._ask),
            _parser("responses of branches", 5, seeds.RESPONSE_BYTES, seeds.RESPONSE_WORDS, parsers.read_cut),
            _parser("JSON of requests", 8, seeds.BODIES, seeds.JSON_WORDS, _whole(parsers.decode_json)),
            _parser("steps of gRPC requests", 2, seeds.STEPS, seeds.JSON_WORDS, _whole(parsers.decode_steps)),
            _parser("gRPC messages", 4, seeds.GRPC_MESSAGES, seeds.GRPC_WORDS, _whole(parsers.decode_grpc)),
            _parser("RocketMQ's messages", 3, rocketmq.SEEDS, rocketmq.WORDS, _whole(rocketmq.check)),
            _parser("addresses", 1, seeds.ADDRESSES, seeds.ADDRESS_WORDS, _whole(_parse_address)),
        ]

    async def _tls(self, cases: Sequence[Case]) -> None:
        for said, case in zip(await self._clients.tls(self.guarded.server, cases), cases, strict=True):
            self.guarded.require_ours(said, case)
            self.encrypted += bool(said)

    def _check_name(self, raw: bytes) -> None:
        self._clients.check_name(self.guarded.server, raw)

    def _ask(self, case: Case) -> None:
        for said in self._questions.ask(case):
            statuses = [int(status) for status in _STATUS.findall(said)]
            wrong = [status for status in statuses if status >= 500]
            assert said.count(b"x-twophase-verdict: unknown") >= len(wrong), f"{said[:500]!r}, to {case!r}"
            assert b"Traceback" not in said, f"{said[:500]!r}, to {case!r}"

    async def play(self, door: Door, cases: int, seed: int) -> Tally:
        """Play a door; a failure is kept, and the play goes on."""
        tally = Tally(door.name)
        draw = door.draw(seed)
        began_s = time.monotonic()
        with capture_logs() as logged:
            while tally.cases < cases:
                lot = [draw() for _ in range(min(LOT, cases - tally.cases))]
                why = await self._fails(door, lot, logged)
                if why:
                    tally.failures += 1
                    if len(tally.texts) < _TEXTS_KEPT:
                        tally.texts.append(await self._named(door, lot, logged, f"seed {seed}, {tally.cases}: {why}"))
                tally.cases += len(lot)
        tally.seconds = time.monotonic() - began_s
        return tally

    async def _fails(self, door: Door, lot: Sequence[Case], logged: list[Any]) -> str:
        """Return why a lot fails; empty when it does not."""
        try:
            await door.play(lot)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is what was looked for
            return f"{type(error).__name__}: {error}"[:3_000]
        faults = [str(entry)[:2_000] for entry in logged if _is_fault(entry)] + self._trouble
        logged.clear()
        self._trouble = []
        return "; ".join(faults[:2])

    async def _named(self, door: Door, lot: Sequence[Case], logged: list[Any], text: str) -> str:
        """Return the text with the case that fails alone, where one does."""
        for case in lot:
            if await self._fails(door, [case], logged):
                return f"{text}\nalone: {case!r}"[:6_000]
        return text

    def note(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Keep an error that no task has taken."""
        self._trouble.append(f"{context.get('message')}: {context.get('exception')!r}")


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[Doors]:
    """Run two servers in this event loop; their stores are removed at the end."""
    with tempfile.TemporaryDirectory(prefix="twophase-fuzz-") as name, checks.questions() as questions:
        folder = Path(name)
        guarded = Guarded(folder)
        async with _served(folder / "open.db") as one, _served(folder / "guarded.db", **guarded.settings) as other:
            doors = Doors(one, other, guarded, questions)
            asyncio.get_running_loop().set_exception_handler(doors.note)
            yield doors


@contextlib.asynccontextmanager
async def _served(store: Path, **settings: Any) -> AsyncIterator[Server]:
    every = _EveryAddress()
    schemes = ("http", "https", "grpc", "grpcs", "json-rpc")
    whole = Settings(store=f"sqlite:///{store}", **_SETTINGS | settings)
    server = Server(whole, destinations=dict.fromkeys(schemes, every))
    # All cases of a round come at once, and from one client: more than may wait for a page.
    turns = server.coordinator._runtime.page_turns
    turns._waiting_max = turns._requests_max = sys.maxsize
    await server.start()
    try:
        yield server
    finally:
        await server.drain()
        await server.stop()


async def play_all(cases: int, seed: int, tell: Callable[[str], None], only: Callable[[str], bool]) -> list[Tally]:
    """Play `cases` cases at all doors together.

    Raises:
        AssertionError: the memory of this process has grown beyond its bound.
    """
    async with opened() as doors:
        tallies = []
        first = memory_bytes(os.getpid())
        for door in doors.all():
            if only(door.name):
                tallies.append(await doors.play(door, cases * door.percent // 100, seed))
                tell(f"{door.name}, changed bytes: {tallies[-1].cases:,} in {tallies[-1].seconds:.0f} s")
        grown = memory_bytes(os.getpid()) - first
        assert grown < MEMORY_GROWTH_MAX, f"{grown:,} bytes more are held"
        return tallies


def _drawing(whole: Sequence[bytes], words: Sequence[bytes]) -> Callable[[int], Callable[[], Case]]:
    def of_seed(seed: int) -> Callable[[], Case]:
        mutator = Mutator(whole, words, seed)
        return lambda: mutator.pieces(mutator.draw())

    return of_seed


def _parser(
    name: str, percent: int, whole: Sequence[bytes], words: Sequence[bytes], check: Callable[[Case], None]
) -> Door:
    async def play(cases: Sequence[Case]) -> None:
        for case in cases:
            check(case)

    return Door(name, percent, _drawing(whole, words), play)


def _whole(check: Callable[[bytes], None]) -> Callable[[Case], None]:
    return lambda case: check(b"".join(case))


def _parse_address(raw: bytes) -> None:
    parsers.parse_addresses(raw.decode("utf-8", "replace"))


def _responses(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield status and body of each response; that to HEAD has a length and no body."""
    at = 0
    while at < len(raw):
        found = _STATUS.match(raw, at)
        assert found is not None, f"no response: {raw[at : at + 200]!r}"
        end = raw.index(b"\r\n\r\n", at) + 4
        length = _LENGTH.search(raw, at, end)
        at = end
        if length is not None and not _STATUS.match(raw, end):
            at += int(length[1])
        yield int(found[1]), raw[end:at]


def _frames(raw: bytes) -> list[tuple[int, bytes]]:
    """Return kind and payload of each whole frame."""
    found, at = [], 0
    while at + HEAD_BYTES <= len(raw):
        high, low, kind, _, _ = HEAD.unpack_from(raw, at)
        end = at + HEAD_BYTES + (high << 16 | low)
        found.append((kind, raw[at + HEAD_BYTES : end]))
        at = end
    return found


def _is_fault(entry: Any) -> bool:
    return entry.get("log_level") in {"error", "critical"} and not str(entry.get("event")).startswith("incident: ")
