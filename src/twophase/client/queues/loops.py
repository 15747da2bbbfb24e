"""An event loop in a thread for blocking callers; functions in other threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakSet

from twophase.core.errors import CoordinatorUnreachable

T = TypeVar("T")


class LoopThread:
    """See the module; it starts at its first call.

    A child of a fork has the parent's loop without its thread; there it starts anew.

    Arguments:
        name: of the thread.
        on_forked: called in such a child, so that its owner forgets what belongs to the parent's loop.
    """

    def __init__(self, name: str, on_forked: Callable[[], None] = lambda: None) -> None:
        self._name = name
        self._on_forked = on_forked
        _LOOPS.add(self)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def runs(self) -> bool:
        """True from the first call to the end."""
        return self._loop is not None

    def call(self, work: Coroutine[Any, Any, T], within: asyncio.AbstractEventLoop | None = None) -> T:
        """Run a coroutine to its end, and return its result.

        An interrupt of the caller cancels it.

        Arguments:
            within: the loop to which it belongs; by default the one that runs, or a new one.

        Raises:
            CoordinatorUnreachable: the loop was closed before its end.
        """
        with self._lock:
            if within is not None and within is not self._loop:
                work.close()
                raise self._stopped()
            future = asyncio.run_coroutine_threadsafe(work, self._running())
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise self._stopped() from None
        except BaseException:
            future.cancel()
            raise

    def _stopped(self) -> CoordinatorUnreachable:
        return CoordinatorUnreachable(f"{self._name} was stopped by another thread meanwhile.")

    def soon(self, function: Callable[[], object]) -> None:
        """Call a function in the loop, soon. A signal's handler may do so."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # another thread has closed it meanwhile
                loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """End the loop and its thread. Safe to call twice."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_end_all(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def forked(self) -> None:
        """Begin anew in the child of a fork."""
        _OF_PARENTS.append(self._loop)
        self._lock, self._loop, self._thread = threading.Lock(), None, None
        self._on_forked()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
            self._thread.start()
        return self._loop


_LOOPS: Final[WeakSet[LoopThread]] = WeakSet()
_OF_PARENTS: Final[list[object]] = []
"""Loops of parent processes, which are kept.

Their end would touch what the parent still uses.
"""


def _forked() -> None:
    for loop in list(_LOOPS):
        loop.forked()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forked)


async def _end_all() -> None:
    """Cancel every other task of the loop, and wait for its end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


async def in_thread(threads: concurrent.futures.Executor, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a thread, and return its result.

    Raises:
        RuntimeError: it raised what is no exception of its own: `sys.exit()` would end the loop, a cancellation would
            look like that of the waiting, and a StopIteration never arrives. What the function raises else.
    """
    return await asyncio.get_running_loop().run_in_executor(threads, partial(_called, function, arguments))


def _called(function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    try:
        return function(*arguments)
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            raise
        raise RuntimeError(f"{type(error).__name__} was raised in a thread") from error


def is_cut() -> bool:
    """Return True in a task that is being cancelled.

    Otherwise a CancelledError is one of what the task waits for.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
