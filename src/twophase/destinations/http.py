"""Branches and check-backs over HTTP, called as dtm calls them (dtm-wire §3.1).

Promise: whatever the called service does, one answer is reported, within the call's time, holding nothing that could be
mistaken for another answer: a compressed body is refused rather than searched for FAILURE and ONGOING in vain, a
redirect is an answer like any other and never followed, two contradicting verdict headers are no verdict, and a 200 of
a branch that says "not done" is an error.

The error of an answer names what happened, the host and the port; never a query, a payload or a header's value.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import quote, urlsplit

from twophase.core.headers import CONNECTION_HEADERS
from twophase.core.limits import ERROR_TEXT_BYTES_MAX, URL_BYTES_MAX
from twophase.core.signature import VERDICT_SIGNATURE_HEADER
from twophase.core.verdict import NOT_DONE, VERDICT_HEADER
from twophase.destinations.allow_list import AllowList, Listed, with_own
from twophase.destinations.base import Answer, Call
from twophase.destinations.signing import CallSigner
from twophase.http_client.client import HttpClient
from twophase.http_client.outcome import HttpError, HttpResponse, Outcome

_JSON = ("Content-Type", "application/json")
_VERDICT = VERDICT_HEADER.encode()
_VERDICT_SIGNATURE = VERDICT_SIGNATURE_HEADER.encode()
_NOT_DONE = NOT_DONE.encode()
_REWRITTEN = 500
"""The status in place of a 200 whose header says that the branch was not done."""
_REWRITTEN_WHY = (
    "its 200 answer has the header X-Twophase-Verdict: not_done, so a middleware or a proxy has changed the status"
)
_URLS_MAX = 2048
_ENCODINGS_READ = (None, b"", b"identity")
_is_unreserved = re.compile(r"[A-Za-z0-9._~-]*").fullmatch
"""Matches characters that no query escapes (RFC 3986 §2.3).

The gids of dtm and UUIDs have no others.
"""
_NOT_SENT = CONNECTION_HEADERS | {"accept-encoding"}
"""Headers of a message that are left out of its calls.

A compressed answer could not be read; messages of an earlier version may hold the others.
"""


class HttpDestination:
    """Calls `http` and `https` addresses through one pooled client.

    It closes the client when it stops.

    Example:
        destination = HttpDestination(HttpClient(connections_per_host=128))
    """

    def __init__(self, client: HttpClient | None = None, allowed: AllowList | None = None) -> None:
        """Call through `client`, only what is `allowed`; every address by default."""
        self._allowed = allowed or AllowList()
        self._client = client or HttpClient(connections_per_host=256, connections_max=4096)

    def accepts(self, url: str) -> str | None:
        """Return None when `url` can be called; else why not.

        >>> HttpDestination().accepts("http://bank-b/transfer-in")
        >>> HttpDestination().accepts("http://user:secret@bank-b/")
        'bad_url: user names and passwords in URLs are not allowed; use a header'
        """
        bytes_long = len(url.encode("utf-8", "surrogatepass"))
        if bytes_long > URL_BYTES_MAX.value:
            return f"bad_url: {bytes_long} bytes, at most {URL_BYTES_MAX.value} are allowed"
        try:
            key = self._client.check_url(url)
        except HttpError as error:
            return str(error)
        return self._allowed.why_not(key, urlsplit(url).path) or None

    def accepts_headers(self, headers: tuple[tuple[str, str], ...]) -> str | None:
        """Return None when every call may carry these `headers`; else why not.

        The reason names the header.

        >>> HttpDestination().accepts_headers((("Content-Length", "0"),))
        'bad_header: header content-length belongs to the client'
        """
        try:
            self._client.check_headers(headers)
        except HttpError as error:
            return str(error)
        return None

    def key(self, url: str) -> str:
        """Return scheme, host and port of a URL that `accepts` accepted.

        >>> HttpDestination().key("HTTP://Bank-B/transfer-in?x=1")
        'http://bank-b:80'
        """
        return self._client.check_url(url)

    @property
    def under_way(self) -> Mapping[str, int]:
        """Return the number of calls without an answer yet, by key."""
        return self._client.under_way

    def call(self, call: Call, on_answer: Callable[[Answer], None]) -> None:
        """POST the payload, GET without one.

        The status of a redirect is an answer; its target is not called. The operator's list adds headers and a
        signature.
        """
        headers, sign, judge = call.headers, None, None
        if not self._allowed.is_plain:
            listed = self._allowed.of_url.get(call.url) or self._find(call.url)
            if listed is not None:
                if listed.headers:
                    headers = with_own(headers, listed.headers)
                if listed.key is not None:
                    signer = CallSigner(listed.key, call)
                    sign = signer.http
                    if listed.signed_verdicts:
                        judge = signer.judged
        self._client.request(
            "POST" if call.payload else "GET",
            call.url,
            _sent(headers) if headers else (_JSON,),
            call.payload,
            call.timeout_ms,
            partial(_answer, time.perf_counter(), on_answer, judge),
            call.answer_bytes_max,
            encode_parameters(call.query),
            sign,
        )

    async def stop(self) -> None:
        """Give calls under way an error answer, close every connection."""
        await self._client.close()

    def _find(self, url: str) -> Listed | None:
        """Return the operator's entry of an address.

        The same few are called over and over.
        """
        known = self._allowed.of_url
        if url not in known:
            if len(known) >= _URLS_MAX:
                known.clear()
            try:
                known[url] = self._allowed.find(self._client.check_url(url), urlsplit(url).path)
            except HttpError:
                known[url] = None  # the call ends by this error
        return known[url]


def encode_parameters(query: tuple[tuple[str, str], ...]) -> str:
    """Return parameters as they stand in a URL, in the given order.

    >>> encode_parameters((("gid", "order 17"), ("op", "action")))
    'gid=order%2017&op=action'
    """
    # Names and most gids need no escaping; asking for all at once costs a fifth of escaping each.
    if not _is_unreserved("".join(map("".join, query))):
        query = tuple([(_escaped(name), _escaped(value)) for name, value in query])
    return "&".join(map("=".join, query))


def _escaped(text: str) -> str:
    return quote(text, safe="", errors="replace")


@functools.lru_cache(256)  # most calls carry the same headers
def _sent(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return the headers that a call sends.

    The content type is JSON unless they name another, and headers of the connection are left out.
    """
    names = {name.lower() for name, _ in headers}
    if not names.isdisjoint(_NOT_SENT):
        headers = tuple(pair for pair in headers if pair[0].lower() not in _NOT_SENT)
    return headers if "content-type" in names else (_JSON, *headers)


def _answer(
    started_s: float,
    on_answer: Callable[[Answer], None],
    judge: Callable[[Answer, str | None], Answer] | None,
    outcome: Outcome,
) -> None:
    latency_ms = (time.perf_counter() - started_s) * 1000
    if isinstance(outcome, HttpResponse):
        verdict = outcome.header(_VERDICT)
        if outcome.status != 200 or outcome.header(b"content-encoding") in _ENCODINGS_READ:
            if verdict is None:
                answer = Answer(outcome.status, outcome.body, None, latency_ms)
            elif verdict == _NOT_DONE and outcome.status == 200:
                answer = Answer(_REWRITTEN, outcome.body, NOT_DONE, latency_ms, _REWRITTEN_WHY)
            else:
                answer = Answer(outcome.status, outcome.body, verdict.decode("latin-1"), latency_ms)
            if judge is not None:
                signature = outcome.header(_VERDICT_SIGNATURE)
                answer = judge(answer, None if signature is None else signature.decode("latin-1"))
            on_answer(answer)
        else:
            error = "protocol: the body of the answer is compressed although identity was asked for"
            on_answer(Answer(0, latency_ms=latency_ms, error=error))
    else:
        error = str(outcome).encode("utf-8", "replace")[: ERROR_TEXT_BYTES_MAX.value].decode("utf-8", "ignore")
        on_answer(Answer(0, latency_ms=latency_ms, error=error))
