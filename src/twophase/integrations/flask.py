"""Flask: the check-back route in one line, and branches that take effect once.

app.register_blueprint(check_blueprint(engine))

@app.post("/transfer-in")
def transfer_in() -> Response:
    return once(engine, lambda connection: receive(connection, request.get_json()))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Blueprint, Response, request

from twophase.barrier import branch
from twophase.barrier.asking import LOCK_TIMEOUT_MS
from twophase.barrier.dialect import DEFAULT_TABLE, validate_table
from twophase.barrier.http_answer import CheckBackPolicy, HttpReply, answer_branch, answer_check_back


def _response(answer: HttpReply) -> Response:
    return Response(answer.body, status=answer.status, headers=answer.headers)


def check_blueprint(
    engine: Any,
    path: str = "/twophase/check",
    *,
    table: str = DEFAULT_TABLE,
    lock_timeout_ms: int = LOCK_TIMEOUT_MS,
    require_identity: bool = True,
) -> Blueprint:
    """The route that answers check-backs.

    Arguments:
        engine: the database of the producer's transactions, blocking.
        path: where the route stands; the `check` that a transaction is given must lead here.
        table: the barrier's name in that database, `name` or `schema.name`, as `install` was given it.
        lock_timeout_ms: wait so long for a transaction under way; keep it below the coordinator's request timeout.
        require_identity: answer unknown when the check address does not name its database, as our SDK's do; False
            to answer for producers that write dtm's barrier with other SDKs.

    Raises:
        ConfigurationError: the table's name cannot be one.
    """
    policy = CheckBackPolicy(validate_table(table), lock_timeout_ms, require_identity)
    blueprint = Blueprint("twophase", __name__)

    def check() -> Response:
        return _response(answer_check_back(engine, request.args, policy))

    blueprint.add_url_rule(path, "check", check, methods=["GET"])
    return blueprint


def once(engine: Any, function: Callable[[Any], object], *, table: str = DEFAULT_TABLE) -> Response:
    """Run a branch's effect once and reply as the coordinator understands; see `barrier.once`."""
    return _response(answer_branch(lambda: branch.once(engine, request.args, function, table=table)))
