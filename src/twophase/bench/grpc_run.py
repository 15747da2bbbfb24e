"""The same run over gRPC: prepare and submit by clients of grpc.aio; branches are called over HTTP, as dtm allows.

Each producer has one request under way; some share a channel, as the requests of one application do. Everything that
is counted is counted as over HTTP.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, Final

from twophase.bench.producer import Source, Step
from twophase.bench.run import Run
from twophase.bench.workload import FIRST_NUMBER, NUMBER_DIGITS, Bodies, Workload, payload, steps
from twophase.core.errors import ConfigurationError
from twophase.core.gid import GID_CHARACTERS
from twophase.rpc.channel import channel_options

if TYPE_CHECKING:
    import grpc.aio

    Methods = dict[Step, grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]]

PRODUCERS_A_CHANNEL: Final = 16
_REPLY_BYTES_MAX: Final = 1 << 20
_SERVICE: Final = "/dtmgimp.Dtm"
_GID: Final = "@" * GID_CHARACTERS
_NUMBER: Final = "#" * NUMBER_DIGITS
_REFUSED_TEXT_MAX: Final = 120


def bodies(workload: Workload, sink_url: str) -> Bodies:
    """What writes the protobuf of each request: encoded once, with places for gid and number.

    Raises:
        ConfigurationError: gRPC is not installed.
    """
    try:
        from twophase.rpc.messages import Request, encode_request  # noqa: PLC0415 -- an extra
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
    form = encoded.replace(b"%", b"%%").replace(_GID.encode(), b"%b").replace(_NUMBER.encode(), b"%d")
    branches = workload.branches

    def body(gid: bytes, number: int) -> bytes:
        return form % (gid, *[FIRST_NUMBER + number] * branches)

    return body


class GrpcRun(Run):
    """`Run` over gRPC; its address is the port's."""

    makes_cycles = True
    _channels: list[grpc.aio.Channel]

    @property
    def place(self) -> str:
        """Where the server is, for people."""
        return f"grpc://{self.address.host}:{self.address.port}"

    def _bodies(self, sink_url: str) -> Bodies:
        self._channels = []
        return bodies(self.workload, sink_url)

    async def _dial(self) -> None:
        if len(self._producers) % PRODUCERS_A_CHANNEL == 0:
            import grpc.aio  # noqa: PLC0415 -- an extra

            options = channel_options(_REPLY_BYTES_MAX)
            # Channels to one place share a connection otherwise.
            options.append(("grpc.use_local_subchannel_pool", 1))
            channel = grpc.aio.insecure_channel(self.place.removeprefix("grpc://"), options)
            self._channels.append(channel)
        channel = self._channels[-1]
        methods: Methods = {
            step: channel.unary_unary(f"{_SERVICE}/{step.value.capitalize()}")
            for step in (Step.PREPARE, Step.SUBMIT, Step.ABORT)
        }
        self.connected(GrpcProducer(self, methods))
        await channel.channel_ready()

    async def _hang_up(self) -> None:
        for channel in self._channels:
            await channel.close()


class GrpcProducer:
    """Sends the requests of one message after the other, each when the last is answered."""

    __slots__ = ("_loop", "_methods", "_source", "_task")

    def __init__(self, source: Source, methods: Methods) -> None:
        self._source = source
        self._methods = methods
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    def prepare(self, number: int, body: bytes, since_s: float) -> None:
        """Begin a message with its prepare; its latency counts from `since_s`."""
        self._task = self._loop.create_task(self._prepare(number, body, since_s))

    def submit(self, number: int, body: bytes, since_s: float) -> None:
        """Begin a message with its submit."""
        self._task = self._loop.create_task(self._submit(number, body, since_s))

    def abort(self, body: bytes) -> None:
        """Take a prepared message back."""
        self._task = self._loop.create_task(self._abort(body))

    def cut(self) -> None:
        """The run is over."""
        if self._task is not None:
            self._task.cancel()

    async def _prepare(self, number: int, body: bytes, since_s: float) -> None:
        source = self._source
        if not await self._answered(Step.PREPARE, body):
            source.finished(self, failed=True)
            return
        now_s = time.perf_counter()
        source.ledger.prepare.add(now_s - since_s)
        if source.submits:
            await self._submit(number, body, now_s)
        else:
            source.ledger.prepare_acknowledged(number)
            source.finished(self, failed=False)

    async def _submit(self, number: int, body: bytes, since_s: float) -> None:
        source = self._source
        source.ledger.submitting(number, since_s)
        done = await self._answered(Step.SUBMIT, body)
        if done:
            source.ledger.submit.add(time.perf_counter() - since_s)
            source.ledger.acknowledge(number)
        source.finished(self, failed=not done)

    async def _abort(self, body: bytes) -> None:
        self._source.finished(self, failed=not await self._answered(Step.ABORT, body))

    async def _answered(self, step: Step, body: bytes) -> bool:
        """Whether the request was taken."""
        try:
            await self._methods[step](body)
        except Exception as error:  # noqa: BLE001 -- gRPC's errors, whose classes are an extra; all are counted
            self._source.ledger.fail(f"{step.value}: {_refusal(error)}")
            return False
        return True


def _refusal(error: Any) -> str:
    code = getattr(error, "code", None)
    if code is None:
        return f"{type(error).__name__}: {error}"[:_REFUSED_TEXT_MAX]
    return f"{code().name} {error.details()}"[:_REFUSED_TEXT_MAX]
