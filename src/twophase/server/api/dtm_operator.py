"""dtm's routes for operators: all, forceStop and the resets (dtm-wire §1.1).

The resets are resetNextCronTime and resetCronTime. Statuses and texts are dtm's, because its admin page and its
clients' tests read them; the behaviour is twophase's: a force stop asks the producer first, nothing is called before
its time, and a gid is a parameter, never a part of a statement.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec
from starlette.requests import Request

from twophase.coordinator.operator import Act
from twophase.coordinator.state.active_message import Reply, Validate
from twophase.coordinator.view import MessageView
from twophase.core.errors import InvalidRequest, StateConflict
from twophase.core.gid import validate_gid
from twophase.core.lifecycle import State
from twophase.core.redirect import Move, Redirection
from twophase.server.api.operation import (
    DTM_PREFIX,
    FORGOTTEN,
    NO_MESSAGE,
    REFUSED,
    Done,
    Operation,
    Parameter,
    Served,
    WrongByDtm,
    actor_of,
    caller_of,
    peer_of,
)
from twophase.server.codecs.decode import Decoder
from twophase.server.codecs.encode import WIRE_STATES, Answer, Failure, failure, success_body
from twophase.server.codecs.query import Listed, all_body
from twophase.server.codecs.wire import WireRequest
from twophase.server.identity.caller import Caller
from twophase.stores.search import Search

PAGE_ROWS_MAX: Final = 1_000
_ROWS_DEFAULT: Final = 100
_SEARCHES_MAX: Final = 20
"""Searches for one page.

Each looks at a bounded number of rows, and a person should not see an empty page before the last.
"""
_ROWS_AT_ONCE: Final = PAGE_ROWS_MAX // _SEARCHES_MAX
_HEADER_BYTES_MAX: Final = 512 * 1024
"""Bytes of headers behind which a page ends.

It has them twice, once with escapes, and is encoded in one turn."""
_STATES: Final = {name: state for state, name in WIRE_STATES.items()}
_NUMBER_MAX: Final = 2**50
"""Larger than any time in milliseconds; a thousand times it still fits a database."""
_BY_DTM: Final = "dtm's API"
_DONE: Final = Answer(200, success_body(0))


class OperatorActions(Protocol):
    """The part of `coordinator.operator` that these routes use."""

    async def stop(self, gid: str, act: Act) -> Reply: ...

    async def park(self, gid: str, act: Act) -> Reply: ...

    async def redrive(self, gid: str, act: Act) -> Reply: ...

    async def retry_now(self, gid: str, act: Act) -> Reply: ...

    async def redirect(
        self, gid: str, redirection: Redirection, act: Act, validate: Validate, *, dry_run: bool = False
    ) -> tuple[Reply, tuple[Move, ...]]: ...

    async def retry_later_ones(self, after_ms: int, limit: int, act: Act, gid_prefix: str = "") -> tuple[int, bool]: ...


def by_of(caller: Caller, operator: str) -> str:
    """Return who acts: the name of the token, and what the request says."""
    if not caller.name:
        return operator
    return f"{operator} with the token {caller.name}" if operator else caller.name


class MessageReader(Protocol):
    """The part of the coordinator that these routes use."""

    async def query(self, gid: str, client: str = "") -> MessageView | None: ...

    async def search(
        self, search: Search, position: str, limit: int, client: str, /
    ) -> tuple[list[MessageView], str]: ...


class Reset(msgspec.Struct):
    """The number of messages that are tried now, and a mark that others wait as long."""

    has_remaining: bool
    succeed_count: int


_NO_NUMBER: Final = "TP-1000: dtm's `convert to int error`, where a number is needed"
ALL: Final = Operation(
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
)
FORCE_STOP: Final = Operation(
    path=f"{DTM_PREFIX}/forceStop",
    methods=("POST",),
    tag="operators",
    summary="Fail a message that is not final; a prepared one's producer is asked first",
    request=WireRequest,
    answer=Done,
    refusals={409: REFUSED, 410: FORGOTTEN, 500: NO_MESSAGE},
)
RESET_ONE: Final = Operation(
    path=f"{DTM_PREFIX}/resetNextCronTime",
    methods=("POST",),
    tag="operators",
    summary="Try a message now",
    request=WireRequest,
    answer=Done,
    refusals={409: REFUSED, 410: FORGOTTEN, 500: NO_MESSAGE},
)
RESET_ALL: Final = Operation(
    path=f"{DTM_PREFIX}/resetCronTime",
    tag="operators",
    summary="Retry now messages that would wait for long",
    parameters=(
        Parameter("timeout", "those that wait longer than this many seconds", int),
        Parameter("limit", "at most this many", int),
    ),
    answer=Reset,
    refusals={500: _NO_NUMBER},
)


class DtmOperator:
    """The handlers.

    Arguments:
        looking: the coordinator.
        acting: its operator.
        decoder: reads bodies.
        timeout_to_fail_ms: the server's; resetCronTime counts from three times that.
    """

    def __init__(
        self,
        looking: MessageReader,
        acting: OperatorActions,
        decoder: Decoder,
        timeout_to_fail_ms: int,
    ) -> None:
        self._looking = looking
        self._acting = acting
        self._decoder = decoder
        self._timeout_to_fail_ms = timeout_to_fail_ms

    def served(self) -> list[Served]:
        """Return the operations with their handlers."""
        return [
            Served(ALL, self._all),
            Served(FORCE_STOP, self._force_stop),
            Served(RESET_ONE, self._reset_one),
            Served(RESET_ALL, self._reset_all),
        ]

    async def _all(self, request: Request) -> Answer:
        return Answer(200, await self._page(request))

    async def _page(self, request: Request) -> bytes:
        asked, caller = request.query_params, caller_of(request)
        if gid := asked.get("gid", ""):
            view = await self._looking.query(validate_gid(gid), caller.name or peer_of(request))
            view = caller.seen(view)
            return all_body(None if view is None else [view], "", caller.sight)
        position = asked.get("position", "")
        limit = min(_number(request, "limit", _ROWS_DEFAULT), PAGE_ROWS_MAX)
        search = caller.narrowed(
            Search(
                states=_states(asked.get("status", "")),
                created_from_ms=_number(request, "createTimeStart", 0),
                created_before_ms=_number(request, "createTimeEnd", 2**62 - 1) + 1,
            )
        )
        if search is None or not search.states or limit < 1 or asked.get("transType", "msg") not in {"msg", ""}:
            return all_body([], "")
        views: list[MessageView] = []
        header_bytes = 0
        for _ in range(_SEARCHES_MAX):
            rows = min(limit - len(views), _ROWS_AT_ONCE)
            try:
                found, position = await self._looking.search(search, position, rows, caller.name)
            except InvalidRequest:
                raise WrongByDtm(f"convert to int error: {position[:45]}") from None
            views += [_without_payloads(view) for view in found]
            header_bytes += sum(map(_header_bytes, found))
            if not position or len(views) == limit or header_bytes >= _HEADER_BYTES_MAX:
                break
        return all_body(views, position, caller.sight)

    async def _force_stop(self, request: Request) -> Answer:
        reply = await self._acting.stop(await self._gid(request), _act(request))
        if isinstance(reply.error, StateConflict):
            state = WIRE_STATES.get(reply.state, "")
            text = f"global transaction force stop error. status: {state}. error: FAILURE"
            refused = Failure(text, "FAILURE", reply.error.code, state, reply.error.remedy)
            return Answer(409, msgspec.json.encode(refused))
        return _DONE if reply.error is None else failure(reply.error, state=reply.state)

    async def _reset_one(self, request: Request) -> Answer:
        reply = await self._acting.retry_now(await self._gid(request), _act(request))
        # dtm answers success for a final message; a parked message stays parked until it is redriven.
        if reply.error is None or isinstance(reply.error, StateConflict):
            return _DONE
        return failure(reply.error, state=reply.state)

    async def _reset_all(self, request: Request) -> Answer:
        after_ms = _number(request, "timeout", 3 * self._timeout_to_fail_ms // 1000) * 1000
        limit = max(0, min(_number(request, "limit", _ROWS_DEFAULT), PAGE_ROWS_MAX))
        prefix = caller_of(request).gid_prefix
        count, more = await self._acting.retry_later_ones(after_ms, limit, _act(request), prefix)
        return Answer(200, msgspec.json.encode(Reset(more, count)))

    async def _gid(self, request: Request) -> str:
        gid = self._decoder.gid(await request.body())
        caller_of(request).require_reach(gid)
        return gid


def _act(request: Request) -> Act:
    return Act(by_of(caller_of(request), _BY_DTM), actor=actor_of(request))


def _header_bytes(view: MessageView) -> int:
    return sum([len(name) + len(value) for name, value in view.message.options.headers])


def _without_payloads(view: MessageView) -> MessageView:
    """Return a view without payloads, which `all` does not show.

    So a page of several searches need not hold them.
    """
    return msgspec.structs.replace(view, message=msgspec.structs.replace(view.message, branches=()))


def _states(status: str) -> frozenset[State]:
    if not status:
        return frozenset(WIRE_STATES)
    return frozenset({_STATES[status]} if status in _STATES else ())


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, "")
    if not text:
        return default
    try:
        number = int(text)
    except ValueError:
        raise WrongByDtm(f"convert to int error: {text[:45]}") from None
    return max(-_NUMBER_MAX, min(number, _NUMBER_MAX))
