"""The routes for topics of queues and groups of consumers.

They are read by tokens with the scope `observe`, and changed by those with `operate`. A token whose messages may go to
some topics only sees and changes no others, and one for some gids changes none, as what it changes is of every owner.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request

from twophase.coordinator.operator import Act
from twophase.coordinator.queues.lags import PAGE_MAX
from twophase.coordinator.queues.operating import QueueOperator
from twophase.core.errors import InvalidRequest, QueueInUse, QueueNotFound, TwophaseError, UnknownMessage
from twophase.core.operating import ActRequest
from twophase.core.queue_message import require_full_name
from twophase.core.queue_operating import (
    Defined,
    DefineGroup,
    DefineTopic,
    ManyGroups,
    ManyTopics,
    OneGroup,
    OneTopic,
    Removed,
    RemoveRequest,
    Reset,
    ResetRequest,
)
from twophase.http_client.turns import LONG_BYTES
from twophase.server.api.messages_http import act_of
from twophase.server.api.operation import Operation, Parameter, Served, answer_of, caller_of, refusal_answer
from twophase.server.codecs.encode import Answer
from twophase.server.codecs.values import require_values
from twophase.server.identity.caller import Caller

QUEUES_PATH: Final = "/api/twophase/queue-topics"
GROUPS_PATH: Final = "/api/twophase/groups"
_TOPIC: Final = Parameter("name", "the topic's name, with its namespace before it: `shop/orders`", where="path")
GROUP_NAME: Final = Parameter("name", "the group's name, with its namespace before it: `shop/billing`", where="path")
_PAGE: Final = (
    Parameter("position", "`position` of the page before"),
    Parameter("limit", f"rows of a page, 1 to {PAGE_MAX}", int),
)
NOT_FOUND: Final = "TP-1020: there is no such topic, or no such group"
IN_USE: Final = "TP-2021: something needs it; the text says what"
ELSEWHERE: Final = "TP-3020: another node serves consumers of queues"
_CHANGES: Final = {404: NOT_FOUND, 409: IN_USE, 503: ELSEWHERE}

TOPICS: Final = Operation(
    path=QUEUES_PATH,
    tag="queues",
    summary="Topics of queues, a page at a time, with the groups that read them",
    parameters=_PAGE,
    answer=ManyTopics,
)
TOPIC: Final = Operation(
    path=f"{QUEUES_PATH}/{{name:path}}",
    tag="queues",
    summary="One topic of queues",
    parameters=(_TOPIC,),
    answer=OneTopic,
    refusals={404: NOT_FOUND},
)
DEFINE_TOPIC: Final = Operation(
    path=f"{QUEUES_PATH}/{{name:path}}/define",
    methods=("POST",),
    tag="queues",
    summary="Make a topic of queues, or change its settings",
    description="Missing fields stay as they are. The number of queues can only grow. With `dry_run` nothing is "
    "changed.",
    parameters=(_TOPIC,),
    request=DefineTopic,
    needs_body=False,
    answer=Defined,
    refusals={409: IN_USE},
)
REMOVE_TOPIC: Final = Operation(
    path=f"{QUEUES_PATH}/{{name:path}}/remove",
    methods=("POST",),
    tag="queues",
    summary="Remove a topic of queues with its messages",
    description="Refused while a consumer of it is connected, or a message that is not final goes to it; and, without"
    " `override`, while messages are not done. It is done in several requests where `more` is true.",
    parameters=(_TOPIC,),
    request=RemoveRequest,
    needs_body=False,
    answer=Removed,
    refusals=_CHANGES,
)
GROUPS: Final = Operation(
    path=GROUPS_PATH,
    tag="queues",
    summary="Groups of consumers, a page at a time, with their positions",
    parameters=_PAGE,
    answer=ManyGroups,
)
GROUP: Final = Operation(
    path=f"{GROUPS_PATH}/{{name:path}}",
    tag="queues",
    summary="One group of consumers",
    parameters=(GROUP_NAME,),
    answer=OneGroup,
    refusals={404: NOT_FOUND},
)
DEFINE_GROUP: Final = Operation(
    path=f"{GROUPS_PATH}/{{name:path}}/define",
    methods=("POST",),
    tag="queues",
    summary="Make a group of consumers, or change its settings",
    description="Missing fields stay as they are. With `dry_run` nothing is changed.",
    parameters=(GROUP_NAME,),
    request=DefineGroup,
    needs_body=False,
    answer=Defined,
)
REMOVE_GROUP: Final = Operation(
    path=f"{GROUPS_PATH}/{{name:path}}/remove",
    methods=("POST",),
    tag="queues",
    summary="Remove a group of consumers with all that it has done",
    description="Refused while a consumer of it is connected; and, without `override`, while it has messages to do. Its"
    " dead letters stay.",
    parameters=(GROUP_NAME,),
    request=RemoveRequest,
    needs_body=False,
    answer=Removed,
    refusals=_CHANGES,
)
RESET: Final = Operation(
    path=f"{GROUPS_PATH}/{{name:path}}/reset",
    methods=("POST",),
    tag="queues",
    summary="Give a group another position in a topic",
    description="`to` is `earliest`, `latest`, or `time` with `at_ms`. The answer says how many messages are repeated"
    " and how many are skipped. With `dry_run` nothing is changed.",
    parameters=(GROUP_NAME,),
    request=ResetRequest,
    answer=Reset,
    refusals=_CHANGES,
)

T = TypeVar("T")
A = TypeVar("A", bound=ActRequest)


class QueuesApi:
    """The handlers.

    Arguments:
        operator: the coordinator's.
    """

    def __init__(self, operator: QueueOperator) -> None:
        self._operator = operator

    def served(self) -> list[Served]:
        """Return the operations with their handlers."""
        operator = self._operator
        return [
            Served(TOPICS, self._topics, refusal_of_queues),
            Served(DEFINE_TOPIC, self._topic_act(DefineTopic, operator.define_topic), refusal_of_queues),
            Served(REMOVE_TOPIC, self._topic_act(RemoveRequest, operator.remove_topic), refusal_of_queues),
            Served(TOPIC, self._topic, refusal_of_queues),
            Served(GROUPS, self._groups, refusal_of_queues),
            Served(DEFINE_GROUP, self._group_act(DefineGroup, operator.define_group), refusal_of_queues),
            Served(REMOVE_GROUP, self._group_act(RemoveRequest, operator.remove_group), refusal_of_queues),
            Served(RESET, self._reset, refusal_of_queues),
            Served(GROUP, self._group, refusal_of_queues),
        ]

    async def _topics(self, request: Request) -> Answer:
        caller = caller_of(request)
        position, limit = page_in(request, PAGE_MAX)
        return answer_of(await self._operator.topics(position, limit, caller.allows_queue, caller.name))

    async def _topic(self, request: Request) -> Answer:
        name, caller = name_in(request), caller_of(request)
        if not caller.allows_queue(name):
            raise QueueNotFound(f"there is no topic {name!r}.")
        return answer_of(await self._operator.topic(name, caller.name))

    async def _groups(self, request: Request) -> Answer:
        caller = caller_of(request)
        position, limit = page_in(request, PAGE_MAX)
        return answer_of(await self._operator.groups(position, limit, caller.allows_queue, caller.name))

    async def _group(self, request: Request) -> Answer:
        caller = caller_of(request)
        return answer_of(await self._operator.group(name_in(request), caller.allows_queue, caller.name))

    def _topic_act(self, kind: type[A], act: Callable[[str, A, Act], Awaitable[Any]]) -> Any:
        async def handle(request: Request) -> Answer:
            name, caller = name_in(request), caller_of(request)
            asked = await read(request, kind)
            caller.require_every_gid()
            caller.require_queue(name)
            return answer_of(await act(name, asked, act_of(asked, request)))

        return handle

    def _group_act(self, kind: type[A], act: Callable[[str, A, Act], Awaitable[Any]]) -> Any:
        async def handle(request: Request) -> Answer:
            name = name_in(request)
            asked = await read(request, kind)
            await self._require_topics_of(name, caller_of(request))
            return answer_of(await act(name, asked, act_of(asked, request)))

        return handle

    async def _reset(self, request: Request) -> Answer:
        name, caller = name_in(request), caller_of(request)
        asked = await read(request, ResetRequest)
        caller.require_every_gid()
        caller.require_queue(asked.topic)
        return answer_of(await self._operator.reset(name, asked, act_of(asked, request)))

    async def _require_topics_of(self, group: str, caller: Caller) -> None:
        """Refuse a change of a group that reads a topic of others."""
        caller.require_every_gid()
        try:
            lags = (await self._operator.group(group, lambda _: True, caller.name)).group.lags
        except QueueNotFound:
            return
        for lag in lags:
            caller.require_queue(lag.topic)


def name_in(request: Request) -> str:
    """Return the name in a path.

    Raises:
        InvalidRequest: no topic or group can have it.
    """
    name: str = request.path_params["name"]
    require_full_name(name)
    return name


def page_in(request: Request, rows_max: int) -> tuple[str, int]:
    """Return the position and the number of rows that a request asks for.

    Raises:
        InvalidRequest: the number cannot be read, or is too great.
    """
    position, text = request.query_params.get("position", ""), request.query_params.get("limit", "") or str(rows_max)
    if "\0" in position:
        raise InvalidRequest("position: it is not the end of a page; leave it out to begin.")
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text[:9]) <= rows_max:
        raise InvalidRequest(f"limit: {text[:45]!r} is not from 1 to {rows_max}.")
    return position, int(text)


async def read(request: Request, kind: type[T]) -> T:
    """Return the body of a request.

    Raises:
        InvalidRequest: it is no such JSON object. LimitExceeded: it has too many values.
    """
    body = await request.body() or b"{}"
    if len(body) > LONG_BYTES:
        require_values(body)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"body: a JSON object is needed: {error}") from error


def refusal_of_queues(error: TwophaseError) -> Answer:
    """Return a refusal as these routes answer it."""
    answer = refusal_answer(error)
    match error:
        case QueueNotFound() | UnknownMessage():
            return Answer(HTTPStatus.NOT_FOUND, answer.body)
        case QueueInUse():
            return Answer(HTTPStatus.CONFLICT, answer.body)
        case _:
            return answer
