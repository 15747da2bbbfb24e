"""The HTTP port: accepts connections, hands hot requests to the coordinator, sweeps, and drains.

One sweep over all connections, a few times within the shortest timeout, takes the place of a timer for each request:
it costs nothing while nothing times out, and 10 000 idle connections about a millisecond.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Final, Protocol

import msgspec
import structlog
from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.server import ServerState

from twophase.coordinator.messages.entry import OnReply
from twophase.core import failpoint
from twophase.core.errors import ServerFault, TwophaseError
from twophase.core.message import Message
from twophase.server.formats.decode import Decoder
from twophase.server.formats.encode import Route, failure, head, success_body
from twophase.server.formats.trace import Trace
from twophase.server.hot.protocol import Connection
from twophase.server.hot.turns import HotTurn

_log = structlog.get_logger("twophase.http")
_BACKLOG = 4096
_SWEEP_S_MAX = 1.0
_ANSWERS_KEPT_MAX = 4096
# Names of this module: see `coordinator.deciding.decisions`.
_ABORT: Final = Route.ABORT
_PREPARE: Final = Route.PREPARE


class Requests(Protocol):
    """The part of the coordinator that the hot routes use."""

    def prepare(self, message: Message, on_reply: OnReply) -> None: ...

    def submit(self, message: Message, on_reply: OnReply) -> None: ...

    def abort(self, gid: str, on_reply: OnReply) -> None: ...


class Timeouts(msgspec.Struct, frozen=True):
    """How long a client may take, in seconds."""

    head_s: float = 10.0
    """From the first byte of a request to the end of its headers."""
    body_s: float = 30.0
    """From there to the end of its body."""
    idle_s: float = 75.0
    """Between an answer and the next request."""
    write_s: float = 30.0
    """Without reading the answers that wait for it."""
    linger_s: float = 2.0
    """To take note of a refusal before the connection is cut."""


class Listener:
    """One HTTP port.

    Arguments:
        requests: the coordinator.
        decoder: turns bodies into messages.
        app: answers everything that is not a hot route.
        on_refused: hears the error code of each request refused here.
        timeouts, connections_max: the bounds of what clients may do.
    """

    def __init__(
        self,
        requests: Requests,
        decoder: Decoder,
        app: ASGIApp,
        *,
        on_refused: Callable[[str], None],
        timeouts: Timeouts | None = None,
        connections_max: int = 10_000,
    ) -> None:
        self._requests = requests
        self._decoder = decoder
        self.trace = decoder.trace
        self.refused = on_refused
        self.timeouts = timeouts or Timeouts()
        self.connections_max = connections_max
        self.config = Config(
            app,
            interface="asgi3",
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
        )
        self.config.load()
        self.state = ServerState()
        self.draining = False
        self.now_s = 0.0
        self.date = b""
        self._head_200 = b""
        self._answers_200: dict[int, bytes] = {}
        self._empty = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._sweep_s = min(_SWEEP_S_MAX, min(msgspec.structs.astuple(self.timeouts)) / 4)

    async def start(self, host: str, port: int) -> list[str]:
        """Listen; port 0 takes a free one. Returns the URLs.

        Raises:
            OSError: the address cannot be used.
        """
        loop = asyncio.get_running_loop()
        self._sweep()
        self._server = await loop.create_server(
            lambda: Connection(self, loop), host, port, backlog=_BACKLOG, reuse_address=True
        )
        return [_url(listening) for listening in self._server.sockets]

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self.state.connections)

    def stop_accepting(self) -> None:
        """Take no new connections; idle ones are closed, the others after the answers under way."""
        self.draining = True
        if self._server is not None:
            self._server.close()
        self.left()
        for connection in list(self.state.connections):
            connection.shutdown()

    async def closed(self, timeout_s: float) -> bool:
        """Wait until every connection is closed; False when that takes longer than `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def left(self) -> None:
        """A connection is gone."""
        if self.draining and not self.state.connections:
            self._empty.set()

    def stop(self) -> None:
        """Cut what is left. Safe to call twice."""
        self.stop_accepting()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for task in self.state.tasks:
            task.cancel()
        for connection in list(self.state.connections):
            connection.transport.abort()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self.now_s = loop.time()
        self.date = formatdate(time.time(), usegmt=True).encode()
        self._head_200 = head(200, self.date)
        self._answers_200.clear()
        self.state.default_headers = [(b"date", self.date)]
        for connection in list(self.state.connections):
            assert isinstance(connection, Connection), "no other protocol listens here"
            connection.check(self.now_s)
        self._sweeper = loop.call_later(self._sweep_s, self._sweep)

    def answer_200(self, prepared_at_ms: int) -> bytes:
        """The whole answer to a hot request that succeeded: the same for all messages of one flush."""
        answer = self._answers_200.get(prepared_at_ms)
        if answer is None:
            if len(self._answers_200) >= _ANSWERS_KEPT_MAX:
                self._answers_200.clear()
            body = success_body(prepared_at_ms)
            answer = b"%bcontent-length: %d\r\n\r\n%b" % (self._head_200, len(body), body)
            self._answers_200[prepared_at_ms] = answer
        return answer

    def handle(self, turn: HotTurn, body: bytes | bytearray, trace: Trace) -> None:
        """Decode a hot request and give it to the coordinator, whose reply answers it."""
        try:
            if turn.route is _ABORT:
                gid = self._decoder.gid(body)
                if failpoint.ARMED:
                    failpoint.reach("coordinator.request_parsed")
                self._requests.abort(gid, turn.reply)
                return
            message = self._decoder.message(body, trace)
            if failpoint.ARMED:
                failpoint.reach("coordinator.request_parsed")
            if turn.route is _PREPARE:
                self._requests.prepare(message, turn.reply)
            else:
                self._requests.submit(message, turn.reply)
        except TwophaseError as error:
            self.refused(error.code)
            turn.refuse(error)
        except Exception as error:  # noqa: BLE001 -- one request's fault must not take the connection, or the server, along
            self.crashed(error)
            turn.answered_with(failure(ServerFault()))

    def crashed(self, error: Exception) -> None:
        """A fault of ours: it goes into the log with its trace, and never to the client."""
        _log.error("a request failed on a fault of the server", exc_info=error)


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
