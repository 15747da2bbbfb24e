"""A gRPC call of one message and one answer, by callback.

It needs no task, no future and no coroutine. The usual call is one DATA frame that holds one whole message; it costs an
object, a look at five bytes and a function call. Everything else (pieces, compression, too long, too many) is read by
`Incoming`.
"""

from __future__ import annotations

import asyncio

from twophase.grpc_server.calls import TOO_MANY
from twophase.grpc_server.heads import CallHead
from twophase.grpc_server.http2.response import Response
from twophase.grpc_server.http2.stream import Peer, Stream
from twophase.grpc_server.incoming import PREFIX_BYTES, Compressed, Incoming
from twophase.grpc_server.status import Ended, Metadata, Status, ended
from twophase.http_client.byte_budget import FREE_BYTES, NO_ROOM, NO_ROOM_FOR_ANSWERS
from twophase.http_client.timeouts import Deadline
from twophase.http_client.turns import LONG_BYTES


class UnaryCall(Stream):
    """A call of one message; see the module.

    The method that answers calls `finish`, once, even when the caller has gone.
    """

    __slots__ = ("_answered", "_counted", "_deadline", "_incoming", "_services", "head", "task")

    def __init__(self, connection: Peer, number: int, head: CallHead) -> None:
        super().__init__(connection, number, head.content_bytes)
        self.head = head
        self.task: asyncio.Task[None] | None = None
        """The task that answers, for a coroutine; cancelled when the caller has gone."""
        self._services = head.services
        self._incoming: Incoming | None = None
        self._deadline: Deadline | None = None
        self._answered = False
        self._counted = False

    def received(self, data: bytes, *, ended: bool) -> None:
        """Handle a piece of the message, usually all of it."""
        if ended and self._incoming is None:
            size = len(data) - PREFIX_BYTES
            if size >= 0 and data[0] == 0 and int.from_bytes(data[1:5], "big") == size:
                self._hand_over(data[PREFIX_BYTES:])
                return
        if self._answered:
            return
        try:
            self._gather(data, ended=ended)
        except Ended as end:
            self._send(_reply(end))

    def _gather(self, data: bytes, *, ended: bool) -> None:
        incoming = self._incoming
        if incoming is None:
            incoming = self._incoming = self.head.incoming(self.connection)
        messages = incoming.feed(data)
        if len(messages) > 1 or (messages and incoming.unfinished):
            raise Ended(Status.INVALID_ARGUMENT, "the request has more than one message.")
        if ended:
            if incoming.unfinished:
                raise Ended(Status.INVALID_ARGUMENT, "the request ends within its message.")
            if not messages:
                raise Ended(Status.INVALID_ARGUMENT, _NO_MESSAGE)
        waits = len(messages[0][0]) if messages and not ended else incoming.unfinished
        if not self.connection.keep(self, waits):
            self._incoming = None
            self._send(self._services.too_many(NO_ROOM))
        elif messages and not ended:
            self._keep_for_the_end(messages[0][0])
        elif messages:
            self._hand_over(messages[0][0])
        elif incoming.missing > self.window:
            self.connection.admit(self, incoming.missing - self.window)

    def _keep_for_the_end(self, message: bytes | Compressed) -> None:
        """Keep a whole message whose end of the request arrives in a frame of its own."""
        self._incoming = _Whole(message)

    def _hand_over(self, message: bytes | Compressed, *, waited: bool = False) -> None:
        services, head = self._services, self.head
        if self.granted:
            self.connection.admitted(self)
        if isinstance(message, Compressed) or (len(message) > LONG_BYTES and not waited):
            self._wait(message)
            return
        if self.kept:
            self.connection.keep(self, 0)
        self._incoming = None
        if services.calls >= services.calls_max and not head.always:
            self._send(services.too_many(TOO_MANY))
            return
        services.calls += 1
        self._counted = True
        if head.timeout_ms:
            self._deadline = services.timeouts.after(self, head.timeout_ms)
        try:
            head.method(self, message)
        except Exception as error:  # noqa: BLE001 -- one call's fault must not take the connection along
            self.finish(services.crashed(error))

    def _wait(self, message: bytes | Compressed) -> None:
        """Keep a long message until its turn to be decompressed and decoded."""
        self._incoming = _Whole(message)
        if self.connection.keep(self, len(message)):
            self._services.turns.add(self._take_turn)
        else:
            self._incoming = None
            self._send(self._services.too_many(NO_ROOM))

    def _take_turn(self) -> None:
        if not isinstance(self._incoming, _Whole):
            return
        message = self._incoming.message
        try:
            plain = message.plain() if isinstance(message, Compressed) else message
        except Ended as end:
            self._incoming = None
            self.connection.keep(self, 0)
            self._send(_reply(end))
        else:
            self._hand_over(plain, waited=True)

    def finish(self, reply: Response) -> None:
        """Send the answer; without effect when the caller has gone."""
        if self._counted:
            self._counted = False
            self._services.calls -= 1
        if self._deadline is not None:
            self._deadline.pop(self, None)
            self._deadline = None
        if not self._answered:
            self._send(reply)

    def refuse(self, status: Status, message: str, metadata: Metadata = ()) -> None:
        """End the call without a message, with the reason."""
        self.finish(ended(status, message, metadata))

    def _send(self, reply: Response) -> None:
        self._answered = True
        if len(reply.body) > FREE_BYTES and not self.connection.keep(self, len(reply.body)):
            reply = self._services.too_many(f"{NO_ROOM_FOR_ANSWERS}.")
        self.connection.outbox.answer(self, reply)

    def on_timeout(self) -> None:
        """End the call: the caller's deadline has passed.

        Work that was handed over continues.
        """
        self._deadline = None
        if not self._answered:
            self._send(self._services.deadline)
            self._stop_task()

    def late(self) -> None:
        """Refuse a message that did not become whole in time."""
        if not self._answered:
            self._send(self._services.late)

    def cut(self) -> None:
        """Stop: the caller wants no answer any more, or is gone."""
        self._answered = True
        self._incoming = None
        if self._deadline is not None:
            self._deadline.pop(self, None)
            self._deadline = None
        self._stop_task()

    def _stop_task(self) -> None:
        if self.task is not None:
            self.task.cancel()


class _Whole(Incoming):
    """A whole message that waits for the end of its request."""

    __slots__ = ("message",)

    def __init__(self, message: bytes | Compressed) -> None:
        super().__init__(b"", 0, _ignore)
        self.message = message

    def feed(self, data: bytes) -> list[tuple[bytes | Compressed, int]]:
        """Refuse more data: nothing more may follow."""
        if data:
            raise Ended(Status.INVALID_ARGUMENT, "the request has more than one message.")
        return [(self.message, 0)]


_NO_MESSAGE = (
    "the request is empty: a gRPC message (content-type application/grpc, five bytes before the protobuf) is needed."
)


def _ignore(_unfolded: int) -> None:
    return None


def _reply(end: Ended) -> Response:
    return ended(end.status, end.message, end.metadata)
