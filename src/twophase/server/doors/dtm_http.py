"""The rest of the dtm HTTP API, health and metrics: an ASGI application, because nothing here is hot.

prepare, submit and abort never come here; `protocol` answers them before. Paths, methods and bodies as dtm's
(dtm-wire §1.1); an unknown path and a wrong method are both 404, as there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from typing import Final, Protocol

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from twophase.coordinator.deciding.store_faults import as_store_error, log_text
from twophase.coordinator.gauges import Gauges
from twophase.coordinator.messages.view import MessageView
from twophase.coordinator.upkeep.horizon import Horizon
from twophase.core.errors import ServerFault, UnsupportedType
from twophase.core.gid import fresh_gid, validate_gid
from twophase.core.hooks import Clock
from twophase.server.doors.cold import DTM_PREFIX, Handler, WrongByDtm, guarded, respond
from twophase.server.formats.encode import Answer, failure
from twophase.server.formats.query import query_body
from twophase.server.metrics import Metrics, Snapshot
from twophase.stores.base import Overview

_ANY_METHOD: Final = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_OTHER_TYPES: Final[Mapping[str, str]] = {
    "registerBranch": "branches of SAGA and TCC transactions",
    "registerTccBranch": "TCC transactions",
    "registerXaBranch": "XA transactions",
    "prepareWorkflow": "workflow transactions",
}
_log = structlog.get_logger("twophase.http")


class Questions(Protocol):
    """The part of the coordinator that the cold routes use."""

    @property
    def ready(self) -> bool: ...

    async def query(self, gid: str) -> MessageView | None: ...

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


class ColdRoutes:
    """The handlers, with what they need.

    Arguments:
        questions: the coordinator.
        metrics: rendered at /metrics.
        clock: gives new gids their birth time, and ages their end.
        connections: how many clients are connected.
    """

    def __init__(self, questions: Questions, metrics: Metrics, clock: Clock, connections: Callable[[], int]) -> None:
        self._questions = questions
        self._metrics = metrics
        self._clock = clock
        self._connections = connections
        self._version = _json(Version(f"v{version('twophase')} twophase"))

    def application(self, *others: Route) -> Starlette:
        """The ASGI application, with `others` beside the routes of its own."""
        refusing = partial(guarded, on_refused=self._metrics.refused)
        routes = [
            Route("/api/ping", self._ping, methods=_ANY_METHOD),
            Route(f"{DTM_PREFIX}/version", self._say_version),
            Route(f"{DTM_PREFIX}/newGid", self._new_gid),
            Route(f"{DTM_PREFIX}/query", refusing(self._query)),
            Route("/api/twophase/horizon", refusing(self._horizon)),
            Route("/health/live", self._live),
            Route("/health/ready", self._ready),
            Route("/metrics", self._scrape),
            Route("/api/metrics", self._scrape),
            *(
                Route(f"{DTM_PREFIX}/{name}", refusing(_not_served(what)), methods=["POST"])
                for name, what in _OTHER_TYPES.items()
            ),
            *others,
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: _not_found, Exception: _failed})

    async def _ping(self, _request: Request) -> Response:
        return respond(Answer(200, b'{"msg":"pong"}'))

    async def _say_version(self, _request: Request) -> Response:
        return respond(Answer(200, self._version))

    async def _new_gid(self, _request: Request) -> Response:
        return respond(Answer(200, _json(NewGid("SUCCESS", fresh_gid(self._clock.now_ms())))))

    async def _query(self, request: Request) -> Answer:
        gid = request.query_params.get("gid", "")
        if not gid:
            raise WrongByDtm("no gid specified")
        return Answer(200, query_body(await self._questions.query(validate_gid(gid))))

    async def _horizon(self, request: Request) -> Answer:
        asked = request.query_params
        return Answer(200, _json(await self._questions.horizon(asked.get("check", ""), asked.get("barrier", ""))))

    async def _live(self, _request: Request) -> Response:
        return respond(Answer(200, b'{"status":"live"}'))

    async def _ready(self, _request: Request) -> Response:
        if not self._questions.ready:
            return respond(Answer(503, b'{"status":"not ready","reason":"draining or not started"}', retry_after_s=1))
        try:
            await self._questions.overview()
        except Exception as error:  # noqa: BLE001 -- whatever it is, the node is not ready, and says why
            return respond(failure(as_store_error(error)))
        return respond(Answer(200, b'{"status":"ready"}'))

    async def _scrape(self, _request: Request) -> Response:
        overview: Overview | None = None
        try:
            overview = await self._questions.overview()
        except Exception as error:  # noqa: BLE001 -- whatever it is, the other figures are wanted now: store_up is 0
            _log.warning("the store did not answer a scrape", code=as_store_error(error).code, what=log_text(error))
        snapshot = Snapshot(
            overview, self._questions.gauges(), self._connections(), self._clock.now_ms(), self._questions.ready
        )
        return Response(self._metrics.render(snapshot), media_type=_METRICS_TYPE)


def _json(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value)


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
