"""Check-backs as HTTP, for every framework.

Query parameters go in; status, headers and body come out. An integration only fetches the former and sends the latter.
The verdict is in a header that no proxy's page has by accident, and once more in status and body for coordinators that
speak dtm (correctness rule 10).
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple, Self

import msgspec

from twophase.barrier.asking import CheckBackAnswer, CheckBackQuestion, acheck_back, bounded_ms, check_back
from twophase.barrier.branch import read_gid, require_message
from twophase.barrier.dialect import validate_table
from twophase.barrier.fault import code_of
from twophase.barrier.parameters import one_value
from twophase.barrier.probing import aprobe, probe
from twophase.barrier.signing import Keys, ReceivedCall, accept, sign_verdict
from twophase.core import failpoint
from twophase.core.errors import CallNotSigned, InvalidRequest, PageRefused, WrongDatabase
from twophase.core.gid import PROBE_GID
from twophase.core.probe import PROBE_OP, PROBE_VERDICT, REFUSED_OP, ProbeReport
from twophase.core.signature import SIGNATURE_HEADER, Signature, SigningKey, known_keys
from twophase.core.verdict import STATUS_OF_VERDICT, VERDICT_HEADER, Verdict

_JSON = {"content-type": "application/json"}
_DTM_RESULT = {
    Verdict.COMMITTED: "SUCCESS",
    Verdict.ROLLED_BACK: "FAILURE",
    Verdict.IN_PROGRESS: "ONGOING",
    Verdict.UNKNOWN: "UNKNOWN",
}

_log = logging.getLogger("twophase.barrier")


class HttpReply(NamedTuple):
    """A reply to send."""

    status: int
    headers: dict[str, str]
    body: bytes


class CheckBackPolicy(msgspec.Struct, frozen=True):
    """The settings of a check-back route's answers."""

    table: str
    lock_timeout_ms: int
    require_identity: bool
    keys: tuple[SigningKey, ...] | None = None
    """The keys of which one must have signed a question; None believes every question."""

    @classmethod
    def of(
        cls, table: str, lock_timeout: float | timedelta, *, require_identity: bool, keys: Keys | None = None
    ) -> Self:
        """Return the policy that a route's arguments ask for.

        Raises:
            ConfigurationError: the table's name cannot be one, a key cannot be one, or `lock_timeout` is less than a
                millisecond.
        """
        return cls(validate_table(table), bounded_ms(lock_timeout), require_identity, known_keys(keys))


def parse_query(parameters: Mapping[str, Any]) -> CheckBackQuestion:
    """Return the question in a check-back's query parameters.

    The parameters are those of dtm-wire §3.1, and twophase's `prepared_at` and `barrier`.

    Raises:
        UnsupportedType: `trans_type` is not `msg`.
        InvalidRequest: `gid` is missing or impossible, `op` or `branch_id` is another than a check-back's,
            `prepared_at` is no number of milliseconds, or one of them is there twice.

    >>> asked = parse_query({"gid": "g", "trans_type": "msg", "op": "msg", "branch_id": "00", "prepared_at": "17"})
    >>> asked.gid, asked.prepared_at_ms, asked.identity
    ('g', 17, None)
    """
    require_message(parameters)
    # Before the gid: this refusal shows a coordinator that the route answers no probes, whose gid names no message.
    if one_value(parameters, "op") not in {None, "msg"} or one_value(parameters, "branch_id") not in {None, "00"}:
        raise InvalidRequest(REFUSED_OP)
    gid = read_gid(parameters)
    prepared_at = one_value(parameters, "prepared_at") or None
    if prepared_at is not None and not (prepared_at.isascii() and prepared_at.isdecimal() and len(prepared_at) <= 15):
        raise InvalidRequest("prepared_at must be milliseconds since 1970.", gid=gid)
    return CheckBackQuestion(gid, int(prepared_at) if prepared_at else None, identity_in(parameters))


def answer_of(answer: CheckBackAnswer) -> HttpReply:
    """Return the reply that carries a verdict.

    >>> answer_of(CheckBackAnswer(Verdict.IN_PROGRESS)).status
    425
    """
    content = {"dtm_result": _DTM_RESULT[answer.verdict], "verdict": answer.verdict.value}
    if answer.body is not None and answer.verdict is Verdict.COMMITTED:
        content["branches"] = base64.b64encode(answer.body).decode()
    if answer.verdict is Verdict.UNKNOWN:
        content["message"] = answer.evidence
    headers = {**_JSON, VERDICT_HEADER: answer.verdict.value}
    return HttpReply(STATUS_OF_VERDICT[answer.verdict], headers, msgspec.json.encode(content))


def refused(error: InvalidRequest) -> HttpReply:
    """Return the reply to a request that is not taken: no verdict."""
    content = {"code": error.code, "message": error.message}
    if isinstance(error, CallNotSigned):
        return HttpReply(401, {**_JSON, "www-authenticate": SIGNATURE_HEADER}, msgspec.json.encode(content))
    return HttpReply(403 if isinstance(error, PageRefused) else 400, dict(_JSON), msgspec.json.encode(content))


class _ProbeQuestion(msgspec.Struct, frozen=True):
    """A question about no message: whether this route can answer."""

    identity: str | None


def _question(parameters: Mapping[str, Any], policy: CheckBackPolicy) -> CheckBackQuestion | _ProbeQuestion | HttpReply:
    try:
        if is_probe(parameters):
            return _ProbeQuestion(identity_in(parameters))
        question = parse_query(parameters)
    except InvalidRequest as error:
        return refused(error)
    if policy.require_identity and question.identity is None:
        evidence = (
            f"{WrongDatabase.code}: the check address does not name its database (`barrier=`); see require_identity"
        )
        return answer_of(CheckBackAnswer(Verdict.UNKNOWN, evidence=evidence))
    return question


def answer_check_back(
    engine: Any, parameters: Mapping[str, Any], policy: CheckBackPolicy, call: ReceivedCall
) -> HttpReply:
    """Everything a check-back route does."""
    return answer_signed(parameters, policy.keys, call, lambda: _answer(engine, parameters, policy))


def answer_signed(
    parameters: Mapping[str, Any],
    keys: tuple[SigningKey, ...] | None,
    call: ReceivedCall,
    answer: Callable[[], HttpReply],
) -> HttpReply:
    """Answer a question that one of the keys has signed, and sign the verdict.

    Any other question is refused, and `answer` is not called for it. Without keys a page's question is.
    """
    try:
        signature = accept(keys, call)
    except (CallNotSigned, PageRefused) as error:
        return refused(error)
    return _signed(answer(), parameters, signature, call)


def _answer(engine: Any, parameters: Mapping[str, Any], policy: CheckBackPolicy) -> HttpReply:
    question = _question(parameters, policy)
    if isinstance(question, HttpReply):
        return question
    if isinstance(question, _ProbeQuestion):
        return probe_reply(probe(engine, question.identity, policy.table, policy.lock_timeout_ms))
    answer = check_back(
        engine,
        question.gid,
        prepared_at_ms=question.prepared_at_ms,
        identity=question.identity,
        table=policy.table,
        lock_timeout=policy.lock_timeout_ms / 1000,
    )
    return _reply(answer)


async def aanswer_check_back(
    engine: Any, parameters: Mapping[str, Any], policy: CheckBackPolicy, call: ReceivedCall
) -> HttpReply:
    """Everything an async check-back route does."""
    try:
        signature = accept(policy.keys, call)
    except (CallNotSigned, PageRefused) as error:
        return refused(error)
    return _signed(await _aanswer(engine, parameters, policy), parameters, signature, call)


async def _aanswer(engine: Any, parameters: Mapping[str, Any], policy: CheckBackPolicy) -> HttpReply:
    question = _question(parameters, policy)
    if isinstance(question, HttpReply):
        return question
    if isinstance(question, _ProbeQuestion):
        return probe_reply(await aprobe(engine, question.identity, policy.table, policy.lock_timeout_ms))
    answer = await acheck_back(
        engine,
        question.gid,
        prepared_at_ms=question.prepared_at_ms,
        identity=question.identity,
        table=policy.table,
        lock_timeout=policy.lock_timeout_ms / 1000,
    )
    return _reply(answer)


def sheltered(answer: Callable[[], HttpReply]) -> HttpReply:
    """Return the answer of a check-back route, which is unknown where `answer` raises.

    No handler of the application sees the error: a foreign producer's question would take its 200 for a commit.
    """
    try:
        return answer()
    except Exception as error:  # noqa: BLE001 -- anything unexpected is no verdict; it is logged
        return _unanswered(error)


async def asheltered(answer: Callable[[], Awaitable[HttpReply]]) -> HttpReply:
    """`sheltered` for an async route."""
    try:
        return await answer()
    except Exception as error:  # noqa: BLE001 -- anything unexpected is no verdict; it is logged
        return _unanswered(error)


def _unanswered(error: Exception) -> HttpReply:
    _log.exception("a check-back fails")
    evidence = f"the check-back route failed ({code_of(error)}); the service's log says where"
    return answer_of(CheckBackAnswer(Verdict.UNKNOWN, evidence=evidence))


def _signed(
    reply: HttpReply, parameters: Mapping[str, Any], signature: Signature | None, call: ReceivedCall
) -> HttpReply:
    """Return the reply with its verdict signed, where the question was."""
    if signature is None or VERDICT_HEADER not in reply.headers:
        return reply
    body = reply.body if reply.status == 200 or call.refusals_have_body else b""
    headers = sign_verdict(signature, one_value(parameters, "gid") or "", reply.headers, body)
    return HttpReply(reply.status, headers, reply.body)


def is_probe(parameters: Mapping[str, Any]) -> bool:
    """Recognise the coordinator's probe of a check address.

    It raises InvalidRequest for a parameter that is given twice.
    """
    return one_value(parameters, "gid") == PROBE_GID and one_value(parameters, "op") == PROBE_OP


def identity_in(parameters: Mapping[str, Any]) -> str | None:
    """Read the database that the check address names; raises InvalidRequest."""
    return one_value(parameters, "barrier") or None


def probe_reply(report: ProbeReport) -> HttpReply:
    """Return the reply to a probe.

    Its header keeps every reader from taking it for a verdict.
    """
    return HttpReply(200, {**_JSON, VERDICT_HEADER: PROBE_VERDICT}, msgspec.json.encode(report))


def _reply(answer: CheckBackAnswer) -> HttpReply:
    if failpoint.ARMED:
        failpoint.reach("check_back.before_reply")
    return answer_of(answer)
