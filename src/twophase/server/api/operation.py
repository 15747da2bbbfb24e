"""One operation of the HTTP API behind ASGI.

It has a path, a description for OpenAPI, and a handler. Each module of this folder declares its operations beside their
handlers. `routes_of` makes the routes of them and `openapi` the document, so the document describes all that is served,
and all that it describes is served. A handler returns its answer, or raises the error of its refusal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from twophase.core.audit_log import Actor
from twophase.core.errors import InvalidRequest, Overloaded, TwophaseError
from twophase.http_client.byte_budget import NO_ROOM_FOR_ANSWERS
from twophase.server.browsers import require_program
from twophase.server.codecs.encode import CHALLENGE, JSON_TYPE, Answer, failure
from twophase.server.identity.caller import UNKNOWN, Caller
from twophase.server.identity.scopes import CHANGING, scopes_of

DTM_PREFIX: Final = "/api/dtmsvr"
REFUSED: Final = "the message's state or content does not allow it: `dtm_result` is `FAILURE`, `state` says which"
NO_TOPIC: Final = "TP-1003: there is no such topic; nothing was stored"
NO_MESSAGE: Final = "TP-2004: there is no such message"
FORGOTTEN: Final = "TP-2005: the gid is older than the kept history, so its fate is unknown"
_TYPE: Final = JSON_TYPE.decode()


class WrongByDtm(InvalidRequest):
    """A request that dtm answers by 500, in words that its clients' tests look for."""


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of a URL; `where` is `query` or `path`."""

    name: str
    description: str
    type: Any = str
    where: str = "query"
    required: bool = False


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One path and its methods.

    `path` is Starlette's: `{gid:path}` matches a gid with slashes. `answer` is the type of a 200's JSON, None for text;
    `refusals` describes each refusal by its status; `shapes` has the types of a refusal's body, by status, where it is
    not `Failure` alone.
    """

    path: str
    summary: str
    tag: str
    methods: tuple[str, ...] = ("GET",)
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    request: Any = None
    needs_body: bool = True
    answer: Any = None
    refusals: Mapping[int, str] = {}
    shapes: Mapping[int, tuple[Any, ...]] = {}


class Done(msgspec.Struct):
    """The request is carried out, now or before.

    `prepared_at`: milliseconds since 1970, by the store's clock.
    """

    dtm_result: str
    prepared_at: int | None = None


def refusal_answer(error: TwophaseError) -> Answer:
    """Return a refusal as dtm's clients read it.

    >>> refusal_answer(WrongByDtm("no gid specified")).status, refusal_answer(InvalidRequest()).status
    (500, 400)
    """
    answer = failure(error)
    return Answer(500, answer.body) if isinstance(error, WrongByDtm) else answer


Handler = Callable[[Request], Awaitable[Answer | Response]]


class Served(NamedTuple):
    """An operation with its handler; `refuse` makes the answer to an error."""

    operation: Operation
    handler: Handler
    refuse: Callable[[TwophaseError], Answer] = refusal_answer


def routes_of(served: Iterable[Served], on_refused: Callable[[str], None]) -> list[Route]:
    """Make Starlette's routes, in the same order.

    Arguments:
        on_refused: called with the error code of each request that a handler refuses.

    Raises:
        KeyError: a route is not in the table of scopes.
    """
    return [
        Route(one.operation.path, _endpoint(one, on_refused), methods=list(one.operation.methods)) for one in served
    ]


def _endpoint(served: Served, on_refused: Callable[[str], None]) -> Callable[[Request], Awaitable[Response]]:
    operation = served.operation
    (scopes,) = {scopes_of(operation.path, method) for method in operation.methods}
    changes_by_get = "GET" in operation.methods and bool(scopes) and scopes <= CHANGING
    only_reads = operation.methods == ("GET",) and not changes_by_get

    async def endpoint(request: Request) -> Response:
        try:
            if changes_by_get:
                require_program(request.headers.raw)
            caller = caller_of(request)
            caller.require(scopes, operation.path, peer_of(request))
            if caller.limited and scopes:
                await request.body()  # meanwhile the token may have changed
                caller.require_scope(scopes, operation.path, peer_of(request))
            answer = await served.handler(request)
            if only_reads:  # what is carried out is not answered by a refusal
                require_room(request, answer)
        except ClientDisconnect:
            return Response(status_code=400)
        except asyncio.CancelledError:
            return Response(status_code=503)  # the server stops and has cut the connection: no client reads it
        except TwophaseError as error:
            on_refused(error.code)
            await caller_of(request).noted()
            answer = served.refuse(error)
        return respond(answer) if isinstance(answer, Answer) else answer

    return endpoint


def caller_of(request: Request) -> Caller:
    """Return who sends a request, as the port has found out."""
    caller = request.scope.get("state", {}).get("caller", UNKNOWN)
    assert isinstance(caller, Caller), "set by the port"
    return caller


def actor_of(request: Request) -> Actor:
    """Return who sends a request, for the audit log."""
    return Actor(caller_of(request).name, peer_of(request))


def peer_of(request: Request) -> str:
    """Return the address that a request came from; a proxy's where there is one."""
    return "" if request.client is None else request.client.host


def number_in(request: Request, name: str, default: int) -> int:
    """Return a whole number of the query, or the default.

    Raises:
        InvalidRequest: it is no whole number, or has more than 18 digits.
    """
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise InvalidRequest(f"{name}: {text[:45]!r} is not a whole number.")
    return int(text)


def require_room(request: Request, answer: Answer | Response) -> None:
    """Count an answer until its client has taken it.

    Raises:
        Overloaded: there is no room for it.
    """
    unread = request.scope.get("state", {}).get("unread")
    if unread is not None and not unread.keep(len(answer.body)):
        raise Overloaded(f"{NO_ROOM_FOR_ANSWERS}.")


def answer_of(value: msgspec.Struct) -> Answer:
    """Return an answer with a value as JSON."""
    return Answer(200, msgspec.json.encode(value))


def respond(answer: Answer) -> Response:
    """Return an answer as Starlette sends it."""
    headers = {"retry-after": str(answer.retry_after_s)} if answer.retry_after_s else {}
    if answer.status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = CHALLENGE
    return Response(answer.body, answer.status, headers, media_type=_TYPE)
