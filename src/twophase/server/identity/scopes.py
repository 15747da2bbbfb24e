"""The scopes of tokens, and the one table of the routes that each scope opens.

Every API asks this table: HTTP, JSON-RPC and gRPC. A route that is not in it cannot be served, because its handler
cannot be made.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class Scope(enum.StrEnum):
    """A kind of request that a token may make."""

    PRODUCE = "produce"
    """Prepare, submit and abort messages, and ask for one's own."""
    CONSUME = "consume"
    """Receive messages of queues, and acknowledge them."""
    OBSERVE = "observe"
    """See messages without payloads and header values, and the state of the server."""
    PAYLOAD = "payload"
    """See payloads and header values too, where a route shows them."""
    OPERATE = "operate"
    """Stop, park, redrive, redirect and retry messages of every owner."""
    TOPICS = "topics"
    """Change the subscribers of topics."""
    ADMIN = "admin"
    """Take over messages of another coordinator, and read the audit log."""


Scopes = frozenset[Scope]

EVERY_SCOPE: Final[Scopes] = frozenset(Scope)
CROSSING: Final[Scopes] = frozenset({Scope.OPERATE, Scope.ADMIN})
"""A token with one of these sees and changes messages of every owner."""
CHANGING: Final[Scopes] = frozenset({Scope.OPERATE, Scope.TOPICS})
"""A route that is open to these alone changes something, whatever its method."""
FREE: Final[Scopes] = frozenset()
"""Scopes of a route for every client; it shows nothing of messages."""
_PRODUCE: Final = frozenset({Scope.PRODUCE})
_CONSUME: Final = frozenset({Scope.CONSUME})
_OBSERVE: Final = frozenset({Scope.OBSERVE})
_OPERATE: Final = frozenset({Scope.OPERATE})
_TOPICS: Final = frozenset({Scope.TOPICS})
_ADMIN: Final = frozenset({Scope.ADMIN})
_OBSERVE_OR_TOPICS: Final = _OBSERVE | _TOPICS
_PRODUCE_OR_CONSUME: Final = _PRODUCE | _CONSUME
_PRODUCE_OR_OBSERVE: Final = _PRODUCE | _OBSERVE

ROUTES: Final[Mapping[str, Scopes]] = {
    "/health/live": FREE,
    "/health/ready": FREE,
    "/api/ping": FREE,
    "/api/dtmsvr/version": FREE,
    "/metrics": _OBSERVE,
    "/api/metrics": _OBSERVE,
    "/api/dtmsvr/prepare": _PRODUCE,
    "/api/dtmsvr/submit": _PRODUCE,
    "/api/dtmsvr/abort": _PRODUCE,
    "/api/dtmsvr/newGid": _PRODUCE,
    "/api/dtmsvr/query": _PRODUCE_OR_OBSERVE,
    "/api/dtmsvr/all": _OBSERVE,
    "/api/dtmsvr/forceStop": _OPERATE,
    "/api/dtmsvr/resetNextCronTime": _OPERATE,
    "/api/dtmsvr/resetCronTime": _OPERATE,
    "/api/dtmsvr/subscribe": _TOPICS,
    "/api/dtmsvr/unsubscribe": _TOPICS,
    "/api/dtmsvr/topic/{name}": _TOPICS,
    "/api/dtmsvr/scanKV": _OBSERVE_OR_TOPICS,
    "/api/dtmsvr/queryKV": _OBSERVE_OR_TOPICS,
    "/api/dtmsvr/registerBranch": _PRODUCE,
    "/api/dtmsvr/registerTccBranch": _PRODUCE,
    "/api/dtmsvr/registerXaBranch": _PRODUCE,
    "/api/dtmsvr/prepareWorkflow": _PRODUCE,
    "/api/json-rpc": FREE,  # each of its methods has scopes
    "json-rpc newGid": _PRODUCE,
    "json-rpc prepare": _PRODUCE,
    "json-rpc submit": _PRODUCE,
    "json-rpc abort": _PRODUCE,
    "json-rpc registerBranch": _PRODUCE,
    "/api/twophase/prepare-many": _PRODUCE,
    "/api/twophase/submit-many": _PRODUCE,
    "/api/twophase/horizon": _PRODUCE_OR_OBSERVE,
    "/api/twophase/openapi.json": FREE,
    "/api/twophase/status": _OBSERVE,
    "/api/twophase/check-addresses": _OBSERVE,
    "/api/twophase/check-addresses/probe": _OPERATE,
    "/api/twophase/messages": _OBSERVE,
    "/api/twophase/messages/{gid:path}": _OBSERVE,
    "/api/twophase/messages/{gid:path}/stop": _OPERATE,
    "/api/twophase/messages/{gid:path}/park": _OPERATE,
    "/api/twophase/messages/{gid:path}/redrive": _OPERATE,
    "/api/twophase/messages/{gid:path}/retry-now": _OPERATE,
    "/api/twophase/messages/{gid:path}/redirect": _OPERATE,
    "/api/twophase/places/{gid:path}": _OBSERVE,
    "/api/twophase/queue-topics": _OBSERVE,
    "/api/twophase/queue-topics/{name:path}": _OBSERVE,
    "/api/twophase/queue-topics/{name:path}/define": _OPERATE,
    "/api/twophase/queue-topics/{name:path}/remove": _OPERATE,
    "/api/twophase/groups": _OBSERVE,
    "/api/twophase/groups/{name:path}": _OBSERVE,
    "/api/twophase/groups/{name:path}/define": _OPERATE,
    "/api/twophase/groups/{name:path}/remove": _OPERATE,
    "/api/twophase/groups/{name:path}/reset": _OPERATE,
    "/api/twophase/halves": _OBSERVE,
    "/api/twophase/letters/{name:path}": _OBSERVE,
    "/api/twophase/letters/{name:path}/redrive": _OPERATE,
    "GET /api/twophase/topics": _OBSERVE_OR_TOPICS,
    "GET /api/twophase/topics/{name:path}": _OBSERVE_OR_TOPICS,
    "DELETE /api/twophase/topics/{name:path}": _TOPICS,
    "/api/twophase/topics/subscribe": _TOPICS,
    "/api/twophase/topics/unsubscribe": _TOPICS,
    "/api/twophase/import": _ADMIN,
    "/api/twophase/log": _ADMIN,
    "/api/twophase/log/chain": _ADMIN,
    "/api/twophase/queues/receive": _CONSUME,
    "/api/twophase/queues/ack": _CONSUME,
    "/api/twophase/queues/nack": _CONSUME,
    "/api/twophase/queues/extend": _CONSUME,
    "/api/twophase/queues/give-back": _CONSUME,
    "/api/twophase/queues/dead-letter": _CONSUME,
    "/api/twophase/queues/half": _PRODUCE,
    "/api/twophase/queues/decide": _PRODUCE,
    "/api/twophase/queues/questions": _PRODUCE,
    "/api/twophase/queues/leave": _PRODUCE_OR_CONSUME,
    "/dtmgimp.Dtm/Prepare": _PRODUCE,
    "/dtmgimp.Dtm/Submit": _PRODUCE,
    "/dtmgimp.Dtm/Abort": _PRODUCE,
    "/dtmgimp.Dtm/NewGid": _PRODUCE,
    "/dtmgimp.Dtm/RegisterBranch": _PRODUCE,
    "/dtmgimp.Dtm/PrepareWorkflow": _PRODUCE,
    "/dtmgimp.Dtm/Subscribe": _TOPICS,
    "/dtmgimp.Dtm/Unsubscribe": _TOPICS,
    "/dtmgimp.Dtm/DeleteTopic": _TOPICS,
    "/apache.rocketmq.v2.MessagingService/QueryRoute": _PRODUCE_OR_CONSUME,
    "/apache.rocketmq.v2.MessagingService/QueryAssignment": _CONSUME,
    "/apache.rocketmq.v2.MessagingService/Heartbeat": _PRODUCE_OR_CONSUME,
    "/apache.rocketmq.v2.MessagingService/NotifyClientTermination": _PRODUCE_OR_CONSUME,
    "/apache.rocketmq.v2.MessagingService/Telemetry": _PRODUCE_OR_CONSUME,
    "/apache.rocketmq.v2.MessagingService/SendMessage": _PRODUCE,
    "/apache.rocketmq.v2.MessagingService/EndTransaction": _PRODUCE,
    "/apache.rocketmq.v2.MessagingService/RecallMessage": _PRODUCE,
    "/apache.rocketmq.v2.MessagingService/ReceiveMessage": _CONSUME,
    "/apache.rocketmq.v2.MessagingService/AckMessage": _CONSUME,
    "/apache.rocketmq.v2.MessagingService/ChangeInvisibleDuration": _CONSUME,
    "/apache.rocketmq.v2.MessagingService/ForwardMessageToDeadLetterQueue": _CONSUME,
    "/grpc.health.v1.Health/Check": FREE,
    "/grpc.health.v1.Health/Watch": FREE,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": FREE,
}
"""Scopes of each route, of which a caller needs one.

A route of HTTP is its path, with its method before it where a path's methods need different scopes; of JSON-RPC,
`json-rpc` and the method; of gRPC, the path.
"""


def scopes_of(route: str, method: str = "") -> Scopes:
    """Return the scopes of which a route needs one; none of them for a free route.

    Raises:
        KeyError: the route is not in the table.

    >>> sorted(scopes_of("/api/dtmsvr/query")), sorted(scopes_of("/health/live"))
    ([<Scope.OBSERVE: 'observe'>, <Scope.PRODUCE: 'produce'>], [])
    """
    found = ROUTES.get(f"{method} {route}")
    return ROUTES[route] if found is None else found
