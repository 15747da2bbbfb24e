"""The rest of the dtm HTTP API, health and metrics.

It is an ASGI application, because none of it is on the hot path. prepare, submit and abort never arrive here: the HTTP
port's connection answers them, so their operations (`HOT_OPERATIONS`) have no handler. Paths, methods and bodies are
dtm's (dtm-wire §1.1); an unknown path and a wrong method are both 404, as in dtm.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Final, Protocol

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from twophase.coordinator.gauges import Gauges
from twophase.coordinator.maintenance.horizon import Horizon
from twophase.coordinator.store_faults import as_store_error, log_text
from twophase.coordinator.view import MessageView
from twophase.core.errors import ServerFault, UnsupportedType
from twophase.core.gid import fresh_gid, validate_gid
from twophase.core.hooks import Clock
from twophase.server.api.operation import (
    DTM_PREFIX,
    FORGOTTEN,
    NO_MESSAGE,
    NO_TOPIC,
    REFUSED,
    Done,
    Handler,
    Operation,
    Parameter,
    Served,
    WrongByDtm,
    caller_of,
    peer_of,
    respond,
    routes_of,
)
from twophase.server.api.recent import Recent
from twophase.server.codecs.encode import Answer, Failure, failure
from twophase.server.codecs.query import Branch, Transaction, query_body
from twophase.server.codecs.wire import WireRequest
from twophase.server.metrics import Metrics, Snapshot
from twophase.stores.base import Overview

_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_OTHER_TYPES: Final[Mapping[str, str]] = {
    "registerBranch": "branches of SAGA and TCC transactions",
    "registerTccBranch": "TCC transactions",
    "registerXaBranch": "XA transactions",
    "prepareWorkflow": "workflow transactions",
}
_log = structlog.get_logger("twophase.http_client")


class Queries(Protocol):
    """The part of the coordinator that the cold routes use."""

    @property
    def ready(self) -> bool: ...

    async def query(self, gid: str, client: str = "") -> MessageView | None: ...

    async def overview(self) -> Overview: ...

    async def horizon(self, check_prefix: str, identity: str) -> Horizon: ...

    def gauges(self) -> Gauges: ...


class Version(msgspec.Struct):
    """The answer to `version`."""

    version: str


class NewGid(msgspec.Struct):
    """The answer to `newGid`."""

    dtm_result: str
    gid: str


class Pong(msgspec.Struct):
    """The answer to `ping`."""

    msg: str


class Health(msgspec.Struct):
    """The server's health."""

    status: str
    reason: str = ""


class Queried(msgspec.Struct):
    """A message with its branches; null and an empty list for an unknown gid."""

    branches: list[Branch]
    transaction: Transaction | None


HOT_OPERATIONS: Final = (
    Operation(
        path=f"{DTM_PREFIX}/prepare",
        methods=("POST",),
        tag="messages",
        summary="Prepare a message",
        description="On disk before the answer. Repeating it changes nothing.",
        request=WireRequest,
        answer=Done,
        refusals={409: REFUSED, 410: FORGOTTEN, 500: NO_TOPIC},
    ),
    Operation(
        path=f"{DTM_PREFIX}/submit",
        methods=("POST",),
        tag="messages",
        summary="Submit a message: from now on it is delivered",
        description="Without a prepare before it, the message is stored and delivered at once.",
        request=WireRequest,
        answer=Done,
        refusals={
            409: f"{REFUSED}; or `wait_result`, and a branch has refused or is not done: it is tried again",
            410: FORGOTTEN,
            500: f"{NO_TOPIC}; or TP-2006: `wait_result`, and a branch failed: it is tried again",
        },
    ),
    Operation(
        path=f"{DTM_PREFIX}/abort",
        methods=("POST",),
        tag="messages",
        summary="Abort a prepared message",
        request=WireRequest,
        answer=Done,
        refusals={409: REFUSED, 410: FORGOTTEN, 500: NO_MESSAGE},
    ),
)
QUERY: Final = Operation(
    path=f"{DTM_PREFIX}/query",
    tag="messages",
    summary="One message and its branches",
    parameters=(Parameter("gid", "the message's name", required=True),),
    answer=Queried,
    refusals={500: "TP-1000: no gid specified"},
)
NEW_GID: Final = Operation(path=f"{DTM_PREFIX}/newGid", tag="messages", summary="A new gid", answer=NewGid)
PING: Final = Operation(
    path="/api/ping",
    methods=("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
    tag="watching",
    summary="Answer while the process runs",
    answer=Pong,
)
VERSION: Final = Operation(
    path=f"{DTM_PREFIX}/version", tag="watching", summary="The version of the server", answer=Version
)
LIVE: Final = Operation(path="/health/live", tag="watching", summary="Liveness of the process", answer=Health)
READY: Final = Operation(
    path="/health/ready",
    tag="watching",
    summary="Readiness for requests",
    answer=Health,
    refusals={503: "draining, not started, or the store does not answer"},
    shapes={503: (Health, Failure)},
)
METRICS: Final = (
    Operation(path="/metrics", tag="watching", summary="Metrics for Prometheus"),
    Operation(path="/api/metrics", tag="watching", summary="The same, where dtm has it"),
)
HORIZON: Final = Operation(
    path="/api/twophase/horizon",
    tag="watching",
    summary="The time up to which everything is decided and delivered, for cleaning barrier rows",
    parameters=(
        Parameter("check", "only messages whose check address begins with this"),
        Parameter("barrier", "the identity of the database; messages that name another do not count"),
    ),
    answer=Horizon,
    refusals={503: "the store does not answer, or too many different ones are asked for at once"},
)


class ColdRoutes:
    """The handlers, with what they need.

    Arguments:
        questions: the coordinator.
        metrics: rendered at /metrics.
        clock: the source of a new gid's birth time and of ages.
        connections: returns the number of connected clients.
    """

    def __init__(self, questions: Queries, metrics: Metrics, clock: Clock, connections: Callable[[], int]) -> None:
        self._questions = questions
        self.overview = Recent(questions.overview)
        self._horizons = Recent(questions.horizon)
        self._metrics = metrics
        self._clock = clock
        self._connections = connections
        self.of_all: Callable[[bytes], Awaitable[bytes]] | None = None
        """Adds the other workers' figures to this one's; None without workers."""
        self._version = _json(Version(f"v{version('twophase')} twophase"))

    def served(self) -> list[Served]:
        """Return the operations with their handlers."""
        return [
            Served(PING, self._ping),
            Served(VERSION, self._say_version),
            Served(NEW_GID, self._new_gid),
            Served(QUERY, self._query),
            Served(HORIZON, self._horizon),
            Served(LIVE, self._live),
            Served(READY, self._ready),
            *(Served(operation, self._metrics_of_all) for operation in METRICS),
            *(Served(_other_type(name, what), _not_served(what)) for name, what in _OTHER_TYPES.items()),
        ]

    async def _ping(self, _request: Request) -> Answer:
        return Answer(200, b'{"msg":"pong"}')

    async def _say_version(self, _request: Request) -> Answer:
        return Answer(200, self._version)

    async def _new_gid(self, request: Request) -> Answer:
        gid = caller_of(request).gid_prefix + fresh_gid(self._clock.now_ms())
        return Answer(200, _json(NewGid("SUCCESS", gid)))

    async def _query(self, request: Request) -> Answer:
        gid = request.query_params.get("gid", "")
        if not gid:
            raise WrongByDtm("no gid specified")
        caller = caller_of(request)
        view = await self._questions.query(validate_gid(gid), caller.name or peer_of(request))
        return Answer(200, query_body(caller.seen(view), caller.sight))

    async def _horizon(self, request: Request) -> Answer:
        asked = request.query_params
        return Answer(200, _json(await self._horizons.of(asked.get("check", ""), asked.get("barrier", ""))))

    async def _live(self, _request: Request) -> Answer:
        return Answer(200, b'{"status":"live"}')

    async def _ready(self, _request: Request) -> Answer:
        if not self._questions.ready:
            return Answer(503, b'{"status":"not ready","reason":"draining or not started"}', retry_after_s=1)
        try:
            await self.overview.of()
        except Exception as error:  # noqa: BLE001 -- whatever it is, the node is not ready, and says why
            return failure(as_store_error(error))
        return Answer(200, b'{"status":"ready"}')

    async def _metrics_of_all(self, _request: Request) -> Response:
        own = await self.scrape()
        return Response(own if self.of_all is None else await self.of_all(own), media_type=_METRICS_TYPE)

    async def scrape(self) -> bytes:
        """Return the figures of this process, as Prometheus reads them."""
        overview: Overview | None = None
        try:
            overview = await self.overview.of()
        except Exception as error:  # noqa: BLE001 -- whatever it is, the other figures are wanted now: store_up is 0
            _log.warning("the store did not answer a scrape", code=as_store_error(error).code, what=log_text(error))
        snapshot = Snapshot(
            overview, self._questions.gauges(), self._connections(), self._clock.now_ms(), self._questions.ready
        )
        return self._metrics.render(snapshot)


def _json(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value)


def application(served: Sequence[Served], on_refused: Callable[[str], None]) -> Starlette:
    """Make the ASGI application of these operations.

    Arguments:
        on_refused: called with the error code of each request that a handler refuses.
    """
    return Starlette(
        routes=routes_of(served, on_refused), exception_handlers={HTTPException: _not_found, Exception: _failed}
    )


def _other_type(name: str, what: str) -> Operation:
    return Operation(
        path=f"{DTM_PREFIX}/{name}",
        methods=("POST",),
        tag="not served",
        summary=f"{what}: not served",
        answer=Done,
        refusals={400: "always: another type of transaction than 2-phase messages"},
    )


def _not_served(what: str) -> Handler:
    async def refuse(_request: Request) -> Answer:
        raise UnsupportedType(f"{what} are not served here, only 2-phase messages.")

    return refuse


async def _not_found(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for these"
    if error.status_code in {404, 405}:
        return PlainTextResponse("404 page not found", 404)
    return PlainTextResponse(str(error.detail), error.status_code)


async def _failed(_request: Request, _error: Exception) -> Response:
    return respond(failure(ServerFault()))
