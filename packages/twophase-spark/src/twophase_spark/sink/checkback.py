"""Answers the coordinator's question about a row's message.

The answer is published, given up, or neither yet. It looks and never writes. The barrier of other producers bars a
transaction that has not begun by writing; here a batch that is not decided is in progress without a limit, because
Spark brings it back after any crash, and a message that was rolled back meanwhile would turn that into a contrary
verdict. Only giving up rolls back.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Engine

from twophase.barrier import CheckBackAnswer
from twophase.barrier.http_answer import (
    HttpReply,
    answer_of,
    answer_signed,
    identity_in,
    is_probe,
    parse_query,
    probe_reply,
)
from twophase.barrier.signing import Keys, http_call
from twophase.core.errors import InvalidRequest, LedgerUnavailable, WrongDatabase
from twophase.core.probe import ProbeReport, ProbeState
from twophase.core.signature import known_keys
from twophase.core.verdict import Verdict
from twophase_spark.sink.ledger import Ledger

PATH: Final = "/twophase/spark/check"
STATEMENT_MS: Final = 1_000
"""The most time of each of the two statements, with its waits for locks.

The answer is unknown then, in less time than a coordinator waits for it.
"""
_EVIDENCE: Final = {
    Verdict.COMMITTED: "its batch is published",
    Verdict.ROLLED_BACK: "every batch with it was given up",
    Verdict.IN_PROGRESS: "no batch with it is decided",
    Verdict.UNKNOWN: "this ledger has never seen it",
}
_log = logging.getLogger("twophase.spark")


def answer(
    engine: Engine,
    parameters: Mapping[str, Any],
    keys: Keys | None = None,
    *,
    target: str = "",
    headers: Any = None,
    peer: str = "",
) -> HttpReply:
    """Return the reply to a check-back, for a route in any framework.

    Arguments:
        engine: the ledger's database.
        parameters: the request's query parameters.
        keys: secrets by key id; a question that none of them has signed is answered 401, before any statement. The
            verdict of any other is signed. By default every question is answered.
        target: path and query, as the coordinator sent them; needed with `keys`.
        headers: a mapping of names in any case, or a multi-dict with `getlist`; needed with `keys`.
        peer: the client's address, which the log names with a refusal.

    Raises:
        ConfigurationError: there is no key in `keys`, or one cannot be a key.

    Example:
        @app.get("/twophase/spark/check")
        def check(request: Request) -> Response:
            target = f"{request.url.path}?{request.url.query}"
            reply = answer(engine, request.query_params, KEYS, target=target, headers=request.headers)
            return Response(reply.body, reply.status, reply.headers)
    """
    known = known_keys(keys)
    if known is None:
        return _answer(engine, parameters)
    path, _, query = target.partition("?")
    call = http_call("GET", path, query, headers or {}, bytes, peer=peer)
    return answer_signed(parameters, known, call, functools.partial(_answer, engine, parameters))


def _answer(engine: Engine, parameters: Mapping[str, Any]) -> HttpReply:
    try:
        if is_probe(parameters):
            return probe_reply(_probed(engine, identity_in(parameters)))
        question = parse_query(parameters)
    except InvalidRequest as error:
        return HttpReply(400, {"content-type": "text/plain; charset=utf-8"}, f"{error.code}: {error.message}".encode())
    ledger = Ledger(engine, STATEMENT_MS)
    try:
        if question.identity != ledger.identity():
            answer = CheckBackAnswer(Verdict.UNKNOWN, evidence=f"{WrongDatabase.code}: this is another ledger")
        else:
            verdict = ledger.verdict(question.gid)
            answer = CheckBackAnswer(verdict, evidence=_EVIDENCE[verdict])
    except LedgerUnavailable as error:
        _log.error("check-back of %s cannot be answered: %s", question.gid, error.message)
        answer = CheckBackAnswer(Verdict.UNKNOWN, evidence=error.message)
    return answer_of(answer)


def _probed(engine: Engine, identity: str | None) -> ProbeReport:
    """Look for the ledger, and compare its identity with the one in the check address."""
    try:
        found = Ledger(engine, STATEMENT_MS).identity()
    except LedgerUnavailable as error:
        return ProbeReport(ProbeState.DATABASE_FAILED, f"{error.code}: {error.message}", error.remedy)
    if identity is not None and found != identity:
        remedy = "Give the check-back route the ledger that the sink writes to."
        return ProbeReport(ProbeState.WRONG_DATABASE, f"{WrongDatabase.code}: this is another ledger", remedy)
    return ProbeReport(ProbeState.READY)
