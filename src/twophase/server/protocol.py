"""One connection of the HTTP port: the hot routes answered here by callbacks, everything else by the ASGI app.

A subclass of uvicorn's httptools protocol (design §6: 13 µs a request against 50 for the ASGI way). prepare,
submit and abort are read, decoded and handed to the coordinator without a task, a scope or a coroutine; what
is acknowledged is on disk, because the answer is written by the coordinator's reply (I8). Answers leave in the
order the requests came, hot and cold mixed. Everything a client may do to a connection is bounded: heads, bodies,
requests in line, bytes it does not read, and (by the listener's sweep) the time it may take for each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from twophase.core import failpoint
from twophase.core.errors import InvalidRequest, Overloaded, TwophaseError
from twophase.core.limits import BODY_BYTES_MAX, REQUEST_HEADER_BYTES_MAX
from twophase.server.decode import too_large
from twophase.server.encode import Answer, Route, failure, response, success_body
from twophase.server.turns import ColdTurn, HotTurn

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from twophase.server.listener import Listener

HOT_ROUTES: Final[dict[bytes, Route]] = {
    b"/api/dtmsvr/prepare": Route.PREPARE,
    b"/api/dtmsvr/submit": Route.SUBMIT,
    b"/api/dtmsvr/abort": Route.ABORT,
}
_IN_LINE_MAX: Final = 64
_IN_LINE_LOW: Final = 16
_BODY_MAX: Final = BODY_BYTES_MAX.value
_HEAD_MAX: Final = REQUEST_HEADER_BYTES_MAX.value
_UPGRADE_HEADERS: Final = frozenset({b"connection", b"http2-settings", b"upgrade"})
_DISCARD_MAX: Final = 4 * _BODY_MAX
_TURNED_AWAY_MAX: Final = 256

# What of a request is being read.
_NOTHING: Final = 0
_HEAD: Final = 1
_BODY: Final = 2


class Connection(HttpToolsProtocol):
    """See the module. Created by the listener, one for each accepted connection."""

    def __init__(self, listener: Listener, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(config=listener.config, server_state=listener.state, app_state={}, _loop=loop)
        self._listener = listener
        self._line: deque[HotTurn | ColdTurn] = deque()
        self._reading = _NOTHING
        self._since_s = listener.now_s
        self._route: Route | None = None
        self._closes = False
        self._body: bytes | list[bytes] = b""
        self._body_bytes = 0
        self._head_bytes = 0
        self._unfinished_bytes = 0
        self._progressed = False
        self._declared_bytes = 0
        self._offers_upgrade = False
        self._owes_continue = False
        self._deaf = False
        self._unread = False
        self._lingers = False
        self._discarded_bytes = 0
        self._gone = False
        self._half_closed = False

    # ---- the transport ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        """A client has connected; beyond the bound it is told so and let go."""
        super().connection_made(transport)
        excess = len(self.connections) - self._listener.connections_max
        if excess > 0:
            self._deaf = self._unread = True
            self._listener.refused(Overloaded.code)
            if excess > _TURNED_AWAY_MAX:
                transport.abort()
                return
            answer = failure(Overloaded("all connections are taken."))
            transport.write(response(answer, self._listener.date, closes=True))
            self._close_gently()

    def data_received(self, data: bytes) -> None:
        """Bytes have come: feed the parser, whose callbacks do the rest."""
        while not self._deaf:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = self._decline_upgrade() + data[upgrade.args[0] :]
                continue
            except httptools.HttpParserCallbackError as error:
                self._listener.crashed(error)
                self._refuse_http(500, TwophaseError("internal error."))
            except httptools.HttpParserError as error:
                self._refuse_http(400, InvalidRequest(f"this is not HTTP/1.1: {error}."))
            if self._reading != _NOTHING and not self._deaf:
                self._bound_unfinished(len(data))
            return
        self._discarded_bytes += len(data)
        if self._discarded_bytes > _DISCARD_MAX:
            self.transport.abort()

    def eof_received(self) -> bool | None:  # type: ignore[override]  # the base class keeps nothing open
        """The client sends no more; what it has asked for is still answered."""
        if self._lingers or not self._line:
            return None
        self._half_closed = True
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone; its requests go on, and nobody hears their answers."""
        self._gone = True
        for turn in self._line:
            if isinstance(turn, ColdTurn):
                turn.cycle.disconnected = True
                turn.cycle.message_event.set()
        self._line.clear()
        super().connection_lost(exc)
        self._listener.left()

    def pause_writing(self) -> None:
        """The client does not read its answers: read no more of its requests."""
        super().pause_writing()
        self._since_s = self._listener.now_s
        self.flow.pause_reading()

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._since_s = self._listener.now_s
        self._advance()

    def shutdown(self) -> None:
        """Drain: close when idle, else after the answers under way."""
        if self._gone or self._deaf:
            return
        if not self._line and self._reading == _NOTHING:
            self.transport.close()
        elif self._line and isinstance(self._line[-1], ColdTurn) and self._reading == _NOTHING:
            self._line[-1].cycle.keep_alive = False

    def check(self, now_s: float) -> None:
        """Called by the listener's sweep: end what takes too long."""
        limits = self._listener.timeouts
        age_s = now_s - self._since_s
        if self._gone:
            return
        if self._lingers:
            if age_s > limits.linger_s:
                self.transport.abort()
        elif self.flow.write_paused:
            if age_s > limits.write_s:
                self.transport.abort()
        elif self._reading == _NOTHING:
            if not self._line and age_s > limits.idle_s:
                self.transport.close()
        elif not self.flow.read_paused and age_s > (limits.head_s if self._reading == _HEAD else limits.body_s):
            self._refuse_http(408, InvalidRequest("the request did not arrive in time."))

    # ---- the parser ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins. The scope of the base class is only made for the ASGI app."""
        if self._deaf:
            return
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._reading = _HEAD
        self._progressed = True
        self._head_bytes = 0
        self._declared_bytes = 0
        self._offers_upgrade = False
        self._since_s = self._listener.now_s

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header or a trailer."""
        self._head_bytes += len(name) + len(value)
        size = len(name)
        if size == 14:
            if name.lower() == b"content-length" and value.isdigit():
                self._declared_bytes = int(value[:20])
        elif size == 7 and name.lower() == b"upgrade":
            self._offers_upgrade = True
        elif size == 6 and name.lower() == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Whose request is it?"""
        if self._deaf:
            return
        self._reading = _BODY
        self._progressed = True
        self._body = b""
        self._body_bytes = 0
        self._route = None
        if self._offers_upgrade and self.parser.should_upgrade():
            return
        self._closes = not self.parser.should_keep_alive() or self.parser.get_http_version() == "1.0"
        if self._head_bytes + len(self.url) > _HEAD_MAX:
            self._refuse_http(431, too_large(REQUEST_HEADER_BYTES_MAX, self._head_bytes + len(self.url)))
        elif self._declared_bytes > _BODY_MAX:
            self._refuse_http(413, too_large(BODY_BYTES_MAX, self._declared_bytes))
        elif self.parser.get_method() == b"POST" and (route := HOT_ROUTES.get(self.url) or self._other_spelling()):
            self._route = route
            if self.expect_100_continue:
                self._invite()
        else:
            self._begin_cold()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if self._deaf:
            return
        self._progressed = True
        self._body_bytes += len(body)
        if self._body_bytes > _BODY_MAX:
            self._body = b""
            self._refuse_http(413, too_large(BODY_BYTES_MAX, self._body_bytes))
        elif self._route is None:
            super().on_body(body)
        elif not self._body:
            self._body = body
        elif isinstance(self._body, list):
            self._body.append(body)
        else:
            self._body = [self._body, body]

    def on_message_complete(self) -> None:
        """A request is complete: to the coordinator with it."""
        if self._deaf or (self._offers_upgrade and self.parser.should_upgrade()):
            return
        self._reading = _NOTHING
        self._owes_continue = False
        if self._closes:
            self._deaf = True
        route = self._route
        if route is None:
            super().on_message_complete()
            return
        body, self._body = self._body, b""
        turn = HotTurn(self, route, closes=self._closes)
        line = self._line
        line.append(turn)
        if len(line) > _IN_LINE_MAX:
            self.flow.pause_reading()
        self._listener.handle(turn, b"".join(body) if isinstance(body, list) else body)

    # ---- answers ------------------------------------------------------------------------------------------

    def succeeded(self, turn: HotTurn, prepared_at_ms: int) -> None:
        """Answer 200."""
        body = success_body(prepared_at_ms)
        if turn.closes or self._listener.draining:
            self.answered(turn, Answer(200, body))
            return
        turn.answer = b"%bcontent-length: %d\r\n\r\n%b" % (self._listener.head_200, len(body), body)
        line = self._line
        if line and line[0] is turn:
            self._advance()

    def answered(self, turn: HotTurn, answer: Answer) -> None:
        """Answer anything."""
        line = self._line
        if self._gone or not line:
            return
        if self._listener.draining and line[-1] is turn and self._reading == _NOTHING:
            turn.closes = self._deaf = True
        turn.answer = response(answer, self._listener.date, closes=turn.closes)
        if line[0] is turn:
            self._advance()

    def _advance(self) -> None:
        """Write what is ready at the head of the line; start the cold request that has come there."""
        line = self._line
        while line and not self._gone:
            turn = line[0]
            if isinstance(turn, ColdTurn):
                if not turn.started:
                    turn.started = True
                    super()._start_asgi_task(turn.cycle, turn.app)
                break
            if turn.answer is None:
                break
            line.popleft()
            if failpoint.ARMED:
                self._write_between_failpoints(turn.answer)
            else:
                self.transport.write(turn.answer)
            if turn.closes:
                self._close_gently()
                return
        if not line:
            self._rest()
        if self.flow.read_paused and len(line) <= _IN_LINE_LOW and not self.flow.write_paused and not self._gone:
            self.flow.resume_reading()

    def _rest(self) -> None:
        """Nothing is left to answer."""
        if self._reading == _NOTHING:
            self._since_s = self._listener.now_s
            if self._half_closed or self._listener.draining:
                self.transport.close()
        elif self._owes_continue:
            self._owes_continue = False
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _write_between_failpoints(self, answer: bytes) -> None:
        failpoint.reach("coordinator.before_acknowledgement")
        self.transport.write(answer)
        # uvloop sends at the end of this turn of its loop: one turn later the bytes are on their way.
        self.loop.call_soon(self.loop.call_soon, failpoint.reach, "coordinator.after_acknowledgement")

    # ---- cold requests ------------------------------------------------------------------------------------

    def _path(self) -> bytes:
        """The path of the request's URL, empty when there is none that can be served."""
        try:
            path = httptools.parse_url(self.url).path
        except httptools.HttpParserInvalidURLError:
            return b""
        return path if path and path.isascii() else b""

    def _other_spelling(self) -> Route | None:
        """A hot route with a query string, a trailing slash or a whole URL (dtm redirects the second)."""
        return HOT_ROUTES.get(self._path().rstrip(b"/"))

    def _begin_cold(self) -> None:
        if not self._path():
            self._refuse_http(400, InvalidRequest("the request's URL cannot be read."))
            return
        url, expects = self.url, self.expect_100_continue
        headers = [(name.lower(), value) for name, value in self.headers]
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        # The base class starts a request when the one before is complete; our line decides that instead.
        self.cycle = cast("RequestResponseCycle", None)
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._line.append(ColdTurn(cycle, app))
        if self._listener.draining:
            cycle.keep_alive = False
        if len(self._line) == 1:
            self._advance()
        elif len(self._line) > _IN_LINE_MAX:
            self.flow.pause_reading()

    def on_response_complete(self) -> None:
        """The ASGI app has answered the request at the head of the line."""
        self.server_state.total_requests += 1
        if self._line:
            self._line.popleft()
        if not self.transport.is_closing():
            self._advance()

    def _decline_upgrade(self) -> bytes:
        """The same request's head without its offer to speak another protocol, for a fresh parser.

        Java's client offers h2c with its first request. Declining is to answer as if nothing were offered, but the
        parser takes what follows such a head, the body included, for the other protocol.
        """
        kept = [(name, value) for name, value in self.headers if name.lower() not in _UPGRADE_HEADERS]
        if any(name.lower() == b"connection" and b"close" in value.lower() for name, value in self.headers):
            kept.append((b"connection", b"close"))
        head = b"%b %b HTTP/1.1\r\n" % (self.parser.get_method(), self.url)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return head + b"".join(b"%b: %b\r\n" % header for header in kept) + b"\r\n"

    # ---- refusing and closing -----------------------------------------------------------------------------

    def _invite(self) -> None:
        if self._line:
            self._owes_continue = True
        else:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _bound_unfinished(self, size_bytes: int) -> None:
        """Heads and trailers are buffered by the parser until they are whole; bound what it holds."""
        self._unfinished_bytes = 0 if self._progressed else self._unfinished_bytes + size_bytes
        self._progressed = False
        if self._unfinished_bytes > _HEAD_MAX:
            self._refuse_http(431, too_large(REQUEST_HEADER_BYTES_MAX, self._unfinished_bytes))

    def _refuse_http(self, status: int, error: TwophaseError) -> None:
        """Answer an unusable request in its turn, read nothing more, close."""
        in_body, self._reading = self._reading == _BODY and self._route is None, _NOTHING
        self._deaf = self._unread = True
        tail = self._line[-1] if self._line else None
        if in_body and isinstance(tail, ColdTurn) and tail.cycle.more_body:
            # The application has this very request already, so a second answer must not be written.
            self.transport.abort()
            return
        self._listener.refused(error.code)
        turn = HotTurn(self, None, closes=True)
        self._line.append(turn)
        self.flow.resume_reading()
        body = failure(error).body
        turn.answered_with(Answer(status, body))

    def _close_gently(self) -> None:
        """Close so that the answer arrives: a socket closed with unread bytes resets the connection.

        So only our sending side ends; what still comes is discarded, for a bounded time and size.
        """
        self._deaf = True
        self._line.clear()
        if self._gone or self.transport.is_closing():
            return
        if not self._unread:
            self.transport.close()
            return
        self._lingers = True
        self._since_s = self._listener.now_s
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
