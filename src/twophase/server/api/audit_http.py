"""The routes behind `twophase log`: a search, and the rows in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from starlette.requests import Request

from twophase.core.audit_chain import AUDIT_PATH, CHAIN_ROWS_MAX, ShownAuditLog, ShownChain
from twophase.core.audit_log import AuditHead, AuditPage, AuditRow, AuditSearch
from twophase.core.errors import InvalidRequest
from twophase.server.api.operation import Operation, Parameter, Served, answer_of, caller_of, number_in
from twophase.server.codecs.encode import Answer

_ROWS_DEFAULT: Final = 100
SEARCH: Final = Operation(
    path=AUDIT_PATH,
    tag="operators",
    summary="The audit log, a page at a time: the newest rows first",
    description="A page looks at 10 000 rows at most, so it may be short, or even empty, before the end.",
    parameters=(
        Parameter("gid", "only acts on this gid, topic, route or token"),
        Parameter("who", "only acts with this token or certificate"),
        Parameter("act", "only this act, such as `stop` or `refused`"),
        Parameter("since", "only rows written at or after this, in milliseconds since 1970", int),
        Parameter("position", "`position` of the page before", int),
        Parameter("limit", "rows of a page, 1 to 1000", int),
    ),
    answer=ShownAuditLog,
)
CHAIN: Final = Operation(
    path=f"{AUDIT_PATH}/chain",
    tag="operators",
    summary="The audit log in the order of its chain, and both ends of the chain",
    description="`twophase log verify` computes each hash anew.",
    parameters=(
        Parameter("after", "the page begins after this `seq`", int),
        Parameter("limit", "rows of a page, 1 to 1000", int),
    ),
    answer=ShownChain,
)


class AuditLog(Protocol):
    """The part of the coordinator that these routes use."""

    async def audit_chain(self, after_seq: int, limit: int, client: str, /) -> tuple[Sequence[AuditRow], AuditHead]: ...

    async def audit_search(self, search: AuditSearch, position: int, limit: int, client: str, /) -> AuditPage: ...


class AuditApi:
    """The handlers.

    Arguments:
        log: the coordinator.
    """

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    def served(self) -> list[Served]:
        """Return the operations with their handlers."""
        return [Served(SEARCH, self._search), Served(CHAIN, self._chain)]

    async def _search(self, request: Request) -> Answer:
        asked, caller = request.query_params, caller_of(request)
        caller.require_every_gid()
        search = AuditSearch(
            asked.get("gid", ""), asked.get("who", ""), asked.get("act", ""), number_in(request, "since", 0)
        )
        for text in (search.target, search.who, search.act):
            if not text.isprintable():
                raise InvalidRequest("gid, who, act: one contains an unprintable character.")
        position = number_in(request, "position", 0)
        found = await self._log.audit_search(search, position, _limit(request), caller.name)
        return answer_of(ShownAuditLog(list(found.rows), found.position))

    async def _chain(self, request: Request) -> Answer:
        caller = caller_of(request)
        caller.require_every_gid()
        rows, head = await self._log.audit_chain(number_in(request, "after", 0), _limit(request), caller.name)
        return answer_of(ShownChain(list(rows), head))


def _limit(request: Request) -> int:
    limit = number_in(request, "limit", _ROWS_DEFAULT)
    if not 1 <= limit <= CHAIN_ROWS_MAX:
        raise InvalidRequest(f"limit: {limit} is not from 1 to {CHAIN_ROWS_MAX}.")
    return limit
