"""A bad network on demand: a TCP proxy on this machine.

It passes, holds, delays, refuses or cuts what goes through.

    with Proxy(database.host, database.port) as proxy:
        ...                     # connect to 127.0.0.1:proxy.port
        proxy.partition()       # silence: nothing gets through, nothing is closed, not even a close
        proxy.heal()            # what was held arrives late, as TCP would send it again
        proxy.cut()             # every connection is reset; new ones are accepted
        proxy.refuse()          # every connection is reset, and so are new ones until heal()
        proxy.cut_around(b"g7", Cut.BEFORE_REPLY)   # once: the request that holds these bytes is carried out, its
                                # reply is not; proxy.has_cut says when

It runs in a thread of its own, serves any number of connections, and may be called from any thread; a call returns when
it is in force. Under TLS it sees no plain bytes, so `cut_around` finds nothing there.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType

_PART_BYTES = 64 * 1024
_RESET = struct.pack("ii", 1, 0)


class Way(enum.Enum):
    """A direction of traffic."""

    REQUESTS = "from the clients to the server"
    REPLIES = "from the server to the clients"


class Cut(enum.Enum):
    """The point around a request at which the connection is cut."""

    BEFORE_REQUEST = "the server never hears of the request"
    AFTER_REQUEST = "the server has the request; whether it has begun is anybody's guess"
    BEFORE_REPLY = "the server has answered the request; the client never hears of it"


class _Link:
    """One client's connection and its other half."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.cut_at_reply = False

    def reset(self) -> None:
        """Reset both halves at once."""
        for writer in (self.client, self.server):
            _reset(writer)


class Proxy:
    """A proxy before one server, used as a context manager; `port` is its own."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="proxy")
        self._open: dict[Way, asyncio.Event] = {}
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._refusing = False
        self._delay_s = 0.0
        self._cut: tuple[bytes, Cut] | None = None
        self.port = 0
        self.holds = threading.Event()
        """Set when the partition holds something; cleared when it heals."""
        self.has_cut = threading.Event()
        """Set when `cut_around` has met its request."""

    def __enter__(self) -> Proxy:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    @property
    def connections(self) -> int:
        """Return the number of clients connected through it now."""
        return len(self._links)

    def partition(self, *ways: Way) -> None:
        """Hold everything, or only one direction: no byte and no close gets through.

        A new connection gets no answer.
        """

        def hold() -> None:
            for way in ways or Way:
                self._open[way].clear()

        self._do(hold)

    def heal(self) -> None:
        """Pass everything on, what was held first."""

        def release() -> None:
            self._refusing = False
            self._delay_s = 0.0
            self.holds.clear()
            for way in Way:
                self._open[way].set()

        self._do(release)

    def delay(self, delay_ms: int) -> None:
        """Delay every part by this time, in each direction."""

        def slow_down() -> None:
            self._delay_s = delay_ms / 1000

        self._do(slow_down)

    def cut(self) -> None:
        """Reset every connection."""
        self._do(self._reset_all)

    def refuse(self) -> None:
        """Reset every connection, and every new one."""

        def close_the_door() -> None:
            self._refusing = True
            self._reset_all()

        self._do(close_the_door)

    def cut_around(self, request: bytes, cut: Cut) -> None:
        """Reset, once, the connection whose next request holds these bytes.

        All others continue. The bytes must arrive in one piece: choose few, of a request that is not large.
        """
        self.has_cut.clear()

        def arm() -> None:
            self._cut = (request, cut)

        self._do(arm)

    def _do(self, change: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            change()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(60), "the proxy runs"

    async def _listen(self) -> None:
        for way in Way:
            self._open[way] = asyncio.Event()
            self._open[way].set()
        self._listener = await asyncio.start_server(self._welcome, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        assert self._listener is not None
        self._listener.close()
        self._reset_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the transports' last words

    def _reset_all(self) -> None:
        for link in list(self._links):
            link.reset()

    def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        if self._refusing:
            _reset(client)
            return
        try:
            from_server, server = await asyncio.open_connection(*self._target)
        except OSError:
            _reset(client)
            return
        link = _Link(client, server)
        self._links.add(link)
        try:
            await asyncio.gather(
                self._carry(link, Way.REQUESTS, reader, server), self._carry(link, Way.REPLIES, from_server, client)
            )
        finally:
            self._links.discard(link)
            link.reset()

    async def _carry(self, link: _Link, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while part := await reader.read(_PART_BYTES):
                await self._passage(way)
                cut = self._cut_of(link, way, part)
                if cut is not Cut.BEFORE_REQUEST:
                    writer.write(part)
                    await writer.drain()
                if cut in {Cut.BEFORE_REQUEST, Cut.AFTER_REQUEST}:
                    self._now_cut(link)
                    return
            await self._passage(way)
            writer.write_eof()
        except OSError:
            await self._passage(way)
            link.reset()

    def _cut_of(self, link: _Link, way: Way, part: bytes) -> Cut | None:
        """Return the point at which this part is cut.

        A request that is cut before its reply marks its link.
        """
        if way is Way.REPLIES:
            return Cut.BEFORE_REQUEST if link.cut_at_reply else None
        if self._cut is None or self._cut[0] not in part:
            return None
        cut = self._cut[1]
        self._cut = None
        link.cut_at_reply = cut is Cut.BEFORE_REPLY
        return cut

    async def _passage(self, way: Way) -> None:
        if not self._open[way].is_set():
            self.holds.set()
            await self._open[way].wait()
        if self._delay_s:
            await asyncio.sleep(self._delay_s)

    def _now_cut(self, link: _Link) -> None:
        link.reset()
        self.has_cut.set()


def _reset(writer: asyncio.StreamWriter) -> None:
    opened: socket.socket | None = writer.get_extra_info("socket")
    if opened is not None:
        with contextlib.suppress(OSError):
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
