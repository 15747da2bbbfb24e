"""Every request the HTTP port answers, as data: what `openapi` describes, beside the code that answers it.

Statuses and texts are dtm's (dtm-wire §1.3), so some refusals are a 500: these, and no others, are named here. A test
compares this list with the routes of a server, both ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from twophase.coordinator.horizon import Horizon
from twophase.server.dtm_http import PREFIX, NewGid, Version
from twophase.server.dtm_jsonrpc import PATH as JSON_RPC_PATH
from twophase.server.dtm_jsonrpc import RpcCall, RpcReply
from twophase.server.encode import Failure
from twophase.server.query import Branch, Transaction
from twophase.server.wire import WireRequest

OPENAPI_PATH: Final = "/api/twophase/openapi.json"


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of a URL; `where` it stands is `query` or `path`."""

    name: str
    description: str
    type: Any = str
    where: str = "query"
    required: bool = False


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One path. `answer` is the type of a 200's JSON, None for text; `refusals` say when, by status."""

    path: str
    summary: str
    tag: str
    methods: tuple[str, ...] = ("get",)
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    request: Any = None
    answer: Any = None
    refusals: Mapping[int, str] = {}
    shapes: Mapping[int, tuple[Any, ...]] = {}
    """The types of a refusal's body, by status, where it is not `Failure` alone."""


class Pong(msgspec.Struct):
    """The answer to `ping`."""

    msg: str


class Done(msgspec.Struct):
    """It is done, or was done before. `prepared_at`: milliseconds since 1970, by the store's clock."""

    dtm_result: str
    prepared_at: int | None = None


class Health(msgspec.Struct):
    """How the server is."""

    status: str
    reason: str = ""


class Queried(msgspec.Struct):
    """A message with its branches; null and none when the gid is unknown."""

    branches: list[Branch]
    transaction: Transaction | None


_GID: Final = Parameter("gid", "the message's name", required=True)
_NO_TOPIC: Final = "TP-1003: a step's `topic://NAME` names no topic; nothing was stored"
_REFUSED: Final = "the message's state, or its content, refuses it: `dtm_result` is `FAILURE`, `state` says which"
_FORGOTTEN: Final = "TP-2005: the gid is older than the history kept, nobody can tell"
_NOT_SERVED: Final = {400: "always: another type of transaction than 2-phase messages"}
_STORE: Final = "the store does not answer"

MESSAGES: Final = (
    Operation(
        path=f"{PREFIX}/prepare",
        methods=("post",),
        tag="messages",
        summary="Prepare a message",
        description="On disk before the answer. Repeating it changes nothing.",
        request=WireRequest,
        answer=Done,
        refusals={409: _REFUSED, 410: _FORGOTTEN, 500: _NO_TOPIC},
    ),
    Operation(
        path=f"{PREFIX}/submit",
        methods=("post",),
        tag="messages",
        summary="Submit a message: from now on it is delivered",
        description="Without a prepare before it, the message is stored and delivered at once.",
        request=WireRequest,
        answer=Done,
        refusals={
            409: f"{_REFUSED}; or `wait_result`, and a branch has refused or is not done: it is tried again",
            410: _FORGOTTEN,
            500: f"{_NO_TOPIC}; or TP-2006: `wait_result`, and a branch failed: it is tried again",
        },
    ),
    Operation(
        path=f"{PREFIX}/abort",
        methods=("post",),
        tag="messages",
        summary="Take a prepared message back",
        request=WireRequest,
        answer=Done,
        refusals={409: _REFUSED, 410: _FORGOTTEN, 500: "TP-2004: there is no such message"},
    ),
    Operation(
        path=f"{PREFIX}/query",
        tag="messages",
        summary="One message and its branches",
        parameters=(_GID,),
        answer=Queried,
        refusals={500: "TP-1000: no gid specified"},
    ),
    Operation(path=f"{PREFIX}/newGid", tag="messages", summary="A new gid", answer=NewGid),
    Operation(
        path=JSON_RPC_PATH,
        methods=("post",),
        tag="messages",
        summary="newGid, prepare, submit and abort by JSON-RPC 2.0",
        description="An error is a 200 with `error`: -32901 for what HTTP answers with 409, -32603 for any other.",
        request=RpcCall,
        answer=RpcReply,
        shapes={400: (RpcReply, Failure)},
    ),
)

OTHER_TYPES: Final = tuple(
    Operation(
        path=f"{PREFIX}/{name}",
        methods=("post",),
        tag="not served",
        summary=f"{what}: not served",
        answer=Done,
        refusals=_NOT_SERVED,
    )
    for name, what in (
        ("registerBranch", "Branches of SAGA and TCC"),
        ("registerTccBranch", "Branches of TCC"),
        ("registerXaBranch", "Branches of XA"),
        ("prepareWorkflow", "Workflows"),
    )
)

WATCHING: Final = (
    Operation(
        path="/api/ping",
        methods=("get", "post", "put", "patch", "delete", "options"),
        tag="watching",
        summary="Whether somebody is there",
        answer=Pong,
    ),
    Operation(path=f"{PREFIX}/version", tag="watching", summary="The version of the server", answer=Version),
    Operation(path="/health/live", tag="watching", summary="Whether the process lives", answer=Health),
    Operation(
        path="/health/ready",
        tag="watching",
        summary="Whether it takes requests",
        answer=Health,
        refusals={503: "draining, not started, or the store does not answer"},
        shapes={503: (Health, Failure)},
    ),
    Operation(path="/metrics", tag="watching", summary="Metrics for Prometheus"),
    Operation(path="/api/metrics", tag="watching", summary="The same, where dtm has it"),
    Operation(
        path="/api/twophase/horizon",
        tag="watching",
        summary="Up to when everything is decided and delivered, for whoever cleans barrier rows",
        parameters=(
            Parameter("check", "only messages whose check address begins with this"),
            Parameter("barrier", "the identity of the database; messages that name another do not count"),
        ),
        answer=Horizon,
        refusals={503: _STORE},
    ),
    Operation(path=OPENAPI_PATH, tag="watching", summary="This document", answer=dict[str, Any]),
)

OPERATIONS: Final = (*MESSAGES, *OTHER_TYPES, *WATCHING)
