"""One connection of the HTTP port: the hot routes answered here by callbacks, everything else by the ASGI app.

A subclass of uvicorn's httptools protocol (design §6). prepare, submit and abort are read, decoded and handed to
the coordinator without a task, a scope or a coroutine; what is acknowledged is on disk, because the answer is
written by the coordinator's reply (I8). Answers leave in the order the requests came, hot and cold mixed. A client
that does not read its answers is not read from; the listener's sweep ends what takes too long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from twophase.core import failpoint
from twophase.core.errors import InvalidRequest, Overloaded, TwophaseError
from twophase.server.formats.encode import Answer, Route, failure, response, success_body
from twophase.server.formats.trace import Trace
from twophase.server.hot.reader import BODY, HEAD, NOTHING, Reader
from twophase.server.hot.turns import ColdTurn, HotTurn

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from twophase.server.hot.listener import Listener

_IN_LINE_MAX: Final = 64
_IN_LINE_LOW: Final = 16
_TURNED_AWAY_MAX: Final = 256
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Connection(Reader):
    """See the module. Created by the listener, one for each accepted connection."""

    def __init__(self, listener: Listener, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(listener, loop)
        self._line: deque[HotTurn | ColdTurn] = deque()
        self._owes_continue = False
        self._unread = False
        self._lingers = False
        self._gone = False
        self.half_closed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        """A client has connected; beyond the bound it is told so and let go."""
        super().connection_made(transport)
        excess = len(self.connections) - self.listener.connections_max
        if excess > 0:
            self.deaf = self._unread = True
            self.listener.refused(Overloaded.code)
            if excess > _TURNED_AWAY_MAX:
                transport.abort()
                return
            answer = failure(Overloaded("all connections are taken."))
            transport.write(response(answer, self.listener.date, closes=True))
            self._close_gently()

    def eof_received(self) -> bool | None:  # type: ignore[override]  # the base class keeps nothing open
        """The client sends no more; what it has asked for is still answered."""
        if self._lingers or not self._line:
            return None
        self.half_closed = True
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
        self.listener.left()

    def pause_writing(self) -> None:
        """The client does not read its answers: read no more of its requests."""
        super().pause_writing()
        self.since_s = self.listener.now_s
        self.flow.pause_reading()

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self.since_s = self.listener.now_s
        self._advance()

    def shutdown(self) -> None:
        """Drain: close when idle, else after the answers under way."""
        if self._gone or self.deaf:
            return
        if not self._line and self.reading == NOTHING:
            self.transport.close()
        elif self._line and isinstance(self._line[-1], ColdTurn) and self.reading == NOTHING:
            self._line[-1].cycle.keep_alive = False

    def check(self, now_s: float) -> None:
        """Called by the listener's sweep: end what takes too long."""
        limits = self.listener.timeouts
        age_s = now_s - self.since_s
        if self._gone:
            return
        if self._lingers:
            if age_s > limits.linger_s:
                self.transport.abort()
        elif self.flow.write_paused:
            if age_s > limits.write_s:
                self.transport.abort()
        elif self.reading == NOTHING:
            if not self._line and age_s > limits.idle_s:
                self.transport.close()
        elif not self.flow.read_paused and age_s > (limits.head_s if self.reading == HEAD else limits.body_s):
            self.refuse(408, InvalidRequest("the request did not arrive in time."))

    def take(self, route: Route, body: bytes | bytearray, trace: Trace) -> None:
        """A whole hot request: to the coordinator with it."""
        self._owes_continue = False
        turn = HotTurn(self, route, self.closes)
        line = self._line
        line.append(turn)
        if len(line) > _IN_LINE_MAX:
            self.flow.pause_reading()
        self.listener.handle(turn, body, trace)

    def take_cold(self) -> None:
        """The head of a cold request; the base class makes its cycle and calls `_start_asgi_task`."""
        HttpToolsProtocol.on_headers_complete(self)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._line.append(ColdTurn(cycle, app))
        if self.listener.draining:
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

    def invite(self) -> None:
        """100 Continue, in its turn."""
        if self._line:
            self._owes_continue = True
        else:
            self.transport.write(_CONTINUE)

    def succeeded(self, turn: HotTurn, prepared_at_ms: int) -> None:
        """Answer 200."""
        if turn.closes or self.listener.draining:
            self.answered(turn, Answer(200, success_body(prepared_at_ms)))
            return
        turn.answer = self.listener.answer_200(prepared_at_ms)
        line = self._line
        if line and line[0] is turn:
            self._advance()

    def answered(self, turn: HotTurn, answer: Answer) -> None:
        """Answer anything."""
        line = self._line
        if self._gone or not line:
            return
        if self.listener.draining and line[-1] is turn and self.reading == NOTHING:
            turn.closes = self.deaf = True
        turn.answer = response(answer, self.listener.date, closes=turn.closes)
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
        if self.half_closed:
            self.transport.close()  # what was begun will never be whole
        elif self.reading == NOTHING:
            self.since_s = self.listener.now_s
            if self.listener.draining:
                self.transport.close()
        elif self._owes_continue:
            self._owes_continue = False
            self.transport.write(_CONTINUE)

    def _write_between_failpoints(self, answer: bytes) -> None:
        failpoint.reach("coordinator.before_acknowledgement")
        self.transport.write(answer)
        # uvloop sends at the end of this turn of its loop: one turn later the bytes are on their way.
        self.loop.call_soon(self.loop.call_soon, failpoint.reach, "coordinator.after_acknowledgement")

    def refuse(self, status: int, error: TwophaseError) -> None:
        """Answer an unusable request in its turn, read nothing more, close."""
        in_body, self.reading = self.reading == BODY, NOTHING
        self.deaf = self._unread = True
        tail = self._line[-1] if self._line else None
        if in_body and isinstance(tail, ColdTurn) and tail.cycle is self.cycle and tail.cycle.more_body:
            # The application has this very request already, so a second answer must not be written.
            self.transport.abort()
            return
        self.listener.refused(error.code)
        turn = HotTurn(self, None, closes=True)
        self._line.append(turn)
        self.flow.resume_reading()
        self.answered(turn, Answer(status, failure(error).body))

    def _close_gently(self) -> None:
        """Close so that the answer arrives: a socket closed with unread bytes resets the connection.

        So only our sending side ends; what still comes is discarded, for a bounded time and size.
        """
        self.deaf = True
        self._line.clear()
        if self._gone or self.transport.is_closing():
            return
        if not self._unread:
            self.transport.close()
            return
        self._lingers = True
        self.since_s = self.listener.now_s
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
