"""One connection of the HTTP port.

It answers prepare, submit and abort by callbacks, everything else by the ASGI app. prepare, submit and abort are
parsed, decoded and given to the coordinator without a task, a scope or a coroutine. What is acknowledged is on disk,
because the coordinator's reply writes the response (I8). HTTP/1.1 lets a client send its next request before the last
response (RFC 9112 §9.3.2); responses leave in the order of the requests, while each is ready when its flush or its
coroutine has ended. A client that does not read its responses is not read from. The listener's sweep ends what takes
too long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from twophase.core import failpoint
from twophase.core.errors import Overloaded, ServerFault, TwophaseError
from twophase.http_client.byte_budget import NO_ROOM
from twophase.http_client.turns import LONG_BYTES, Waiting
from twophase.server.codecs.encode import Answer, Route, failure, response, success_body, success_response
from twophase.server.codecs.trace import Trace
from twophase.server.http_port.asgi_response import PendingAsgiResponse
from twophase.server.http_port.in_turns import NOTHING, Flow
from twophase.server.http_port.known_heads import NO_HEADS
from twophase.server.http_port.parser import ALL_TAKEN, BODY, HEADER_BYTES
from twophase.server.http_port.port import SUCCESS_RESPONSES_MAX, Port
from twophase.server.http_port.timed import TimedParser
from twophase.server.http_port.unread import UnreadAnswers
from twophase.server.http_port.writing import write_together
from twophase.server.identity.caller import Caller
from twophase.server.identity.scopes import scopes_of

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from twophase.coordinator.state.active_message import Reply

_PENDING_MAX: Final = 64
"""Bound on requests without a response; beyond it the connection is not read."""
_PENDING_LOW: Final = 16
_TURNED_AWAY_MAX: Final = 256
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_ABORT: Final = Route.ABORT
_PREPARE: Final = Route.PREPARE
_SCOPES: Final = scopes_of("/api/dtmsvr/prepare")
_ROUTES: Final = "/api/dtmsvr/{prepare,submit,abort}"
"""The scopes of the three hot routes."""


class PendingResponse(msgspec.Struct, eq=False):
    """The response to prepare, submit or abort, completed by the coordinator's reply.

    A request that could not be parsed has no `route`; `response` holds all its bytes as soon as they are known.
    """

    connection: Connection
    route: Route | None
    closes: bool
    response: bytes | None = None

    def reply(self, reply: Reply) -> None:
        """Complete the response by the coordinator's one reply."""
        connection = self.connection
        error = reply.error
        if error is not None:
            connection.complete(self, failure(error, route=self.route, state=reply.state, result=reply.result))
        elif self.closes or connection.port.draining:
            connection.complete(self, Answer(200, success_body(reply.prepared_at_ms)))
        else:
            # All messages of one flush have one time, and share one response.
            responses = connection.port.success_responses
            self.response = responses.get(reply.prepared_at_ms)
            if self.response is None:
                if len(responses) >= SUCCESS_RESPONSES_MAX:
                    responses.clear()
                self.response = success_response(connection.port.success_head, reply.prepared_at_ms)
                responses[reply.prepared_at_ms] = self.response
            connection.write_completed(self)


class Connection(TimedParser):
    """See the module. The listener creates one for each accepted connection.

    Arguments:
        port: of all connections.
        loop: of the port.
        below: the transport below TLS; None for plain text.
    """

    def __init__(self, port: Port, loop: asyncio.AbstractEventLoop, below: asyncio.Transport | None = None) -> None:
        super().__init__(port, loop)
        self._below = below
        self._pending: deque[PendingResponse | PendingAsgiResponse] = deque()
        self._owes_continue = False
        self._unread = False
        self._lingers = False
        self._gone = False
        self.half_closed = False
        self.address = ""
        """The peer's, without its port; empty for a peer that has none."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        """Take the connection; beyond the bound it may only ask for health."""
        super().connection_made(transport)
        self.flow = Flow(transport)
        self.address = self.client[0] if self.client else ""
        self.port.by_address[self.address] += 1
        self._turns = self.port.turns.of(self.address)
        self._account = self.port.account(self.address)
        self._waiting = Waiting(self.port.decoder.turns, self.port.account(self.address))
        self._unread_answers = UnreadAnswers(self.port.account(self.address))
        if self._below is not None and not self.port.gate.is_open:
            self.certificate = transport.get_extra_info("peercert")
        if self._excess() > 0:
            self._take_reserved_place()
        if self.port.draining:
            self.shutdown()  # it was accepted as the listener closed

    def _excess(self) -> int:
        """Return by how many connections the port's or the peer's bound is passed."""
        return -min(self.port.free(self.address))

    def _take_reserved_place(self) -> None:
        """Serve health only."""
        self.reserved = True
        self._heads = NO_HEADS  # a known head would be served
        self.port.reserve(self)

    def turn_away(self) -> None:
        """Refuse a connection on a reserved place.

        It is cut when too many refused ones linger.
        """
        if self._excess() > _TURNED_AWAY_MAX:
            self.port.refused(Overloaded.code)
            self.ended = True
            self.transport.abort()
        elif not (self._gone or self.ended):
            self.refuse(503, Overloaded(ALL_TAKEN))

    def eof_received(self) -> bool | None:  # type: ignore[override]  # the base class keeps nothing open
        """Answer the requests that have arrived; the client sends no more.

        With TLS they stay without an answer: above it, a connection ends in both directions.
        """
        if self._below is not None:
            self._forget_responses()
            return None
        if self._lingers or not self._pending:
            return None
        self.half_closed = True
        if isinstance(self._pending[0], PendingAsgiResponse):
            self._pending[0].sends_no_more()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client; its requests continue without a response."""
        self._gone = True
        self._forget_responses()
        by_address = self.port.by_address
        by_address[self.address] -= 1
        if not by_address[self.address]:
            del by_address[self.address]
        if self.reserved and self in self.port.reserved:
            self.port.reserved.remove(self)
        super().connection_lost(exc)
        self.port.connection_closed()

    def _forget_responses(self) -> None:
        for pending in self._pending:
            if isinstance(pending, PendingAsgiResponse):
                pending.cycle.disconnected = True
                pending.cycle.message_event.set()
        self._pending.clear()
        self._waiting.forget()
        self._unread_answers.forget()
        self._queued_bytes = 0
        self._drop_body()

    def pause_writing(self) -> None:
        """Read no more requests of a client that does not read its responses."""
        super().pause_writing()
        self.since_s = self.port.now_s
        self.flow.pause_reading()

    def resume_writing(self) -> None:
        """Write again, and read again."""
        super().resume_writing()
        self.since_s = self.port.now_s
        self._unread_answers.drained()
        self._write_ready()

    def shutdown(self) -> None:
        """Drain: close when idle, else after the responses under way."""
        if self._gone or self.ended:
            return
        if not self._pending and self.reading == NOTHING:
            self.transport.close()
        elif self._pending and isinstance(self._pending[-1], PendingAsgiResponse) and self.reading == NOTHING:
            self._pending[-1].cycle.keep_alive = False

    def take_request(self, route: Route, body: bytes | bytearray, trace: Trace, caller: Caller) -> None:
        """Handle a request; a long one, and one behind it, waits for its turn."""
        if len(body) <= LONG_BYTES and not self._waiting.requests:
            self.handle_request(route, body, trace, caller)
            return
        self._heads, self._owes_continue = NO_HEADS, False
        pending = PendingResponse(self, route, self.closes)
        self._pending.append(pending)
        if len(self._pending) > _PENDING_MAX:
            self.flow.pause_reading()
        if not self._waiting.add(len(body), partial(self._begin, route, body, trace, caller, pending)):
            self.port.refused(Overloaded.code)
            self.complete(pending, failure(Overloaded(NO_ROOM), route=route))

    def _begin(self, *request: Any) -> None:
        if not self._waiting.requests:
            self._heads = self.port.heads
        self.handle_request(*request)

    def handle_request(
        self,
        route: Route,
        body: bytes | bytearray,
        trace: Trace,
        caller: Caller,
        pending: PendingResponse | None = None,
    ) -> None:
        """Decode a whole request and give it to the coordinator.

        The coordinator's reply completes the response.
        """
        port = self.port
        if pending is None:
            self._owes_continue = False
            pending = PendingResponse(self, route, self.closes)
            queue = self._pending
            queue.append(pending)
            if len(queue) > _PENDING_MAX:
                self.flow.pause_reading()
        try:
            owner = None
            if caller.limited:
                if not caller.sends_freely:
                    caller.require(_SCOPES, _ROUTES, self.address)
                owner = caller
            if route is _ABORT:
                gid = port.decoder.gid(body)
                if owner is not None:
                    owner.require_gid(gid)
                if failpoint.ARMED:
                    failpoint.reach("coordinator.request_parsed")
                port.requests.abort(gid, pending.reply, owner)
                return
            is_prepare = route is _PREPARE
            message = port.decoder.prepare(body, trace) if is_prepare else port.decoder.submit(body, trace)
            if owner is not None and not owner.sends_freely:
                owner.require_message(message)
            if failpoint.ARMED:
                failpoint.reach("coordinator.request_parsed")
            if is_prepare:
                port.requests.prepare(message, pending.reply, None, owner)
            else:
                port.requests.submit(message, pending.reply, None, owner)
        except TwophaseError as error:
            port.refused(error.code)
            caller.when_noted(partial(self.complete, pending, failure(error, route=route)))
        except Exception as error:  # noqa: BLE001 -- one request's fault must not stop the connection or the server
            port.log_fault(error)
            self.complete(pending, failure(ServerFault()))

    def start_asgi_request(self) -> None:
        """Let the base class make the request's cycle; it calls `_start_asgi_task`.

        Its head counts in the budget until the answer: a long poll may wait for a minute.
        """
        if self._account.keep(self._account.kept + self._head_bytes(HEADER_BYTES)):
            HttpToolsProtocol.on_headers_complete(self)
        else:
            self.refuse(503, Overloaded(NO_ROOM))

    def finish_asgi_request(self, body: bytes | bytearray) -> None:
        """Pass a whole body on; if it waits or came in pieces, it counts until the answer."""
        pending = self._pending[-1] if self._pending else None
        if isinstance(pending, PendingAsgiResponse) and pending.cycle is self.cycle:
            size = self._account.kept - self._queued_bytes if pending.started else len(body)
            if not self._account.keep(self._queued_bytes + size):
                self._take_back(pending)
                self.refuse(503, Overloaded(NO_ROOM))
                return
            pending.kept += size
            self._queued_bytes = self._account.kept
            pending.cycle.keep_alive = pending.cycle.keep_alive and not self.closes
        elif self.closes and not self._pending:
            self.transport.close()
        self._drop_body()
        HttpToolsProtocol.on_body(self, bytes(body))
        HttpToolsProtocol.on_message_complete(self)

    def _take_back(self, pending: PendingAsgiResponse) -> None:
        """Remove the last request, which the app has not received."""
        self._pending.pop()
        self._queued_bytes -= pending.kept

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._pending.append(PendingAsgiResponse(cycle, app, self._account.kept - self._queued_bytes))
        self._queued_bytes = self._account.kept
        if self.port.draining:
            cycle.keep_alive = False
        if len(self._pending) == 1:
            self._write_ready()
        elif len(self._pending) > _PENDING_MAX:
            self.flow.pause_reading()

    def on_response_complete(self) -> None:
        """Continue behind a response that the ASGI app has written."""
        self.server_state.total_requests += 1
        self._unread_answers.written(waits=self.flow.write_paused)
        if self._pending:
            answered = self._pending.popleft()
            if isinstance(answered, PendingAsgiResponse):
                self._queued_bytes -= answered.kept
                self._account.keep(self._account.kept - answered.kept)
        if not self.transport.is_closing():
            self._write_ready()

    def send_continue(self) -> None:
        """Send 100 Continue, behind the responses that come first."""
        if self._pending:
            self._owes_continue = True
        else:
            self.transport.write(_CONTINUE)

    def complete(self, pending: PendingResponse, answer: Answer) -> None:
        """Complete a response by any answer."""
        queue = self._pending
        if self._gone or not queue:
            return
        if self.port.draining and queue[-1] is pending and self.reading == NOTHING:
            pending.closes = self.ended = True
        pending.response = response(answer, self.port.date, closes=pending.closes)
        self.write_completed(pending)

    def write_completed(self, pending: PendingResponse) -> None:
        """Write a completed response, and those behind it that waited for it.

        Nothing is written while an earlier response is missing.
        """
        queue = self._pending
        if not queue or queue[0] is not pending:
            return
        if len(queue) == 1 and not (pending.closes or failpoint.ARMED or self._gone or self.flow.read_paused):
            # Nearly always: a client that waits for its response.
            queue.popleft()
            self.transport.write(pending.response)  # type: ignore[arg-type]  # it is completed
            if self.reading == NOTHING and not (self.half_closed or self.port.draining):
                self.since_s = self.port.now_s
            else:
                self._go_idle()
        elif pending.closes or failpoint.ARMED:
            self._write_ready()
        else:
            # The outcomes of a flush come in few turns of the loop: those of a connection leave in as many writes.
            self.loop.call_soon(self._write_ready)

    def _write_ready(self) -> None:
        """Write the completed responses at the head of the queue.

        An ASGI request that has reached the head is started.
        """
        if self._gone or self._lingers:
            return
        queue, ready = self._pending, list[bytes]()
        while queue:
            pending = queue[0]
            if isinstance(pending, PendingAsgiResponse) or pending.response is None:
                break
            queue.popleft()
            ready.append(pending.response)
            if pending.closes:
                write_together(self.transport, self.loop, ready)
                self._close_lingering()
                return
        write_together(self.transport, self.loop, ready)
        if not queue:
            self._go_idle()
        elif isinstance(head := queue[0], PendingAsgiResponse) and not head.started:
            head.started = True
            super()._start_asgi_task(head.cycle, head.app)
        if self.flow.read_paused and len(queue) <= _PENDING_LOW and not self.flow.write_paused:
            self.read_on()

    def _go_idle(self) -> None:
        """Close, wait, or invite the next body: no response is pending."""
        if self.half_closed:
            self.transport.close()  # a request that was begun will never be whole
        elif self.reading == NOTHING:
            self.since_s = self.port.now_s
            if self.port.draining:
                self.transport.close()
        elif self._owes_continue:
            self._owes_continue = False
            self.transport.write(_CONTINUE)

    def refuse(self, status: int, error: TwophaseError) -> None:
        """Answer an unusable request in its order, read nothing more, close."""
        in_body, self.reading = self.reading == BODY, NOTHING
        self.ended = self._unread = True
        if in_body and self.cycle is not None and self.cycle.more_body:
            last = self._pending[-1] if self._pending else None
            if not isinstance(last, PendingAsgiResponse) or last.started:
                # The application has received this very request, or has answered it: no second response is written.
                self._drop_body()
                self.transport.abort()
                return
            self._take_back(last)
        self._drop_body()
        self.port.refused(error.code)
        pending = PendingResponse(self, None, closes=True)
        self._pending.append(pending)
        self.read_on()
        self.complete(pending, msgspec.structs.replace(failure(error), status=status))

    def _close_lingering(self) -> None:
        """Close so that the response arrives.

        A socket closed with unread bytes resets the connection, so only this side's sending ends; what still arrives is
        discarded, for a bounded time and size.
        """
        self.ended = True
        self._pending.clear()
        if self._gone or self.transport.is_closing():
            return
        if not self._unread:
            self.transport.close()
            return
        self._lingers = True
        self.since_s = self.port.now_s
        self.read_on()
        if self.transport.can_write_eof():
            try:
                self.transport.write_eof()
            except OSError:  # the peer has gone at this very moment
                self.transport.abort()
