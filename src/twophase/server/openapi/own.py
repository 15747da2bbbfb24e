"""The requests of ours, under `/api/twophase/`: what the command line speaks, and whoever moves over."""

from __future__ import annotations

from typing import Final

from twophase.core import many, takeover
from twophase.core.operating import Acted, ManyMessages, OneMessage, Redirected, Redirecting, Said, ServerStatus
from twophase.core.probe import PROBE_PATH, ProbeAsked, ProbeTold, ShownAddresses
from twophase.server.doors.many_http import PrepareMany
from twophase.server.doors.messages_http import MESSAGES
from twophase.server.doors.status_http import STATUS_PATH
from twophase.server.doors.topics_http import OWN_PREFIX, ShownTopic, ShownTopics, Subscription
from twophase.server.openapi.operation import FORGOTTEN, NO_MESSAGE, Done, Operation, Parameter

_GID: Final = Parameter("gid", "the message's name", where="path")
_NAME: Final = Parameter("name", "the topic's name", where="path")
_REFUSED_BY_STATE: Final = "the message's state refuses it; `state` says which"
_NO_TOPIC: Final = "TP-1003: there is no such topic"
_STANDS_OTHERWISE: Final = "TP-1004: the topic stands otherwise, such as an address that it has already"

OPERATORS: Final = (
    Operation(
        path=STATUS_PATH,
        tag="operators",
        summary="The server, its nodes, and the messages that are not final, at a glance",
        description="Counts are those of the last second at most; `destinations` are the busiest of this node.",
        answer=ServerStatus,
    ),
    Operation(
        path=MESSAGES,
        tag="operators",
        summary="Messages, a page at a time: unfinished ones first",
        parameters=(
            Parameter("state", "only these, separated by commas: `prepared`, `submitted`, `succeed`, `failed`"),
            Parameter("parked", "`true` or `false`: only those that are parked, or are not"),
            Parameter("gid", "only gids that begin so"),
            Parameter("destination", "only messages with a branch whose address begins so, up to the end of a part"),
            Parameter("check", "only messages whose check address begins so, up to the end of a part"),
            Parameter("created_after", "milliseconds since 1970", int),
            Parameter("created_before", "milliseconds since 1970", int),
            Parameter("position", "`position` of the page before"),
            Parameter("limit", "rows of a page, 1 to 1000", int),
        ),
        answer=ManyMessages,
    ),
    Operation(
        path=f"{MESSAGES}/{{gid}}",
        tag="operators",
        summary="One message, with what went wrong",
        parameters=(_GID, Parameter("payload", "`true`: with the payloads, which are left out otherwise")),
        answer=OneMessage,
        refusals={404: NO_MESSAGE},
    ),
    Operation(
        path=f"{MESSAGES}/{{gid}}/redirect",
        methods=("post",),
        tag="operators",
        summary="Call open branches, or the check-back, at another address",
        description=(
            "`branch` names one call by its id; `from` means every open call whose address begins so, and `to` replaces"
            " that beginning; neither means the only open call. With `check` the check address is replaced, and goes"
            " on naming the database it names. With `dry_run` nothing is changed."
        ),
        parameters=(_GID,),
        request=Redirecting,
        answer=Redirected,
        refusals={404: NO_MESSAGE, 409: _REFUSED_BY_STATE, 410: FORGOTTEN},
    ),
    *(
        Operation(
            path=f"{MESSAGES}/{{gid}}/{name}",
            methods=("post",),
            tag="operators",
            summary=summary,
            parameters=(_GID,),
            request=Said,
            needs_body=False,
            answer=Acted,
            refusals={404: NO_MESSAGE, 409: _REFUSED_BY_STATE, 410: FORGOTTEN},
        )
        for name, summary in (
            ("stop", "Fail a message; a prepared one's producer is asked first"),
            ("park", "Leave a message alone until it is redriven"),
            ("redrive", "Take up a parked message again"),
            ("retry-now", "Try a message now"),
        )
    ),
)

TOPICS: Final = (
    Operation(path=OWN_PREFIX, tag="topics", summary="All topics", answer=ShownTopics),
    Operation(
        path=f"{OWN_PREFIX}/subscribe",
        methods=("post",),
        tag="topics",
        summary="Add an address to a topic",
        request=Subscription,
        answer=Done,
        refusals={404: _NO_TOPIC, 409: _STANDS_OTHERWISE},
    ),
    Operation(
        path=f"{OWN_PREFIX}/unsubscribe",
        methods=("post",),
        tag="topics",
        summary="Take an address from a topic",
        request=Subscription,
        answer=Done,
        refusals={404: _NO_TOPIC, 409: _STANDS_OTHERWISE},
    ),
    Operation(
        path=f"{OWN_PREFIX}/{{name}}",
        tag="topics",
        summary="One topic",
        parameters=(_NAME,),
        answer=ShownTopic,
        refusals={404: _NO_TOPIC},
    ),
    Operation(
        path=f"{OWN_PREFIX}/{{name}}",
        methods=("delete",),
        tag="topics",
        summary="Delete a topic",
        parameters=(_NAME,),
        answer=Done,
        refusals={404: _NO_TOPIC, 409: _STANDS_OTHERWISE},
    ),
)

MOVING: Final = (
    Operation(
        path=takeover.PATH,
        methods=("post",),
        tag="moving over",
        summary="Take over unfinished messages of another coordinator",
        description="The outcome of each stands in the answer; what is here already is not changed.",
        request=takeover.TakeoverRequest,
        answer=takeover.TakeoverReply,
    ),
)

MANY: Final = (
    Operation(
        path=many.PREPARE_PATH,
        methods=("post",),
        tag="many at once",
        summary="Prepare up to 500 messages",
        description="Each as `prepare` takes one, with an outcome of its own; `code` empty: done. May be repeated.",
        request=PrepareMany,
        answer=many.ManyReply,
    ),
    Operation(
        path=many.SUBMIT_PATH,
        methods=("post",),
        tag="many at once",
        summary="Submit up to 500 prepared messages",
        description="By their gids; one that is unknown is told as TP-2004 and never begun. May be repeated.",
        request=many.SubmitMany,
        answer=many.ManyReply,
    ),
)

PROBES: Final = (
    Operation(
        path=PROBE_PATH,
        tag="operators",
        summary="The check addresses that this node probes, failing ones first",
        answer=ShownAddresses,
    ),
    Operation(
        path=f"{PROBE_PATH}/probe",
        methods=("post",),
        tag="operators",
        summary="Probe a check address from this node now",
        description="Nothing is written, here or there; at most four such requests are served at once.",
        request=ProbeAsked,
        answer=ProbeTold,
    ),
)

OWN: Final = (*OPERATORS, *TOPICS, *MOVING, *MANY, *PROBES)
