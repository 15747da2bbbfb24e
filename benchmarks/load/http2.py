"""One HTTP/2 connection of a generator.

It carries many concurrent unary gRPC calls, for a few microseconds each. A gRPC library costs the generator more than
the request costs the server, and would itself be measured. Here the headers of a method are encoded once, and an answer
costs the reading of its frames. The connection speaks only the parts of RFC 9113 that gRPC needs. It asks the server to
keep no header table (RFC 7541, 4.2): a block of headers then means the same at any time, and a block that was decoded
before is not decoded again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from twophase.grpc_server.http2 import frames
from twophase.grpc_server.http2.frames import DATA, END_HEADERS, END_STREAM, HEAD_BYTES, HEADERS
from twophase.grpc_server.status import Status

_PADDED_OR_PRIORITY: Final = frames.PADDED | frames.WITH_PRIORITY
_OURS: Final = {
    frames.HEADER_TABLE_SIZE: 0,
    frames.ENABLE_PUSH: 0,
    frames.INITIAL_WINDOW_SIZE: frames.NUMBER_MAX,
}
"""No header table, no push, and a window that small answers do not fill."""
_OK: Final = b"\x0bgrpc-status\x010"
"""The first bytes of the trailers of a successful call, from gRPC's servers in C.

The library decodes those of other servers, once."""
_KNOWN_MAX: Final = 512
_TEXT_MAX: Final = 120


class Caller(Protocol):
    """The maker of a call."""

    def answered(self, refusal: str) -> None:
        """Take the answer; `refusal` is empty when it is OK."""

    def cut_off(self) -> None:
        """Take notice that the connection is gone; the call's outcome is unknown."""


Reader = Callable[[bytes], None]
"""Takes a piece of an answer's messages."""


def head(path: str, authority: str, content_type: str = "application/grpc") -> bytes:
    """Return the header block of every call of one method."""
    names = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": authority,
        "te": "trailers",
        "content-type": content_type,
        "user-agent": "twophase-bench",
    }
    # The fields are neither read from the server's table nor put there, so that it does not change.
    return b"".join(frames.field(name.encode(), value.encode()) for name, value in names.items())


class Http2Connection(asyncio.Protocol):
    """One connection; see the module.

    Arguments:
        on_lost: called when the connection is gone, after every call on it was cut off.
    """

    def __init__(self, on_lost: Callable[[Http2Connection], None]) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the server has sent its first HTTP/2 settings."""
        self.open = True
        self._on_lost = on_lost
        self._transport = cast("asyncio.Transport", None)
        self._callers: dict[int, Caller] = {}
        self._readers: dict[int, Reader] = {}
        self._next_stream = 1
        self._rest = b""
        self._out: list[bytes] = []
        self._reading = False
        self._window = frames.DEFAULT_WINDOW
        self._stream_window = frames.DEFAULT_WINDOW
        self._frame_bytes = frames.DEFAULT_FRAME_BYTES
        self._held: deque[_Held] = deque()
        self._refusals: dict[bytes, str] = {}
        self._fault = ""

    def call(self, block: bytes, message: bytes, caller: Caller, reader: Reader | None = None) -> None:
        """Send a request.

        Arguments:
            block: of the method, from `head`.
            message: with gRPC's own five bytes before it, see `grpc_server.status.framed`.
            reader: takes the answer's messages; None to skip them.
        """
        number = self._next_stream
        self._next_stream = number + 2
        self._callers[number] = caller
        if reader is not None:
            self._readers[number] = reader
        stream = number.to_bytes(4, "big")
        size = len(message)
        frame = (len(block) << 16 | HEADERS << 8 | END_HEADERS).to_bytes(5, "big") + stream + block
        if size <= self._window and size <= self._stream_window and size <= self._frame_bytes and not self._held:
            self._window -= size
            self._write(frame + (size << 16 | DATA << 8 | END_STREAM).to_bytes(5, "big") + stream + message)
        else:
            self._write(frame)
            self._held.append(_Held(stream, memoryview(message), self._stream_window))
            self._send_held()

    def stream(self, block: bytes, message: bytes, caller: Caller, reader: Reader) -> None:
        """Send the first message of a call that stays open.

        The arguments are those of `call`. The message must fit into a frame and into the server's windows.
        """
        number = self._next_stream
        self._next_stream = number + 2
        self._callers[number] = caller
        self._readers[number] = reader
        assert len(message) <= min(self._window, self._stream_window, self._frame_bytes), "it is short"
        self._window -= len(message)
        self._write(
            frames.frame(HEADERS, END_HEADERS, number, block) + frames.frame(DATA, 0, number, message),
        )

    def cut(self) -> None:
        """Close at once, also with calls under way."""
        if self._transport is not None:
            self._transport.abort()

    def _write(self, data: bytes) -> None:
        """Send now, or after the read in progress: one write carries all its replies."""
        if self._reading:
            self._out.append(data)
        else:
            self._transport.write(data)

    def _send_held(self) -> None:
        """Send the held messages in order, as far as the server's windows allow."""
        before, self._held = self._held, deque()
        for held in before:
            while (size := min(len(held.left), self._window, held.window, self._frame_bytes)) > 0:
                piece, held.left = bytes(held.left[:size]), held.left[size:]
                self._window -= size
                held.window -= size
                flags = 0 if held.left else END_STREAM
                self._write((size << 16 | DATA << 8 | flags).to_bytes(5, "big") + held.stream + piece)
            if held.left:
                self._held.append(held)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the preface, the settings and the window."""
        self._transport = cast("asyncio.Transport", transport)
        window = frames.window_update(0, frames.NUMBER_MAX - frames.DEFAULT_WINDOW)
        self._transport.write(frames.PREFACE + frames.settings(_OURS) + window)

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify every caller that waits, and the owner."""
        self.open = False
        if not self.ready.done():
            self.ready.set_exception(OSError(None, self._fault or str(exc or "closed before a word of HTTP/2")))
        callers, self._callers = self._callers, {}
        self._readers.clear()
        for caller in callers.values():
            caller.cut_off()
        self._on_lost(self)

    def data_received(self, data: bytes) -> None:
        """Read whole frames; the replies to them are sent in one write."""
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        self._reading = True
        while end - at >= HEAD_BYTES:
            stop = at + HEAD_BYTES + int.from_bytes(data[at : at + 3], "big")
            if not self.ready.done() and data[at + 3] != frames.SETTINGS:
                self._give_up("the answer is not HTTP/2")
                return
            if stop > end:
                break
            kind, flags, stream = data[at + 3], data[at + 4], int.from_bytes(data[at + 5 : at + 9], "big")
            if kind == HEADERS:
                self._headers(flags, stream, data[at + HEAD_BYTES : stop])
            elif kind != DATA:
                self._other(kind, flags, stream, data[at + HEAD_BYTES : stop])
            elif self._readers and (reader := self._readers.get(stream)) is not None:
                reader(data[at + HEAD_BYTES : stop])
            at = stop
        self._rest = data[at:]
        self._reading = False
        if self._out:
            self._transport.write(b"".join(self._out))
            self._out.clear()

    def _headers(self, flags: int, stream: int, block: bytes) -> None:
        if not flags & END_HEADERS or flags & _PADDED_OR_PRIORITY:
            self._give_up("headers in pieces, padded or with a priority")
            return
        refusal = "" if block[1:15] == _OK else self._refusal(block)
        if flags & END_STREAM or refusal:
            if self._held and self._forgets(stream):
                self._write(frames.reset(stream, frames.NO_ERROR))
            self._ended(stream, refusal)

    def _forgets(self, stream: int) -> bool:
        """Drop the unsent rest of a message; return whether there was any."""
        unsent = [held for held in self._held if int.from_bytes(held.stream, "big") == stream]
        for held in unsent:
            self._held.remove(held)
        return bool(unsent)

    def _ended(self, stream: int, refusal: str) -> None:
        caller = self._callers.pop(stream, None)
        self._readers.pop(stream, None)
        if caller is not None:
            caller.answered(refusal)

    def _refusal(self, block: bytes) -> str:
        """Return the refusal in a block, and remember it; empty for a successful call."""
        known = self._refusals.get(block)
        if known is not None:
            return known
        from hpack import Decoder, HPACKError  # noqa: PLC0415 -- an extra

        try:
            decoder = Decoder()
            decoder.header_table_size = decoder.max_allowed_table_size = 0
            fields: dict[str, str] = dict(cast("Any", decoder.decode(block)))
        except (HPACKError, UnicodeDecodeError) as error:
            return f"headers that cannot be read: {error}"
        refusal = ""
        if fields.get("grpc-status", "0") != "0":
            refusal = f"{_code(fields['grpc-status'])} {fields.get('grpc-message', '')}"[:_TEXT_MAX]
        elif fields.get(":status", "200") != "200":
            refusal = f"HTTP status {fields[':status']}"
        if len(self._refusals) >= _KNOWN_MAX:
            self._refusals.clear()
        self._refusals[block] = refusal
        return refusal

    def _other(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == frames.WINDOW_UPDATE:
            self._widened(stream, int.from_bytes(payload, "big"))
        elif kind == frames.SETTINGS:
            if not flags & frames.ACK:
                self._settings(payload)
                self._write(frames.frame(frames.SETTINGS, frames.ACK))
        elif kind == frames.PING:
            if not flags & frames.ACK:
                self._write(frames.frame(frames.PING, frames.ACK, 0, payload))
        elif kind == frames.RST_STREAM:
            self._forgets(stream)
            self._ended(stream, f"the stream was reset, HTTP/2 error {int.from_bytes(payload, 'big')}")
        elif kind == frames.GOAWAY:
            self._give_up("the server closes its connections")
        elif kind in {frames.PUSH_PROMISE, frames.CONTINUATION}:
            self._give_up("frames that no gRPC server sends here")

    def _settings(self, payload: bytes) -> None:
        for at in range(0, len(payload) - 5, 6):
            key, value = int.from_bytes(payload[at : at + 2], "big"), int.from_bytes(payload[at + 2 : at + 6], "big")
            if key == frames.INITIAL_WINDOW_SIZE:
                for held in self._held:
                    held.window += value - self._stream_window
                self._stream_window = value
            elif key == frames.MAX_FRAME_SIZE:
                self._frame_bytes = value
        if not self.ready.done():
            self.ready.set_result(None)
        self._send_held()

    def _widened(self, stream: int, by: int) -> None:
        if not stream:
            self._window += by
        for held in self._held:
            if int.from_bytes(held.stream, "big") == stream:
                held.window += by
        self._send_held()

    def _give_up(self, fault: str) -> None:
        self._fault = fault
        self.open = False
        self._transport.abort()


class _Held:
    """A message that waits for the server's windows."""

    __slots__ = ("left", "stream", "window")

    def __init__(self, stream: bytes, left: memoryview, window: int) -> None:
        self.stream = stream
        self.left = left
        self.window = window


def _code(number: str) -> str:
    known = number.isdecimal() and int(number) < len(Status)
    return Status(int(number)).name if known else f"code {number}"
