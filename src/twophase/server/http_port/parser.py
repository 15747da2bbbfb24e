"""The reading half of a connection: turns bytes into requests.

Size, number and time are bounded. It is optimised for the request that arrives whole in one read, as nearly all do: the
parser's callbacks for header, URL and body are C functions of containers, and nothing is counted or examined that such
a request cannot exceed. Its head is nearly always one that was read before: then it is not parsed again. A request that
arrives in pieces takes the slower way through `_wait_for_more`, which keeps every bound.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from twophase.core.errors import InvalidRequest, Overloaded, ServerFault, TwophaseError
from twophase.core.limits import BODY_BYTES_MAX, REQUEST_HEADER_BYTES_MAX
from twophase.http_client.byte_budget import NO_ROOM
from twophase.server.browsers import FIELDS
from twophase.server.codecs.decode import too_large
from twophase.server.codecs.encode import Route, failure
from twophase.server.codecs.trace import Trace
from twophase.server.http_port.in_turns import HEAD, NOTHING, TURN_BYTES, TURN_REQUESTS, InTurns
from twophase.server.http_port.request_line import HTTP_1_0, TRANSFER_ENCODING, authority_of, is_long
from twophase.server.http_port.unread import UnreadAnswers
from twophase.server.identity.caller import Caller

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from twophase.server.http_port.port import Port

ROUTES: Final[dict[bytes, Route]] = {
    b"/api/dtmsvr/prepare": Route.PREPARE,
    b"/api/dtmsvr/submit": Route.SUBMIT,
    b"/api/dtmsvr/abort": Route.ABORT,
}
HEALTH: Final = frozenset({b"/health/live", b"/health/ready"})
"""Routes that are answered when all connections are taken."""
ALL_TAKEN: Final = "all connections are taken."
_BODY_MAX: Final = BODY_BYTES_MAX.value
_HEAD_MAX: Final = REQUEST_HEADER_BYTES_MAX.value
_DISCARD_MAX: Final = 4 * _BODY_MAX
_NO_TRACE: Final[Trace] = ()
_ONCE: Final = FIELDS | {b"authorization", TRANSFER_ENCODING}
"""Headers that must come once: which of two counts would be a guess."""
_UPGRADE_HEADERS: Final = frozenset({b"connection", b"http2-settings", b"upgrade"})
_CONTENT_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,9})[ \t]*\r\n", re.IGNORECASE)
BODY: Final = 2
HEADER_BYTES: Final = 192
"""Bytes that each header of a request takes beside its name and value."""


class RequestParser(InTurns, ABC):
    """Turns bytes into requests; see the module.

    It calls `handle_request`, `start_asgi_request` and `refuse` with the outcome.
    """

    _unread_answers: UnreadAnswers

    def __init__(self, port: Port, loop: asyncio.AbstractEventLoop) -> None:
        self._fields: dict[bytes, bytes] = {}
        self._url_pieces: list[bytes] = []
        self._pieces: list[bytes] = []
        self._doubled = False
        """True when a header came twice that must come once."""
        # The parser looks its callbacks up once, when it is made. A container's own C function costs a tenth of a
        # Python one.
        self.on_url = self._url_pieces.append  # type: ignore[assignment, method-assign]
        self.on_body = self._pieces.append  # type: ignore[assignment, method-assign]
        super().__init__(port, loop)
        self.port = port
        self._heads = port.heads
        self._learning: bytes | None = None
        """A read that began with a request."""
        self._untraced = port.trace.in_none_of
        self.reading = NOTHING
        self.since_s = port.now_s
        self.ended = False
        self.closes = False
        self._route: Route | None = None
        self._caller = port.gate.anonymous
        self.certificate: Mapping[str, Any] | None = None
        """The peer's verified certificate, where it may name the caller."""
        self._fresh = False
        self._chunk_bytes = 0
        self._unfinished_bytes = 0
        self._head_kept = 0
        """The bytes of an unfinished request's head that arrived first."""
        self._body = bytearray()
        self._account = port.account("")  # opened anew when the peer's address is known
        self._queued_bytes = 0
        """The account's bytes of requests that the ASGI app has not answered."""
        self._upgrading = False
        self.reserved = False
        """True for a connection beyond the bound; it may only ask for the server's health."""
        self._discarded_bytes = 0

    @abstractmethod
    def handle_request(self, route: Route, body: bytes | bytearray, trace: Trace, caller: Caller) -> None:
        """Handle a whole prepare, submit or abort."""

    @abstractmethod
    def take_request(self, route: Route, body: bytes | bytearray, trace: Trace, caller: Caller) -> None:
        """Handle such a request in its order; perhaps it has to wait."""

    @abstractmethod
    def start_asgi_request(self) -> None:
        """Start a request of the ASGI app.

        `scope` and `headers` are ready for the base class.
        """

    @abstractmethod
    def finish_asgi_request(self, body: bytes | bytearray) -> None:
        """Pass a whole body on to the ASGI app, and drop it here."""

    @abstractmethod
    def refuse(self, status: int, error: TwophaseError) -> None:
        """Refuse bytes that are no usable request; nothing more is read."""

    @abstractmethod
    def send_continue(self) -> None:
        """Answer a client that waits for 100 Continue before its body (RFC 9110 §10.1.1)."""

    def data_received(self, data: bytes) -> None:
        """Take a read: nearly always one request, whose head is known."""
        if self.reading == NOTHING and not self.ended:
            end = data.find(b"\r\n\r\n") + 4
            known = self._heads.get(data[:end])
            if known is not None and len(data) - end == known.body_bytes:
                self.handle_request(known.route, data[end:], _NO_TRACE, known.caller)
                return
            self._take_apart(data)
        elif self._later:
            self._later += data
            self.transport.pause_reading()
            return
        else:
            self._feed(data[:TURN_BYTES])
            if len(data) > TURN_BYTES:
                self._hold(data[TURN_BYTES:])
        if len(data) >= TURN_BYTES or self._later:
            self._end_turn()

    def _take_apart(self, data: bytes) -> None:
        """Take the requests of a read one by one: known heads are not parsed.

        What begins beyond the turn's bytes or requests waits for the next turn. Where a request is cut too early or too
        late, the parser decides all the same: it is fed every byte in order.
        """
        start = taken = 0
        while start < len(data):
            beyond = start >= TURN_BYTES or taken >= TURN_REQUESTS
            if beyond and self.reading == NOTHING and not self.ended:
                self._hold(data[start:])
                return
            end = data.find(b"\r\n\r\n", start) + 4
            if end < 4 or self.reading != NOTHING or self.ended:
                self._feed(data[start:])
                return
            known = self._heads.get(data[start:end])
            if known is not None:
                stop = end + known.body_bytes
            else:
                length = _CONTENT_LENGTH.search(data, start, end)
                stop = end + int(length[1]) if length is not None else len(data) if is_long(data, start, end) else end
            if known is not None and stop <= len(data):
                self.handle_request(known.route, data[end:stop], _NO_TRACE, known.caller)
            else:
                self._learning = data[start:stop]
                self._feed(self._learning)
            start = stop
            taken += 1

    def _feed(self, data: bytes) -> None:
        """Feed the parser, whose callbacks do the rest."""
        rest: bytes | memoryview = data
        head = b""
        while not self.ended:
            self._chunk_bytes = len(rest)
            try:
                if head:
                    declined, head = head, b""
                    self.parser.feed_data(declined)
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                if not self.ended:
                    head = self._decline_upgrade()
                    # A read may hold thousands of such heads: what follows each is not copied.
                    rest = memoryview(rest)[upgrade.args[0] :]
                continue
            except httptools.HttpParserCallbackError as error:
                self.port.log_fault(error)
                self._refuse_once(500, ServerFault())
            except httptools.HttpParserError as error:
                self._refuse_once(400, InvalidRequest(f"this is not HTTP/1.1: {error}."))
            if self.reading:
                self._learning = None
                self._wait_for_more(len(rest))
            return
        self._discarded_bytes += len(data)
        if self._discarded_bytes > _DISCARD_MAX:
            self.transport.abort()

    def _refuse_once(self, status: int, error: TwophaseError) -> None:
        """Refuse, unless an earlier request of the same read was refused or was the last."""
        if not self.ended:
            self.refuse(status, error)

    def _wait_for_more(self, size_bytes: int) -> None:
        """Keep the bounds of a request that has not arrived whole.

        The parser buffers heads and trailers until they are whole, so the bytes counted for them are those that have
        arrived since the parser last produced something.
        """
        if self._pieces:
            self._gather()
            self._unfinished_bytes = 0
        elif not self._fresh:
            self._unfinished_bytes += size_bytes
        if self._fresh:
            self._head_kept = size_bytes if self.reading == HEAD else self._head_bytes()
            self._fresh = False
            self._unfinished_bytes = 0
            self.since_s = self.port.now_s
            if self.reading == BODY and self._route is not None:
                self._examine_head()
        if len(self._body) > _BODY_MAX:
            self.refuse(413, too_large(BODY_BYTES_MAX, len(self._body)))
        elif self._unfinished_bytes > _HEAD_MAX:
            self.refuse(431, too_large(REQUEST_HEADER_BYTES_MAX, self._unfinished_bytes))
        elif not self._account.keep(self._queued_bytes + len(self._body) + self._headers_kept()):
            self.refuse(503, Overloaded(NO_ROOM))

    def _headers_kept(self) -> int:
        """Return about how much memory the headers and trailers need, whole or not."""
        return self._head_kept + self._unfinished_bytes + HEADER_BYTES * len(self._fields)

    def _drop_body(self) -> None:
        """Forget the body that has arrived so far."""
        self._body = bytearray()
        self._account.keep(self._queued_bytes)

    def _gather(self) -> None:
        for piece in self._pieces:
            self._body += piece
        self._pieces.clear()

    def _examine_head(self) -> bool:
        """Look at the headers that announce the body; True when it was refused."""
        for name, value in self._fields.items():
            size = len(name)
            if size == 14 and name.lower() == b"content-length":
                declared = int(value[:20]) if value.isdigit() else 0
                if declared > _BODY_MAX:
                    self.refuse(413, too_large(BODY_BYTES_MAX, declared))
                    return True
            elif size == 6 and name.lower() == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = self.parser.get_http_version() != HTTP_1_0
        if self.expect_100_continue and self._route is not None:
            self.send_continue()
        return False

    def on_message_begin(self) -> None:
        """Note that a request begins."""
        if not self.ended:
            self.reading = HEAD
            self._fresh = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header.

        One that comes twice keeps its last value: no route reads such headers.
        """
        fields = self._fields
        if name in fields and name.lower() in _ONCE:
            self._doubled = True
        fields[name] = value

    def on_headers_complete(self) -> None:
        """Route a request by its head."""
        pieces = self._url_pieces
        self.url = url = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if self.ended:
            self._fields.clear()
            return
        if self.reserved and url not in HEALTH:
            self._fields.clear()
            self.refuse(503, Overloaded(ALL_TAKEN))
            return
        self.reading = BODY
        self._fresh = True
        self.expect_100_continue = False
        if self._chunk_bytes + self._unfinished_bytes > _HEAD_MAX and self._has_huge_head():
            return
        parser = self.parser
        version = parser.get_http_version()
        refused = self._why_not(url, version)
        if refused is not None:
            self.refuse(failure(refused).status, refused)
            return
        if parser.should_upgrade():
            self._upgrading = True
            return
        self.url, self._caller = self.port.gate.identify(url, self._fields)
        if self.certificate is not None and self._caller is self.port.gate.unknown:
            self._caller = self.port.gate.with_certificate(self.certificate)
        url = self.url
        self.closes = version == HTTP_1_0 or not parser.should_keep_alive()
        if parser.get_method() == b"POST":
            route = ROUTES.get(url) or ROUTES.get(self._path().rstrip(b"/"))
            if route is not None:
                self._route = route
                return
        self._route = None
        self._begin_asgi()

    def on_message_complete(self) -> None:
        """Pass a whole request on."""
        if self.ended or self._upgrading:
            return
        self.reading = NOTHING
        pieces = self._pieces
        body: bytes | bytearray
        if len(pieces) == 1 and not self._body:
            body = pieces[0]
            pieces.clear()
        else:
            self._gather()
            body = self._body
            if len(body) > _BODY_MAX:
                self.refuse(413, too_large(BODY_BYTES_MAX, len(body)))
                return
        fields, trace = self._fields, _NO_TRACE
        if self._route is not None and not self._untraced(fields):
            trace = self.port.trace.of(fields)
        fields.clear()
        self._doubled = False  # a trailer's
        learning, self._learning = self._learning, None
        self.ended = self.closes = self.closes or not self.parser.should_keep_alive()  # a trailer may say so
        if self._route is not None:
            # The same head on another connection may have another certificate, so it would have another caller.
            if learning is not None and not trace and not self.closes and self.certificate is None:
                self._heads.learn(learning, self._route, len(body), self._caller)
            self._drop_body()
            self.take_request(self._route, body, trace, self._caller)
        else:
            self.finish_asgi_request(body)

    def _why_not(self, url: bytes, version: str) -> TwophaseError | None:
        """Return the refusal of a head: not strict, or perhaps of a web page."""
        try:
            authority = authority_of(url, version, self._fields)
        except InvalidRequest as error:
            return error
        if self._doubled:
            return InvalidRequest("Host, Origin, Sec-Fetch-Site, Authorization, Transfer-Encoding: once at most.")
        browsers = self.port.browsers
        refused = browsers.why_not(self._fields.items(), needs_host=version != HTTP_1_0)
        if refused is None and authority:
            refused = browsers.why_not_host(authority)
        return refused

    def _head_bytes(self, per_header: int = 0) -> int:
        return len(self.url) + sum(len(name) + len(value) + per_header for name, value in self._fields.items())

    def _has_huge_head(self) -> bool:
        size_bytes = self._head_bytes()
        if self._learning is not None:  # with headers that came twice
            size_bytes = max(size_bytes, self._learning.find(b"\r\n\r\n"))
        if size_bytes <= _HEAD_MAX:
            return False
        self.refuse(431, too_large(REQUEST_HEADER_BYTES_MAX, size_bytes))
        return True

    def _path(self) -> bytes:
        """Return the path of the request's URL, empty when none can be served.

        A route may also be spelled with a query string, a trailing slash or as a whole URL.
        """
        try:
            path = httptools.parse_url(self.url).path
        except httptools.HttpParserInvalidURLError:
            return b""
        return path if path and path.isascii() else b""

    def _begin_asgi(self) -> None:
        if self._examine_head():
            return
        if not self._path():
            self.refuse(400, InvalidRequest("the request's URL cannot be read."))
            return
        url, expects = self.url, self.expect_100_continue
        HttpToolsProtocol.on_message_begin(self)
        self.url, self.expect_100_continue = url, expects
        self.scope.setdefault("state", {}).update(caller=self._caller, unread=self._unread_answers)
        self.headers.extend((name.lower(), value) for name, value in self._fields.items())
        # The base class would start a request when the one before is complete; here the queue decides.
        self.cycle = cast("RequestResponseCycle", None)
        self.start_asgi_request()

    def _decline_upgrade(self) -> bytes:
        """Return the request's head without its offer of another protocol.

        A fresh parser reads it. Java's client offers h2c with its first request. Declining is to answer as if nothing
        were offered, but the parser takes what follows such a head, the body included, for the other protocol.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self.refuse(400, InvalidRequest("CONNECT is for proxies."))
            return b""
        kept = [(name, value) for name, value in self._fields.items() if name.lower() not in _UPGRADE_HEADERS]
        if any(name.lower() == b"connection" and b"close" in value.lower() for name, value in self._fields.items()):
            kept.append((b"connection", b"close"))
        version = self.parser.get_http_version().encode()
        self._fields.clear()
        self._upgrading = False
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        head = b"%b %b HTTP/%b\r\n" % (method, self.url, version)
        return head + b"".join(b"%b: %b\r\n" % header for header in kept) + b"\r\n"
