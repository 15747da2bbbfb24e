"""One thread and the calls it runs, pages last, awaited from an event loop.

A SQLite connection is used in its thread, or elsewhere while that thread has nothing under way. An executor would do,
at twice the cost a call, which is a good part of a small flush's cost beside its fsync.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class _Call(Generic[T]):
    __slots__ = ("_function", "_loop", "_may_skip", "_thread", "future")

    def __init__(self, thread: WorkerThread, function: Callable[[], T], *, may_skip: bool) -> None:
        self._thread = thread
        self._function = function
        self._may_skip = may_skip
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self._loop.create_future()

    def run(self) -> None:
        if self._may_skip and self.future.cancelled():
            self._report(self._fail, asyncio.CancelledError())
            return
        try:
            result = self._function()
        except BaseException as error:  # noqa: BLE001 -- it belongs to the caller, who awaits it
            self._report(self._fail, error)
        else:
            self._report(self._succeed, result)

    def _report(self, done: Callable[[T], None] | Callable[[BaseException], None], outcome: T | BaseException) -> None:
        try:
            self._loop.call_soon_threadsafe(done, outcome)  # type: ignore[arg-type] # the pair is made in run
        except RuntimeError:
            assert self._loop.is_closed(), "only a closed loop refuses; then no caller waits any more"

    def _succeed(self, result: T) -> None:
        self._thread.under_way -= 1
        if not self.future.done():
            self.future.set_result(result)

    def _fail(self, error: BaseException) -> None:
        self._thread.under_way -= 1
        if not self.future.done():
            self.future.set_exception(error)


class WorkerThread:
    """A daemon thread that runs one call after another.

    Being a daemon it never keeps a process alive; a process that ends in the middle of a commit is, to SQLite, a
    process that was killed.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._pages: deque[Callable[[], None]] = deque()
        self._thread: threading.Thread | None = None
        self.under_way = 0
        """Number of calls that the event loop still waits for.

        At 0 the thread touches nothing.
        """

    def open(self) -> None:
        """Start the thread."""
        assert self._thread is None, "a thread is started once"
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], T], *, is_page: bool = False) -> asyncio.Future[T]:
        """Run `function` in the thread; the future has what it returns or raises.

        A caller that cancels the future does not wait any longer; the call itself is carried out. With `is_page` it
        reads many rows: it begins when no other call waits, and is skipped when it is cancelled before that.
        """
        assert self._thread is not None, "the thread runs"
        call = _Call(self, function, may_skip=is_page)
        self.under_way += 1
        if is_page:
            self._pages.append(call.run)
            self._calls.put(_nothing)  # ends a wait of the thread
        else:
            self._calls.put(call.run)
        return call.future

    async def close(self) -> None:
        """Wait for the calls under way, then end the thread."""
        if self._thread is None:
            return
        await self.call(_nothing, is_page=True)
        self._calls.put(None)
        self._thread.join()
        self._thread = None

    def _run(self) -> None:
        while True:
            call = self._pages.popleft() if self._pages and self._calls.empty() else self._calls.get()
            if call is None:
                return
            call()


def _nothing() -> None:
    """Do nothing: a call that is only waited for."""
