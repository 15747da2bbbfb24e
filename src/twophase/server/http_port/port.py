"""State that all connections of one HTTP port share.

It has what they call, their bounds, the time, and finished responses. Connections know this state and never the
listener, which owns them: so neither imports the other's module in a circle.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Protocol

import msgspec
import structlog
from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.server import ServerState

from twophase.coordinator.state.active_message import OnReply, Owner
from twophase.core.message import Message
from twophase.http_client.byte_budget import Account, ByteBudget
from twophase.http_client.turns import TurnsByAddress
from twophase.server.browsers import BrowserGuard
from twophase.server.codecs.decode import Decoder
from twophase.server.http_port.known_heads import KnownHeads
from twophase.server.identity.gate import Gate

SUCCESS_RESPONSES_MAX = 4096
"""Responses kept between two sweeps; one serves every message of a flush."""
_RESERVED_MAX = 16
_log = structlog.get_logger("twophase.http_client")


class Requests(Protocol):
    """The part of the coordinator that prepare, submit and abort use."""

    def prepare(
        self, message: Message, on_reply: OnReply, created_ms: int | None = None, owner: Owner | None = None
    ) -> None: ...

    def submit(
        self, message: Message, on_reply: OnReply, created_ms: int | None = None, owner: Owner | None = None
    ) -> None: ...

    def abort(self, gid: str, on_reply: OnReply, owner: Owner | None = None) -> None: ...


class Reserved(Protocol):
    """A connection on a reserved place."""

    address: str

    def turn_away(self) -> None: ...


class Timeouts(msgspec.Struct, frozen=True):
    """Limits on a client's time, in seconds."""

    head_s: float = 10.0
    """From the first byte of a request to the end of its headers."""
    body_s: float = 30.0
    """From there to the end of its body."""
    idle_s: float = 75.0
    """Between a response and the next request."""
    write_s: float = 30.0
    """Without reading the responses that wait for it."""
    linger_s: float = 2.0
    """Between a final response and the moment when the connection is cut."""


class Port:
    """Shared state of a port's connections.

    Arguments:
        requests: the coordinator.
        decoder: turns bodies into messages.
        app: answers every other route.
        connection: the protocol class of the port's connections, for uvicorn.
        on_refused: called with the error code of each request refused here.
        timeouts, connections_max: bounds on what clients may do.
        per_address_percent: share of the connections, and of the budget, of one peer address.
        gate: finds out who sends a request.
        browsers: refuses requests of web pages.
        budget: of the bytes of unfinished requests and answers.
    """

    def __init__(
        self,
        requests: Requests,
        decoder: Decoder,
        app: ASGIApp,
        connection: type[asyncio.Protocol],
        *,
        on_refused: Callable[[str], None],
        timeouts: Timeouts,
        connections_max: int,
        per_address_percent: int,
        gate: Gate,
        browsers: BrowserGuard,
        budget: ByteBudget,
    ) -> None:
        self.requests = requests
        self.decoder = decoder
        self.trace = decoder.trace
        self.heads = KnownHeads()
        self.gate = gate
        gate.on_reread.append(self.heads.clear)
        self.browsers = browsers
        self.budget = budget
        self.refused = on_refused
        self.timeouts = timeouts
        self.connections_max = connections_max
        self.per_address_percent = per_address_percent
        self.connections_per_address_max = max(1, connections_max * per_address_percent // 100)
        self.turns = TurnsByAddress(shared=per_address_percent < 100)
        self.by_address: Counter[str] = Counter()
        """Connections of each peer address."""
        self.config = Config(
            app,
            interface="asgi3",
            http=connection,
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
        """The event loop's time at the last sweep."""
        self.date = b""
        """The Date header of this second's responses."""
        self.success_head = b""
        """The head of a response 200, up to its length."""
        self.success_responses: dict[int, bytes] = {}
        """Whole responses to requests that succeeded, by the message's prepare time in ms."""
        self.reserved: deque[Reserved] = deque()
        """Connections beyond the bound, which may ask for the server's health.

        The oldest of the address with most of them makes room for the next.
        """
        self.closed = asyncio.Event()
        """Set when the port drains and the last connection is gone."""

    def free(self, address: str) -> tuple[int, int]:
        """Return how many connections the port and a peer address may still have.

        A number is negative beyond its bound.
        """
        of_port = self.connections_max - len(self.state.connections)
        return of_port, self.connections_per_address_max - self.by_address[address]

    def account(self, address: str) -> Account:
        """Open an account for a connection of a peer address."""
        return self.budget.account(address, self.per_address_percent)

    def reserve(self, connection: Reserved) -> None:
        """Give a connection a reserved place, if need be that of another one."""
        self.reserved.append(connection)
        if len(self.reserved) > _RESERVED_MAX:
            ((greedy, _),) = Counter(one.address for one in self.reserved).most_common(1)
            oldest = next(one for one in self.reserved if one.address == greedy)
            self.reserved.remove(oldest)
            oldest.turn_away()

    def connection_closed(self) -> None:
        """Note that a connection is gone."""
        if self.draining and not self.state.connections:
            self.closed.set()

    def log_fault(self, error: Exception) -> None:
        """Log a fault of the server's own with its trace, which no client ever sees."""
        _log.error("a request failed on a fault of the server", exc_info=error)
