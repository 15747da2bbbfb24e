"""A set-up seen from the coordinator.

Does the coordinator answer, which check addresses fail, and can it reach a given one?
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Final, NoReturn

import msgspec

from twophase.cli.doctor.clocks import compared
from twophase.cli.findings import Finding, Level
from twophase.cli.operating.http_api import EXIT_REFUSED, NO_TLS, Api, path_of
from twophase.client.draft import check_url_with
from twophase.core.errors import ConfigurationError, Forbidden, InvalidRequest, Unauthenticated
from twophase.core.message import databases_asked
from twophase.core.probe import PROBE_PATH, ProbeAsked, ProbeShown, ProbeState, ShownAddress, ShownAddresses

_START: Final = "Start the coordinator, or name it with --server or TWOPHASE_URL."
_LOG: Final = "If it is not just starting or stopping, its log has the reason."
_OTHER_CREDENTIALS: Final = "Give a token that may do this, by --token-file or TWOPHASE_TOKEN."
_OF_TOKENS: Final = (Unauthenticated.code, Forbidden.code)
_COMPARE: Final = "Add --database URL with the producer's database, and the route's is compared with it."
_UNREAD: Final = "Repair the database first: without its identity the route's cannot be compared."
_CORRECT: Final = "Give the address that your transactions use as `check`, with scheme, host and port."
_SHOWN_MAX: Final = 20
_FAILING: Final = re.compile(r"^twophase_check_addresses_failing (\S+)$", re.MULTILINE)
_UNSURE: Final = {
    ProbeState.BUSY.value: "Run this again when the database is less busy.",
    ProbeState.UNPROBEABLE.value: "Upgrade twophase in the service; until then its database cannot be compared.",
}


class _Status(msgspec.Struct, frozen=True):
    """The part of a server's status that is looked at."""

    ready: bool


class _NoAnswer(Exception):
    """An error: the server gave no usable answer; the text gives the reason.

    `refused`: it answered, and its text says what to do.
    """

    def __init__(self, text: str, *, refused: bool) -> None:
        super().__init__(text)
        self.refused = refused


def examine_coordinator(
    server: str, check: str | None, identity: str | None, *, named: bool = False
) -> Iterator[Finding]:
    """Yield findings about a running coordinator, and about one check address.

    Arguments:
        server: the address of its HTTP port.
        check: the address to probe from there; None for none.
        identity: the database that the address should lead to, when the address names none itself.
        named: a database was given, though it may have no identity.
    """
    looked_at = "coordinator"
    try:
        api = Api(server, fail=_raise)
        known = api.get(PROBE_PATH, ShownAddresses)
        # Its answer needs the store, which the addresses do not.
        yield _ready(api.get(path_of("status"), _Status), server)
        yield compared("its store's", known.now_ms, "this machine's", time.time_ns() // 1_000_000)
        if check is not None:
            looked_at = "check address"
            shown = api.post(f"{PROBE_PATH}/probe", ProbeAsked(_naming(check, identity)), ProbeShown)
            yield from _probed(shown, _UNREAD if named else _COMPARE)
        looked_at = "coordinator"
        # Read again: the probe may have found that a failing one is well.
        known = api.get(PROBE_PATH, ShownAddresses)
        yield from _known(known)
        if known.on and not any(one.failing for one in known.addresses):
            yield from _of_other_workers(api)
    except InvalidRequest as error:
        yield Finding(Level.BAD, looked_at, f"{error.code}: {error.message}", _CORRECT)
    except ConfigurationError as error:
        yield Finding(Level.BAD, looked_at, error.message, error.remedy)
    except _NoAnswer as error:
        text, _, remedy = str(error).partition("\n")
        if text.startswith(NO_TLS):
            looked_at = "TLS"
        if error.refused and text.startswith(_OF_TOKENS):
            remedy = _OTHER_CREDENTIALS
        elif not remedy and looked_at != "coordinator":
            remedy = _CORRECT
        yield Finding(Level.BAD, looked_at, text, remedy or ("" if error.refused else _START))


def _ready(status: _Status, server: str) -> Finding:
    if status.ready:
        return Finding(Level.OK, "coordinator", f"answers at {server}")
    return Finding(Level.BAD, "coordinator", f"answers at {server}, and takes no requests now", _LOG)


def _raise(text: str, code: int) -> NoReturn:
    raise _NoAnswer(text, refused=code == EXIT_REFUSED)


def _known(known: ShownAddresses) -> Iterator[Finding]:
    if not known.on:
        found = "the coordinator does not probe check addresses (probe_check_addresses is off)"
        yield Finding(
            Level.WARNING, "addresses", found, "Switch it on: otherwise a wrong address is noticed only after a crash."
        )
        return
    # Several databases behind one address are probed one by one, and fail alike when the address is wrong.
    newest_last = sorted((address for address in known.addresses if address.failing), key=lambda one: one.probed_ms)
    failing = list({(one.address, one.state, one.message): one for one in newest_last}.values())
    yield from (_failing(one, known.now_ms) for one in failing[:_SHOWN_MAX])
    if not known.addresses:
        # It forgets them when it stops, and other routes would take a probe for a question about a message.
        found = (
            "this node probes none: in the last hour, or since its start, no message named one and demanded an explicit"
            " verdict (twophase's clients demand it)"
        )
        yield Finding(Level.OK, "addresses", found)
    elif not failing:
        count = len(known.addresses)
        probed = (
            "this node probes 1 check address, which does not fail"
            if count == 1
            else f"this node probes {count} check addresses, none fails"
        )
        yield Finding(Level.OK, "addresses", probed)


def _of_other_workers(api: Api) -> Iterator[Finding]:
    """Yield a finding where other workers know addresses that fail.

    The metrics of each worker count those of all.
    """
    try:
        found = _FAILING.search(api.get_text("/metrics"))
    except _NoAnswer:
        return
    if found is not None and float(found[1]) > 0:
        text = f"{int(float(found[1]))} fail at other workers of this server"
        yield Finding(
            Level.BAD, "addresses", text, "Run this again until one of them answers; the log names them, too."
        )


def _failing(one: ShownAddress, now_ms: int) -> Finding:
    age_s = max(0, now_ms - one.probed_ms) // 1000
    found = f"{one.address}: {one.state}: {one.message} (probed {age_s} s ago)"
    return Finding(Level.BAD, "addresses", found, one.remedy)


def _naming(check: str, identity: str | None) -> str:
    """Return the address with the database's name, in the form that the SDK writes."""
    if identity is None or databases_asked(check):
        return check
    return check_url_with(identity, check)


def _probed(shown: ProbeShown, how_to_compare: str) -> Iterator[Finding]:
    text = f"{shown.address}: {shown.state}{': ' if shown.message else ''}{shown.message}"
    if not shown.well:
        yield Finding(Level.BAD, "check address", text, shown.remedy)
        return
    unsure = _UNSURE.get(shown.state)
    if unsure is not None:
        yield Finding(Level.WARNING, "check address", text, unsure)
        return
    # A route that is ready has a message only when there was no database to compare.
    level, remedy = (Level.WARNING, how_to_compare) if shown.message else (Level.OK, "")
    yield Finding(level, "check address", f"{text} ({shown.latency_ms} ms from the coordinator)", remedy)
    yield _waiting(shown)
    if shown.database_now_ms:
        yield compared("its database's", shown.database_now_ms, "the coordinator's", shown.now_ms)


def _waiting(shown: ProbeShown) -> Finding:
    """Return the finding about the route's bound on waiting.

    The route must answer "in progress" before the coordinator stops listening.
    """
    found = f"the route waits {shown.lock_timeout_ms} ms for a lock, the coordinator {shown.request_timeout_ms} ms"
    if shown.lock_timeout_ms < shown.request_timeout_ms:
        return Finding(Level.OK, "timeouts", found)
    remedy = "Give the route a lock_timeout (seconds) below the server's request_timeout_ms."
    return Finding(Level.BAD, "timeouts", found, remedy)
