"""Every setting of the server: one table, with unit, default and reason."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from twophase.coordinator.settings import CoordinatorSettings
from twophase.core.limits import ATTEMPTS_MAX, REQUEST_TIMEOUT_MS_MAX
from twophase.core.schedule import Schedule
from twophase.destinations.allow_list import AllowList
from twophase.http_client.byte_budget import BYTES_MAX
from twophase.server.codecs.sight import HIDDEN_HEADERS
from twophase.server.codecs.trace import DEFAULT_NAMES
from twophase.server.destinations import FIELDS_SHOWN, AllowedDestination, allow_list_of
from twophase.server.http_port.port import Timeouts
from twophase.server.setting_kinds import Age, Bytes, Count, Lease, Milliseconds, Size, Text
from twophase.server.setting_refusals import Port

PREFIX: Final = "TWOPHASE_"
_BOUNDS: Final = CoordinatorSettings()
WORKERS_MAX: Final = 64


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the server for operators.

    `twophase server --help` prints the description of each field.
    """

    store: Annotated[
        Text,
        Meta(
            description="where messages are stored: sqlite:///file, sqlite:////absolute/file,"
            " postgresql://user:pw@host/db; env:NAME or file:PATH names a variable or a file that holds the URL"
        ),
    ] = "sqlite:///twophase.db"
    host: Annotated[
        Text,
        Meta(description="address to listen on; one beyond loopback needs tokens, tls_client_ca or allow_anonymous"),
    ] = "127.0.0.1"
    allow_anonymous: Annotated[
        bool, Meta(description="let clients without a token do everything on an address that is not loopback")
    ] = False
    hidden_headers: Annotated[
        str, Meta(description="headers of messages whose values no client sees, comma-separated")
    ] = ",".join(HIDDEN_HEADERS)
    tokens: Annotated[
        str, Meta(description="TOML file with the clients' tokens, of mode 0600; empty: every client may do everything")
    ] = ""
    hosts: Annotated[
        str,
        Meta(description="further names of this server, comma-separated; *.name: all names below it; *: every name"),
    ] = ""
    origins: Annotated[
        str, Meta(description="pages whose requests are accepted, comma-separated, such as https://console.example")
    ] = ""
    http_port: Annotated[Port, Meta(description="HTTP port; 0 picks a free one, which the ready line names")] = 36_789
    http_address: Annotated[
        str,
        Meta(
            description="URL or host:port by which clients reach this node's http_port, not a load balancer's; empty: "
            "the address it listens on"
        ),
    ] = ""
    grpc_port: Annotated[
        Port | Literal["auto", "off"],
        Meta(
            description="gRPC port; 0 picks a free one; auto means 36790, or no gRPC if http_port is 0, 36790 is in use"
            " or the grpc extra is not installed"
        ),
    ] = "auto"
    rocketmq_port: Annotated[
        Port | Literal["off"],
        Meta(description="port for RocketMQ 5 clients, usually 8081; 0 picks a free one; off: none"),
    ] = "off"
    rocketmq_address: Annotated[
        str,
        Meta(description="host:port by which routes name this node's rocketmq_port; empty: the address it listens on"),
    ] = ""
    grpc_connections_max: Annotated[
        Count,
        Meta(
            description="most connections at once of the gRPC port, and of RocketMQ's, each with up to 1 000 requests; "
            "further ones of the gRPC port may only ask for health, for a few seconds"
        ),
    ] = 1_000
    tls_certificate: Annotated[
        str, Meta(description="PEM file with the certificate chain of every port; empty: plain text")
    ] = ""
    tls_key: Annotated[str, Meta(description="PEM file with the private key of that certificate, of mode 0600")] = ""
    tls_client_ca: Annotated[
        str, Meta(description="PEM file of the CA that signs the certificates that clients must present; empty: none")
    ] = ""
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="lowest severity that is logged")
    ] = "info"
    log_format: Annotated[
        Literal["auto", "json", "console"],
        Meta(
            description="json: one object per line; console: text for people; auto: console on a terminal, otherwise "
            "json"
        ),
    ] = "auto"
    drain_timeout_ms: Annotated[
        Milliseconds, Meta(description="after SIGTERM, how long requests and calls in progress may take to finish")
    ] = 20_000

    workers: Annotated[
        int,
        Meta(
            ge=1,
            le=WORKERS_MAX,
            description="processes on the same ports, each a node; more than one needs PostgreSQL. All other bounds "
            "apply to each",
        ),
    ] = 1
    lease_ms: Annotated[
        Lease,
        Meta(
            description="on a shared store: a node silent this long loses its messages to the others; same on all nodes"
        ),
    ] = 10_000

    connections_max: Annotated[
        Count,
        Meta(
            description="most HTTP connections at once; further ones may only ask for health; other requests are "
            "answered 503"
        ),
    ] = 10_000
    connections_per_address_percent: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="share of `connections_max`, `grpc_connections_max` and `bytes_under_way_max` that one peer"
            " address may hold; 100 if all clients come through one proxy",
        ),
    ] = 25
    head_timeout_ms: Annotated[
        Milliseconds, Meta(description="how long a TLS handshake, and then a request's headers, may take to arrive")
    ] = 10_000
    body_timeout_ms: Annotated[Milliseconds, Meta(description="how long a request's body may take to arrive")] = 30_000
    idle_timeout_ms: Annotated[
        Milliseconds, Meta(description="how long a connection may stay idle between two requests")
    ] = 75_000
    write_timeout_ms: Annotated[Milliseconds, Meta(description="how long a client may leave its responses unread")] = (
        30_000
    )

    request_timeout_ms: Annotated[
        Milliseconds,
        Meta(
            description="how long a branch or a check-back may take to answer; a message may say another time "
            "for its branches, and a longer one for its check-backs"
        ),
    ] = _BOUNDS.request_timeout_ms
    request_timeout_max_ms: Annotated[
        Annotated[int, Meta(ge=1, le=REQUEST_TIMEOUT_MS_MAX.value)],
        Meta(
            description="longest request_timeout that a message may ask for; a call keeps its permit no longer than "
            "this or request_timeout_ms, whichever is greater"
        ),
    ] = REQUEST_TIMEOUT_MS_MAX.value
    queues_made_on_use: Annotated[
        bool, Meta(description="the first use of a topic of queues, or of a group of consumers, creates it")
    ] = _BOUNDS.queues_made_on_use
    producer_checks_max: Annotated[
        int,
        Meta(
            ge=0,
            le=ATTEMPTS_MAX.value,
            description='answers "unknown" of a producer over its own connection before its message is parked; 0: no'
            " limit. Silence does not count",
        ),
    ] = _BOUNDS.producer_checks_max
    producer_answer_ms: Annotated[
        Milliseconds, Meta(description="how long a producer asked over its own connection may take to answer")
    ] = _BOUNDS.producer_answer_ms
    producer_asked_max: Annotated[
        Count, Meta(description="most questions that one producer has at a time over its own connection")
    ] = _BOUNDS.producer_asked_max
    queue_undone_max: Annotated[
        Count,
        Meta(
            description="most messages of one queue that a group has read and not done; at this number it gets no new "
            "ones"
        ),
    ] = _BOUNDS.queue_undone_max
    queue_hold_ms: Annotated[
        Milliseconds, Meta(description="longest time that a push consumer keeps a message; then it is given out again")
    ] = _BOUNDS.queue_hold_ms
    queue_held_bytes_max: Annotated[Bytes, Meta(description="most bytes of bodies read ahead for consumers")] = (
        _BOUNDS.queue_held_bytes_max
    )
    timeout_to_fail_ms: Annotated[
        Milliseconds, Meta(description="how long a prepared message waits for its submit before the first check-back")
    ] = _BOUNDS.timeout_to_fail_ms
    retry_first_ms: Annotated[
        Milliseconds, Meta(description="pause after a branch's first failed call; doubled after each further one")
    ] = _BOUNDS.delivery.first_ms
    retry_cap_ms: Annotated[Milliseconds, Meta(description="longest pause between two calls of a branch")] = (
        _BOUNDS.delivery.cap_ms
    )
    check_back_first_ms: Annotated[
        Milliseconds,
        Meta(description="pause after the first check-back without a verdict; doubled after each further one"),
    ] = _BOUNDS.check_back.first_ms
    check_back_cap_ms: Annotated[Milliseconds, Meta(description="longest pause between two check-backs")] = (
        _BOUNDS.check_back.cap_ms
    )
    attempts_max: Annotated[
        int,
        Meta(
            ge=0,
            le=ATTEMPTS_MAX.value,
            description="rounds of branch calls that may fail in a row before the message is parked; 0: no limit."
            " Check-backs are never limited",
        ),
    ] = _BOUNDS.attempts_max
    strict: Annotated[
        bool,
        Meta(
            description="judge answers of branches and check-backs by status or code alone, never by a word in them;"
            " prepare then requires query_prepared"
        ),
    ] = _BOUNDS.strict
    probe_check_addresses: Annotated[
        bool,
        Meta(
            description="ask each new check address once, in the background, whether it could answer a check-back; "
            "log, metric and alert report one that cannot"
        ),
    ] = True
    trace_headers: Annotated[
        str,
        Meta(description="headers of prepare and submit, comma-separated, that are passed on with the message's calls"),
    ] = ",".join(DEFAULT_NAMES)

    private_destinations: Annotated[
        bool,
        Meta(
            description="calls may go to private and loopback addresses; link-local, metadata, multicast and reserved"
            " addresses and the server's own ports are never called"
        ),
    ] = True

    destinations: Annotated[
        tuple[AllowedDestination, ...],
        Meta(
            description="[[destinations]] with name and url: if there are any, calls go only to addresses that begin"
            " with such a URL, up to the end of a part; in the environment as JSON. Each may have"
            f" {FIELDS_SHOWN}"
        ),
    ] = ()

    alert_webhook: Annotated[
        str,
        Meta(
            description="URL to notify when a branch or a check-back keeps failing or a message is parked; empty: none;"
            " env:NAME or file:PATH names a variable or a file that holds it"
        ),
    ] = ""
    alert_after: Annotated[
        Count, Meta(description="the failure in a row that triggers the first alert; each further one triggers another")
    ] = 3
    alert_timeout_ms: Annotated[Milliseconds, Meta(description="how long the webhook may take to accept an alert")] = (
        3_000
    )

    in_flight_max: Annotated[Count, Meta(description="most branch calls in progress, over all destinations")] = (
        _BOUNDS.in_flight_max
    )
    in_flight_per_destination_max: Annotated[
        Count,
        Meta(
            description="most branch calls in progress to one destination; it begins with 16, an answer adds one, and a"
            " call without an answer takes one away"
        ),
    ] = _BOUNDS.in_flight_per_destination_max
    in_flight_per_owner_max: Annotated[
        Count,
        Meta(description="most branch calls in progress for the messages of one token without a quota for calls"),
    ] = _BOUNDS.in_flight_per_owner_max
    queue_waiting_max: Annotated[
        Count,
        Meta(description="most calls of one owner queued for one destination; further messages are tried again later"),
    ] = _BOUNDS.queue_waiting_max
    store_bytes_max: Annotated[
        Size,
        Meta(
            description="size of the store in bytes from which new messages are refused (TP-4004); read at most every "
            "two seconds; 0: no limit"
        ),
    ] = 0
    waiting_max: Annotated[
        Count,
        Meta(
            description="most changes queued for the store, at most half of them of one token; beyond that, requests "
            "are answered 503"
        ),
    ] = _BOUNDS.waiting_max
    flush_items_max: Annotated[Count, Meta(description="most changes in one durable commit")] = _BOUNDS.flush_items_max
    active_max: Annotated[Count, Meta(description="most messages held in memory; the others wait in the store")] = (
        _BOUNDS.active_max
    )
    active_bytes_max: Annotated[Bytes, Meta(description="most bytes of messages held in memory")] = (
        _BOUNDS.active_bytes_max
    )
    topics_interval_ms: Annotated[
        Milliseconds,
        Meta(description="on a shared store: longest time until a node sees a topic that another node has changed"),
    ] = _BOUNDS.topics_interval_ms
    retention_ms: Annotated[
        Age, Meta(description="how long finished messages are kept, and repeated gids recognized; 0: for ever")
    ] = _BOUNDS.retention_ms
    retention_interval_ms: Annotated[
        Milliseconds, Meta(description="how often finished messages older than that are removed")
    ] = _BOUNDS.retention_interval_ms
    queue_retention_bytes: Annotated[
        Size,
        Meta(
            description="bytes beyond which a topic of queues with a retention of its own keeps messages only as long"
            " as history (retention_ms), unless it has a bound of its own; 0: no bound"
        ),
    ] = _BOUNDS.queue_retention_bytes
    answer_bytes_max: Annotated[
        Bytes, Meta(description="most bytes of a branch's or check-back's answer that are read")
    ] = 1024 * 1024
    bytes_under_way_max: Annotated[
        Bytes,
        Meta(
            description="bytes of unfinished requests and answers that are kept at once; further requests are answered"
            " 503, a further answer counts as no answer"
        ),
    ] = BYTES_MAX

    def allow_list(self) -> AllowList:
        """Return the addresses that may be called, with what their calls carry.

        Raises:
            ConfigurationError: an entry of `destinations` cannot be one, or names a secret that is not there.
        """
        return allow_list_of(self.destinations)

    def timeouts(self) -> Timeouts:
        """Return the listener's part."""
        return Timeouts(
            head_s=self.head_timeout_ms / 1000,
            body_s=self.body_timeout_ms / 1000,
            idle_s=self.idle_timeout_ms / 1000,
            write_s=self.write_timeout_ms / 1000,
        )

    def coordinator(self) -> CoordinatorSettings:
        """Return the coordinator's part: most settings have the same name there."""
        same = {name: getattr(self, name) for name in _BOUNDS.__struct_fields__ if hasattr(self, name)}
        return CoordinatorSettings(
            delivery=Schedule(self.retry_first_ms, cap_ms=self.retry_cap_ms),
            check_back=Schedule(self.check_back_first_ms, cap_ms=self.check_back_cap_ms),
            in_flight_of=self.allow_list().in_flight,
            **same,
        )
