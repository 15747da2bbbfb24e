"""The port: RocketMQ's methods; the token, the bounds and the end of each call.

Promise: a mistake of a client is answered by a status code, and its connection and its other calls live on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import structlog

from twophase.coordinator.queues import QueueApi
from twophase.core.errors import ConfigurationError, InvalidRequest, Overloaded, ServerFault, TwophaseError
from twophase.core.hooks import Clock
from twophase.core.limits import BODY_BYTES_MAX, REQUEST_HEADER_BYTES_MAX
from twophase.grpc_server.http2.headers import Fields
from twophase.grpc_server.http2.limits import Limits
from twophase.grpc_server.http2.response import Response
from twophase.grpc_server.services import Services
from twophase.grpc_server.status import Ended, Status, ended
from twophase.grpc_server.streaming import StreamingCall
from twophase.grpc_server.unary import UnaryCall
from twophase.http_client.byte_budget import ByteBudget
from twophase.rocketmq_wire.answers import encode_received_status, encode_status, encode_telemetry_status
from twophase.rocketmq_wire.codes import Code
from twophase.rocketmq_wire.descriptors import SERVICE
from twophase.rocketmq_wire.requests import BrokenMessage
from twophase.server.advertised import advertised
from twophase.server.browsers import BrowserGuard
from twophase.server.grpc_listener import GrpcListener, crashed
from twophase.server.identity.gate import Gate
from twophase.server.identity.scopes import scopes_of
from twophase.server.rocketmq.caller import Client, Kept
from twophase.server.rocketmq.consuming import RECEIVE, Consuming
from twophase.server.rocketmq.credentials import caller_of
from twophase.server.rocketmq.peculiarities import Peculiarities
from twophase.server.rocketmq.producing import Producing
from twophase.server.rocketmq.refusals import Refused, status_of
from twophase.server.rocketmq.rooms import Rooms, sender_of
from twophase.server.rocketmq.routing import WIRE, Handler, Routing
from twophase.server.rocketmq.telemetry import Telemetry
from twophase.server.sessions import Sessions
from twophase.server.settings import Settings
from twophase.server.tls import ServerTls

_log = structlog.get_logger("twophase.server")
_TELEMETRY: Final = f"/{SERVICE}/Telemetry"
_SEND: Final = f"/{SERVICE}/SendMessage"
_SHORT_BYTES_MAX: Final = 64 * 1024
"""The longest request of a method that takes no bodies."""
_SENT_BYTES_MAX: Final = BODY_BYTES_MAX.value
"""Bytes of the messages of one sender that the engine has at once.

A flush writes as many at most.
"""
_ALL_PERCENT: Final = 100
_CLIENT_ID_MAX: Final = 255
_JAVAS_AUTHORITY: Final = (b":authority", b"IPAuthority")
"""The name that the official Java client gives a server whose IP address it dials."""
_REQUEST_ID: Final = b"x-mq-request-id"
"""Another one in each call of the official clients; nothing here needs it."""
_HEADERS: Final = frozenset({b"x-mq-client-id", b"x-mq-language", b"x-mq-namespace", b":authority"})


class RocketmqPort:
    """One port; nothing is opened before `start`.

    Arguments:
        settings: the part that begins with `rocketmq_`, `host`, and the bounds of the gRPC port.
        queues: the engine.
        sessions: the clients of queues.
        clock: the coordinator's.
        on_refused: hears the error code of each request refused here.
        gate: finds out who sends a call.
        browsers, budget, tls: as the gRPC port's.
    """

    def __init__(
        self,
        settings: Settings,
        queues: QueueApi,
        sessions: Sessions,
        clock: Clock,
        on_refused: Callable[[str], None],
        gate: Gate,
        browsers: BrowserGuard,
        budget: ByteBudget,
        tls: ServerTls | None,
    ) -> None:
        self._settings = settings
        self._refused = on_refused
        self._gate = gate
        self._queues = queues
        self._has_tls = tls is not None
        limits = Limits(
            connections_max=settings.grpc_connections_max,
            per_address_percent=settings.connections_per_address_percent,
            header_list_bytes_max=REQUEST_HEADER_BYTES_MAX.value,
            idle_s=settings.idle_timeout_ms / 1000,
        )
        self._listener = GrpcListener(
            limits, on_turned_away=partial(on_refused, Overloaded.code), tls=tls, browsers=browsers, budget=budget
        )
        gate.on_reread += [self._listener.forget, sessions.reread]
        self._sessions = sessions
        self._peculiarities = Peculiarities()
        self._rooms = Rooms(_SENT_BYTES_MAX)
        self._shared = settings.connections_per_address_percent < _ALL_PERCENT
        self._telemetry = Telemetry(queues)
        self._consuming = Consuming(queues, clock)
        self._routing = Routing(queues)
        self._handlers = {
            **self._routing.handlers(),
            **Producing(queues, clock).handlers(),
            **self._consuming.handlers(),
        }

    async def start(self, incarnation: int, others: Mapping[str, str] | None = None) -> list[str]:
        """Listen, and let other nodes name the port. Returns the URL, as a list of one.

        Arguments:
            incarnation: another number after each start, where other nodes know none of this one.
            others: addresses of this node for other wire formats, which are announced with it.

        Raises:
            ConfigurationError: the port cannot be opened.
            StoreError: the address cannot be announced to the other nodes.
        """
        settings = self._settings
        assert settings.rocketmq_port != "off", "it is made only where the settings want it"
        self._peculiarities = Peculiarities(incarnation)
        try:
            bound = await self._listener.start(self._services(), settings.host, settings.rocketmq_port)
        except OSError as error:
            where = f"{settings.host}:{settings.rocketmq_port}"
            raise ConfigurationError(f"host, rocketmq_port: cannot listen on {where}: {error.strerror}.") from error
        address = advertised(settings.rocketmq_address, bound)
        if settings.rocketmq_address:
            self._routing.address = address
        self._routing.announced = "" if address.startswith(":") else address
        if address.startswith(":") and not settings.store.startswith("sqlite"):
            _log.warning(
                "consumers are served while this node is alone: set rocketmq_address to serve them on several nodes",
                listens=bound,
            )
        announced = await self._queues.announce({**(others or {}), WIRE: address})
        if announced is not None:
            self._peculiarities.begin(announced)
        return [f"{'rocketmqs' if self._has_tls else 'rocketmq'}://{bound}"]

    async def drain(self, timeout_s: float) -> None:
        """Accept no more, end what is under way, within `timeout_s`."""
        await self._listener.drain(timeout_s, self._end_polls)

    async def stop(self) -> None:
        """Cut what is left. Safe to call twice, and without a start."""
        await self._listener.stop()

    async def _end_polls(self) -> None:
        self._sessions.end_polls()

    def _services(self) -> Services:
        services = Services(
            message_bytes_max=_SHORT_BYTES_MAX,
            header_list_bytes_max=REQUEST_HEADER_BYTES_MAX.value,
            calls_max=self._settings.connections_max,
            too_many=self._too_many,
            unknown=_unknown,
            on_refused=partial(self._refused, InvalidRequest.code),
            on_crash=crashed,
            crash_end=Ended(Status.INTERNAL, ServerFault().message),
        )
        services.keep = self._keep
        services.refuse = self._why_refused
        services.varying = _REQUEST_ID
        for name, handler in self._handlers.items():
            path = f"/{SERVICE}/{name}"
            # Twice the limit, so that a body somewhat above it is refused with the code that names the limit.
            longest = 2 * BODY_BYTES_MAX.value if path == _SEND else None
            services.coroutine(path, self._guarded(path, handler), longest)
        services.streaming(RECEIVE, self._receive)
        services.streaming(_TELEMETRY, self._serve_telemetry)
        return services

    def _keep(self, fields: Fields) -> Kept:
        known = {name: value for name, value in fields if name in _HEADERS}
        return Kept(
            known.get(b"x-mq-client-id", b"").decode("latin-1"),
            known.get(b"x-mq-language", b""),
            known.get(b"x-mq-namespace", b"").decode("latin-1"),
            known.get(b":authority", b"").decode("latin-1"),
            caller_of(fields, self._gate),
        )

    def _why_refused(self, fields: Fields) -> Response | None:
        error = self._listener.why_not([one for one in fields if one != _JAVAS_AUTHORITY])
        return None if error is None else ended(Status.PERMISSION_DENIED, error.message)

    def _client(self, call: UnaryCall | StreamingCall, path: str) -> Client:
        """Return the client of a call.

        Raises:
            Refused: it has no id. Unauthenticated, Forbidden, QuotaExceeded: by its token.
        """
        kept: Kept = call.head.kept
        caller = kept.caller
        if caller is self._gate.unknown and self._has_tls:
            caller = self._gate.with_certificate(call.connection.certificate)
        if not 0 < len(kept.client_id) <= _CLIENT_ID_MAX:
            raise Refused(Code.CLIENT_ID_REQUIRED, f"x-mq-client-id: 1 to {_CLIENT_ID_MAX} characters are needed.")
        caller.require(scopes_of(path), path, call.connection.address)
        return Client(
            kept.client_id,
            kept.language,
            kept.namespace,
            kept.authority,
            caller,
            call.head.timeout_ms,
            call.connection.address,
            self._sessions,
            self._peculiarities,
        )

    def _guarded(self, path: str, handler: Handler) -> Callable[[UnaryCall, bytes], Awaitable[bytes]]:
        answer = f"{path.rpartition('/')[2]}Response"

        async def guarded(call: UnaryCall, raw: bytes) -> bytes:
            try:
                client = self._client(call, path)
                return await (handler(client, raw) if path != _SEND else self._send(handler, client, call, raw))
            except (TwophaseError, BrokenMessage) as error:
                return encode_status(answer, await self._noted(call, error))

        return guarded

    async def _send(self, handler: Handler, client: Client, call: UnaryCall, raw: bytes) -> bytes:
        sender, size = sender_of(client.caller, call.connection, shared=self._shared), len(raw)
        has_waited = not self._rooms.enter(sender, size)
        if has_waited:
            await self._rooms.wait(sender, size, partial(call.connection.keep, call))
        try:
            if has_waited:  # the token may be revoked by now
                client.caller.require_scope(scopes_of(_SEND), _SEND, client.peer)
            return await handler(client, raw)
        finally:
            self._rooms.leave(sender, size)

    async def _receive(self, call: StreamingCall) -> None:
        try:
            client = self._client(call, RECEIVE)  # before the message: who has no token keeps no stream open
            async for raw in call:
                await self._consuming.receive(client, raw, call)
                return
        except (TwophaseError, BrokenMessage) as error:
            await call.send(encode_received_status(await self._noted(call, error)))
            await self._consuming.end(call)

    async def _serve_telemetry(self, call: StreamingCall) -> None:
        try:
            client = self._client(call, _TELEMETRY)
        except TwophaseError as error:
            await call.send(encode_telemetry_status(await self._noted(call, error)))
            return
        await self._telemetry.serve(client, call, _TELEMETRY)

    async def _noted(self, call: UnaryCall | StreamingCall, error: Any) -> Any:
        """Count a refusal, and return its status when its row is in the audit log."""
        kept: Kept = call.head.kept
        await kept.caller.noted()
        self._refused(error.code if isinstance(error, TwophaseError) else InvalidRequest.code)
        return status_of(error)

    def _too_many(self, text: str) -> Response:
        self._refused(Overloaded.code)
        return ended(Status.RESOURCE_EXHAUSTED, text)


def _unknown(path: str) -> Response:
    """Refuse a method that is not served."""
    return ended(Status.UNIMPLEMENTED, f"there is no method {path!r}; the service is {SERVICE}.")
