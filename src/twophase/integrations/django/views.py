"""Django views for check-backs and branches, on a database alias."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

import msgspec
from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET

from twophase.barrier import branch as rule
from twophase.barrier.asking import LOCK_TIMEOUT_S
from twophase.barrier.branch_answer import aanswer_branch, answer_branch
from twophase.barrier.dialect import DEFAULT_TABLE
from twophase.barrier.http_answer import CheckBackPolicy, HttpReply, answer_check_back, sheltered
from twophase.barrier.open import refuse_no_engine
from twophase.barrier.signing import AsSent, Keys, ReceivedCall, accept, http_call, path_of_wsgi
from twophase.core.signature import SigningKey, known_keys
from twophase.integrations.django.failures import DjangoFailures
from twophase.integrations.functions import call_inside, is_coroutine_branch, validate_branch

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from twophase.barrier.engines import Asynchronous, Asyncpg, AsyncpgHandle, H

View = Callable[..., HttpResponse]
P = ParamSpec("P")
H_co = TypeVar("H_co", covariant=True)
V = TypeVar("V", bound=View)


def _response(answer: HttpReply) -> HttpResponse:
    return HttpResponse(answer.body, status=answer.status, headers=answer.headers)


def check_view(
    alias: str = "default",
    *,
    table: str = DEFAULT_TABLE,
    lock_timeout: float | timedelta = LOCK_TIMEOUT_S,
    require_identity: bool = True,
    keys: Keys | None = None,
    as_sent: AsSent | None = None,
) -> View:
    """The view that answers check-backs for an alias.

    It stands outside ATOMIC_REQUESTS: a verdict must be committed before it is spoken.

    Arguments:
        alias: the database of the producer's transactions.
        table: the barrier's name in that database, `name` or `schema.name`, as `install` was given it.
        lock_timeout: the longest wait for a transaction under way, in seconds or as a timedelta; keep it below the
            coordinator's request timeout.
        require_identity: answer unknown when the check address does not name its database, as our SDK's do; False
            to answer for producers that write dtm's barrier with other SDKs.
        keys: secrets by key id; a question that none of them has signed is answered 401, before any statement. By
            default the setting `TWOPHASE_KEYS`, if there is one.
        as_sent: gives the path that the coordinator called, where a proxy rewrites it.

    Raises:
        ConfigurationError: the table's name cannot be one, a key cannot be one, or `lock_timeout` is less than a
            millisecond.
        UnsupportedEngine: the engine is a URL, or plainly none, such as a maker of sessions.
    """
    refuse_no_engine(alias)
    policy = CheckBackPolicy.of(table, lock_timeout, require_identity=require_identity, keys=keys)

    @transaction.non_atomic_requests(using=alias)
    @require_GET
    def check(request: HttpRequest) -> HttpResponse:
        def answer() -> HttpReply:
            in_force = msgspec.structs.replace(policy, keys=_keys(keys))
            return answer_check_back(alias, request.GET, in_force, _received(request, bytes, as_sent))

        return _response(sheltered(answer))

    return check


def _received(request: HttpRequest, body: Callable[[], bytes], as_sent: AsSent | None) -> ReceivedCall:
    raw_path = getattr(request, "scope", {}).get("raw_path")  # of ASGI
    path = raw_path.decode("latin-1") if raw_path else path_of_wsgi(request.META, request.path)
    query, peer = request.META.get("QUERY_STRING", ""), request.META.get("REMOTE_ADDR", "")
    return http_call(request.method or "", path, query, request.headers, body, peer=peer, as_sent=as_sent)


def _keys(keys: Keys | None) -> tuple[SigningKey, ...] | None:
    return known_keys(getattr(settings, "TWOPHASE_KEYS", None) if keys is None else keys)


def once(
    alias: str,
    request: HttpRequest,
    function: Callable[[BaseDatabaseWrapper], object],
    *,
    table: str = DEFAULT_TABLE,
    keys: Keys | None = None,
    as_sent: AsSent | None = None,
) -> HttpResponse:
    """Run a branch's effect once, and reply as the coordinator understands.

    See `barrier.once`. The view needs `branch_view`: under ATOMIC_REQUESTS there would be a transaction already.
    `keys`, `as_sent`: as `check_view`.
    """

    def verified() -> object:
        accept(_keys(keys), _received(request, lambda: request.body, as_sent))
        return rule.once(alias, request.GET, function, table=table)

    failures = DjangoFailures(request)
    return failures.marked(_response(answer_branch(verified, failures)))


@overload
def branch_view(alias: V) -> V: ...
@overload
def branch_view(alias: str = "default") -> Callable[[V], V]: ...
def branch_view(alias: str | V = "default") -> V | Callable[[V], V]:
    """Decorate a view that coordinators call.

    It needs no CSRF token, and runs outside ATOMIC_REQUESTS, so that `once` owns the commit.

    Arguments:
        alias: the database of the effect: `@branch_view("stock")`; the default one also bare, as `@branch_view`.
    """
    if isinstance(alias, str):
        return functools.partial(_outside, alias)
    return _outside("default", alias)


def _outside(alias: str, view: V) -> V:
    outside: V = transaction.non_atomic_requests(using=alias)(csrf_exempt(view))
    return outside


@overload
async def aonce(
    engine: Asyncpg,
    request: HttpRequest,
    function: Callable[[AsyncpgHandle], Awaitable[object]],
    *,
    table: str = DEFAULT_TABLE,
    keys: Keys | None = None,
    as_sent: AsSent | None = None,
) -> HttpResponse: ...
@overload
async def aonce(
    engine: Asynchronous[H],
    request: HttpRequest,
    function: Callable[[H], Awaitable[object]],
    *,
    table: str = DEFAULT_TABLE,
    keys: Keys | None = None,
    as_sent: AsSent | None = None,
) -> HttpResponse: ...
async def aonce(
    engine: Any,
    request: HttpRequest,
    function: Callable[[Any], Awaitable[object]],
    *,
    table: str = DEFAULT_TABLE,
    keys: Keys | None = None,
    as_sent: AsSent | None = None,
) -> HttpResponse:
    """Run `once` for `async def` views, with an async engine.

    The engine is of SQLAlchemy or asyncpg; Django's own aliases are blocking.
    """

    async def verified() -> object:
        accept(_keys(keys), _received(request, lambda: request.body, as_sent))
        return await rule.aonce(engine, request.GET, function, table=table)

    failures = DjangoFailures(request)
    return failures.marked(_response(await aanswer_branch(verified, failures)))


class BranchDecorator(Protocol[H_co]):
    """Makes a view of a function whose first argument is the transaction's connection."""

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[H_co, HttpRequest, P], Awaitable[object]], /
    ) -> Callable[Concatenate[HttpRequest, P], Coroutine[Any, Any, HttpResponse]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[H_co, HttpRequest, P], object], /
    ) -> Callable[Concatenate[HttpRequest, P], HttpResponse]: ...


@overload
def branch(
    engine: Asyncpg, *, table: str = DEFAULT_TABLE, keys: Keys | None = None, as_sent: AsSent | None = None
) -> BranchDecorator[AsyncpgHandle]: ...
@overload
def branch(
    engine: Asynchronous[H], *, table: str = DEFAULT_TABLE, keys: Keys | None = None, as_sent: AsSent | None = None
) -> BranchDecorator[H]: ...
@overload
def branch(
    engine: str = "default", *, table: str = DEFAULT_TABLE, keys: Keys | None = None, as_sent: AsSent | None = None
) -> BranchDecorator[BaseDatabaseWrapper]: ...
def branch(
    engine: Any = "default", *, table: str = DEFAULT_TABLE, keys: Keys | None = None, as_sent: AsSent | None = None
) -> Any:
    """Make a branch's view of one function, which takes effect once.

    It needs no `branch_view`. The function is given the transaction's connection first, then the request and the
    route's values. What it returns is not sent: a commit is answered with 200. A write on another alias is refused
    (OutsideTransaction), and so is a session among the values that is not in the transaction.

    Arguments:
        engine: the alias of the effect's database; or an async engine, whose function is an `async def`.
        table: the barrier's name in that database, `name` or `schema.name`.
        keys: as `check_view`.
        as_sent: as `check_view`.

    Raises:
        FunctionRefused: the function is async and the engine is not or the other way round, or takes no connection.
        ConfigurationError: the table's name cannot be one, or a key cannot be one.
    """
    validate_branch(engine, table, keys)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        view: Any
        if is_coroutine_branch(engine, function):

            async def aview(request: HttpRequest, *args: Any, **values: Any) -> HttpResponse:
                effect = functools.partial(call_inside, function, (request, *args), values)
                return await aonce(engine, request, effect, table=table, keys=keys, as_sent=as_sent)

            view = aview
        else:

            def sync_view(request: HttpRequest, *args: Any, **values: Any) -> HttpResponse:
                effect = functools.partial(call_inside, function, (request, *args), values)
                return once(engine, request, effect, table=table, keys=keys, as_sent=as_sent)

            view = sync_view
        functools.update_wrapper(view, function)
        outside: Callable[..., Any] = _outside(engine if isinstance(engine, str) else "default", view)
        return outside

    return decorate
