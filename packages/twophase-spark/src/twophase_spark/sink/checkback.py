"""Answers the coordinator's question about a row's message.

The answer is published, given up, or neither yet. It looks and never writes. The barrier of other producers bars a
transaction that has not begun by writing; here a batch that is not decided is in progress without a limit, because
Spark brings it back after any crash, and a message that was rolled back meanwhile would turn that into a contrary
verdict. Only giving up rolls back.
"""

from __future__ import annotations

import http.server
import logging
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from sqlalchemy import Engine

from twophase.barrier import CheckBackAnswer
from twophase.barrier.http_answer import HttpReply, answer_of, identity_in, is_probe, parse_query, probe_reply
from twophase.core.errors import InvalidRequest, LedgerUnavailable, WrongDatabase
from twophase.core.probe import ProbeReport, ProbeState
from twophase.core.verdict import Verdict
from twophase_spark.sink.ledger import Ledger

PATH: Final = "/twophase/spark/check"
_IDLE_S: Final = 60
_EVIDENCE: Final = {
    Verdict.COMMITTED: "its batch is published",
    Verdict.ROLLED_BACK: "every batch it stands in was given up",
    Verdict.IN_PROGRESS: "no batch it stands in is decided",
    Verdict.UNKNOWN: "this ledger has never seen it",
}
_log = logging.getLogger("twophase.spark")


def answer(engine: Engine, parameters: Mapping[str, Any]) -> HttpReply:
    """Return the reply to a check-back, for a route in any framework.

    Arguments:
        engine: the ledger's database.
        parameters: the request's query parameters.

    Example:
        @app.get("/twophase/spark/check")
        def check(request: Request) -> Response:
            reply = answer(engine, request.query_params)
            return Response(reply.body, reply.status, reply.headers)
    """
    try:
        if is_probe(parameters):
            return probe_reply(_probed(engine, identity_in(parameters)))
        question = parse_query(parameters)
    except InvalidRequest as error:
        return HttpReply(400, {"content-type": "text/plain; charset=utf-8"}, f"{error.code}: {error.message}".encode())
    ledger = Ledger(engine)
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
        found = Ledger(engine).identity()
    except LedgerUnavailable as error:
        return ProbeReport(ProbeState.DATABASE_FAILED, f"{error.code}: {error.message}", error.remedy)
    if identity is not None and found != identity:
        remedy = "Give the check-back route the ledger that the sink writes to."
        return ProbeReport(ProbeState.WRONG_DATABASE, f"{WrongDatabase.code}: this is another ledger", remedy)
    return ProbeReport(ProbeState.READY)


class CheckBackServer(http.server.ThreadingHTTPServer):
    """A small server for this route alone; several may run beside each other.

    Arguments:
        engine: the ledger's database.
        host, port: where it listens; port 0 for any.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, engine: Engine, host: str, port: int) -> None:
        self.engine = engine
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        """The address for option `checkUrl`."""
        host, port = self.server_address[0], self.server_address[1]
        return f"http://{host!s}:{port}{PATH}"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S
    server: CheckBackServer  # pyright: ignore[reportIncompatibleVariableOverride] -- the library types it widely

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/health/live":
            reply = HttpReply(200, {"content-type": "application/json"}, b'{"status":"live"}')
        elif parts.path == PATH:
            reply = answer(self.server.engine, parse_qs(parts.query))
        else:
            reply = HttpReply(404, {"content-type": "text/plain"}, f"check-backs are answered at {PATH}".encode())
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the library's name
        """Log nothing: a question a message would fill the log."""
