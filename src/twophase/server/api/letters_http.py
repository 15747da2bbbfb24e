"""The routes for half messages, dead letters, and a message's places in queues.

A token sees the half messages of its own, as it does every message; dead letters have no owner, so only a token that
sees messages of every owner is shown them.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from starlette.requests import Request

from twophase.coordinator.coordinator import Coordinator
from twophase.coordinator.queues.halves import HALVES
from twophase.coordinator.queues.letters import LETTERS_MAX, Edit
from twophase.coordinator.queues.operating import QueueOperator
from twophase.coordinator.view import MessageView
from twophase.core.errors import InvalidRequest, UnknownMessage
from twophase.core.gid import validate_gid
from twophase.core.hooks import Clock
from twophase.core.limits import PAYLOAD_BYTES_MAX, require
from twophase.core.queue_operating import ManyHalves, ManyLetters, QueueSituation, RedriveLetters, RedrivenLetters
from twophase.server.api.messages_http import act_of
from twophase.server.api.operation import NO_MESSAGE, Operation, Parameter, Served, answer_of, caller_of, peer_of
from twophase.server.api.queues_http import (
    GROUP_NAME,
    QueuesApi,
    name_in,
    page_in,
    read,
    refusal_of_queues,
)
from twophase.server.codecs.encode import Answer
from twophase.server.identity.scopes import Scope

_LETTERS_PATH: Final = "/api/twophase/letters/{name:path}"
_PAGE: Final = (
    Parameter("position", "`position` of the page before"),
    Parameter("limit", f"rows of a page, 1 to {LETTERS_MAX}", int),
)
HALVES_OPERATION: Final = Operation(
    path="/api/twophase/halves",
    tag="queues",
    summary="Half messages, a page at a time, and why they are not decided",
    description="`situation` is `waits`, `asked`, `busy`, `away` or `parked`, as the node that answers knows it.",
    parameters=_PAGE,
    answer=ManyHalves,
)
LETTERS: Final = Operation(
    path=_LETTERS_PATH,
    tag="queues",
    summary="Dead letters of a group, a page at a time, the oldest first",
    description="They have no owner: a token without `operate` or `admin`, or with a prefix of gids, sees none.",
    parameters=(GROUP_NAME, *_PAGE, Parameter("payload", "`true`: with the bodies, which are left out otherwise")),
    answer=ManyLetters,
)
REDRIVE: Final = Operation(
    path=f"{_LETTERS_PATH}/redrive",
    methods=("POST",),
    tag="queues",
    summary="Send dead letters to their group again, as they are or edited",
    description="Each goes to the topic from which it comes, or to `topic`, and to this group alone. Repeating it sends"
    " nothing twice. `body` or `body_base64` replaces the body of one letter. With `dry_run` nothing is sent. A letter"
    " from a topic that the token's destinations leave out is an unknown one.",
    parameters=(GROUP_NAME,),
    request=RedriveLetters,
    answer=RedrivenLetters,
)
PLACES: Final = Operation(
    path="/api/twophase/places/{gid:path}",
    tag="queues",
    summary="The places of a message in queues, what keeps each group from it, and its producer's silence",
    parameters=(Parameter("gid", "the message's name", where="path"),),
    answer=QueueSituation,
    refusals={404: NO_MESSAGE},
)
_PAYLOAD: Final = frozenset({Scope.PAYLOAD})
_NUMBER_CHARACTERS_MAX: Final = 18

Query = Callable[[str], Awaitable[MessageView | None]]


def queue_operations(coordinator: Coordinator) -> list[Served]:
    """Return all operations on queues, with their handlers."""
    operator = coordinator.queue_operator
    letters = LettersApi(operator, coordinator.query, coordinator.clock)
    return [*QueuesApi(operator).served(), *letters.served()]


class LettersApi:
    """The handlers.

    Arguments:
        operator: the coordinator's.
        query: returns the message of a gid.
        clock: the time of the store.
    """

    def __init__(self, operator: QueueOperator, query: Query, clock: Clock) -> None:
        self._operator = operator
        self._query = query
        self._clock = clock

    def served(self) -> list[Served]:
        """Return the operations with their handlers."""
        return [
            Served(HALVES_OPERATION, self._halves, refusal_of_queues),
            Served(REDRIVE, self._redrive, refusal_of_queues),
            Served(LETTERS, self._letters, refusal_of_queues),
            Served(PLACES, self._places, refusal_of_queues),
        ]

    async def _halves(self, request: Request) -> Answer:
        caller = caller_of(request)
        position, limit = page_in(request, LETTERS_MAX)
        search = caller.narrowed(HALVES)
        if search is None:
            return answer_of(ManyHalves([], "", self._clock.now_ms()))
        return answer_of(await self._operator.halves(search, position, limit, caller.name))

    async def _places(self, request: Request) -> Answer:
        gid = validate_gid(request.path_params["gid"])
        view = caller_of(request).seen(await self._query(gid))
        if view is None:
            raise UnknownMessage(f"no message {gid!r} found.", gid=gid)
        return answer_of(await self._operator.situation(view))

    async def _letters(self, request: Request) -> Answer:
        name, caller = name_in(request), caller_of(request)
        position, limit = page_in(request, LETTERS_MAX)
        if not (position or "0").isdecimal() or len(position) > _NUMBER_CHARACTERS_MAX or not position.isascii():
            raise InvalidRequest(f"position: {position[:45]!r} is not the end of a page; leave it out to begin.")
        with_bodies = request.query_params.get("payload", "").lower() in {"true", "1"}
        if with_bodies:
            caller.require_scope(_PAYLOAD, f"{_LETTERS_PATH}?payload", peer_of(request))
        if not caller.crosses or caller.gid_prefix:
            return answer_of(ManyLetters(name, [], 0, self._clock.now_ms()))
        found = await self._operator.letters(
            name, int(position or "0"), limit, caller.allows_queue, caller.name, with_bodies=with_bodies
        )
        letters = [
            msgspec.structs.replace(letter, properties=caller.sight.headers(letter.properties.items()))
            for letter in found.letters
        ]
        return answer_of(msgspec.structs.replace(found, letters=letters))

    async def _redrive(self, request: Request) -> Answer:
        name, caller = name_in(request), caller_of(request)
        asked = await read(request, RedriveLetters)
        caller.require_every_gid()
        edit = Edit(asked.topic, _body(asked), asked.tag, asked.set_properties, frozenset(asked.remove_properties))
        act = act_of(asked, request)
        return answer_of(await self._operator.redrive(name, asked, edit, act, caller.allows_queue))


def _body(asked: RedriveLetters) -> bytes | None:
    """Return the body that a letter gets; None for its own."""
    if asked.body is not None and asked.body_base64 is not None:
        raise InvalidRequest("body: give it as text or in base64, and not both.")
    body = None if asked.body is None else asked.body.encode()
    if asked.body_base64 is not None:
        try:
            body = b64decode(asked.body_base64, validate=True)
        except ValueError as error:  # also for text that is not ASCII
            raise InvalidRequest(f"body_base64: {error}.") from error
    if body is not None:
        require(PAYLOAD_BYTES_MAX, len(body))
    return body
