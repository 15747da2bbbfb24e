"""A gRPC call of any number of messages either way, by a coroutine.

Back-pressure goes both ways: the peer may send as much as its window, which opens as messages are taken; `send` returns
when the peer's window has let the message through. A message counts in the budget of bytes until the next one is asked
for, a compressed one as what it has become. Small pieces that arrive while messages wait are counted as odd frames.
"""

from __future__ import annotations

import asyncio
from typing import Final

from twophase.grpc_server.calls import TOO_MANY
from twophase.grpc_server.heads import CallHead
from twophase.grpc_server.http2.faults import ConnectionFault
from twophase.grpc_server.http2.frames import DEFAULT_WINDOW
from twophase.grpc_server.http2.stream import Peer, Stream
from twophase.grpc_server.status import HEADERS, Ended, Status, ended, framed, trailers
from twophase.grpc_server.waiting import Waiting
from twophase.http_client.byte_budget import NO_ROOM
from twophase.http_client.timeouts import Deadline

_WIDEN_AT: Final = DEFAULT_WINDOW // 2
_SMALL_BYTES: Final = 256


class StreamingCall(Stream):
    """A call of any number of messages; see the module.

    Iterate over it for the caller's messages; `send` answers. The coroutine that answers returns for OK, or raises
    `Ended`. It is cancelled when the caller has gone or its deadline passed.
    """

    __slots__ = (
        "_answers",
        "_arrived",
        "_begun",
        "_deadline",
        "_fault",
        "_incoming",
        "_over",
        "_services",
        "_taken",
        "_task",
        "_unread",
        "_waiting",
        "head",
    )  # fmt: skip

    def __init__(self, connection: Peer, number: int, head: CallHead) -> None:
        super().__init__(connection, number, head.content_bytes)
        self.head = head
        self._services = head.services
        self._incoming = head.incoming(connection)
        self._waiting = Waiting()
        self._arrived = asyncio.Event()
        self._fault: Ended | None = None
        self._unread = 0
        self._taken = 0  # bytes of the message that was taken last
        self._answers = 0
        self._begun = self._over = False
        self._task: asyncio.Task[None] | None = None
        self._deadline: Deadline | None = None

    def __aiter__(self) -> StreamingCall:
        return self

    async def __anext__(self) -> bytes:
        """Return the caller's next message.

        The iteration ends with the caller's last message. Raises Ended.
        """
        self._taken = 0
        self._count()
        while not self._waiting:
            if self._fault is not None:
                raise self._fault
            if self.ended:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        message, size = self._waiting.take()
        self._unread -= size
        self._taken = len(message)
        self._widen()
        return message

    async def send(self, message: bytes) -> None:
        """Send one message to the caller; return when it has left.

        One at a time. Raises Ended when the caller has gone.
        """
        if self._over:
            raise Ended(Status.CANCELLED, "the caller has gone.")
        self._begin_answer()
        message = framed(message)  # the other is not needed while this one waits
        await self.connection.outbox.message(self, message)

    def odd(self) -> None:
        """Count the message that was taken as a frame that brings nothing.

        Raises:
            Ended: its connection has sent too many.
        """
        try:
            self.connection.odd()
        except ConnectionFault as fault:
            raise Ended(Status.RESOURCE_EXHAUSTED, f"{fault.text}.") from fault

    def keep(self, size: int) -> bool:
        """Count `size` bytes of answers that wait for the caller in the budget, in all.

        Returns False, and counts what it did, when the budget does not suffice.
        """
        before, self._answers = self._answers, size
        if self._count():
            return True
        self._answers = before
        return False

    def _begin_answer(self) -> None:
        if not self._begun:
            self._begun = True
            self.connection.outbox.headers(self, HEADERS)

    def started(self) -> None:
        """Begin the call with its headers."""
        services = self._services
        if len(services.streams) >= services.streams_max:
            self._over = True
            self.connection.outbox.answer(self, services.too_many(TOO_MANY))
            return
        services.streams.add(self)
        if self.head.timeout_ms:
            self._deadline = services.timeouts.after(self, self.head.timeout_ms)
        self._task = services.run(self._answer(), self._done)

    async def _answer(self) -> None:
        end = Ended(Status.OK, "")
        try:
            await self.head.method(self)
        except Ended as ended:
            end = ended
        except Exception as error:  # noqa: BLE001 -- one call's fault must not take the connection along
            end = self._services.fault(error)
        self._end(end)

    def _done(self) -> None:
        """End the call after its task, which may never have run.

        A task that is cancelled before it begins has not run at all.
        """
        self._services.streams.discard(self)
        self._task = None
        if self._deadline is not None:
            self._deadline.pop(self, None)
            self._deadline = None
        self._end(Ended(Status.CANCELLED, "the call was cancelled."))

    def _end(self, end: Ended) -> None:
        if self._over:
            return
        self._close()
        if self._begun or end.status is Status.OK:
            self._begin_answer()
            self.connection.outbox.headers(self, trailers(end.status, end.message, end.metadata), ends=True)
        else:
            self.connection.outbox.answer(self, ended(end.status, end.message, end.metadata))

    def received(self, data: bytes, *, ended: bool) -> None:
        """Handle a piece of the caller's messages."""
        if self._over or self._fault is not None:
            return
        self._unread += len(data)
        if self._waiting and len(data) < _SMALL_BYTES and not ended:
            self.connection.odd()
        try:
            for message, size in self._incoming.feed(data):
                self._waiting.add(message if isinstance(message, bytes) else message.plain(), size)
            if ended and self._incoming.unfinished:
                raise Ended(Status.INVALID_ARGUMENT, "the request ends within a message.")
            if not self._count():
                self._drop_waiting()
                raise Ended(Status.RESOURCE_EXHAUSTED, NO_ROOM)
        except Ended as end:
            self._fault = end
        if self.granted and not self._incoming.missing:
            self.connection.admitted(self)
        if not self._waiting:
            self._widen()
        self._arrived.set()

    def _count(self) -> bool:
        """Count the messages that are held; False when there is no room for them."""
        size = self._waiting.size + self._taken + self._incoming.unfinished + self._answers
        return self._over or size == self.kept or self.connection.keep(self, size)

    def _drop_waiting(self) -> None:
        """Drop the messages that wait: there is no room for them.

        The call ends behind the one that was taken.
        """
        self._waiting.clear()
        self._incoming = self.head.incoming(self.connection)
        self._count()

    def _widen(self) -> None:
        """Allow the peer as much data as has been taken.

        A longer message that is the next is let through, too.
        """
        if self.ended or self._over or self._fault is not None:
            return
        room = DEFAULT_WINDOW - self._unread - self.window
        if room >= _WIDEN_AT:
            self.connection.widen(self, room)
        missing = self._incoming.missing
        if missing > self.window and not self._waiting:
            self.connection.admit(self, missing - self.window)

    def on_timeout(self) -> None:
        """End the call: the caller's deadline has passed."""
        self._deadline = None
        self.stop(Ended(Status.DEADLINE_EXCEEDED, "the deadline has passed."))

    def stop(self, end: Ended) -> None:
        """End the call from outside."""
        if not self._over:
            self.connection.outbox.forget(self)
            self._end(end)
            if self._task is not None:
                self._task.cancel()

    def late(self) -> None:
        """Do nothing: a stream may stay open without limit."""

    def _close(self) -> None:
        """Take nothing more, and let go of what waits.

        The call itself may stay until the garbage collector finds it.
        """
        self._over = True
        self._waiting.clear()
        self._incoming = self.head.incoming(self.connection)

    def cut(self) -> None:
        """Stop: the caller wants no answer any more, or is gone."""
        self._close()
        if self._task is not None:
            self._task.cancel()
