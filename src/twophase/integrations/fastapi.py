"""FastAPI: the check-back route in one line, and branches that take effect once.

app.include_router(check_router(engine))

@app.post("/transfer-in")
@branch(engine)
def transfer_in(connection: Connection, transfer: Transfer) -> None:
    receive(connection, transfer)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from operator import itemgetter, methodcaller
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, overload

from twophase.integrations.functions import (
    BranchDecorator,
    call_inside,
    is_coroutine_branch,
    missing_extra,
    require_no_status,
    validate_branch,
)

try:
    from anyio import from_thread
    from fastapi import APIRouter, BackgroundTasks, FastAPI, Request, Response
    from starlette.exceptions import HTTPException
except ModuleNotFoundError as error:
    raise missing_extra("fastapi", error) from None

from twophase.barrier import branch as rule
from twophase.barrier.asking import LOCK_TIMEOUT_S
from twophase.barrier.branch import BranchOngoing, BranchRefused
from twophase.barrier.branch_answer import Framework, aanswer_branch, answer_branch, refusal
from twophase.barrier.dialect import DEFAULT_TABLE
from twophase.barrier.effect import await_end, require_answered, require_blocking
from twophase.barrier.http_answer import (
    CheckBackPolicy,
    HttpReply,
    aanswer_check_back,
    answer_check_back,
    asheltered,
    sheltered,
)
from twophase.barrier.open import is_async, refuse_no_engine
from twophase.barrier.signing import AsSent, Keys, ReceivedCall, accept, encoded_path, http_call
from twophase.client.cleaner import BarrierCleaner
from twophase.core.errors import FunctionRefused, StoreError, Unavailable
from twophase.core.signature import known_keys
from twophase.integrations.asgi import Hinting, require_not_started
from twophase.integrations.unavailable import reply_to

if TYPE_CHECKING:
    from twophase.barrier.engines import Asynchronous, Asyncpg, AsyncpgHandle, Blocking, DjangoHandle, H

__all__ = [
    "BranchOngoing",
    "BranchRefused",
    "answer_unavailable",
    "aonce",
    "branch",
    "check_router",
    "clean_barrier",
    "once",
]

_REQUEST = "twophase_request"
_DONE = 200


def _response(answer: HttpReply) -> Response:
    return Response(content=answer.body, status_code=answer.status, headers=answer.headers)


def _branch_response(answer: HttpReply) -> Response:
    """Return a branch's answer.

    Where nothing was committed, the function's background tasks do not run.
    """
    response = _response(answer)
    if answer.status != _DONE:
        response.background = BackgroundTasks()  # FastAPI gives its own to an answer that has none
    return response


class _FastAPI(Framework):
    """FastAPI's and Starlette's HTTPException."""

    def answer_in(self, error: Exception) -> HttpReply | None:
        return refusal(error.status_code, error.detail, error.headers) if isinstance(error, HTTPException) else None


def check_router(
    engine: Any,
    path: str = "/twophase/check",
    *,
    table: str = DEFAULT_TABLE,
    lock_timeout: float | timedelta = LOCK_TIMEOUT_S,
    require_identity: bool = True,
    keys: Keys | None = None,
    as_sent: AsSent | None = None,
) -> APIRouter:
    """The route that answers check-backs.

    Arguments:
        engine: the database of the producer's transactions; a sync one is used in the thread pool.
        path: where the route stands; the `check` that a transaction is given must lead here.
        table: the barrier's name in that database, `name` or `schema.name`, as `install` was given it.
        lock_timeout: the longest wait for a transaction under way, in seconds or as a timedelta; keep it below the
            coordinator's request timeout.
        require_identity: answer unknown when the check address does not name its database, as our SDK's do; False
            to answer for producers that write dtm's barrier with other SDKs.
        keys: secrets by key id; a question that none of them has signed is answered 401, before any statement.
        as_sent: gives the path that the coordinator called, where a proxy rewrites it.

    Raises:
        ConfigurationError: the table's name cannot be one, a key cannot be one, or `lock_timeout` is less than a
            millisecond.
        UnsupportedEngine: the engine is a URL, or plainly none, such as a maker of sessions.
    """
    refuse_no_engine(engine)
    policy = CheckBackPolicy.of(table, lock_timeout, require_identity=require_identity, keys=keys)
    router = APIRouter()

    def check(request: Request) -> Response:
        def answer() -> HttpReply:
            call = _received(request, bytes, as_sent)
            return answer_check_back(engine, request.query_params, policy, call)

        return _response(sheltered(answer))

    async def acheck(request: Request) -> Response:
        async def answer() -> HttpReply:
            call = _received(request, bytes, as_sent)
            return await aanswer_check_back(engine, request.query_params, policy, call)

        return _response(await asheltered(answer))

    route = acheck if is_async(engine) else check
    router.add_api_route(path, route, methods=["GET"], name="twophase_check", include_in_schema=False)
    return router


def _received(request: Request, body: Callable[[], bytes], as_sent: AsSent | None) -> ReceivedCall:
    scope = request.scope
    raw_path = scope.get("raw_path")
    path = raw_path.decode("latin-1").partition("?")[0] if raw_path else encoded_path(scope["path"])
    peer = request.client.host if request.client is not None else ""
    query = scope["query_string"].decode("latin-1")
    return http_call(request.method, path, query, request.headers, body, peer=peer, as_sent=as_sent)


def _body(request: Request) -> bytes:
    """Return the body, in a thread of the framework's.

    FastAPI has read it already, for a model; else the event loop reads it.
    """
    read = vars(request).get("_body")  # by FastAPI, for a model
    try:
        return read if isinstance(read, bytes) else from_thread.run(request.body)
    except RuntimeError as error:
        raise _unreadable() from error


async def _abody(request: Request) -> bytes:
    try:
        return await request.body()
    except RuntimeError as error:
        raise _unreadable() from error


def _unreadable() -> FunctionRefused:
    return FunctionRefused(
        "the body of the call cannot be verified: the route has read it as a form or a stream, or calls `once` in the "
        "event loop.",
        remedy="Take a model or the Request instead of a form; in an `async def` route use `aonce`.",
    )


@overload
def once(
    engine: Blocking[H],
    request: Request,
    function: Callable[[H], object],
    *,
    table: str = DEFAULT_TABLE,
    keys: Keys | None = None,
    as_sent: AsSent | None = None,
) -> Response: ...
@overload
def once(
    engine: str,
    request: Request,
    function: Callable[[DjangoHandle], object],
    *,
    table: str = DEFAULT_TABLE,
    keys: Keys | None = None,
    as_sent: AsSent | None = None,
) -> Response: ...
def once(
    engine: Any,
    request: Request,
    function: Callable[[Any], object],
    *,
    table: str = DEFAULT_TABLE,
    keys: Keys | None = None,
    as_sent: AsSent | None = None,
) -> Response:
    """Run a branch's effect once, and reply as the coordinator understands.

    It is for `def` routes; see `barrier.once`. `keys`, `as_sent`: as `check_router`.
    """

    def effect(handle: Any) -> object:
        return require_answered(function(handle))

    def verified() -> object:
        require_blocking(function, "aonce")
        accept(known_keys(keys), _received(request, functools.partial(_body, request), as_sent))
        return rule.once(engine, request.query_params, effect, table=table)

    return _branch_response(answer_branch(verified, _FastAPI()))


@overload
async def aonce(
    engine: Asyncpg,
    request: Request,
    function: Callable[[AsyncpgHandle], Awaitable[object]],
    *,
    table: str = DEFAULT_TABLE,
    keys: Keys | None = None,
    as_sent: AsSent | None = None,
) -> Response: ...
@overload
async def aonce(
    engine: Asynchronous[H],
    request: Request,
    function: Callable[[H], Awaitable[object]],
    *,
    table: str = DEFAULT_TABLE,
    keys: Keys | None = None,
    as_sent: AsSent | None = None,
) -> Response: ...
async def aonce(
    engine: Any,
    request: Request,
    function: Callable[[Any], Awaitable[object]],
    *,
    table: str = DEFAULT_TABLE,
    keys: Keys | None = None,
    as_sent: AsSent | None = None,
) -> Response:
    """`once` for `async def` routes with an async engine."""

    async def effect(handle: Any) -> object:
        return require_answered(await await_end(function(handle), "once"))

    async def verified() -> object:
        body = await _abody(request) if keys is not None else b""
        accept(known_keys(keys), _received(request, lambda: body, as_sent))
        return await rule.aonce(engine, request.query_params, effect, table=table)

    return _branch_response(await aanswer_branch(verified, _FastAPI()))


@overload
def branch(
    engine: Asyncpg, *, table: str = DEFAULT_TABLE, keys: Keys | None = None, as_sent: AsSent | None = None
) -> BranchDecorator[AsyncpgHandle, Response]: ...
@overload
def branch(
    engine: Asynchronous[H], *, table: str = DEFAULT_TABLE, keys: Keys | None = None, as_sent: AsSent | None = None
) -> BranchDecorator[H, Response]: ...
@overload
def branch(
    engine: str, *, table: str = DEFAULT_TABLE, keys: Keys | None = None, as_sent: AsSent | None = None
) -> BranchDecorator[DjangoHandle, Response]: ...
@overload
def branch(
    engine: Blocking[H], *, table: str = DEFAULT_TABLE, keys: Keys | None = None, as_sent: AsSent | None = None
) -> BranchDecorator[H, Response]: ...
def branch(engine: Any, *, table: str = DEFAULT_TABLE, keys: Keys | None = None, as_sent: AsSent | None = None) -> Any:
    """Make a branch's route of one function, which takes effect once.

    The function is given the transaction's connection first, then what FastAPI injects: models, path parameters,
    dependencies. An injected session that is not in the transaction is refused (OutsideTransaction). An async engine
    takes an `async def`. What it returns is not sent: a commit is answered with 200.

    Arguments:
        engine: the database of the effect.
        table: the barrier's name in that database, `name` or `schema.name`.
        keys: as `check_router`. FastAPI resolves dependencies, and parses the body, before a call is verified.
        as_sent: as `check_router`.

    Raises:
        FunctionRefused: the function is async and the engine is not or the other way round, or takes no connection.
        ConfigurationError: the table's name cannot be one, or a key cannot be one.
    """
    validate_branch(engine, table, keys)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        view: Callable[..., Any]
        asynchronous = is_coroutine_branch(engine, function, follow_wrapped=True)
        signature, request_of = _signature(function)
        if asynchronous:

            async def aview(*args: Any, **injected: Any) -> Response:
                request = request_of(injected)

                async def effect(connection: Any) -> Any:
                    result = await call_inside(function, args, injected, connection)
                    require_no_status(injected, Response)
                    return result

                return await aonce(engine, request, effect, table=table, keys=keys, as_sent=as_sent)

            view = aview
        else:

            def sync_view(*args: Any, **injected: Any) -> Response:
                request = request_of(injected)

                def effect(connection: Any) -> Any:
                    result = call_inside(function, args, injected, connection)
                    require_no_status(injected, Response)
                    return result

                return once(engine, request, effect, table=table, keys=keys, as_sent=as_sent)

            view = sync_view
        functools.update_wrapper(view, function)
        vars(view)["__signature__"] = signature
        return view

    return decorate


def _signature(function: Callable[..., Any]) -> tuple[inspect.Signature, Callable[[dict[str, Any]], Request]]:
    """Return the signature that FastAPI injects into, and the getter of the request.

    The signature has the function's parameters behind the connection, and the request. FastAPI gives the request to one
    parameter alone, so the function's own is used where it has one.
    """
    names = getattr(inspect.unwrap(function), "__globals__", {})
    _, *parameters = (
        parameter.replace(annotation=_evaluated(parameter.annotation, names))
        for parameter in inspect.signature(function).parameters.values()
    )
    own = next((parameter.name for parameter in parameters if _is_request(parameter.annotation)), None)
    if own is not None:
        return inspect.Signature(parameters, return_annotation=Response), itemgetter(own)
    request = inspect.Parameter(_REQUEST, inspect.Parameter.KEYWORD_ONLY, annotation=Request)
    return inspect.Signature([*parameters, request], return_annotation=Response), methodcaller("pop", _REQUEST)


def _is_request(annotation: Any) -> bool:
    type_ = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return isinstance(type_, type) and issubclass(type_, Request)


def _evaluated(annotation: Any, names: dict[str, Any]) -> Any:
    """Evaluate an annotation where its names are known.

    `from __future__ import annotations` left it as text.
    """
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, names)  # noqa: S307 -- the service's own annotation, as FastAPI itself reads it
    except NameError:
        return annotation


def answer_unavailable(app: FastAPI) -> None:
    """Answer 503 with Retry-After when no coordinator could be asked.

    Then the message's transaction was not started. The request itself must not have committed anything before, because
    503 invites the caller to repeat it. Errors after the message's commit are not touched.

    Raises:
        ConfigurationError: the application has started, as in its lifespan.
    """
    require_not_started(app, "answer_unavailable")

    def answer(_request: Request, error: Exception) -> Response:
        reply = reply_to(error)
        if reply is None:
            raise error
        return _response(reply)

    app.add_exception_handler(Unavailable, answer)
    app.add_exception_handler(StoreError, answer)


def clean_barrier(app: FastAPI, engine: Any, coordinators: Sequence[str], **options: Any) -> BarrierCleaner:
    """Let old barrier rows be removed beside the service's work.

    They are removed at most once a minute; see `BarrierCleaner`.

    Arguments:
        app: its requests are the hints; no request waits.
        engine, coordinators, options: as `BarrierCleaner`.

    Raises:
        ConfigurationError: no coordinator is named, or an option cannot work.
    """
    cleaner = BarrierCleaner(engine, coordinators, **options)
    app.add_middleware(Hinting, cleaner=cleaner)
    return cleaner
