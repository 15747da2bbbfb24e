"""Verification of the calls that the coordinator has signed.

Promise: with keys, no statement reaches the database for a call that none of them has signed within five minutes. Such
a call gets no verdict and no success, so the coordinator takes it for unknown and asks again. The log says why, in a
bounded number of lines, and shows no secret.

Without keys every call is believed, which is right where only the coordinator reaches these routes. The first call from
another machine is then a reason for one warning a process.
"""

from __future__ import annotations

import functools
import ipaddress
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from twophase.core.errors import CallNotSigned, PageRefused
from twophase.core.headers import OLDEST_HEADER
from twophase.core.signature import (
    SIGNATURE_HEADER,
    VERDICT_SIGNATURE_HEADER,
    Signature,
    SigningKey,
    grpc_text,
    http_text,
    known_keys,
    verdict_signed,
    verify,
)
from twophase.core.verdict import VERDICT_HEADER

Keys = Mapping[str, str | bytes]
"""Secrets by key id: `{"2026-11": os.environ["TWOPHASE_KEY"]}`.

With two of them a key can be replaced.
"""
AsSent = Callable[[str], str]
"""Gives the path that the coordinator called, of the one that arrived.

They differ behind a proxy that rewrites paths.
"""
_KEPT_IN_PATH: Final = "/:@!$&'()*+,;=~"
"""Characters of a path that the coordinator does not escape."""
_LINES_MAX: Final = 20
_LINES_PER_S: Final = 10.0
_PATH_SHOWN_MAX: Final = 200
_HOW: Final = (
    "Calls of the coordinator are not verified here, and they come from other machines: a client that reaches this "
    "route can decide messages and use up branches. Give the route keys={id: secret}, and the coordinator's "
    "[[destinations]] the same key and key_id (docs/how-to/sign-calls.md)."
)


class _FewLines(logging.Filter):
    """Pass a bounded number of lines.

    The first one after a pause says how many were left out.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._ends_s = 0.0
        self._passed = self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False for a line too many."""
        with self._lock:
            now_s = self._clock_s()
            if now_s >= self._ends_s:
                if self._left_out:
                    record.msg = f"{record.msg} ({self._left_out} more refusals were not logged)"
                self._ends_s, self._passed, self._left_out = now_s + _LINES_PER_S, 0, 0
            if self._passed >= _LINES_MAX:
                self._left_out += 1
                return False
            self._passed += 1
            return True


_log = logging.getLogger("twophase.barrier.signing")
_refusals = logging.getLogger("twophase.barrier.signing.refused")
_refusals.addFilter(_FewLines())


class ReceivedCall(NamedTuple):
    """A call as it arrived, and how to read from it what is signed."""

    peer: str
    path: str
    value: Callable[[], str | None]
    """Returns the signature's header."""
    text_at: Callable[[int], bytes]
    """Returns the text that was signed, if it was at this time."""
    refusals_have_body: bool = True
    """False over gRPC, where only a success has a reply."""
    is_of_page: bool = False
    """True where a browser says that a web page sends it."""


def http_call(
    method: str,
    path: str,
    query: str,
    headers: Any,
    body: Callable[[], bytes],
    *,
    peer: str,
    as_sent: AsSent | None = None,
) -> ReceivedCall:
    """Return a call over HTTP.

    Arguments:
        path: as it stands in the request line, percent-encoded.
        query: the same, without its question mark.
        headers: a mapping of names in any case, or a multi-dict with `getlist`.
        body: reads it; not called where nothing is verified.
        peer: the other end of the connection.
        as_sent: where a proxy rewrites paths. The query is always the one that arrived, because it is what is used.
    """

    def text_at(signed_ms: int) -> bytes:
        sent = as_sent(path) if as_sent is not None else path
        target = f"{sent}?{query}" if query else sent
        return http_text(signed_ms, method, target, _header(headers, OLDEST_HEADER) or "", body())

    value = functools.partial(_header, headers, SIGNATURE_HEADER)
    return ReceivedCall(peer, path, value, text_at, is_of_page=_is_of_page(headers))


def grpc_call(method: str, metadata: Iterable[tuple[str, str | bytes]], body: bytes, *, peer: str) -> ReceivedCall:
    """Return a call over gRPC.

    Arguments:
        method: `/package.Service/Method`.
        body: the request's bytes, as they arrived.
    """
    pairs = tuple(metadata)

    def value() -> str | None:
        values = [value if isinstance(value, str) else "" for name, value in pairs if name == SIGNATURE_HEADER]
        return ",".join(values) if values else None

    return ReceivedCall(
        peer, method, value, lambda signed_ms: grpc_text(signed_ms, method, pairs, body), refusals_have_body=False
    )


def require_signature(
    keys: Keys,
    method: str,
    target: str,
    headers: Any,
    body: bytes = b"",
) -> Signature:
    """Refuse a call over HTTP that none of the keys has signed.

    It is for frameworks without an integration. Call it before `once` or `check_back`, and answer `CallNotSigned` with
    status 401 and no verdict.

    Arguments:
        keys: secrets by key id, at least 16 bytes each.
        method: GET or POST.
        target: path and query, as the coordinator sent them.
        headers: a mapping of names in any case, or a multi-dict with `getlist`.
        body: as it arrived.

    Raises:
        CallNotSigned: no key has signed this call within five minutes.
        ConfigurationError: there is no key, or one cannot be a key.

    >>> require_signature({"k1": "0123456789abcdef"}, "POST", "/in?gid=g", {}, b"{}")
    Traceback (most recent call last):
    twophase.core.errors.CallNotSigned: TP-1010: This call is refused: it carries no signature...
    """
    path, _, query = target.partition("?")
    call = http_call(method, path, query, headers, lambda: body, peer="")
    known = known_keys(keys)
    assert known is not None, "keys are given"
    return _verified(known, call)


def accept(keys: tuple[SigningKey, ...] | None, call: ReceivedCall) -> Signature | None:
    """Return the signature of a call; None where there are no keys.

    Raises:
        CallNotSigned: no key has signed it. PageRefused: there are no keys, and a web page sends it.
    """
    if keys is None:
        if call.is_of_page:
            raise PageRefused(
                "a page in a browser sends this call.",
                remedy="Coordinators alone call this route; nothing was changed.",
            )
        if not _is_near(call.peer):
            _warn_once()
        return None
    return _verified(keys, call)


def sign_verdict(signature: Signature | None, gid: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
    """Return the headers of a check-back's answer, with a signature of its verdict.

    Arguments:
        signature: of the question; None for one that was not verified, whose answer is not signed either.
        gid: the message that was asked about.
        headers: of the answer; one without a verdict is not signed.
        body: of the answer, as the coordinator receives it.
    """
    verdict = headers.get(VERDICT_HEADER)
    if signature is None or verdict is None:
        return headers
    return {**headers, VERDICT_SIGNATURE_HEADER: verdict_signed(signature, gid, verdict, body)}


def encoded_path(path: str) -> str:
    """Return a decoded path as the coordinator encodes it.

    >>> encoded_path("/transfer in/Zoë")
    '/transfer%20in/Zo%C3%AB'
    """
    return quote(path, safe=_KEPT_IN_PATH)


def path_of_wsgi(environ: Mapping[str, Any], decoded: str) -> str:
    """Return the path of a request line, where the WSGI server keeps it.

    Else it is the decoded one, encoded anew.

    >>> path_of_wsgi({"RAW_URI": "/a%2Fb?gid=g"}, "/a/b"), path_of_wsgi({}, "/a b")
    ('/a%2Fb', '/a%20b')
    """
    arrived = environ.get("RAW_URI") or environ.get("REQUEST_URI")
    if not isinstance(arrived, str) or not arrived:
        return encoded_path(decoded)
    return arrived.partition("?")[0] if arrived.startswith("/") else urlsplit(arrived).path


def _verified(keys: tuple[SigningKey, ...], call: ReceivedCall) -> Signature:
    try:
        return verify(call.value(), keys, time.time_ns() // 1_000_000, call.text_at)
    except CallNotSigned as error:
        peer, path = call.peer or "unknown", call.path[:_PATH_SHOWN_MAX]
        _refusals.warning("%s of %s to %r: %s", error.code, peer, path, error.message)
        raise


def _is_of_page(headers: Any) -> bool:
    """Return True for a call of a browser that no page of this very service sends.

    Neither coordinators nor their messages send these headers.
    """
    site, origin = _header(headers, "sec-fetch-site"), _header(headers, "origin")
    if site is not None:
        return site.strip().lower() != "same-origin"
    return origin is not None and origin.lower().partition("://")[2] != (_header(headers, "host") or "").lower()


def _header(headers: Any, name: str) -> str | None:
    """Return a header's value.

    Several are joined, as HTTP defines it, so that no second one is overlooked.
    """
    getlist: Any = getattr(headers, "getlist", None)
    values: list[str] = (
        getlist(name) if getlist is not None else [value for key, value in headers.items() if key.lower() == name]
    )
    return ",".join(values) if values else None


def _is_near(peer: str) -> bool:
    """Return True for a peer on this machine.

    One that is not an address, such as a Unix socket, counts as one.
    """
    try:
        return ipaddress.ip_address(peer).is_loopback
    except ValueError:
        return True


@functools.cache
def _warn_once() -> None:
    _log.warning(_HOW)
