"""gRPC services: the check-back, and branches that take effect once.

The check-back takes one line of code. Both are for grpc.server and grpc.aio.server.

server.add_generic_rpc_handlers((check_handler(engine),))     # answers grpc://this-host:port/twophase.Producer/Check

class Bank(BankServicer):
    def TransferIn(self, request, context):
        return once(engine, context, lambda connection: receive(connection, request), Empty())
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, overload
from urllib.parse import parse_qs, unquote

import msgspec

from twophase.integrations.functions import missing_extra

try:
    import grpc
except ModuleNotFoundError as error:
    raise missing_extra("grpc", error) from None

from twophase.barrier import branch
from twophase.barrier.asking import LOCK_TIMEOUT_S
from twophase.barrier.branch_answer import Framework, aanswer_branch, answer_branch
from twophase.barrier.dialect import DEFAULT_TABLE
from twophase.barrier.effect import RAISE, await_end, require_blocking
from twophase.barrier.http_answer import (
    CheckBackPolicy,
    HttpReply,
    aanswer_check_back,
    answer_check_back,
    asheltered,
    sheltered,
)
from twophase.barrier.open import is_async, refuse_no_engine
from twophase.barrier.parameters import one_value
from twophase.barrier.signing import Keys, ReceivedCall, accept, grpc_call
from twophase.core.errors import CallNotSigned, FunctionRefused
from twophase.core.signature import VERDICT_SIGNATURE_HEADER, SigningKey, known_keys
from twophase.core.verdict import GRPC_OF_STATUS, VERDICT_HEADER

if TYPE_CHECKING:
    from twophase.barrier.engines import Asynchronous, Asyncpg, AsyncpgHandle, Blocking, DjangoHandle, H

CHECK_METHOD: Final = "/twophase.Producer/Check"
_PARAMETERS: Final = {
    "dtm-gid": "gid",
    "dtm-branch_id": "branch_id",
    "dtm-op": "op",
    "dtm-trans_type": "trans_type",
    "twophase-prepared_at": "prepared_at",
    "twophase-barrier": "barrier",
}
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_OF_VERDICT: Final = (VERDICT_HEADER, VERDICT_SIGNATURE_HEADER)
_NO_CODE: Final = (None, 0, grpc.StatusCode.OK)
_DETAILS: Final = {409: "FAILURE", 425: "ONGOING"}

R = TypeVar("R")


def parameters(context: Any) -> dict[str, str]:
    """Return the coordinator's parameters from a call's metadata.

    They are gid, branch_id, op, trans_type, and twophase's own.

    Arguments:
        context: the call's, of `grpc` or of `grpc.aio`.

    Raises:
        InvalidRequest: one of them comes twice.
    """
    parameters = _every_value(context, {})
    return {name: one_value(parameters, name) or "" for name in parameters}


def _every_value(context: Any, also: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return every value of each parameter, in the call's metadata and in `also`.

    Two of one name are refused later.
    """
    parameters = {name: list(values) for name, values in also.items()}
    for key, value in context.invocation_metadata() or ():
        name = _PARAMETERS.get(key)
        if name is not None and isinstance(value, str):
            parameters.setdefault(name, []).append(value)
    return parameters


class _Check(grpc.GenericRpcHandler):
    """Serves one method; its requests and replies are bytes."""

    def __init__(self, method: str, engine: Any, policy: CheckBackPolicy, *, asynchronous: bool) -> None:
        self._method = method
        self._engine = engine
        self._policy = policy
        self._asynchronous = asynchronous

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        # A coordinator that does not know an address's parameters sends them as part of the method's name.
        method, _, query = str(handler_call_details.method).partition("?")
        if method != self._method:
            return None
        also = parse_qs(query)

        called = str(handler_call_details.method)

        def check(request: bytes, context: grpc.ServicerContext) -> bytes:
            asked = _every_value(context, also), self._policy, _received(called, request, context)
            return _replied(context, sheltered(lambda: answer_check_back(self._engine, *asked)))

        async def acheck(request: bytes, context: Any) -> bytes:
            asked = _every_value(context, also), self._policy, _received(called, request, context)
            if is_async(self._engine):
                answer = await asheltered(lambda: aanswer_check_back(self._engine, *asked))
            else:
                answer = await asheltered(lambda: asyncio.to_thread(answer_check_back, self._engine, *asked))
            return await _areplied(context, answer)

        return grpc.unary_unary_rpc_method_handler(acheck if self._asynchronous else check)


def check_handler(
    engine: Any,
    method: str = CHECK_METHOD,
    *,
    table: str = DEFAULT_TABLE,
    lock_timeout: float | timedelta = LOCK_TIMEOUT_S,
    require_identity: bool = True,
    keys: Keys | None = None,
) -> grpc.GenericRpcHandler:
    """Return the handler that answers check-backs.

    Add it by `grpc.server(…).add_generic_rpc_handlers((check_handler(engine),))`.

    Arguments:
        engine: the database of the producer's transactions, blocking.
        method: `/package.Service/Method`; the check address is `grpc://host:port` with it behind.
        table, lock_timeout, require_identity: as `twophase.integrations.fastapi.check_router`.
        keys: secrets by key id; a question that none of them has signed ends with UNAUTHENTICATED, before any
            statement. Branches are verified by `signed_calls`.

    Raises:
        ConfigurationError: the table's name cannot be one, a key cannot be one, or `lock_timeout` is less than a
            millisecond.
        UnsupportedEngine: the engine is a URL, or plainly none, such as a maker of sessions.
    """
    refuse_no_engine(engine)
    policy = CheckBackPolicy.of(table, lock_timeout, require_identity=require_identity, keys=keys)
    return _Check(method, engine, policy, asynchronous=False)


def acheck_handler(
    engine: Any,
    method: str = CHECK_METHOD,
    *,
    table: str = DEFAULT_TABLE,
    lock_timeout: float | timedelta = LOCK_TIMEOUT_S,
    require_identity: bool = True,
    keys: Keys | None = None,
) -> grpc.GenericRpcHandler:
    """`check_handler` for a `grpc.aio.server`; a blocking engine is asked in a thread."""
    refuse_no_engine(engine)
    policy = CheckBackPolicy.of(table, lock_timeout, require_identity=require_identity, keys=keys)
    return _Check(method, engine, policy, asynchronous=True)


def signed_calls(keys: Keys, *methods: str) -> grpc.ServerInterceptor:
    """Return the interceptor that refuses branch calls which are not signed.

    `once` sees the request decoded, and a signature is of its bytes; so they are verified before.

        grpc.server(pool, interceptors=[signed_calls(KEYS, "/bank.Bank/TransferIn")])

    Arguments:
        keys: as `check_handler`. A call that none has signed ends with UNAUTHENTICATED, and is not decoded.
        methods: those that only the coordinator calls, `/package.Service/Method`; without any, all of the server.

    Raises:
        ConfigurationError: a key cannot be one.
    """
    return _SignedCalls(known_keys(keys), methods)


def asigned_calls(keys: Keys, *methods: str) -> grpc.aio.ServerInterceptor:
    """`signed_calls` for a `grpc.aio.server`."""
    return _ASignedCalls(known_keys(keys), methods)


class _SignedCalls(grpc.ServerInterceptor):
    def __init__(self, keys: tuple[SigningKey, ...] | None, methods: tuple[str, ...]) -> None:
        self._keys = keys
        self._methods = methods

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)
        return _verifying(self._keys, self._methods, str(handler_call_details.method), handler)


class _ASignedCalls(grpc.aio.ServerInterceptor):
    def __init__(self, keys: tuple[SigningKey, ...] | None, methods: tuple[str, ...]) -> None:
        self._keys = keys
        self._methods = methods

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        return _verifying(self._keys, self._methods, str(handler_call_details.method), handler)


def _verifying(keys: tuple[SigningKey, ...] | None, methods: tuple[str, ...], method: str, handler: Any) -> Any:
    """Return a handler that verifies the calls of a method first.

    A method that is not among `methods` keeps its own.
    """
    if handler is None or (methods and method not in methods):
        return handler
    behaviour, decode = handler.unary_unary, handler.request_deserializer

    def why_not(body: bytes, context: Any) -> str:
        if behaviour is None:
            return "The coordinator calls no streaming method."
        try:
            accept(keys, _received(method, body, context))
        except CallNotSigned as error:
            return f"{error.code}: {error.message}"
        return ""

    def verified(body: bytes, context: Any) -> Any:
        refusal = why_not(body, context)
        if refusal:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, refusal)
        return behaviour(decode(body) if decode is not None else body, context)

    async def averified(body: bytes, context: Any) -> Any:
        refusal = why_not(body, context)
        if refusal:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, refusal)
        return await behaviour(decode(body) if decode is not None else body, context)

    wrapped = averified if inspect.iscoroutinefunction(behaviour) else verified
    return grpc.unary_unary_rpc_method_handler(wrapped, None, handler.response_serializer)


def _received(method: str, body: bytes, context: Any) -> ReceivedCall:
    kind, _, address = str(context.peer()).partition(":")
    peer = unquote(address.rpartition(":")[0]).strip("[]") if kind in {"ipv4", "ipv6"} else ""
    return grpc_call(method, context.invocation_metadata() or (), body, peer=peer)


@overload
def once(
    engine: Blocking[H], context: Any, function: Callable[[H], object], reply: R, *, table: str = DEFAULT_TABLE
) -> R: ...
@overload
def once(
    engine: str, context: Any, function: Callable[[DjangoHandle], object], reply: R, *, table: str = DEFAULT_TABLE
) -> R: ...
def once(engine: Any, context: Any, function: Callable[[Any], object], reply: R, *, table: str = DEFAULT_TABLE) -> R:
    """Run a branch's effect once, and end the call as the coordinator understands.

    See `barrier.once`.

    Arguments:
        engine: the database of the effect, blocking.
        context: the call's.
        function: the effect; it is given what it executes its statements on.
        reply: what is returned after the commit, also when it had taken effect before.

    Raises:
        what ends a call, with ABORTED for `BranchRefused`, FAILED_PRECONDITION for `BranchOngoing` and a busy database,
        INVALID_ARGUMENT when the metadata names no branch, UNKNOWN for whatever else `function` raised, which is
        logged. An interceptor that catches it cannot make it a success. What `function` itself ends by
        `context.abort` keeps its code.
    """

    def effect(handle: Any) -> object:
        result = function(handle)
        _require_no_code(context)
        return result

    def run() -> object:
        require_blocking(function, "aonce")
        return branch.once(engine, parameters(context), effect, table=table)

    ends = _Ends(context)
    answer = answer_branch(run, ends)
    if ends.raised is not None:
        raise ends.raised
    if answer.status != 200:
        context.abort(*_end(answer))
    return reply


@overload
async def aonce(
    engine: Asyncpg,
    context: Any,
    function: Callable[[AsyncpgHandle], Awaitable[object]],
    reply: R,
    *,
    table: str = DEFAULT_TABLE,
) -> R: ...
@overload
async def aonce(
    engine: Asynchronous[H],
    context: Any,
    function: Callable[[H], Awaitable[object]],
    reply: R,
    *,
    table: str = DEFAULT_TABLE,
) -> R: ...
async def aonce(
    engine: Any, context: Any, function: Callable[[Any], Awaitable[object]], reply: R, *, table: str = DEFAULT_TABLE
) -> R:
    """`once` for a `grpc.aio.server` with an async engine."""

    async def effect(handle: Any) -> object:
        result = await await_end(function(handle), "once")
        _require_no_code(context)
        return result

    ends = _Ends(context)
    answer = await aanswer_branch(lambda: branch.aonce(engine, parameters(context), effect, table=table), ends)
    if ends.raised is not None:
        raise ends.raised
    if answer.status != 200:
        await context.abort(*_end(answer))
    return reply


class _Ends(Framework):
    """The end that the function itself has given to its call.

    It did so by `abort` or `set_code`, and that code stands.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        self.raised: Exception | None = None

    def report(self, error: Exception) -> None:
        if isinstance(error, grpc.aio.AbortError) or self._context.code() not in _NO_CODE:
            self.raised = error
        else:
            super().report(error)


def _require_no_code(context: Any) -> None:
    """Refuse a code that the function has set.

    The next call would find the branch done.

    Raises:
        FunctionRefused: there is one.
    """
    code = context.code()
    if code not in _NO_CODE:
        raise FunctionRefused(
            "the function has set the call's code, and returned: its branch would count as done.",
            remedy=RAISE,
        )


def _replied(context: grpc.ServicerContext, answer: HttpReply) -> bytes:
    context.set_trailing_metadata(_verdict(answer.headers))
    if answer.status != 200:
        context.abort(*_end(answer))
        _unreachable()
    return answer.body


async def _areplied(context: Any, answer: HttpReply) -> bytes:
    context.set_trailing_metadata(_verdict(answer.headers))
    if answer.status != 200:
        await context.abort(*_end(answer), _verdict(answer.headers))
        _unreachable()
    return answer.body


def _verdict(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple([(name, value) for name, value in headers.items() if name in _OF_VERDICT])


def _end(answer: HttpReply) -> tuple[grpc.StatusCode, str]:
    """Return the code and the text of an answer that is not a success.

    The text is dtm's own word, where it has one, and the reason.
    """
    code, word = _CODES[GRPC_OF_STATUS.get(answer.status, 2)], _DETAILS.get(answer.status)
    if word is None:
        return code, answer.body.decode()
    why = msgspec.json.decode(answer.body).get("message", "")
    return code, f"{word}: {why}" if why else word


def _unreachable() -> NoReturn:
    raise AssertionError("abort raises")
