"""The gRPC services of one port: which methods there are, how each is answered, and how many calls are under way.

A method is one of three: a callback for one message (the hot ones), a coroutine for one message, a coroutine for any
number of them either way. Nothing here knows what a message means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Final

from twophase.http.wheel import TimeoutWheel
from twophase.http2.frames import DEFAULT_WINDOW
from twophase.http2.headers import Fields
from twophase.http2.outbox import Reply
from twophase.http2.stream import Stream
from twophase.rpc.heads import CallHead, list_bytes
from twophase.rpc.status import Ended, Status, ended, success
from twophase.rpc.streaming import StreamingCall
from twophase.rpc.unary import UnaryCall

if TYPE_CHECKING:
    from twophase.http2.connection import Connection

UnaryMethod = Callable[[UnaryCall, bytes], None]
UnaryCoroutine = Callable[[UnaryCall, bytes], Awaitable[bytes]]
StreamingMethod = Callable[[StreamingCall], Awaitable[None]]

_PATH_SHOWN_MAX: Final = 200


class Services:
    """See the module.

    Arguments:
        message_bytes_max: the longest message that is read.
        header_list_bytes_max: the most that the headers of a call may be.
        calls_max: calls under way at once.
        too_many: makes the answer beyond that.
        on_refused: told of each call that is refused by its headers.
        unknown: makes the answer to a method that there is not, of its path.
        on_crash: hears of faults of ours.
        crash_end: what a caller is told of one.
    """

    def __init__(
        self,
        *,
        message_bytes_max: int,
        header_list_bytes_max: int,
        calls_max: int,
        too_many: Callable[[], Reply],
        unknown: Callable[[str], Reply],
        on_refused: Callable[[], None],
        on_crash: Callable[[Exception], None],
        crash_end: Ended,
    ) -> None:
        self.message_bytes_max = message_bytes_max
        self.calls_max = calls_max
        self.calls = 0
        self.too_many = too_many
        self.on_refused = on_refused
        self.keep: Callable[[Fields], object] = _nothing
        """Makes of a call's headers what is kept with them (`CallHead.kept`)."""
        self.wheel = TimeoutWheel(asyncio.get_running_loop())
        self.deadline = ended(Status.DEADLINE_EXCEEDED, "the deadline has passed.")
        self.late = ended(Status.CANCELLED, "the request did not arrive in time.")
        self._header_list_bytes_max = header_list_bytes_max
        self._unknown = unknown
        self._on_crash = on_crash
        self._crash_end = crash_end
        self._methods: dict[str, tuple[type[UnaryCall | StreamingCall], UnaryMethod | StreamingMethod]] = {}
        self._cancelled = ended(Status.CANCELLED, "the call was cancelled.")
        self._tasks: set[asyncio.Task[None]] = set()
        self.streams: set[StreamingCall] = set()
        """The streaming calls under way."""

    def unary(self, path: str, method: UnaryMethod) -> None:
        """A method answered by callback: it calls `UnaryCall.finish`, now or later."""
        self._methods[path] = (UnaryCall, method)

    def coroutine(self, path: str, method: UnaryCoroutine) -> None:
        """A method answered by a coroutine, which returns the message or raises Ended."""
        self.unary(path, partial(self._start, method))

    def streaming(self, path: str, method: StreamingMethod) -> None:
        """A method answered by a coroutine that takes and sends messages itself."""
        self._methods[path] = (StreamingCall, method)

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

    def run(self, work: Coroutine[None, None, None], at_the_end: Callable[[], None]) -> asyncio.Task[None]:
        """Let a coroutine run; `at_the_end` is called also when it is cancelled before it begins."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            at_the_end()

        task.add_done_callback(done)
        return task

    def fault(self, error: Exception) -> Ended:
        """A fault of ours, as it is told."""
        self._on_crash(error)
        return self._crash_end

    def crashed(self, error: Exception) -> Reply:
        """The same as an answer."""
        end = self.fault(error)
        return ended(end.status, end.message, end.metadata)

    def end_streams(self, end: Ended) -> None:
        """End the streaming calls, which may go on for ever; the others end by themselves."""
        for call in list(self.streams):
            call.stop(end)

    async def stop(self) -> None:
        """End what is still under way."""
        self.wheel.stop()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    def read(self, fields: Fields) -> CallHead:
        """What answers a call with these headers; raises Malformed."""
        head = CallHead(fields, self)
        if head.refusal is None:
            head.refusal = self._find(head)
        if head.refusal is not None:
            # Other clients of HTTP than gRPC's may look for an answer only when they have sent everything.
            head.eager, head.begin = head.is_grpc, RefusedCall
        return head

    def _find(self, head: CallHead) -> Reply | None:
        if list_bytes(head.fields) > self._header_list_bytes_max:
            text = f"metadata: at most {self._header_list_bytes_max} bytes are read."
            return ended(Status.RESOURCE_EXHAUSTED, text)
        found = self._methods.get(head.path)
        if found is None:
            return self._unknown(head.path[:_PATH_SHOWN_MAX])
        head.begin, head.method = found
        head.eager = head.begin is StreamingCall
        head.kept = self.keep(head.fields)
        return None


class RefusedCall(Stream):
    """Answered without a look at its message."""

    __slots__ = ("_answered", "_head")

    def __init__(self, connection: Connection, number: int, head: CallHead) -> None:
        super().__init__(connection, number, head.content_bytes)
        self._head = head
        self._answered = False

    def started(self) -> None:
        """Answer."""
        if not self._answered:
            self._answered = True
            self._head.services.on_refused()
            assert self._head.refusal is not None, "made for nothing else"
            self.connection.outbox.answer(self, self._head.refusal)

    def received(self, data: bytes, *, ended: bool) -> None:  # noqa: ARG002 -- the base class's
        """Nobody reads it; who sends much of it is told so before the end."""
        if ended or self.window < DEFAULT_WINDOW // 2:
            self.started()

    def late(self) -> None:
        """It has been waited for long enough."""
        self.started()

    def cut(self) -> None:
        """The caller wants no answer any more, or is gone."""


def _nothing(_fields: Fields) -> object:
    return None
