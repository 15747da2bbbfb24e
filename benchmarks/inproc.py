"""The Python cost of a whole message in one process.

It is prepared, submitted, delivered by one branch call, and finished.

Everything that a message passes in a server is the real thing: connection, parser, codec, admission, state machine,
group commit, delivery, destination, HTTP client, metrics. Only what waits is replaced: sockets by transports in memory,
the store by one that keeps nothing and answers at once. So what is measured is this code, and no kernel, disk, database
or peer.

Two figures:

* instructions: bytecode instructions of the interpreter a message, counted by `sys.settrace`. They do not move with the
  machine, and belong to one version of Python.
* µs: processor time a message, of rounds without tracing. The least of them is the one that moves least.

The messages go in waves, as clients of one server do: all prepares of a wave, then all its submits.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, cast

import msgspec
import uvloop

from benchmarks.no_store import NoStore
from twophase.coordinator.coordinator import Coordinator
from twophase.coordinator.settings import CoordinatorSettings
from twophase.core.hooks import WallClock
from twophase.core.signature import key_of
from twophase.destinations.allow_list import AllowList, Listed
from twophase.destinations.http import HttpDestination
from twophase.http_client.client import HttpClient
from twophase.server.codecs.decode import Decoder
from twophase.server.http_port.connection import Connection
from twophase.server.http_port.listener import Listener
from twophase.server.identity.gate import Gate
from twophase.server.identity.scopes import Scope
from twophase.server.identity.tokens import Quota, Token, changing, digest_of, fresh_token
from twophase.server.log_observer import CountedAndLogged, LogObserver
from twophase.server.metrics import Metrics
from twophase.stores.base import Store

CLIENTS: Final = 64
"""Connections to the server, each with one request at a time."""
WAVES: Final = 40
"""Waves of a timed round: 2,560 messages."""
WAVES_TRACED: Final = 5
ROUNDS: Final = 9
PHASES: Final = ("prepare in", "prepare out", "submit in", "submit out and branch call", "branch answer", "finish")
_TURNS_MAX: Final = 100
_SHOWN_FROM: Final = 5
_BRANCH: Final = "http://127.0.0.1:9/transfer-in"
_NEVER_REACHED: Final = 1 << 40
_ANSWER: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 24\r\n\r\n" + b" " * 24


class Figures(msgspec.Struct, frozen=True):
    """The cost of a message.

    instructions: bytecode instructions, by phase.
    calls: Python functions called.
    micros: microseconds by phase, one list a round.
    functions: bytecode instructions by function, the largest first.
    """

    instructions: dict[str, float]
    calls: float
    micros: dict[str, list[float]]
    functions: list[tuple[str, float]]

    def lines(self) -> list[str]:
        """Return the table."""
        head = f"{'a message':<28} {'instructions':>12} {'µs: min':>9} {'median':>8} {'max':>8}"
        rows = [
            f"{phase:<28} {self.instructions[phase]:>12.0f} {min(spent):>9.2f} {statistics.median(spent):>8.2f}"
            f" {max(spent):>8.2f}"
            for phase, spent in self.micros.items()
        ]
        whole = [sum(spent) for spent in zip(*self.micros.values(), strict=True)]
        rows.append(
            f"{'whole':<28} {sum(self.instructions.values()):>12.0f} {min(whole):>9.2f}"
            f" {statistics.median(whole):>8.2f} {max(whole):>8.2f}"
        )
        return [head, *rows, f"{self.calls:.0f} calls of Python functions a message"]

    def by_function(self) -> list[str]:
        """Return the functions with most instructions a message, one line each."""
        return [f"{count:>12.1f}  {name}" for name, count in self.functions if count >= _SHOWN_FROM]


class _Guards(msgspec.Struct):
    """The file of tokens, the allowed destinations, and the base path of a client."""

    tokens: str = ""
    allowed: AllowList = msgspec.field(default_factory=AllowList)
    base: bytes = b"/api/dtmsvr/"


class _Transport(asyncio.Transport):
    """A connection in memory: what is written is kept until the benchmark takes it."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._protocol: asyncio.Protocol | None = protocol
        self.written: list[bytes] = []
        self.write = self.written.append  # type: ignore[assignment, method-assign]  # as cheap as can be

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 9) if name in {"sockname", "peername"} else default

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            asyncio.get_running_loop().call_soon(protocol.connection_lost, None)


class _Loop(uvloop.Loop):
    """The event loop of a server, whose connections to branches are in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.branches: list[tuple[asyncio.Protocol, _Transport]] = []

    async def create_connection(self, protocol_factory: Any, *_: Any, **__: Any) -> Any:
        """Connect to a branch."""
        protocol = protocol_factory()
        transport = _Transport(protocol)
        self.branches.append((protocol, transport))
        protocol.connection_made(transport)
        return transport, protocol

    def call_later(self, delay: float, callback: Any, *arguments: Any, context: Any = None) -> Any:  # type: ignore[override]
        """Call something after `delay` s, without tracing."""
        return super().call_later(delay, _untraced, callback, arguments, context=context)

    def call_at(self, when: float, callback: Any, *arguments: Any, context: Any = None) -> Any:  # type: ignore[override]
        """Call something at a time of the loop, without tracing."""
        return super().call_at(when, _untraced, callback, arguments, context=context)


def _untraced(callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    """Call what a timer begins.

    It belongs to no message, and a slow machine has more of it in a wave.
    """
    trace = sys.gettrace()
    sys.settrace(None)
    try:
        callback(*arguments)
    finally:
        sys.settrace(trace)


class _Counter:
    """Counts instructions and calls of Python code while it traces."""

    def __init__(self) -> None:
        self.phase = ""
        self.instructions: Counter[str] = Counter()
        self.functions: Counter[CodeType] = Counter()
        self.calls = 0

    def begin(self) -> None:
        """Trace from now on."""
        sys.settrace(self._trace)

    def end(self) -> None:
        """Trace no more."""
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "opcode":
            self.instructions[self.phase] += 1
            self.functions[frame.f_code] += 1
        elif event == "call":
            if frame.f_code.co_filename == __file__:
                return None
            self.calls += 1
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
        return self._trace


class Scene:
    """A coordinator between connections in memory, used by one event loop.

    `guards`: what the operator has configured.
    """

    def __init__(self, loop: _Loop, guards: _Guards) -> None:
        self._loop = loop
        self._base = guards.base
        self._clock = WallClock()
        metrics = Metrics()
        destination = HttpDestination(HttpClient(connections_per_host=2 * CLIENTS), guards.allowed)
        self._coordinator = Coordinator(
            cast(Store, NoStore()),
            {"http": destination},
            CoordinatorSettings(linger_ms=0),
            self._clock,
            random.random,
            CountedAndLogged(metrics, LogObserver()),
        )
        self._listener = Listener(
            self._coordinator,
            Decoder(destination.accepts, self._clock.now_ms),
            _no_other_route,
            on_refused=metrics.refused,
            gate=Gate(guards.tokens, owners=self._coordinator.owners),
        )
        self._clients: list[tuple[Connection, _Transport]] = []
        self.counter = _Counter()
        self.spent_s = dict.fromkeys(PHASES, 0.0)

    async def start(self) -> None:
        """Connect the clients, and the server to its branches."""
        await self._coordinator.start()
        await self._listener.start("127.0.0.1", 0)
        for _ in range(CLIENTS):
            connection = Connection(self._listener.port, self._loop)
            transport = _Transport(connection)
            connection.connection_made(transport)
            self._clients.append((connection, transport))
        await self._earn_places()

    async def _earn_places(self) -> None:
        """Deliver a first message of each client.

        Each branch call is answered as soon as it comes, because the destination has fewer places than there are
        clients at first.
        """
        bodies = [_body(str(uuid.uuid4())) for _ in self._clients]
        self._send([self._request(b"prepare", body) for body in bodies])
        await self._until(self._answered)
        self._send([self._request(b"submit", body) for body in bodies])
        await self._until(self._answered)

        def done() -> bool:
            self._answer_branches()
            return self._coordinator.gauges().active == 0

        await self._until(done)

    async def stop(self) -> None:
        """Stop everything."""
        self._listener.stop()
        await self._coordinator.stop()

    async def wave(self, *, counted: bool) -> None:
        """Deliver one message of each client.

        Arguments:
            counted: count instructions.
        """
        bodies = [_body(str(uuid.uuid4())) for _ in self._clients]
        prepares = [self._request(b"prepare", body) for body in bodies]
        submits = [self._request(b"submit", body) for body in bodies]
        steps: tuple[Callable[[], Coroutine[Any, Any, None] | None], ...] = (
            lambda: self._send(prepares),
            lambda: self._until(self._answered),
            lambda: self._send(submits),
            lambda: self._until(self._called),
            self._answer_branches,
            lambda: self._until(lambda: self._coordinator.gauges().active == 0),
        )
        counter = self.counter if counted else None
        for phase, step in zip(PHASES, steps, strict=True):
            if counter is not None:
                counter.phase = phase
                counter.begin()
            started_s = time.process_time()
            waiting = step()
            if waiting is not None:
                await waiting
            self.spent_s[phase] += time.process_time() - started_s
            if counter is not None:
                counter.end()

    def _request(self, route: bytes, body: bytes) -> bytes:
        return (
            b"POST %b%b HTTP/1.1\r\nHost: 127.0.0.1:36789\r\nUser-Agent: load\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (self._base, route, len(body), body)
        )

    def _send(self, requests: list[bytes]) -> None:
        for (connection, transport), request in zip(self._clients, requests, strict=True):
            transport.written.clear()
            connection.data_received(request)

    async def _until(self, done: Callable[[], bool]) -> None:
        for _ in range(_TURNS_MAX):
            await asyncio.sleep(0)
            if done():
                return
        if not await self._later(done):
            raise AssertionError("a message did not move on")

    async def _later(self, done: Callable[[], bool]) -> bool:
        """Wait for what a timer begins."""
        deadline_s = time.monotonic() + 5
        while not done() and time.monotonic() < deadline_s:
            await asyncio.sleep(0.0002)
        return done()

    def _answered(self) -> bool:
        return all(transport.written for _, transport in self._clients)

    def _called(self) -> bool:
        return self._answered() and sum(len(transport.written) for _, transport in self._loop.branches) == CLIENTS

    def _answer_branches(self) -> None:
        for protocol, transport in self._loop.branches:
            for _ in transport.written:
                protocol.data_received(_ANSWER)
            transport.written.clear()


def measure(
    waves: int = WAVES, rounds: int = ROUNDS, *, signed: bool = False, tokens: bool = False, quotas: bool = False
) -> Figures:
    """Measure everything.

    Arguments:
        waves: of a round.
        rounds: timed ones.
        signed: the branch's calls are signed.
        tokens: the clients give a token in their base URL.
        quotas: they do, and it has quotas of three kinds.
    """
    guards = _Guards()
    if signed:
        guards.allowed = AllowList([Listed("http://127.0.0.1:9", key_of("bench", "a secret of the benchmark"))])
    with tempfile.TemporaryDirectory() as folder:
        if tokens or quotas:
            quota = Quota(_NEVER_REACHED, _NEVER_REACHED, _NEVER_REACHED) if quotas else Quota()
            guards.tokens, guards.base = _with_token(Path(folder) / "tokens.toml", quota)
        return _run(partial(_measure, waves, rounds), guards)


def _with_token(file: Path, quota: Quota) -> tuple[str, bytes]:
    """Return the file of tokens, and the base path of a client that is in it."""
    token = fresh_token()
    with changing(file) as tokens:
        tokens.append(Token("bench", (Scope.PRODUCE,), digest_of(token), quota=quota))
    return str(file), f"/t/{token}/api/dtmsvr/".encode()


async def _measure(waves: int, rounds: int, scene: Scene) -> Figures:
    for _ in range(waves):
        await scene.wave(counted=False)  # caches fill, the interpreter specialises its instructions
    counted: list[Counter[str]] = []
    for _ in range(WAVES_TRACED):
        scene.counter.instructions = Counter()
        await scene.wave(counted=True)
        counted.append(scene.counter.instructions)
    micros: dict[str, list[float]] = {phase: [] for phase in PHASES}
    for _ in range(rounds):
        scene.spent_s = dict.fromkeys(PHASES, 0.0)
        for _ in range(waves):
            await scene.wave(counted=False)
        for phase, spent_s in scene.spent_s.items():
            micros[phase].append(spent_s / (waves * CLIENTS) * 1e6)
    counter, traced = scene.counter, WAVES_TRACED * CLIENTS
    return Figures(
        # The least: what a timer begins belongs to no message.
        {phase: min(wave[phase] for wave in counted) / CLIENTS for phase in PHASES},
        counter.calls / traced,
        micros,
        [(_named(code), count / traced) for code, count in counter.functions.most_common()],
    )


def _run(work: Callable[[Scene], Coroutine[Any, Any, Figures]], guards: _Guards) -> Figures:
    loop = _Loop()
    asyncio.set_event_loop(loop)

    async def play() -> Figures:
        scene = Scene(loop, guards)
        await scene.start()
        try:
            return await work(scene)
        finally:
            await scene.stop()

    try:
        return loop.run_until_complete(play())
    finally:
        loop.close()


def _named(code: CodeType) -> str:
    file = code.co_filename.rpartition("/twophase/")[2]
    return f"{file}:{code.co_firstlineno} {code.co_qualname}"


def _body(gid: str) -> bytes:
    return msgspec.json.encode(
        {
            "gid": gid,
            "trans_type": "msg",
            "steps": [{"action": _BRANCH}],
            "payloads": ['{"account":"B","amount":30}'],
            "query_prepared": "http://127.0.0.1:9/check",
            "protocol": "http",
        }
    )


async def _no_other_route(scope: object, receive: object, send: object) -> None:
    raise AssertionError(f"only prepare and submit are sent: {scope} {receive} {send}")
