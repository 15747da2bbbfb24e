"""FastAPI: the check-back route in one line, and branches that take effect once.

app.include_router(check_router(engine))

@app.post("/transfer-in")
def transfer_in(request: Request, transfer: Transfer) -> Response:
    return once(engine, request, lambda connection: receive(connection, transfer))
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from twophase.barrier import branch
from twophase.barrier.asking import LOCK_TIMEOUT_MS
from twophase.barrier.dialect import DEFAULT_TABLE, validate_table
from twophase.barrier.http_answer import (
    CheckBackPolicy,
    HttpReply,
    aanswer_branch,
    aanswer_check_back,
    answer_branch,
    answer_check_back,
)
from twophase.barrier.open import is_async


def _response(answer: HttpReply) -> Response:
    return Response(content=answer.body, status_code=answer.status, headers=answer.headers)


def check_router(
    engine: Any,
    path: str = "/twophase/check",
    *,
    table: str = DEFAULT_TABLE,
    lock_timeout_ms: int = LOCK_TIMEOUT_MS,
    require_identity: bool = True,
) -> APIRouter:
    """The route that answers check-backs.

    Arguments:
        engine: the database of the producer's transactions; a sync one is used in the thread pool.
        path: where the route stands; the `check` that a transaction is given must lead here.
        table: the barrier's name in that database, `name` or `schema.name`, as `install` was given it.
        lock_timeout_ms: wait so long for a transaction under way; keep it below the coordinator's request timeout.
        require_identity: answer unknown when the check address does not name its database, as our SDK's do; False
            to answer for producers that write dtm's barrier with other SDKs.

    Raises:
        ConfigurationError: the table's name cannot be one.
    """
    policy = CheckBackPolicy(validate_table(table), lock_timeout_ms, require_identity)
    router = APIRouter()

    def check(request: Request) -> Response:
        return _response(answer_check_back(engine, request.query_params, policy))

    async def acheck(request: Request) -> Response:
        return _response(await aanswer_check_back(engine, request.query_params, policy))

    route = acheck if is_async(engine) else check
    router.add_api_route(path, route, methods=["GET"], name="twophase_check", include_in_schema=False)
    return router


def once(engine: Any, request: Request, function: Callable[[Any], object], *, table: str = DEFAULT_TABLE) -> Response:
    """Run a branch's effect once and reply as the coordinator understands; see `barrier.once`. For `def` routes."""
    return _response(answer_branch(lambda: branch.once(engine, request.query_params, function, table=table)))


async def aonce(
    engine: Any, request: Request, function: Callable[[Any], Awaitable[object]], *, table: str = DEFAULT_TABLE
) -> Response:
    """`once` for `async def` routes with an async engine."""
    return _response(await aanswer_branch(lambda: branch.aonce(engine, request.query_params, function, table=table)))
