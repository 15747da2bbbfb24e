"""The same run over gRPC.

Prepare and submit are sent as dtm's clients send them; branches are called over HTTP, as dtm allows. Each producer has
one request under way. Several producers share a connection, as the requests of one application do. All counts are those
of a run over HTTP, and the requests are as cheap to send (`benchmarks.load.http2`).
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Final

import msgspec

from benchmarks.load.http2 import Http2Connection, head
from benchmarks.load.producer import Source, Step
from benchmarks.load.run import Run
from benchmarks.load.workload import FIRST_NUMBER, NUMBER_DIGITS, Bodies, Workload, payload, steps
from twophase.core.errors import ConfigurationError
from twophase.core.gid import GID_CHARACTERS
from twophase.grpc_server.status import framed

PRODUCERS_A_CONNECTION: Final = 16
_SERVICE: Final = "/dtmgimp.Dtm"
_GID: Final = "@" * GID_CHARACTERS
_NUMBER: Final = "#" * NUMBER_DIGITS

# The lookup of a global takes half the time of an enum's member.
_NONE: Final = Step.NONE
_PREPARE: Final = Step.PREPARE
_SUBMIT: Final = Step.SUBMIT
_ABORT: Final = Step.ABORT


def bodies(workload: Workload, sink_url: str) -> Bodies:
    """Return the writer of each request's framed protobuf.

    It is encoded once, with gaps for gid and number.

    Raises:
        ConfigurationError: gRPC is not installed.
    """
    try:
        from twophase.grpc_wire.messages import Request, encode_request  # noqa: PLC0415 -- an extra
    except ImportError as error:
        raise ConfigurationError("bench: gRPC needs `pip install 'twophase[grpc]'`.", remedy="") from error
    encoded = encode_request(
        Request(
            gid=_GID,
            trans_type="msg",
            steps=json.dumps(steps(workload, sink_url), separators=(",", ":")),
            payloads=[payload(workload, _NUMBER).encode()] * workload.branches,
            query_prepared=f"{sink_url}/check",
            timeout_to_fail=workload.timeout_to_fail_s,
            durability=workload.durability,
        )
    )
    form = framed(encoded).replace(b"%", b"%%").replace(_GID.encode(), b"%b").replace(_NUMBER.encode(), b"%d")
    branches = workload.branches

    def body(gid: bytes, number: int) -> bytes:
        return form % (gid, *[FIRST_NUMBER + number] * branches)

    return body


class Blocks(msgspec.Struct, frozen=True):
    """The header block of each request."""

    prepare: bytes
    submit: bytes
    abort: bytes


class GrpcRun(Run):
    """`Run` over gRPC; its address is that of the gRPC port."""

    _connections: list[_Shared]
    _blocks: Blocks

    @property
    def place(self) -> str:
        """Return the server's address as text for people."""
        return f"grpc://{self._authority}"

    @property
    def _authority(self) -> str:
        host = self.address.host
        return f"[{host}]:{self.address.port}" if ":" in host else f"{host}:{self.address.port}"

    def _bodies(self, sink_url: str) -> Bodies:
        self._connections = []
        made = bodies(self.workload, sink_url)
        self._blocks = Blocks(*(head(f"{_SERVICE}/{name}", self._authority) for name in ("Prepare", "Submit", "Abort")))
        return made

    async def _dial(self) -> None:
        shared = next((connection for connection in self._connections if connection.room), None)
        if shared is None:
            shared = _Shared(self)
            self._connections.append(shared)
        shared.taken += 1
        await shared.opened(self.address.host, self.address.port)
        producer = GrpcProducer(self, shared.connection, self._blocks)
        shared.producers.append(producer)
        self.connected(producer)

    async def _hang_up(self) -> None:
        for shared in self._connections:
            shared.connection.cut()

    def gone(self, shared: _Shared) -> None:
        """Forget a connection that is gone."""
        self._connections.remove(shared)


class _Shared:
    """A connection, and the producers that use it."""

    def __init__(self, run: GrpcRun) -> None:
        self.producers: list[GrpcProducer] = []
        self.taken = 0
        self.connection = Http2Connection(self._lost)
        self._run = run
        self._opening: asyncio.Task[None] | None = None

    @property
    def room(self) -> bool:
        """Return whether one more producer may use it."""
        return self.connection.open and self.taken < PRODUCERS_A_CONNECTION

    async def opened(self, host: str, port: int) -> None:
        """Wait for the server's first settings; raises OSError."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open(host, port))
        await asyncio.shield(self._opening)

    async def _open(self, host: str, port: int) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.connection, host, port)
        except OSError:
            self.connection.open = False
            self._run.gone(self)
            raise
        await self.connection.ready

    def _lost(self, _connection: Http2Connection) -> None:
        self._run.gone(self)
        for producer in self.producers:
            self._run.lost(producer)


class GrpcProducer:
    """A producer that sends each request when the last one is answered.

    It sends the requests of one message after the other.
    """

    __slots__ = ("_blocks", "_body", "_connection", "_number", "_since_s", "_source", "_step")

    def __init__(self, source: Source, connection: Http2Connection, blocks: Blocks) -> None:
        self._source = source
        self._connection = connection
        self._blocks = blocks
        self._step = _NONE
        self._number = 0
        self._body = b""
        self._since_s = 0.0

    def prepare(self, number: int, body: bytes, since_s: float) -> None:
        """Begin a message with its prepare; its latency counts from `since_s`."""
        self._step = _PREPARE
        self._number = number
        self._body = body
        self._since_s = since_s
        self._connection.call(self._blocks.prepare, body, self)

    def submit(self, number: int, body: bytes, since_s: float) -> None:
        """Begin a message with its submit."""
        self._step = _SUBMIT
        self._number = number
        self._since_s = since_s
        self._source.ledger.submitting(number, since_s)
        self._connection.call(self._blocks.submit, body, self)

    def abort(self, body: bytes) -> None:
        """Abort a prepared message."""
        self._step = _ABORT
        self._connection.call(self._blocks.abort, body, self)

    def cut(self) -> None:
        """Stop: the run is over."""
        self._connection.cut()

    def answered(self, refusal: str) -> None:
        """Continue after the answer to the request under way."""
        source, step = self._source, self._step
        ledger = source.ledger
        self._step = _NONE
        if refusal:
            ledger.fail(f"{step.value}: {refusal}")
            source.finished(self, failed=True)
            return
        now_s = time.perf_counter()
        if step is _PREPARE:
            if self._number >= ledger.measured_from:
                ledger.prepare.add(now_s - self._since_s)
            if source.submits:
                self.submit(self._number, self._body, now_s)
                return
            ledger.prepare_acknowledged(self._number)
        elif step is _SUBMIT:
            if self._number >= ledger.measured_from:
                ledger.submit.add(now_s - self._since_s)
            ledger.acknowledge(self._number)
        source.finished(self, failed=False)

    def cut_off(self) -> None:
        """Stop: the connection is gone, and the request's outcome is unknown."""
        self._source.ledger.fail(f"{self._step.value}: the connection was lost")
        self._step = _NONE
