"""A probe of a check address: a check-back's request about no message.

Without probes, a wrong check address is noticed only after a crash, which needs it. A probe is a check-back's request
with `op=probe` and a gid that no message can have, so a route that does not know probes refuses it and writes nothing.
A route that knows them looks at its database, leaves nothing written, and answers 200 with a header that is no verdict.
Pure interpretation, as in `core.verdict`.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from twophase.core.errors import (
    BarrierTableMissing,
    BarrierTableUnusable,
    DatabaseIsReplica,
    UnsafeDatabase,
    WrongDatabase,
)
from twophase.core.gid import PROBE_GID

PROBE_OP: Final = "probe"
PROBE_VERDICT: Final = "probe"
"""The verdict header's value in the answer to a probe."""
PROBE_QUERY: Final = (("branch_id", "00"), ("gid", PROBE_GID), ("op", PROBE_OP), ("trans_type", "msg"))
PROBE_PATH: Final = "/api/twophase/check-addresses"
"""At a server: GET shows the addresses it probes, POST `…/probe` has it probe one."""
REFUSED_OP: Final = "A check-back has op=msg and branch_id=00."
"""By which a check-back route that knows no probes refuses one."""
_TEXT_CHARACTERS_MAX: Final = 400


class ProbeState(enum.StrEnum):
    """The condition of a check address."""

    READY = "ready"
    BUSY = "busy"
    """The route answers; its database was too busy to be looked at."""
    UNPROBEABLE = "unprobeable"
    """A check-back route of an earlier version, which knows no probes."""
    UNREACHABLE = "unreachable"
    NOT_A_ROUTE = "not_a_route"
    """Something answers that is no check-back route."""
    WRONG_DATABASE = "wrong_database"
    NO_BARRIER = "no_barrier"
    """The barrier table is missing, incomplete or unusable."""
    UNSAFE_DATABASE = "unsafe_database"
    DATABASE_FAILED = "database_failed"


_WELL: Final = frozenset({ProbeState.READY, ProbeState.BUSY, ProbeState.UNPROBEABLE})
_ROUTE_MISSING: Final = "Serve the check-back route at this address, or correct the `check` of the transaction."
_REACH: Final = "Give a `check` that the coordinator can reach, and run the service that it names."
_LOGIN_ASKED: Final = (
    "Let the coordinator's requests pass, send what the route asks for as a header of the message, or give the "
    "destination the key by which the route verifies calls."
)
_NO_REDIRECTS: Final = (
    "Redirects are not followed: write the address that they lead to as `check`. If they lead to a login, let the "
    "coordinator's requests pass without one."
)
_UNCOMPARED: Final = "the route reports something beside: no database may have been compared"
_LOOK_THERE: Final = "Look at the service's database and its log; `twophase doctor` with the scope payload shows more."
_KNOWN: Final = {
    error.code: error()
    for error in (BarrierTableMissing, BarrierTableUnusable, DatabaseIsReplica, UnsafeDatabase, WrongDatabase)
}
_CODE_CHARACTERS: Final = len("TP-0000")
_LOGIN_STATUSES: Final = frozenset({401, 403, 407})


class ProbeReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a route's answer to a probe.

    `now_ms` is its database's clock; `lock_timeout_ms` is the route's own.
    """

    probe: ProbeState
    message: str = ""
    remedy: str = ""
    now_ms: int = 0
    lock_timeout_ms: int = 0


class Probed(msgspec.Struct, frozen=True):
    """The result of a probe.

    It has the condition, the observation, a remedy, and the route's report where there is one.
    """

    state: ProbeState
    message: str = ""
    remedy: str = ""
    report: ProbeReport | None = None

    @property
    def well(self) -> bool:
        """True when a check-back can be answered at this address, as far as a probe shows."""
        return self.state in _WELL

    @property
    def told(self) -> Probed:
        """The same result without a text that the route wrote.

        It may go into logs and alerts, and to every client that sees addresses. Of the route's report it keeps the
        state, and the code of an error.

        >>> Probed(ProbeState.NO_BARRIER, "TP-6001: secret", "secret", ProbeReport(ProbeState.NO_BARRIER)).told.message
        'TP-6001: The barrier table does not exist in this database.'
        """
        if self.report is None:
            return self
        report = ProbeReport(self.state, now_ms=self.report.now_ms, lock_timeout_ms=self.report.lock_timeout_ms)
        if self.state is ProbeState.READY:
            return Probed(self.state, _UNCOMPARED if self.message else "", "", report)
        known = _KNOWN.get(self.message[:_CODE_CHARACTERS])
        if known is None:
            remedy = "" if self.well else _LOOK_THERE
            return Probed(self.state, f"the route reports: {self.state.value}", remedy, report)
        return Probed(self.state, f"{known.code}: {known.message}", known.remedy, report)


_decode = msgspec.json.Decoder(ProbeReport).decode


def interpret_probe(status: int, verdict_header: str | None, body: bytes, error: str) -> Probed:
    """Return the condition of a check address, by its answer to a probe.

    Arguments:
        status: as an HTTP status; 0 when there was no answer.
        verdict_header: value of `X-Twophase-Verdict`, None when absent.
        body: the answer's body.
        error: the reason for no answer, or the text of a gRPC status.

    >>> interpret_probe(404, None, b"not found", "").message
    'status 404, which is not the answer of a check-back route'
    >>> interpret_probe(200, "probe", b'{"probe":"ready"}', "").well
    True
    """
    if verdict_header is not None and verdict_header.strip().lower() == PROBE_VERDICT and status == 200:
        return _read(body)
    if status == 400 and REFUSED_OP in f"{body[:1000].decode('utf-8', 'replace')} {error}":
        return Probed(ProbeState.UNPROBEABLE, "the route is of a twophase version that cannot be probed")
    if status == 0:
        # A gRPC service that says UNAVAILABLE may have repeated anything behind it.
        what = error.partition(":")[0] if error.startswith("gRPC ") else error
        return Probed(ProbeState.UNREACHABLE, _line(what), _REACH)
    remedy = _LOGIN_ASKED if status in _LOGIN_STATUSES else _NO_REDIRECTS if status // 100 == 3 else _ROUTE_MISSING
    return Probed(ProbeState.NOT_A_ROUTE, f"status {status}, which is not the answer of a check-back route", remedy)


def _read(body: bytes) -> Probed:
    try:
        report = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Probed(ProbeState.NOT_A_ROUTE, "the answer to the probe cannot be read", _ROUTE_MISSING)
    return Probed(report.probe, _line(report.message), _line(report.remedy), report)


def _line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text[:_TEXT_CHARACTERS_MAX]).split())


class ProbeAsked(msgspec.Struct, frozen=True):
    """The request to probe a check address."""

    url: str


class ShownAddress(msgspec.Struct, frozen=True):
    """A check address that a server probes, without its query.

    `state` is empty before its first probe.
    """

    address: str
    state: str
    failing: bool
    message: str
    remedy: str
    probed_ms: int


class ShownAddresses(msgspec.Struct, frozen=True):
    """The check addresses that a server probes.

    `on` is false where its setting turns that off.
    """

    addresses: list[ShownAddress]
    on: bool
    now_ms: int


class ProbeShown(msgspec.Struct, frozen=True):
    """The result of one probe, and what belongs to its judgement.

    `now_ms` is the time of the server's store when the answer came, `database_now_ms` that of the route's database;
    `lock_timeout_ms` is the route's, `request_timeout_ms` the server's. What is not known is 0.
    """

    address: str
    state: str
    well: bool
    message: str
    remedy: str
    latency_ms: int
    now_ms: int
    database_now_ms: int
    lock_timeout_ms: int
    request_timeout_ms: int
