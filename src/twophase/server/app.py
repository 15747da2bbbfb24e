"""The composition root: store, destinations, coordinator and ports put together.

`run` is a whole life of the server: settings, start, one ready line, work until SIGTERM or SIGINT, a bounded drain that
cuts nothing, and an exit code that names the end. A refusal to start is one line on standard error with a remedy, never
a stack trace.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import random
import signal
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import structlog
import uvloop

from twophase.coordinator.coordinator import Coordinator
from twophase.coordinator.dispatch.alerts import IN_FLIGHT_MAX
from twophase.coordinator.dispatch.calls import why_not_askable, why_not_callable
from twophase.coordinator.queues import HTTP
from twophase.core.credentials import shown, without_credentials
from twophase.core.errors import ConfigurationError, StoreError, TwophaseError
from twophase.core.hooks import Clock, WallClock
from twophase.core.printable import printable
from twophase.destinations.base import Destination
from twophase.destinations.grpc import GrpcDestination
from twophase.destinations.http import HttpDestination
from twophase.destinations.jsonrpc import JsonRpcDestination
from twophase.destinations.queue import QueueDestination
from twophase.http_client.byte_budget import ByteBudget
from twophase.http_client.client import HttpClient
from twophase.http_client.guard import Guard
from twophase.http_client.names import Names
from twophase.server import exposure, logs
from twophase.server.advertised import http_url
from twophase.server.alerting import alerts_of
from twophase.server.allocator import keep_large_blocks_apart
from twophase.server.api import grpc_port
from twophase.server.api.audit_http import AuditApi
from twophase.server.api.dtm_http import HOT_OPERATIONS, ColdRoutes, application
from twophase.server.api.dtm_jsonrpc import JsonRpcApi
from twophase.server.api.grpc_port import GrpcPort
from twophase.server.api.letters_http import queue_operations
from twophase.server.api.many_http import ManyApi
from twophase.server.api.messages_http import operators
from twophase.server.api.openapi import OpenApi
from twophase.server.api.operation import Served
from twophase.server.api.probes_http import probe_operations
from twophase.server.api.queues.routes import queue_routes
from twophase.server.api.status_http import StatusApi
from twophase.server.api.takeover import TakeoverApi
from twophase.server.api.topics_http import TopicRoutes
from twophase.server.browsers import BrowserGuard, names_in
from twophase.server.codecs.decode import Decoder
from twophase.server.codecs.trace import TraceHeaders, names_of
from twophase.server.connections import affordable, calls_max
from twophase.server.destinations import contexts_of
from twophase.server.ending import end_at_last
from twophase.server.http_port.listener import Listener
from twophase.server.identity.gate import Gate
from twophase.server.identity.refusals import Refusals
from twophase.server.identity.token_changes import TokenChanges
from twophase.server.log_observer import CountedAndLogged, LogObserver
from twophase.server.metrics import Metrics
from twophase.server.rocketmq.opening import rocketmq_port_of
from twophase.server.sessions import Sessions
from twophase.server.setting_sources import unknown_variables
from twophase.server.settings import Settings
from twophase.server.stores import is_open_to_others, open_store
from twophase.server.tls import ServerTls, tls_of
from twophase.server.workers.assignment import Assignment, Ready, report_ready, rocketmq_ports, watch_supervisor
from twophase.server.workers.metrics import MetricsExchange
from twophase.stores.rows import Secrets

if TYPE_CHECKING:
    from twophase.server.rocketmq.port import RocketmqPort

EXIT_CLEAN: Final = 0
EXIT_CONFIGURATION: Final = 2
EXIT_STORE: Final = 3
EXIT_FENCED: Final = 4
_SWITCH_S: Final = 0.0005
"""The interpreter's switch interval (ADR 0013).

A flush in a thread asks for the interpreter some twenty times. Beside a busy loop it waits so long each time.
"""
_END_AFTER_DRAIN_S: Final = 5
_GC_THRESHOLD: Final = 50_000

_log = structlog.get_logger("twophase.server")


class Server:
    """A coordinator behind its ports.

    It works in any event loop, so it is the test fixture for users, too.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        destinations: Mapping[str, Destination] | None = None,
        exchange: MetricsExchange | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        """Put the parts together; nothing is opened before `start`.

        Arguments:
            settings: see there.
            clock: the coordinator's time; the machine's by default.
            destinations: by URL scheme; HTTP and HTTPS by default.
            exchange: with the other workers on the same ports; None for a server that has its ports alone.
            secrets: by which this process holds its node slot of a shared store; random by default.

        Raises:
            ConfigurationError: the store's URL names no engine, the alert webhook's cannot be called, the tokens or a
                certificate cannot be read, or a host or an origin cannot be one.
        """
        self.settings = settings
        clock = clock or WallClock()
        self._tls = tls_of(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
        self._guard = Guard(private=settings.private_destinations)
        names = Names()
        self._allowed = settings.allow_list()
        self._contexts = contexts_of(self._allowed)
        self._budget = ByteBudget(settings.bytes_under_way_max)
        self._calls_budget = self._budget.of_calls()
        self._destinations = destinations or self._usual_destinations(names)
        self.metrics = Metrics(listed=self._allowed.keys)
        self._exchange = exchange
        observer = CountedAndLogged(self.metrics, LogObserver())
        alerts = alerts_of(settings, observer, self._http_client(names, IN_FLIGHT_MAX, IN_FLIGHT_MAX), self._allowed)
        store = self._store = open_store(settings.store, clock, lease_ms=settings.lease_ms, secrets=secrets)
        self.coordinator = Coordinator(
            store, self._destinations, settings.coordinator(), clock, random.random, observer, alerts
        )
        clock = self.coordinator.clock
        self.sessions = Sessions(self.coordinator.queues)
        self._refusals = Refusals(store.append_audit)
        self.gate = Gate(settings.tokens, settings.hidden_headers, self.coordinator.owners, self._refusals)
        self._token_changes = TokenChanges(store, self.gate)
        trace = TraceHeaders(names_of(settings.trace_headers))
        askable = partial(why_not_askable, self._destinations)
        decoder = Decoder(self._why_not_callable, clock.now_ms, trace, settings.request_timeout_max_ms, askable)
        served = self._served(decoder, clock, store.lease_ms)
        self.openapi = OpenApi([*HOT_OPERATIONS, *(one.operation for one in served)])
        self._browsers = BrowserGuard(names_in(settings.hosts), names_in(settings.origins))
        self.listener, self._grpc, self._rocketmq = self._ports(decoder, clock, [*served, *self.openapi.served()])
        self.urls: list[str] = []

    def _ports(
        self, decoder: Decoder, clock: Clock, served: list[Served]
    ) -> tuple[Listener, GrpcPort, RocketmqPort | None]:
        """Return the ports, which share gate, budget and certificate."""
        settings, on_refused, browsers = self.settings, self.metrics.refused, self._browsers
        listener = Listener(
            self.coordinator,
            decoder,
            application(served, on_refused),
            on_refused=on_refused,
            timeouts=settings.timeouts(),
            connections_max=settings.connections_max,
            per_address_percent=settings.connections_per_address_percent,
            gate=self.gate,
            browsers=browsers,
            budget=self._budget,
            tls=self._tls,
        )
        queues, shared = self.coordinator.queues, (on_refused, self.gate, browsers, self._budget, self._tls)
        grpc = GrpcPort(settings, self.coordinator, decoder, clock, self.coordinator.topics, *shared)
        rocketmq = rocketmq_port_of(settings, queues, self.sessions, clock, *shared)
        return listener, grpc, rocketmq

    def _served(self, decoder: Decoder, clock: Clock, lease_ms: int) -> list[Served]:
        """Return every operation behind ASGI with its handler."""
        settings, coordinator, on_refused = self.settings, self.coordinator, self.metrics.refused
        cold = ColdRoutes(coordinator, self.metrics, clock, lambda: self.listener.connections)
        self._scrape = cold.scrape
        if self._exchange is not None:
            cold.of_all = self._exchange.of_all
        return [
            *cold.served(),
            *JsonRpcApi(coordinator, decoder, clock, on_refused).served(),
            *TakeoverApi(coordinator, decoder, on_refused).served(),
            *TopicRoutes(coordinator.topics).served(),
            *operators(coordinator, decoder, settings.timeout_to_fail_ms),
            *StatusApi(coordinator, clock, lease_ms, cold.overview).served(),
            *AuditApi(coordinator).served(),
            *queue_operations(coordinator),
            *ManyApi(coordinator, decoder, on_refused).served(),
            *queue_routes(coordinator.queues, self.sessions, decoder),
            *probe_operations(coordinator, self._destinations, settings.request_timeout_ms),
        ]

    async def start(self) -> list[str]:
        """Recover, then listen. Returns the URLs.

        Raises:
            StoreError: the store refuses.
            ConfigurationError: the address cannot be used, or is open to clients that have no tokens.
        """
        exposure.require_known_clients(self.settings)
        self.metrics.anonymous = exposure.is_anonymous(self.settings)
        await self.coordinator.start()
        self._refusals.start()
        await self._token_changes.start()
        shares_ports = self._exchange is not None
        try:
            self.urls = await self.listener.start(self.settings.host, self.settings.http_port, shares_port=shares_ports)
        except OSError as error:
            address = f"{self.settings.host}:{self.settings.http_port}"
            raise ConfigurationError(f"host, http_port: cannot listen on {address}: {error.strerror}.") from error
        self.urls += await self._grpc.start(shares_port=shares_ports)
        named = {HTTP: url} if (url := http_url(self.settings, self.urls[0])) else {}
        if self._rocketmq is not None:
            self.urls += await self._rocketmq.start(self.coordinator.gauges().epoch, named)
        elif named:
            await self.coordinator.queues.announce(named)
        hosts = [urlsplit(url).hostname or "" for url in self.urls if url.startswith("http")]
        ports = {urlsplit(url).port or 0 for url in self.urls}
        if self._exchange is not None:
            ports |= rocketmq_ports(self.settings, self._exchange.number)
        for host, port in itertools.product(hosts, ports):
            self._guard.listens(host, port)
        if self._exchange is not None:
            await self._exchange.start(self._scrape)
        return self.urls

    def reread(self) -> None:
        """Read tokens, certificates and destinations again.

        After a failure the earlier ones stay.
        """
        self._reread_tokens()
        if self._tls is not None:
            self._reread_certificate(self._tls)
        self._reread_destinations()

    def _reread_tokens(self) -> None:
        try:
            self.gate.reread()
        except ConfigurationError as error:
            _log.error("the tokens were not read again, the earlier ones stay in force", what=error.message)
        else:
            _log.info("the tokens were read again")
            self._token_changes.wake()

    def _reread_certificate(self, tls: ServerTls) -> None:
        try:
            tls.reread()
        except ConfigurationError as error:
            _log.error("the certificate was not read again, the earlier one stays in force", what=error.message)
        else:
            _log.info("the certificate was read again")

    def _reread_destinations(self) -> None:
        try:
            allowed = self.settings.allow_list()
            contexts_of(allowed)  # a file that cannot be used changes nothing
            for key, context in self._contexts.items():
                allowed.trust[key].reread(context)
        except ConfigurationError as error:
            _log.error("the destinations were not read again, the earlier ones stay in force", what=error.message)
            return
        self._allowed.renew(allowed)
        self.metrics.always_name(allowed.keys)
        for destination in self._destinations.values():
            if isinstance(destination, GrpcDestination):
                destination.renew()
        _log.info("the destinations were read again")

    async def drain(self) -> None:
        """Accept no more, finish what is under way, within `drain_timeout_ms`."""
        ends_s = time.monotonic() + self.settings.drain_timeout_ms / 1000
        self.listener.stop_accepting()
        self.sessions.end_polls()
        timeout_s = self.settings.drain_timeout_ms / 1000
        ports = [self._grpc.drain(timeout_s)]
        if self._rocketmq is not None:
            ports.append(self._rocketmq.drain(timeout_s))
        draining = asyncio.gather(*ports)
        await self.coordinator.drain(self.settings.drain_timeout_ms)
        if not await self.listener.closed(max(0.1, ends_s - time.monotonic())):
            _log.warning("drain: clients did not take their answers in time", connections=self.listener.connections)
        await draining

    async def stop(self) -> None:
        """Cut what is left and close the store.

        A second call, and a call after a failed start, are safe.
        """
        self.listener.stop()
        await self._grpc.stop()
        if self._rocketmq is not None:
            await self._rocketmq.stop()
        if self._exchange is not None:
            await self._exchange.stop()
        await self._refusals.stop()
        await self._token_changes.stop()
        await self.coordinator.stop()

    def _http_client(self, names: Names, connections_per_host: int, connections_max: int) -> HttpClient:
        return HttpClient(
            connections_per_host=connections_per_host,
            connections_max=connections_max,
            response_bytes_max=self.settings.answer_bytes_max,
            ssl_contexts=self._contexts,
            names=names,
            guard=self._guard,
            budget=self._calls_budget,
        )

    def _usual_destinations(self, names: Names) -> dict[str, Destination]:
        settings, allowed = self.settings, self._allowed
        per_host = max(settings.in_flight_per_destination_max, *allowed.in_flight.values(), 0)
        destination = HttpDestination(self._http_client(names, per_host, calls_max(settings)), allowed)
        destinations: dict[str, Destination] = {
            "http": destination,
            "https": destination,
            "json-rpc": JsonRpcDestination(destination, strict=settings.strict),
            "queue": QueueDestination(),
        }
        if grpc_port.installed():
            grpc = GrpcDestination(
                response_bytes_max=settings.answer_bytes_max,
                names=names,
                guard=self._guard,
                allowed=allowed,
                budget=self._calls_budget,
            )
            destinations |= {"grpc": grpc, "grpcs": grpc}
        return destinations

    def _why_not_callable(self, url: str) -> str | None:
        if not url:
            return None  # dtm: a branch without an address succeeds without a call
        return why_not_callable(self._destinations, url) or self.coordinator.queues.why_not(url)


def run(settings: Settings, assignment: Assignment | None = None) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code.

    `assignment`: of one worker of several; None for a server that has its ports alone.
    """
    logs.configure(
        settings.log_level, log_format=settings.log_format, worker=None if assignment is None else assignment.number
    )
    if assignment is None:
        warn_of_unknown_variables()
    sys.setswitchinterval(_SWITCH_S)
    keep_large_blocks_apart()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(settings, assignment))
    except ConfigurationError as error:
        return _refuse(error, EXIT_CONFIGURATION)
    except StoreError as error:
        return _refuse(error, EXIT_STORE)


def warn_of_unknown_variables() -> None:
    """Warn of environment variables that look like settings."""
    for variable in unknown_variables(os.environ):
        _log.warning("an environment variable looks like a setting and is none", variable=variable)


async def _serve(settings: Settings, assignment: Assignment | None) -> int:
    settings = affordable(settings)
    loop = asyncio.get_running_loop()
    stop_requested = asyncio.Event()
    end_after_s = settings.drain_timeout_ms / 1000 + _END_AFTER_DRAIN_S

    def request_stop() -> None:
        end_at_last(end_after_s)  # a start that hangs never comes to the drain
        stop_requested.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, request_stop)
    exchange = None
    if assignment is not None:
        watch_supervisor(loop, request_stop)
        exchange = MetricsExchange(assignment.folder, assignment.number)
    server = Server(settings, exchange=exchange, secrets=None if assignment is None else assignment.secrets)
    loop.add_signal_handler(signal.SIGHUP, server.reread)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    has_run = False
    try:
        urls = await server.start()
        has_run = True
        if server.metrics.anonymous and (assignment is None or assignment.number == 1):
            _log.warning(
                "every client that reaches this address may do everything: allow_anonymous is set", host=settings.host
            )
        if is_open_to_others(settings.store):
            _log.warning("every user of this machine may read the store: chmod 600", store=shown(settings.store))
        # The objects that live now live for ever: they are kept out of every later collection (p99 of the hot path).
        gc.collect()
        gc.freeze()
        gc.set_threshold(_GC_THRESHOLD, 20, 20)
        store = shown(settings.store)
        if assignment is None:
            print(f"twophase server ready: {' '.join(urls)} (store {store})", flush=True)  # noqa: T201 -- the ready line
        else:
            report_ready(Ready(urls))
        if not logs.are_for_people(settings.log_format):  # a person who reads them reads the ready line
            gauges = server.coordinator.gauges()
            _log.info("ready", urls=urls, store=store, node=gauges.node, epoch=gauges.epoch)
        stopping = asyncio.ensure_future(stop_requested.wait())
        fatal = asyncio.ensure_future(server.coordinator.fatal())
        await asyncio.wait([stopping, fatal], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if fatal.done():
            _log.error("the server ends", code=fatal.result().code, what=fatal.result().message)
            return EXIT_FENCED
        fatal.cancel()
        _log.info("draining", timeout_ms=settings.drain_timeout_ms)
        await server.drain()
        return EXIT_CLEAN
    finally:
        end_at_last(end_after_s)
        await server.stop()
        if has_run:
            _log.info("stopped")


def _refuse(error: TwophaseError, code: int) -> int:
    """Print once, as text, why the server did not start.

    The reader is the person who started it: no log of a running server exists yet.
    """
    text = error.at_start() if isinstance(error, StoreError) else str(error)
    print(printable(without_credentials(text)), file=sys.stderr, flush=True)  # noqa: T201 -- for the person who started it
    return code
