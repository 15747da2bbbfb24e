"""twophase's routes for operators, which the command line uses.

They find messages, show one, stop, park, redrive, redirect and try it now. Each act names the operator and the reason
in its body, `{"by": "eve", "reason": "…"}`; both are recorded with the message.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec
from starlette.requests import Request

from twophase.coordinator.coordinator import Coordinator
from twophase.coordinator.operator import Act
from twophase.coordinator.state.active_message import Reply
from twophase.coordinator.view import MessageView
from twophase.core.errors import InvalidRequest, TwophaseError, UnknownMessage
from twophase.core.gid import validate_gid
from twophase.core.hooks import Clock
from twophase.core.lifecycle import State
from twophase.core.limits import GID_BYTES_MAX, URL_BYTES_MAX, require
from twophase.core.message import Message
from twophase.core.operating import (
    Acted,
    ActRequest,
    ManyMessages,
    OneMessage,
    Redirected,
    Redirecting,
    ShownMove,
    StopRequest,
)
from twophase.core.redirect import Move, Redirection
from twophase.server.api.dtm_operator import PAGE_ROWS_MAX, DtmOperator, MessageReader, OperatorActions, by_of
from twophase.server.api.operation import (
    FORGOTTEN,
    NO_MESSAGE,
    Handler,
    Operation,
    Parameter,
    Served,
    actor_of,
    answer_of,
    caller_of,
    number_in,
    peer_of,
)
from twophase.server.codecs.decode import Decoder
from twophase.server.codecs.encode import WIRE_STATES, Answer, Failure, refusal
from twophase.server.codecs.operator_json import Earliest, shown
from twophase.server.identity.scopes import Scope
from twophase.stores.search import Search

_PATH: Final = "/api/twophase/messages"
_GID: Final = Parameter("gid", "the message's name", where="path")
_ACT_REFUSALS: Final = {
    404: NO_MESSAGE,
    409: "the message's state does not allow it; `state` is the state",
    410: FORGOTTEN,
}
MANY: Final = Operation(
    path=_PATH,
    tag="operators",
    summary="Messages, a page at a time: unfinished ones first",
    parameters=(
        Parameter("state", "only these, separated by commas: `prepared`, `submitted`, `succeed`, `failed`"),
        Parameter("parked", "`true` or `false`: only those that are parked, or are not"),
        Parameter("gid", "only gids with this beginning"),
        Parameter("destination", "only messages with a branch whose address begins with this, up to the end of a part"),
        Parameter("check", "only messages whose check address begins with this, up to the end of a part"),
        Parameter("created_after", "milliseconds since 1970", int),
        Parameter("created_before", "milliseconds since 1970", int),
        Parameter("position", "`position` of the page before"),
        Parameter("limit", "rows of a page, 1 to 1000", int),
    ),
    answer=ManyMessages,
)
ONE: Final = Operation(
    path=f"{_PATH}/{{gid:path}}",
    tag="operators",
    summary="One message, with what went wrong",
    parameters=(_GID, Parameter("payload", "`true`: with the payloads, which are left out otherwise")),
    answer=OneMessage,
    refusals={404: NO_MESSAGE},
)
REDIRECT: Final = Operation(
    path=f"{_PATH}/{{gid:path}}/redirect",
    methods=("POST",),
    tag="operators",
    summary="Call open branches, or the check-back, at another address",
    description=(
        "`branch` names one call by its id; `from` means every open call whose address begins with it, and `to` "
        "replaces that beginning; neither means the only open call. With `check` the check address is replaced, and "
        "still names the same database. With `dry_run` nothing is changed."
    ),
    parameters=(_GID,),
    request=Redirecting,
    answer=Redirected,
    refusals=_ACT_REFUSALS,
)
ACTS: Final = {
    name: Operation(
        path=f"{_PATH}/{{gid:path}}/{name}",
        methods=("POST",),
        tag="operators",
        summary=summary,
        parameters=(_GID,),
        request=StopRequest if name == "stop" else ActRequest,
        needs_body=False,
        answer=Acted,
        refusals=_ACT_REFUSALS,
    )
    for name, summary in (
        ("stop", "Fail a message; a prepared one's producer is asked first; without its verdict, `override` is needed"),
        ("park", "Park a message until it is redriven"),
        ("redrive", "Redrive a parked message"),
        ("retry-now", "Try a message now"),
    )
}
_PAYLOAD: Final = frozenset({Scope.PAYLOAD})
_ROWS_DEFAULT: Final = 100
_REASON_CHARACTERS_MAX: Final = 200
_STATES: Final = {name: state for state, name in WIRE_STATES.items()} | {"succeeded": State.SUCCEEDED}
_TRUTHS: Final = {"true": True, "1": True, "false": False, "0": False, "": None}


_decode_request = msgspec.json.Decoder(StopRequest).decode
_decode_redirecting = msgspec.json.Decoder(Redirecting).decode


def operators(coordinator: Coordinator, decoder: Decoder, timeout_to_fail_ms: int) -> list[Served]:
    """Return the operations for operators, dtm's and twophase's, with their handlers."""
    operator = coordinator.operator
    dtm = DtmOperator(coordinator, operator, decoder, timeout_to_fail_ms)
    own = MessagesApi(coordinator, operator, decoder, operator.earliest_ms, operator.attempts_max, coordinator.clock)
    return [*dtm.served(), *own.served()]


class MessagesApi:
    """The handlers.

    Arguments:
        looking: the coordinator.
        acting: its operator.
        decoder: knows which addresses can be called.
        earliest: returns the earliest time of a try.
        attempts_max: failures in a row after which a message is parked that names no limit of its own; 0 for none.
        clock: the time of the store.
    """

    def __init__(
        self,
        looking: MessageReader,
        acting: OperatorActions,
        decoder: Decoder,
        earliest: Earliest,
        attempts_max: int,
        clock: Clock,
    ) -> None:
        self._looking = looking
        self._acting = acting
        self._decoder = decoder
        self._earliest = earliest
        self._attempts_max = attempts_max
        self._clock = clock
        self._acts: Mapping[str, Callable[[str, Act], Awaitable[Reply]]] = {
            "stop": acting.stop,
            "park": acting.park,
            "redrive": acting.redrive,
            "retry-now": acting.retry_now,
        }

    def served(self) -> list[Served]:
        """Return the operations with their handlers.

        Acts stand first, because a gid may contain slashes.
        """
        return [
            *(Served(operation, self._act(name), _refusal_answer) for name, operation in ACTS.items()),
            Served(REDIRECT, self._redirect, _refusal_answer),
            Served(ONE, self._one, _refusal_answer),
            Served(MANY, self._many, _refusal_answer),
        ]

    async def _many(self, request: Request) -> Answer:
        asked, position, limit = _search_of(request)
        caller = caller_of(request)
        search = caller.narrowed(asked)
        views: list[MessageView] = []
        if search is not None:
            views, position = await self._looking.search(search, position, limit, caller.name)
        messages = [shown(view, self._earliest, self._attempts_max, sight=caller.sight) for view in views]
        return answer_of(ManyMessages(messages, position, self._clock.now_ms()))

    async def _one(self, request: Request) -> Answer:
        gid = validate_gid(request.path_params["gid"])
        caller = caller_of(request)
        view = caller.seen(await self._looking.query(gid, caller.name or peer_of(request)))
        if view is None:
            raise UnknownMessage(f"no message {gid!r} found.", gid=gid)
        with_payloads = _truth(request, "payload") or False
        if with_payloads:
            caller.require_scope(_PAYLOAD, f"{_PATH}/{{gid:path}}?payload", peer_of(request))
        message = shown(view, self._earliest, self._attempts_max, sight=caller.sight, with_payloads=with_payloads)
        return answer_of(OneMessage(message, self._clock.now_ms()))

    async def _redirect(self, request: Request) -> Answer:
        gid = validate_gid(request.path_params["gid"])
        asked = _redirecting(await request.body())
        caller = caller_of(request)
        caller.require_reach(gid)
        redirection = Redirection(asked.to, asked.branch, asked.beginning, asked.check)

        def validate(message: Message, moves: Sequence[Move]) -> None:
            self._decoder.require_redirected(message, moves)
            for move in moves:
                caller.require_address(move.after, message.protocol)

        reply, moves = await self._acting.redirect(
            gid, redirection, act_of(asked, request), validate, dry_run=asked.dry_run
        )
        if reply.error is not None:
            return _refusal_answer(reply.error, reply.state)
        shown_moves = [ShownMove(move.branch_id, move.before, move.after) for move in moves]
        return answer_of(Redirected(gid, WIRE_STATES.get(reply.state, ""), shown_moves))

    def _act(self, name: str) -> Handler:
        act = self._acts[name]

        async def handle(request: Request) -> Answer:
            gid = validate_gid(request.path_params["gid"])
            caller = caller_of(request)
            caller.require_reach(gid)
            reply = await act(gid, _read(await request.body(), request))
            if reply.error is not None:
                return _refusal_answer(reply.error, reply.state)
            return answer_of(Acted(gid, WIRE_STATES.get(reply.state, "")))

        return handle


def _read(body: bytes, request: Request) -> Act:
    if not body:
        return Act(by_of(caller_of(request), ""), actor=actor_of(request))
    try:
        asked = _decode_request(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f'body: a JSON object {{"by": …, "reason": …}} is needed: {error}') from error
    return act_of(asked, request)


def _redirecting(body: bytes) -> Redirecting:
    try:
        asked = _decode_redirecting(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f'body: a JSON object {{"to": …}} is needed: {error}') from error
    if not asked.to:
        raise InvalidRequest("to: the new address is missing.")
    if asked.check and asked.branch:
        raise InvalidRequest("branch: a check address belongs to no branch; name only one of the two.")
    for limited in (asked.to, asked.beginning, asked.branch):
        require(URL_BYTES_MAX, len(limited.encode("utf-8", "replace")))
    return asked


def act_of(asked: ActRequest, request: Request) -> Act:
    """Return the act that a request asks for.

    Raises:
        InvalidRequest: the name or the reason is too long.
    """
    for field, text in (("by", asked.by), ("reason", asked.reason)):
        if len(text) > _REASON_CHARACTERS_MAX:
            raise InvalidRequest(f"{field}: {len(text)} characters, at most {_REASON_CHARACTERS_MAX} are kept.")
    by, actor = by_of(caller_of(request), asked.by), actor_of(request)
    if isinstance(asked, StopRequest):
        return Act(by, asked.reason, asked.override, actor, asked.prepared_only)
    return Act(by, asked.reason, actor=actor)


def _search_of(request: Request) -> tuple[Search, str, int]:
    asked = request.query_params
    names = [name for name in asked.get("state", "").split(",") if name]
    for name in names:
        if name not in _STATES:
            raise InvalidRequest(f"state: {name[:45]!r}, one of {', '.join(WIRE_STATES.values())} is needed.")
    gid_prefix, destination, check = asked.get("gid", ""), asked.get("destination", ""), asked.get("check", "")
    if gid_prefix:
        require(GID_BYTES_MAX, len(gid_prefix.encode("utf-8", "replace")))
        if not gid_prefix.isprintable():
            raise InvalidRequest("gid: the beginning of one contains an unprintable character.")
    for address in (destination, check):
        require(URL_BYTES_MAX, len(address.encode("utf-8", "replace")))
    limit = number_in(request, "limit", _ROWS_DEFAULT)
    if not 1 <= limit <= PAGE_ROWS_MAX:
        raise InvalidRequest(f"limit: {limit} is not from 1 to {PAGE_ROWS_MAX}.")
    search = Search(
        states=frozenset(_STATES[name] for name in names) or frozenset(WIRE_STATES),
        parked=_truth(request, "parked"),
        gid_prefix=gid_prefix,
        created_from_ms=number_in(request, "created_after", 0),
        created_before_ms=number_in(request, "created_before", 2**62),
        destination=destination,
        check=check,
    )
    return search, asked.get("position", ""), limit


def _truth(request: Request, name: str) -> bool | None:
    text = request.query_params.get(name, "").lower()
    if text not in _TRUTHS:
        raise InvalidRequest(f"{name}: {text[:45]!r}, true or false is needed.")
    return _TRUTHS[text]


def _refusal_answer(error: TwophaseError, state: State = State.ABSENT) -> Answer:
    refused = refusal(error, state=state)
    status = 404 if isinstance(error, UnknownMessage) else refused.status
    body = Failure(error.message, code=refused.code, state=refused.state, remedy=refused.remedy)
    return Answer(status, msgspec.json.encode(body), refused.retry_after_s)
