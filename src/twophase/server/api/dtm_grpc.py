"""The gRPC port: dtm's service, and health and reflection (dtm-wire §2, ADR 0017).

Requests are read as over HTTP, and the coordinator is called back in the same way. In place of HTTP's status stands the
gRPC code that dtm's clients take for the same: ABORTED for FAILURE above all. Code, state and remedy, which dtm does
not have, stand in the trailing metadata. What is no request is refused before any work: another content type, an
unknown method, bytes that are no protobuf, a message beyond the limit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from google.protobuf import empty_pb2

from twophase.core.audit_log import Actor
from twophase.core.errors import (
    Forbidden,
    ForgottenMessage,
    InvalidRequest,
    Overloaded,
    QuotaExceeded,
    ServerFault,
    TwophaseError,
    Unauthenticated,
    UnknownMessage,
    UnsupportedType,
)
from twophase.core.gid import fresh_gid
from twophase.core.hooks import Clock
from twophase.core.limits import BODY_BYTES_MAX, REQUEST_HEADER_BYTES_MAX, REQUEST_VALUES_MAX, require
from twophase.core.message import Message
from twophase.grpc_server.calls import ALL_TAKEN
from twophase.grpc_server.http2.headers import Fields
from twophase.grpc_server.http2.limits import Limits
from twophase.grpc_server.http2.response import Response
from twophase.grpc_server.services import Services, UnaryCoroutine, UnaryMethod
from twophase.grpc_server.status import Ended, Status, ended, success
from twophase.grpc_server.unary import UnaryCall
from twophase.grpc_wire.messages import (
    SERVICE,
    BrokenMessage,
    Request,
    count_fields,
    encode_gid,
    parse_request,
    parse_topic,
)
from twophase.http_client.byte_budget import ByteBudget
from twophase.http_client.turns import LONG_BYTES
from twophase.server.api.grpc_operators import Operators
from twophase.server.browsers import BrowserGuard
from twophase.server.codecs.decode import Decoder
from twophase.server.codecs.encode import Refusal, Route, refusal
from twophase.server.codecs.options import OPTION_FIELDS
from twophase.server.codecs.trace import Trace
from twophase.server.codecs.values import too_many_values
from twophase.server.codecs.wire import WireRequest, parse_steps
from twophase.server.grpc_listener import GrpcListener, crashed
from twophase.server.http_port.port import Requests
from twophase.server.identity.caller import Caller
from twophase.server.identity.gate import Gate
from twophase.server.identity.scopes import scopes_of
from twophase.server.tls import ServerTls

if TYPE_CHECKING:
    from twophase.coordinator.state.active_message import Reply
    from twophase.coordinator.topic_changes import ChangeableTopics

    Hot = Callable[[UnaryCall, bytes, Caller], None]
    Cold = Callable[[bytes, Caller, str], Awaitable[bytes]]

Parsed = TypeVar("Parsed")

_EMPTY: Final = empty_pb2.Empty().SerializeToString()
_EMPTY_REQUEST: Final = "the request is empty: a protobuf message dtmgimp.DtmRequest is needed."
_CODES: Final = {
    HTTPStatus.CONFLICT: Status.ABORTED,
    HTTPStatus.BAD_REQUEST: Status.INVALID_ARGUMENT,
    HTTPStatus.FORBIDDEN: Status.PERMISSION_DENIED,
    HTTPStatus.MISDIRECTED_REQUEST: Status.INVALID_ARGUMENT,
    HTTPStatus.SERVICE_UNAVAILABLE: Status.UNAVAILABLE,
}
_CODES_OF_ERRORS: Final = (
    (UnknownMessage, Status.NOT_FOUND),
    (UnsupportedType, Status.UNIMPLEMENTED),
    (ForgottenMessage, Status.OUT_OF_RANGE),
    (Unauthenticated, Status.UNAUTHENTICATED),
    (Forbidden, Status.PERMISSION_DENIED),
    (QuotaExceeded, Status.RESOURCE_EXHAUSTED),
)
_NOT_SERVED: Final = {
    "RegisterBranch": "branches of SAGA and TCC transactions are not served here, only 2-phase messages.",
    "PrepareWorkflow": "workflow transactions are not served here, only 2-phase messages.",
}
_SUCCESS: Final = success(_EMPTY)
_ANSWERS_KEPT_MAX: Final = 4096


class Kept(NamedTuple):
    """The value of a call's metadata: what its calls carry on, and who sends it."""

    trace: Trace
    caller: Caller


class GrpcApi:
    """One gRPC port.

    Arguments:
        requests: the coordinator.
        decoder: turns requests into messages.
        clock: gives new gids their birth time.
        on_refused: hears the error code of each request refused here.
        topics: what Subscribe and its like change; None: they are not served.
        connections_max: clients connected at once; beyond, they may ask for health, or are cut off.
        per_address_percent: share of the connections, and of the budget, that one peer address may hold.
        calls_max: requests under way at once; beyond, they get RESOURCE_EXHAUSTED.
        idle_timeout_ms: a connection may rest so long between two requests.
        tls: gives the context of new connections; None for plain text.
        gate: finds out who sends a call; open by default.
        browsers: refuses calls of web pages, and calls to other names than the server's.
        budget: of the bytes of unfinished requests; its own by default.
    """

    def __init__(
        self,
        requests: Requests,
        decoder: Decoder,
        clock: Clock,
        *,
        on_refused: Callable[[str], None],
        topics: ChangeableTopics | None = None,
        connections_max: int = 1_000,
        per_address_percent: int = 100,
        calls_max: int = 10_000,
        idle_timeout_ms: int = 75_000,
        tls: ServerTls | None = None,
        gate: Gate | None = None,
        browsers: BrowserGuard | None = None,
        budget: ByteBudget | None = None,
    ) -> None:
        self._requests = requests
        self._decoder = decoder
        self._clock = clock
        self._topics = topics
        self._refused = on_refused
        self._has_tls = tls is not None
        self._gate = gate or Gate()
        self._calls_max = calls_max
        limits = Limits(
            connections_max=connections_max,
            per_address_percent=per_address_percent,
            header_list_bytes_max=REQUEST_HEADER_BYTES_MAX.value,
            idle_s=idle_timeout_ms / 1000,
        )
        on_turned_away = partial(on_refused, Overloaded.code)
        self._listener = GrpcListener(limits, on_turned_away=on_turned_away, tls=tls, browsers=browsers, budget=budget)
        self._gate.on_reread.append(self._listener.forget)
        self._successes: dict[int, Response] = {0: _SUCCESS}
        self._operators = Operators(SERVICE)

    async def start(self, host: str, port: int, *, shares_port: bool = False) -> str:
        """Listen; port 0 takes a free one. Returns the URL.

        `shares_port`: other processes listen on it, too.

        Raises:
            OSError: the address cannot be used.
        """
        bound = await self._listener.start(self._make_services(), host, port, shares_port=shares_port)
        await self._operators.serving()
        return f"{'grpcs' if self._has_tls else 'grpc'}://{bound}"

    async def drain(self, timeout_s: float) -> None:
        """Accept no more requests, end those under way, within `timeout_s`."""
        await self._listener.drain(timeout_s, self._operators.leaving)

    async def stop(self) -> None:
        """Cut what is left. Safe to call twice."""
        await self._listener.stop()

    def _make_services(self) -> Services:
        services = Services(
            # Twice the limit, so that a request somewhat above it is read, and refused with twophase's own text, which
            # names the limit.
            message_bytes_max=2 * BODY_BYTES_MAX.value,
            header_list_bytes_max=REQUEST_HEADER_BYTES_MAX.value,
            calls_max=self._calls_max,
            too_many=self._too_many,
            unknown=_unknown,
            on_refused=partial(self._refused, InvalidRequest.code),
            on_crash=crashed,
            crash_end=_ended(ServerFault(), refusal(ServerFault())),
        )
        services.turns = self._decoder.turns
        services.keep = self._keep
        services.refuse = self._refuse_browsers
        services.turn_away = partial(self._too_many, ALL_TAKEN, Status.UNAVAILABLE)
        hot = {"Prepare": self._prepare, "Submit": self._submit, "Abort": self._abort}
        for name, method in hot.items():
            path = f"/{SERVICE}/{name}"
            services.unary(path, self._guarded(path, method))
        cold: dict[str, Cold] = {"NewGid": self._new_gid} | {
            name: self._not_served(what) for name, what in _NOT_SERVED.items()
        }
        if self._topics is not None:
            cold |= _topic_methods(self._topics)
        for name, answer in cold.items():
            path = f"/{SERVICE}/{name}"
            services.coroutine(path, self._guarded_coroutine(path, answer))
        self._operators.serve(services)
        return services

    def _keep(self, fields: Fields) -> Kept:
        return Kept(self._decoder.trace.among(fields), self._gate.among(fields))

    def _caller(self, call: UnaryCall) -> Caller:
        """Return the sender of a call.

        Its metadata names the sender, or else the certificate of its connection.
        """
        caller: Caller = call.head.kept.caller
        if caller is self._gate.unknown and self._has_tls:
            return self._gate.with_certificate(call.connection.certificate)
        return caller

    def _refuse_browsers(self, fields: Fields) -> Response | None:
        error = self._listener.why_not(fields)
        return None if error is None else _refusal(error, refusal(error))

    def _guarded(self, path: str, method: Hot) -> UnaryMethod:
        scopes = scopes_of(path)

        def guarded(call: UnaryCall, raw: bytes) -> None:
            caller = self._caller(call)
            try:
                caller.require(scopes, path, call.connection.address)
                method(call, raw, caller)
            except TwophaseError as error:
                self._refused(error.code)
                caller.when_noted(partial(call.finish, _refusal(error, refusal(error))))

        return guarded

    def _guarded_coroutine(self, path: str, method: Cold) -> UnaryCoroutine:
        scopes = scopes_of(path)

        async def guarded(call: UnaryCall, raw: bytes) -> bytes:
            caller = self._caller(call)
            try:
                caller.require(scopes, path, call.connection.address)
                return await method(raw, caller, call.connection.address)
            except TwophaseError as error:
                self._refused(error.code)
                await caller.noted()
                raise _ended(error, refusal(error)) from error

        return guarded

    def _prepare(self, call: UnaryCall, raw: bytes, caller: Caller) -> None:
        message = self._message(call, raw, caller)
        self._requests.prepare(message, partial(self._answer, call, Route.PREPARE), None, caller.owner)

    def _submit(self, call: UnaryCall, raw: bytes, caller: Caller) -> None:
        message = self._message(call, raw, caller)
        self._requests.submit(message, partial(self._answer, call, Route.SUBMIT), None, caller.owner)

    def _abort(self, call: UnaryCall, raw: bytes, caller: Caller) -> None:
        gid = self._decoder.gid_of(_read(raw)[0])
        caller.require_gid(gid)
        self._requests.abort(gid, partial(self._answer, call, Route.ABORT), caller.owner)

    def _message(self, call: UnaryCall, raw: bytes, caller: Caller) -> Message:
        message = self._decoder.message_of(*_read(raw), call.head.kept.trace)
        if caller.limited:
            caller.require_message(message)
        return message

    def _answer(self, call: UnaryCall, route: Route, reply: Reply) -> None:
        """Answer the call by the coordinator's one reply."""
        error = reply.error
        if error is not None:
            call.finish(_refusal(error, refusal(error, route=route, state=reply.state, result=reply.result)))
            return
        answer = self._successes.get(reply.prepared_at_ms)
        if answer is None:
            if len(self._successes) >= _ANSWERS_KEPT_MAX:
                self._successes.clear()
            answer = success(_EMPTY, (("twophase-prepared-at", str(reply.prepared_at_ms)),))
            self._successes[reply.prepared_at_ms] = answer
        call.finish(answer)

    async def _new_gid(self, _raw: bytes, caller: Caller, _peer: str) -> bytes:
        return encode_gid(caller.gid_prefix + fresh_gid(self._clock.now_ms()))

    def _not_served(self, what: str) -> Cold:
        async def refuse(_raw: bytes, _caller: Caller, _peer: str) -> bytes:
            raise UnsupportedType(what)

        return refuse

    def _too_many(self, text: str, code: Status = Status.RESOURCE_EXHAUSTED) -> Response:
        self._refused(Overloaded.code)
        error = Overloaded(text)
        return _refusal(error, refusal(error), code)


def _topic_methods(topics: ChangeableTopics) -> dict[str, Cold]:
    async def subscribe(raw: bytes, caller: Caller, peer: str) -> bytes:
        request = _parsed(parse_topic, raw)
        caller.require_address(request.url)
        await topics.subscribe(request.topic, request.url, request.remark, Actor(caller.name, peer))
        return _EMPTY

    async def unsubscribe(raw: bytes, caller: Caller, peer: str) -> bytes:
        request = _parsed(parse_topic, raw)
        await topics.unsubscribe(request.topic, request.url, Actor(caller.name, peer))
        return _EMPTY

    async def delete(raw: bytes, caller: Caller, peer: str) -> bytes:
        await topics.delete(_parsed(parse_topic, raw).topic, Actor(caller.name, peer))
        return _EMPTY

    return {"Subscribe": subscribe, "Unsubscribe": unsubscribe, "DeleteTopic": delete}


def _unknown(path: str) -> Response:
    """Refuse a method that no service has, before its message is read.

    The text names the service that exists, and no token.
    """
    shown = "/t/…" if path.startswith("/t/") else path
    error = InvalidRequest(f"there is no method {shown!r}; the service is {SERVICE}.")
    return _refusal(error, refusal(error), Status.UNIMPLEMENTED)


def _read(raw: bytes) -> tuple[WireRequest, int, list[bytes]]:
    """Return the request as every wire format has it, its length, its payloads.

    Raises:
        InvalidRequest: no DtmRequest. LimitExceeded: too long, or too many values.
    """
    if len(raw) > LONG_BYTES:
        require(BODY_BYTES_MAX, len(raw))
        if count_fields(raw, REQUEST_VALUES_MAX.value) > REQUEST_VALUES_MAX.value:
            raise too_many_values(REQUEST_VALUES_MAX.value)
    elif not raw:
        raise InvalidRequest(_EMPTY_REQUEST)
    request = _parsed(parse_request, raw)
    return _wire(request), len(raw), request.payloads


def _parsed(parse: Callable[[bytes], Parsed], raw: bytes) -> Parsed:
    """Return the request that the bytes are; raises InvalidRequest."""
    try:
        return parse(raw)
    except BrokenMessage as error:
        raise InvalidRequest(f"{error}.") from error


def _wire(request: Request) -> WireRequest:
    """Return the same request as over HTTP.

    An empty or zero field counts as absent: protobuf cannot tell the two apart.
    """
    options: dict[str, Any] = {name: getattr(request, name) or None for name in OPTION_FIELDS}
    return WireRequest(
        request.gid, request.trans_type, parse_steps(request.steps), None, request.query_prepared, "grpc", **options
    )


def _refusal(error: TwophaseError, refusal: Refusal, code: Status | None = None) -> Response:
    """Return the response that ends a call with an error."""
    end = _ended(error, refusal, code)
    return ended(end.status, end.message, end.metadata)


def _ended(error: TwophaseError, refusal: Refusal, code: Status | None = None) -> Ended:
    if code is None:
        code = next((named for kind, named in _CODES_OF_ERRORS if isinstance(error, kind)), None)
    if code is None:
        code = _CODES.get(HTTPStatus(refusal.status), Status.UNKNOWN)
    metadata = [
        ("twophase-code", refusal.code),
        ("twophase-remedy", refusal.remedy.encode("ascii", "replace").decode()),
    ]
    if refusal.state:
        metadata.append(("twophase-state", refusal.state))
    if refusal.retry_after_s:
        metadata.append(("grpc-retry-pushback-ms", str(refusal.retry_after_s * 1000)))
    return Ended(code, refusal.message, metadata)
