"""The gRPC port: dtm's service for its clients, health and reflection for operators (dtm-wire §2).

The same reading of a request and the same coordinator callbacks as over HTTP; what HTTP says by a status is said by the
gRPC code that dtm's clients take for the same: ABORTED for FAILURE above all. Code, state and remedy of ours come in
the trailing metadata. What is no request is refused before any work: an unknown method, bytes that are no protobuf, a
message beyond the limit. Sockets are never shared with another process.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio
import structlog
from google.protobuf import empty_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from twophase.core.errors import ForgottenMessage, InvalidRequest, TwophaseError, UnknownMessage, UnsupportedType
from twophase.core.gid import RANDOM_BYTES, make_gid
from twophase.core.hooks import Clock
from twophase.core.limits import BODY_BYTES_MAX, REQUEST_HEADER_BYTES_MAX, require
from twophase.rpc.messages import SERVICE, BrokenMessage, Request, Topic, encode_gid, parse_request, parse_topic, pool
from twophase.server.decode import Decoder
from twophase.server.dtm_jsonrpc import answers
from twophase.server.encode import RETRY_AFTER_S, Refusal, Route, refusal
from twophase.server.listener import Requests
from twophase.server.trace import Trace
from twophase.server.wire import WireRequest, parse_steps

if TYPE_CHECKING:
    from twophase.coordinator.entry import ReplyOf
    from twophase.coordinator.topics import Topics

    Context = grpc.aio.ServicerContext[bytes, bytes]
    Method = Callable[[bytes, Context], Awaitable[bytes]]

_log = structlog.get_logger("twophase.grpc")
_EMPTY: Final = empty_pb2.Empty().SerializeToString()
# gRPC takes any content type, and gives a body that is none of its messages out as an empty one.
_EMPTY_REQUEST: Final = (
    "the request is empty: a gRPC message (content-type application/grpc, five bytes before the protobuf) is needed."
)
_CODES: Final = {
    HTTPStatus.CONFLICT: grpc.StatusCode.ABORTED,
    HTTPStatus.BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    HTTPStatus.SERVICE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
}
_CODES_OF_ERRORS: Final = (
    (UnknownMessage, grpc.StatusCode.NOT_FOUND),
    (UnsupportedType, grpc.StatusCode.UNIMPLEMENTED),
    (ForgottenMessage, grpc.StatusCode.OUT_OF_RANGE),
)
_NOT_SERVED: Final = {
    "RegisterBranch": "branches of SAGA and TCC transactions are not served here, only 2-phase messages.",
    "PrepareWorkflow": "workflow transactions are not served here, only 2-phase messages.",
}


class GrpcDoor:
    """One gRPC port.

    Arguments:
        requests: the coordinator.
        decoder: turns requests into messages.
        clock: gives new gids their birth time.
        on_refused: hears the error code of each request refused here.
        topics: what Subscribe and its like change; None: they are not served.
        connections_max: clients connected at once; beyond, they are cut off.
        calls_max: requests under way at once; beyond, they get RESOURCE_EXHAUSTED.
        idle_timeout_ms: a connection may rest so long between two requests.
        credentials: TLS; None for plain text.
    """

    def __init__(
        self,
        requests: Requests,
        decoder: Decoder,
        clock: Clock,
        *,
        on_refused: Callable[[str], None],
        topics: Topics | None = None,
        connections_max: int = 1_000,
        calls_max: int = 10_000,
        idle_timeout_ms: int = 75_000,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self._requests = requests
        self._decoder = decoder
        self._clock = clock
        self._topics = topics
        self._refused = on_refused
        self._credentials = credentials
        self._connections_max = connections_max
        self._calls_max = calls_max
        self._idle_timeout_ms = idle_timeout_ms
        self._server: grpc.aio.Server | None = None
        self._health = health.aio.HealthServicer()

    async def start(self, host: str, port: int) -> str:
        """Listen; port 0 takes a free one. Returns the URL.

        Raises:
            OSError: the address cannot be used.
        """
        server = grpc.aio.server(options=self._options(), maximum_concurrent_rpcs=self._calls_max)
        server.add_generic_rpc_handlers((self._service(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        known = pool()
        for file in (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
            known.AddSerializedFile(file.serialized_pb)
        names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server, pool=known)
        server.add_generic_rpc_handlers((_Unknown(self._refused),))
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        # Kept from now on, also when it cannot listen: gRPC's threads may still look at a server that was let go.
        self._server = server
        try:
            if self._credentials is None:
                bound = server.add_insecure_port(address)
            else:
                bound = server.add_secure_port(address, self._credentials)
        except RuntimeError as error:
            raise OSError(None, "the address is taken or not ours") from error
        await server.start()
        for name in ("", SERVICE):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        scheme = "grpc" if self._credentials is None else "grpcs"
        return f"{scheme}://{address.rpartition(':')[0]}:{bound}"

    async def drain(self, timeout_s: float) -> None:
        """Accept no more requests, end those under way, within `timeout_s`."""
        if self._server is not None:
            await self._health.enter_graceful_shutdown()
            await self._server.stop(timeout_s)

    async def stop(self) -> None:
        """Cut what is left. Safe to call twice."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)

    def _options(self) -> list[tuple[str, int]]:
        return [
            ("grpc.so_reuseport", 0),
            # Twice the limit, so that a request somewhat above it is told which limit, by our own words.
            ("grpc.max_receive_message_length", 2 * BODY_BYTES_MAX.value),
            ("grpc.max_metadata_size", REQUEST_HEADER_BYTES_MAX.value),
            ("grpc.max_connection_idle_ms", self._idle_timeout_ms),
            ("grpc.max_allowed_incoming_connections", self._connections_max),
        ]

    # ---- the service ----------------------------------------------------------------------------------------------

    def _service(self) -> grpc.GenericRpcHandler:
        methods: dict[str, Method] = {
            "Prepare": self._prepare,
            "Submit": self._submit,
            "Abort": self._abort,
            "NewGid": self._new_gid,
        }
        methods |= {name: self._not_served(what) for name, what in _NOT_SERVED.items()}
        if self._topics is not None:
            methods |= _topic_methods(self._topics)
        # Bytes in, bytes out: a request that is no protobuf is then refused in our words.
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            name: grpc.unary_unary_rpc_method_handler(self._guarded(one)) for name, one in methods.items()
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _guarded(self, method: Method) -> Method:
        async def guarded(raw: bytes, context: Context) -> bytes:
            try:
                return await method(raw, context)
            except TwophaseError as error:
                self._refused(error.code)
                await _end(context, error, refusal(error))
            except (grpc.aio.AbortError, asyncio.CancelledError):
                raise
            except Exception as error:  # noqa: BLE001 -- one request's fault must not tell a client our insides
                _log.error("a request failed on a fault of the server", exc_info=error)
                internal = TwophaseError("internal error.")
                await _end(context, internal, refusal(internal))
            raise AssertionError("abort raises")

        return guarded

    async def _prepare(self, raw: bytes, context: Context) -> bytes:
        message = self._decoder.message_of(*_read(raw), self._trace(context))
        future: asyncio.Future[ReplyOf] = asyncio.get_running_loop().create_future()
        self._requests.prepare(message, answers(future))
        return await _reply(context, Route.PREPARE, await future)

    async def _submit(self, raw: bytes, context: Context) -> bytes:
        message = self._decoder.message_of(*_read(raw), self._trace(context))
        future: asyncio.Future[ReplyOf] = asyncio.get_running_loop().create_future()
        self._requests.submit(message, answers(future))
        return await _reply(context, Route.SUBMIT, await future)

    async def _abort(self, raw: bytes, context: Context) -> bytes:
        gid = self._decoder.gid_of(_read(raw)[0])
        future: asyncio.Future[ReplyOf] = asyncio.get_running_loop().create_future()
        self._requests.abort(gid, answers(future))
        return await _reply(context, Route.ABORT, await future)

    def _trace(self, context: Context) -> Trace:
        pairs = ((str(key).encode(), _bytes(value)) for key, value in context.invocation_metadata() or ())
        return self._decoder.trace.among(pairs)

    async def _new_gid(self, _raw: bytes, _context: Context) -> bytes:
        return encode_gid(make_gid(self._clock.now_ms(), os.urandom(RANDOM_BYTES)))

    def _not_served(self, what: str) -> Method:
        async def refuse(_raw: bytes, _context: Context) -> bytes:
            raise UnsupportedType(what)

        return refuse


def _topic_methods(topics: Topics) -> dict[str, Method]:
    async def subscribe(raw: bytes, _context: Context) -> bytes:
        said = _read_topic(raw)
        await topics.subscribe(said.topic, said.url, said.remark)
        return _EMPTY

    async def unsubscribe(raw: bytes, _context: Context) -> bytes:
        said = _read_topic(raw)
        await topics.unsubscribe(said.topic, said.url)
        return _EMPTY

    async def delete(raw: bytes, _context: Context) -> bytes:
        await topics.delete(_read_topic(raw).topic)
        return _EMPTY

    return {"Subscribe": subscribe, "Unsubscribe": unsubscribe, "DeleteTopic": delete}


class _Unknown(grpc.GenericRpcHandler):
    """Asked last: what no service knows is refused before its message is read, by a text that names what there is."""

    def __init__(self, on_refused: Callable[[str], None]) -> None:
        self._refused = on_refused

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = str(handler_call_details.method)

        async def refuse(_requests: object, context: Context) -> None:
            self._refused(InvalidRequest.code)
            error = InvalidRequest(f"there is no method {method[:200]!r}; the service is {SERVICE}.")
            await _end(context, error, refusal(error), grpc.StatusCode.UNIMPLEMENTED)

        return grpc.stream_stream_rpc_method_handler(refuse)


def _read(raw: bytes) -> tuple[WireRequest, int, list[bytes]]:
    """The request as every wire format's, its length, its payloads.

    Raises:
        InvalidRequest: no DtmRequest. LimitExceeded: too long.
    """
    if not raw:
        raise InvalidRequest(_EMPTY_REQUEST)
    require(BODY_BYTES_MAX, len(raw))
    try:
        said = parse_request(raw)
    except BrokenMessage as error:
        raise InvalidRequest(f"{error}.") from error
    return _wire(said), len(raw), said.payloads


def _read_topic(raw: bytes) -> Topic:
    """The topic request; raises InvalidRequest."""
    if not raw:
        raise InvalidRequest(_EMPTY_REQUEST)
    try:
        return parse_topic(raw)
    except BrokenMessage as error:
        raise InvalidRequest(f"{error}.") from error


def _wire(said: Request) -> WireRequest:
    return WireRequest(
        gid=said.gid,
        trans_type=said.trans_type,
        steps=parse_steps(said.steps),
        query_prepared=said.query_prepared,
        protocol="grpc",
        custom_data=said.custom_data,
        wait_result=said.wait_result,
        timeout_to_fail=said.timeout_to_fail,
        request_timeout=said.request_timeout,
        retry_interval=said.retry_interval,
        branch_headers=dict(said.branch_headers),
        concurrent=said.concurrent,
        delay_ms=said.delay_ms or None,
        timeout_to_fail_ms=said.timeout_to_fail_ms or None,
        request_timeout_ms=said.request_timeout_ms or None,
        retry_interval_ms=said.retry_interval_ms or None,
        explicit_verdict=said.explicit_verdict,
        open=said.open,
        durability=said.durability,
        next_cron_time=said.next_cron_time,
        attempts_max=said.attempts_max,
    )


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


async def _reply(context: Context, route: Route, reply: ReplyOf) -> bytes:
    if reply.error is not None:
        await _end(context, reply.error, refusal(reply.error, route=route, state=reply.state, result=reply.result))
    if reply.prepared_at_ms:
        context.set_trailing_metadata((("twophase-prepared-at", str(reply.prepared_at_ms)),))
    return _EMPTY


async def _end(context: Context, error: TwophaseError, said: Refusal, code: grpc.StatusCode | None = None) -> None:
    """End the call with an error; never returns."""
    if code is None:
        code = next((named for kind, named in _CODES_OF_ERRORS if isinstance(error, kind)), None)
    if code is None:
        code = _CODES.get(HTTPStatus(said.status), grpc.StatusCode.UNKNOWN)
    metadata = [("twophase-code", said.code), ("twophase-remedy", said.remedy.encode("ascii", "replace").decode())]
    if said.state:
        metadata.append(("twophase-state", said.state))
    if said.status == HTTPStatus.SERVICE_UNAVAILABLE:
        metadata.append(("grpc-retry-pushback-ms", str(RETRY_AFTER_S * 1000)))
    await context.abort(code, said.message, tuple(metadata))
