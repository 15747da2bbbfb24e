"""The requests of dtm's HTTP API, and who watches: paths, methods, answers.

Statuses and texts are dtm's (dtm-wire §1.3), so some refusals are a 500: these, and no others, are named here. A test
compares this list with the routes of a server, both ways.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from twophase.coordinator.upkeep.horizon import Horizon
from twophase.server.doors.cold import DTM_PREFIX
from twophase.server.doors.dtm_http import NewGid, Version
from twophase.server.doors.dtm_jsonrpc import PATH as JSON_RPC_PATH
from twophase.server.doors.dtm_jsonrpc import RpcCall, RpcReply
from twophase.server.doors.dtm_operator import Reset
from twophase.server.doors.topics_http import KeyValuePage, KeyValues
from twophase.server.formats.encode import Failure
from twophase.server.formats.query import Branch, Listed, Transaction
from twophase.server.formats.wire import WireRequest
from twophase.server.openapi.operation import (
    FORGOTTEN,
    NO_MESSAGE,
    NO_TOPIC,
    OPENAPI_PATH,
    REFUSED,
    STORE,
    Done,
    Health,
    Operation,
    Parameter,
    Pong,
)


class Queried(msgspec.Struct):
    """A message with its branches; null and none when the gid is unknown."""

    branches: list[Branch]
    transaction: Transaction | None


_GID: Final = Parameter("gid", "the message's name", required=True)
_NOT_SERVED: Final = {400: "always: another type of transaction than 2-phase messages"}

MESSAGES: Final = (
    Operation(
        path=f"{DTM_PREFIX}/prepare",
        methods=("post",),
        tag="messages",
        summary="Prepare a message",
        description="On disk before the answer. Repeating it changes nothing.",
        request=WireRequest,
        answer=Done,
        refusals={409: REFUSED, 410: FORGOTTEN, 500: NO_TOPIC},
    ),
    Operation(
        path=f"{DTM_PREFIX}/submit",
        methods=("post",),
        tag="messages",
        summary="Submit a message: from now on it is delivered",
        description="Without a prepare before it, the message is stored and delivered at once.",
        request=WireRequest,
        answer=Done,
        refusals={
            409: f"{REFUSED}; or `wait_result`, and a branch has refused or is not done: it is tried again",
            410: FORGOTTEN,
            500: f"{NO_TOPIC}; or TP-2006: `wait_result`, and a branch failed: it is tried again",
        },
    ),
    Operation(
        path=f"{DTM_PREFIX}/abort",
        methods=("post",),
        tag="messages",
        summary="Take a prepared message back",
        request=WireRequest,
        answer=Done,
        refusals={409: REFUSED, 410: FORGOTTEN, 500: NO_MESSAGE},
    ),
    Operation(
        path=f"{DTM_PREFIX}/query",
        tag="messages",
        summary="One message and its branches",
        parameters=(_GID,),
        answer=Queried,
        refusals={500: "TP-1000: no gid specified"},
    ),
    Operation(path=f"{DTM_PREFIX}/newGid", tag="messages", summary="A new gid", answer=NewGid),
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

_NO_NUMBER: Final = "TP-1000: dtm's `convert to int error`, where a number is needed"
_TOPIC: Final = Parameter("topic", "the topic's name", required=True)
_URL: Final = Parameter("url", "the address of a subscriber", required=True)
_TOPIC_REFUSED: Final = "TP-1000, TP-1003 or TP-1004: dtm's texts, such as `empty topic` and `this url exists`"

OPERATORS: Final = (
    Operation(
        path=f"{DTM_PREFIX}/all",
        tag="operators",
        summary="Messages, a page at a time: unfinished ones first",
        parameters=(
            Parameter("gid", "this one alone"),
            Parameter("position", "`next_position` of the page before"),
            Parameter("limit", "rows of a page", int),
            Parameter("status", "only messages in this state"),
            Parameter("transType", "`msg`; of another type there are none"),
            Parameter("createTimeStart", "created at or after this, in milliseconds since 1970", int),
            Parameter("createTimeEnd", "created at or before this, in milliseconds since 1970", int),
        ),
        answer=Listed,
        refusals={500: _NO_NUMBER},
    ),
    Operation(
        path=f"{DTM_PREFIX}/forceStop",
        methods=("post",),
        tag="operators",
        summary="Fail a message that is not final; a prepared one's producer is asked first",
        request=WireRequest,
        answer=Done,
        refusals={409: REFUSED, 410: FORGOTTEN, 500: NO_MESSAGE},
    ),
    Operation(
        path=f"{DTM_PREFIX}/resetNextCronTime",
        methods=("post",),
        tag="operators",
        summary="Try a message now",
        request=WireRequest,
        answer=Done,
        refusals={409: REFUSED, 410: FORGOTTEN, 500: NO_MESSAGE},
    ),
    Operation(
        path=f"{DTM_PREFIX}/resetCronTime",
        tag="operators",
        summary="Try messages now that would wait for long",
        parameters=(
            Parameter("timeout", "those that wait longer than so many seconds", int),
            Parameter("limit", "so many at most", int),
        ),
        answer=Reset,
        refusals={500: _NO_NUMBER},
    ),
)

TOPICS: Final = (
    Operation(
        path=f"{DTM_PREFIX}/subscribe",
        tag="topics",
        summary="Add an address to a topic",
        parameters=(_TOPIC, _URL, Parameter("remark", "for people")),
        answer=Done,
        refusals={500: _TOPIC_REFUSED},
    ),
    Operation(
        path=f"{DTM_PREFIX}/unsubscribe",
        tag="topics",
        summary="Take an address from a topic",
        parameters=(_TOPIC, _URL),
        answer=Done,
        refusals={500: _TOPIC_REFUSED},
    ),
    Operation(
        path=f"{DTM_PREFIX}/topic/{{name}}",
        methods=("delete",),
        tag="topics",
        summary="Delete a topic",
        parameters=(Parameter("name", "the topic's name", where="path"),),
        answer=Done,
        refusals={500: _TOPIC_REFUSED},
    ),
    Operation(
        path=f"{DTM_PREFIX}/scanKV",
        tag="topics",
        summary="Topics as dtm keeps them, a page at a time",
        parameters=(
            Parameter("cat", "`topics`; of another category there is nothing"),
            Parameter("position", "`next_position` of the page before", int),
            Parameter("limit", "rows of a page", int),
        ),
        answer=KeyValuePage,
    ),
    Operation(
        path=f"{DTM_PREFIX}/queryKV",
        tag="topics",
        summary="One topic as dtm keeps it, or all",
        parameters=(Parameter("cat", "`topics`"), Parameter("key", "the topic's name")),
        answer=KeyValues,
    ),
)

OTHER_TYPES: Final = tuple(
    Operation(
        path=f"{DTM_PREFIX}/{name}",
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
    Operation(path=f"{DTM_PREFIX}/version", tag="watching", summary="The version of the server", answer=Version),
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
        refusals={503: STORE},
    ),
    Operation(path=OPENAPI_PATH, tag="watching", summary="This document", answer=dict[str, Any]),
)

DTM: Final = (*MESSAGES, *OPERATORS, *TOPICS, *OTHER_TYPES, *WATCHING)
