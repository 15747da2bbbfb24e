"""Flask: the check-back route in one line, and branches that take effect once.

app.register_blueprint(check_blueprint(engine))

@app.post("/transfer-in")
@branch(engine)
def transfer_in(connection: Connection) -> None:
    receive(connection, request.get_json())
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, overload

import msgspec

from twophase.integrations.functions import (
    BranchDecorator,
    call_inside,
    is_coroutine_branch,
    missing_extra,
    validate_branch,
)

try:
    from flask import Blueprint, Flask, Response, current_app, got_request_exception, request
    from werkzeug.exceptions import HTTPException
except ModuleNotFoundError as error:
    raise missing_extra("flask", error) from None

from twophase.barrier import branch as rule
from twophase.barrier.asking import LOCK_TIMEOUT_S
from twophase.barrier.branch import BranchOngoing, BranchRefused
from twophase.barrier.branch_answer import Framework, aanswer_branch, answer_branch, refusal
from twophase.barrier.dialect import DEFAULT_TABLE
from twophase.barrier.effect import await_end, require_answered, require_blocking
from twophase.barrier.http_answer import CheckBackPolicy, HttpReply, answer_check_back, sheltered
from twophase.barrier.open import refuse_no_engine
from twophase.barrier.signing import AsSent, Keys, ReceivedCall, accept, http_call, path_of_wsgi
from twophase.client.cleaner import BarrierCleaner
from twophase.core.errors import StoreError, Unavailable
from twophase.core.signature import SigningKey, known_keys
from twophase.integrations.unavailable import reply_to

if TYPE_CHECKING:
    from twophase.barrier.engines import Asynchronous, Asyncpg, AsyncpgHandle, Blocking, DjangoHandle, H

__all__ = [
    "BranchOngoing",
    "BranchRefused",
    "answer_unavailable",
    "aonce",
    "branch",
    "check_blueprint",
    "clean_barrier",
    "once",
]


def _response(answer: HttpReply) -> Response:
    return Response(answer.body, status=answer.status, headers=answer.headers)


class _Flask(Framework):
    """Flask's `abort`, and its log and signal for errors."""

    def answer_in(self, error: Exception) -> HttpReply | None:
        if not isinstance(error, HTTPException):
            return None
        own = error.get_response() if error.response is not None else None
        if own is not None:  # abort(make_response(…))
            body = b"" if getattr(own, "is_streamed", False) else getattr(own, "data", b"")
            headers = {name: value for name, value in own.headers.items() if name.lower() != "content-length"}
            return HttpReply(own.status_code, headers, body)
        if error.code is None:
            return None
        return refusal(error.code, error.description or error.name, dict(error.get_headers()))

    def report(self, error: Exception) -> None:
        app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001 -- the documented way to a signal's sender
        app.log_exception(sys.exc_info())
        got_request_exception.send(app, _async_wrapper=app.ensure_sync, exception=error)


def check_blueprint(
    engine: Any,
    path: str = "/twophase/check",
    *,
    table: str = DEFAULT_TABLE,
    lock_timeout: float | timedelta = LOCK_TIMEOUT_S,
    require_identity: bool = True,
    keys: Keys | None = None,
    as_sent: AsSent | None = None,
) -> Blueprint:
    """The route that answers check-backs.

    Arguments:
        engine: the database of the producer's transactions, blocking.
        path: where the route stands; the `check` that a transaction is given must lead here.
        table: the barrier's name in that database, `name` or `schema.name`, as `install` was given it.
        lock_timeout: the longest wait for a transaction under way, in seconds or as a timedelta; keep it below the
            coordinator's request timeout.
        require_identity: answer unknown when the check address does not name its database, as our SDK's do; False
            to answer for producers that write dtm's barrier with other SDKs.
        keys: secrets by key id; a question that none of them has signed is answered 401, before any statement. By
            default the application's `TWOPHASE_KEYS`, if it has them.
        as_sent: gives the path that the coordinator called, where a proxy rewrites it.

    Raises:
        ConfigurationError: the table's name cannot be one, a key cannot be one, or `lock_timeout` is less than a
            millisecond.
        UnsupportedEngine: the engine is a URL, or plainly none, such as a maker of sessions.
    """
    refuse_no_engine(engine)
    policy = CheckBackPolicy.of(table, lock_timeout, require_identity=require_identity, keys=keys)
    blueprint = Blueprint("twophase", __name__)

    def check() -> Response:
        def answer() -> HttpReply:
            in_force = msgspec.structs.replace(policy, keys=_keys(keys))
            return answer_check_back(engine, request.args, in_force, _received(bytes, as_sent))

        return _response(sheltered(answer))

    blueprint.add_url_rule(path, "check", check, methods=["GET"])
    return blueprint


def _received(body: Callable[[], bytes], as_sent: AsSent | None) -> ReceivedCall:
    path = path_of_wsgi(request.environ, f"{request.root_path}{request.path}")
    query, peer = request.query_string.decode("latin-1"), request.remote_addr or ""
    return http_call(request.method, path, query, request.headers, body, peer=peer, as_sent=as_sent)


def _keys(keys: Keys | None) -> tuple[SigningKey, ...] | None:
    return known_keys(current_app.config.get("TWOPHASE_KEYS") if keys is None else keys)


@overload
def once(
    engine: Blocking[H],
    function: Callable[[H], object],
    *,
    table: str = DEFAULT_TABLE,
    keys: Keys | None = None,
    as_sent: AsSent | None = None,
) -> Response: ...
@overload
def once(
    engine: str,
    function: Callable[[DjangoHandle], object],
    *,
    table: str = DEFAULT_TABLE,
    keys: Keys | None = None,
    as_sent: AsSent | None = None,
) -> Response: ...
def once(
    engine: Any,
    function: Callable[[Any], object],
    *,
    table: str = DEFAULT_TABLE,
    keys: Keys | None = None,
    as_sent: AsSent | None = None,
) -> Response:
    """Run a branch's effect once, and reply as the coordinator understands.

    See `barrier.once`. `keys`, `as_sent`: as `check_blueprint`.
    """

    def effect(handle: Any) -> object:
        return require_answered(function(handle))

    def verified() -> object:
        require_blocking(function, "aonce")
        accept(_keys(keys), _received(request.get_data, as_sent))
        return rule.once(engine, request.args, effect, table=table)

    return _response(answer_branch(verified, _Flask()))


@overload
async def aonce(
    engine: Asyncpg,
    function: Callable[[AsyncpgHandle], Awaitable[object]],
    *,
    table: str = DEFAULT_TABLE,
    keys: Keys | None = None,
    as_sent: AsSent | None = None,
) -> Response: ...
@overload
async def aonce(
    engine: Asynchronous[H],
    function: Callable[[H], Awaitable[object]],
    *,
    table: str = DEFAULT_TABLE,
    keys: Keys | None = None,
    as_sent: AsSent | None = None,
) -> Response: ...
async def aonce(
    engine: Any,
    function: Callable[[Any], Awaitable[object]],
    *,
    table: str = DEFAULT_TABLE,
    keys: Keys | None = None,
    as_sent: AsSent | None = None,
) -> Response:
    """Run `once` for `async def` views.

    Flask runs each in its own event loop: give an async engine without a pool.
    """

    async def effect(handle: Any) -> object:
        return require_answered(await await_end(function(handle), "once"))

    async def verified() -> object:
        accept(_keys(keys), _received(request.get_data, as_sent))
        return await rule.aonce(engine, request.args, effect, table=table)

    return _response(await aanswer_branch(verified, _Flask()))


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
    """Make a branch's view of one function, which takes effect once.

    The function is given the transaction's connection first, then the route's values. A session among them that is not
    in the transaction is refused (OutsideTransaction). An async engine takes an `async def`. What it returns is not
    sent: a commit is answered with 200.

    Arguments:
        engine: the database of the effect.
        table: the barrier's name in that database, `name` or `schema.name`.
        keys: as `check_blueprint`.
        as_sent: as `check_blueprint`.

    Raises:
        FunctionRefused: the function is async and the engine is not or the other way round, or takes no connection.
        ConfigurationError: the table's name cannot be one, or a key cannot be one.
    """
    validate_branch(engine, table, keys)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if is_coroutine_branch(engine, function):

            @functools.wraps(function)
            async def aview(*args: Any, **values: Any) -> Response:
                effect = functools.partial(call_inside, function, args, values)
                return await aonce(engine, effect, table=table, keys=keys, as_sent=as_sent)

            return aview

        @functools.wraps(function)
        def view(*args: Any, **values: Any) -> Response:
            effect = functools.partial(call_inside, function, args, values)
            return once(engine, effect, table=table, keys=keys, as_sent=as_sent)

        return view

    return decorate


def answer_unavailable(app: Flask) -> None:
    """Answer 503 with Retry-After when no coordinator could be asked.

    Then the message's transaction was not started. The request itself must not have committed anything before, because
    503 invites the caller to repeat it. Errors after the message's commit are not touched.
    """

    def answer(error: Exception) -> Response:
        reply = reply_to(error)
        if reply is None:
            raise error
        return _response(reply)

    app.register_error_handler(Unavailable, answer)
    app.register_error_handler(StoreError, answer)


def clean_barrier(app: Flask, engine: Any, coordinators: Sequence[str], **options: Any) -> BarrierCleaner:
    """Let old barrier rows be removed beside the service's work.

    They are removed at most once a minute; see `BarrierCleaner`.

    Arguments:
        app: its requests are the hints; no request waits.
        engine: blocking.
        coordinators, options: as `BarrierCleaner`.

    Raises:
        ConfigurationError: no coordinator is named, or an option cannot work.
    """
    cleaner = BarrierCleaner(engine, coordinators, **options)
    app.teardown_request(lambda _error: cleaner.hint())
    return cleaner
