"""The gRPC methods of one port, and the handler of each.

A method is one of three: a callback for one message (the hot path), a coroutine for one message, a coroutine for any
number of messages either way. Nothing here knows the meaning of a message.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from twophase.grpc_server.calls import Calls
from twophase.grpc_server.heads import CallHead, list_bytes
from twophase.grpc_server.http2.frames import DEFAULT_WINDOW
from twophase.grpc_server.http2.headers import Fields
from twophase.grpc_server.http2.response import Response
from twophase.grpc_server.http2.stream import Peer, Stream
from twophase.grpc_server.status import Ended, Status, ended, success
from twophase.grpc_server.streaming import StreamingCall
from twophase.grpc_server.unary import UnaryCall

UnaryMethod = Callable[[UnaryCall, bytes], None]
UnaryCoroutine = Callable[[UnaryCall, bytes], Awaitable[bytes]]
StreamingMethod = Callable[[StreamingCall], Awaitable[None]]

_PATH_SHOWN_MAX: Final = 200


class Services(Calls):
    """The methods of one port, and the calls to them.

    Arguments, beside those of `Calls`:
        header_list_bytes_max: the most bytes of a call's headers.
        unknown: makes the answer to an unknown method, from its path.
    """

    def __init__(
        self,
        *,
        message_bytes_max: int,
        header_list_bytes_max: int,
        calls_max: int,
        too_many: Callable[[str], Response],
        unknown: Callable[[str], Response],
        on_refused: Callable[[], None],
        on_crash: Callable[[Exception], None],
        crash_end: Ended,
    ) -> None:
        super().__init__(
            message_bytes_max=message_bytes_max,
            calls_max=calls_max,
            too_many=too_many,
            on_refused=on_refused,
            on_crash=on_crash,
            crash_end=crash_end,
        )
        self.keep: Callable[[Fields], object] = _nothing
        """Makes the value that is kept with a call's headers (`CallHead.kept`)."""
        self.refuse: Callable[[Fields], Response | None] = _nothing
        """Returns the answer to a call that is refused by its headers; None to serve it."""
        self.varying = b""
        """The name of a header that differs from call to call; empty for none.

        `keep` and `refuse` ignore its value."""
        self._header_list_bytes_max = header_list_bytes_max
        self._unknown = unknown
        self._methods: dict[str, tuple[type[UnaryCall | StreamingCall], UnaryMethod | StreamingMethod, int]] = {}
        self._always: set[str] = set()
        self._cancelled = ended(Status.CANCELLED, "the call was cancelled.")

    def unary(self, path: str, method: UnaryMethod, message_bytes_max: int | None = None) -> None:
        """Register a method answered by callback.

        It calls `UnaryCall.finish`, now or later. `message_bytes_max`: the longest message, if it is not the port's.
        """
        self._methods[path] = (UnaryCall, method, message_bytes_max or self.message_bytes_max)

    def coroutine(self, path: str, method: UnaryCoroutine, message_bytes_max: int | None = None) -> None:
        """Register a method answered by a coroutine.

        The coroutine returns the message or raises Ended. `message_bytes_max`: as `unary`.
        """
        self.unary(path, partial(self._start, method), message_bytes_max)

    def always(self, path: str) -> None:
        """Serve a registered method of one message also where all places are taken."""
        self._always.add(path)

    @property
    def has_always(self) -> bool:
        """True where a method is served although all places are taken."""
        return bool(self._always)

    def streaming(self, path: str, method: StreamingMethod, message_bytes_max: int | None = None) -> None:
        """Register a method answered by a coroutine that takes and sends messages.

        `message_bytes_max`: as `unary`.
        """
        self._methods[path] = (StreamingCall, method, message_bytes_max or self.message_bytes_max)

    def _start(self, method: UnaryCoroutine, call: UnaryCall, message: bytes) -> None:
        call.task = self.run(self._answer(method, call, message), partial(call.finish, self._cancelled))

    async def _answer(self, method: UnaryCoroutine, call: UnaryCall, message: bytes) -> None:
        try:
            reply = success(await method(call, message))
        except Ended as end:
            reply = ended(end.status, end.message, end.metadata)
        except Exception as error:  # noqa: BLE001 -- one call's fault must not tell a client our insides
            reply = self.crashed(error)
        call.finish(reply)

    def read(self, fields: Fields) -> CallHead:
        """Read a call's headers and find its handler; raises Malformed."""
        head = CallHead(fields, self)
        if head.refusal is None:
            head.refusal = self.refuse(fields) or self._find(head)
        if head.refusal is not None:
            # Clients of plain HTTP may look for an answer only when they have sent everything.
            head.eager, head.begin = head.is_grpc, RefusedCall
        return head

    def read_reserved(self, fields: Fields) -> CallHead:
        """Read as `read` does, and turn away what is not to be served always.

        The call is on a reserved place.
        """
        head = self.read(fields)
        if head.refusal is None and not head.always:
            head.eager, head.begin = True, TurnedAwayCall
        return head

    def _find(self, head: CallHead) -> Response | None:
        if list_bytes(head.fields) > self._header_list_bytes_max:
            text = f"metadata: at most {self._header_list_bytes_max} bytes are read."
            return ended(Status.RESOURCE_EXHAUSTED, text)
        found = self._methods.get(head.path)
        if found is None:
            return self._unknown(head.path[:_PATH_SHOWN_MAX])
        head.begin, head.method, head.message_bytes_max = found
        head.eager = head.begin is StreamingCall
        head.always = head.path in self._always
        head.kept = self.keep(head.fields)
        return None


class RefusedCall(Stream):
    """A call that is refused by its headers."""

    __slots__ = ("_answered", "_head")

    def __init__(self, connection: Peer, number: int, head: CallHead) -> None:
        super().__init__(connection, number, head.content_bytes)
        self._head = head
        self._answered = False

    def started(self) -> None:
        """Answer the call."""
        if not self._answered:
            self._answered = True
            self.connection.outbox.answer(self, self._refusal(self._head))

    def _refusal(self, head: CallHead) -> Response:
        head.services.on_refused()
        assert head.refusal is not None, "made for nothing else"
        return head.refusal

    def received(self, data: bytes, *, ended: bool) -> None:  # noqa: ARG002 -- the base class's
        """Discard the message; answer before its end when it is long."""
        if ended or self.window < DEFAULT_WINDOW // 2:
            self.started()

    def late(self) -> None:
        """Answer: the message did not arrive in time."""
        self.started()

    def cut(self) -> None:
        """Do nothing: no work is under way."""


class TurnedAwayCall(RefusedCall):
    """A call on a reserved place that may not be used for it."""

    __slots__ = ()

    def _refusal(self, head: CallHead) -> Response:
        return head.services.turn_away()


def _nothing(_fields: Fields) -> None:
    return None
