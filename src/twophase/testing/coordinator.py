"""A real coordinator inside the test's own process.

It listens on a free port, and has a clock that the test owns. Everything is the product's: the wire, the store (a
SQLite file in a temporary folder), the lifecycle, the outgoing calls. Only time is the test's: after `advance(35)` the
check-back is due. It runs in a thread with its own event loop, so sync and async tests use it alike.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from twophase.coordinator.view import MessageView
from twophase.core.errors import ConfigurationError
from twophase.core.lifecycle import FINAL, State
from twophase.core.spans import as_ms, as_seconds
from twophase.server.app import Server
from twophase.server.setting_sources import load
from twophase.server.settings import Settings
from twophase.stores.search import Search
from twophase.testing.clock import VirtualClock

T = TypeVar("T")
_PATIENCE_S = 30.0
_POLL_S = 0.002
_DRAIN_MS = 2_000
_PAGE = 1_000
_HINTS = {
    State.ABSENT: ": no such gid here; was it sent to this coordinator's url?",
    State.PREPARED: ": the test owns the clock: advance(35) makes its check-back due",
    State.SUBMITTED: ": a branch fails (see query), or the test owns the clock: advance(seconds) brings its next call",
}


class InProcessCoordinator:
    """A coordinator for tests; a context manager.

    >>> with InProcessCoordinator() as coordinator:
    ...     coordinator.url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(self, store: str | None = None, **settings: Any) -> None:
        """Put it together; nothing runs before `start`.

        Arguments:
            store: a store URL, to find the same messages after a restart; by default a file that ends with it.
            settings: any of the server's settings by name, such as `retry_first_ms=10`, but for `host` and `http_port`:
                it listens on a free port of 127.0.0.1. The environment and a config file are not read. Check addresses
                are probed only with `probe_check_addresses=True`.

        Raises:
            ConfigurationError: no such setting, one of those two, or a value that the server would refuse.
        """
        _require_ours(settings)
        self.clock = VirtualClock()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._store = store
        self._settings = load(
            {"drain_timeout_ms": _DRAIN_MS, "probe_check_addresses": False, **settings}, {}, source="the test"
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._server: Server | None = None
        self._url = ""

    @property
    def url(self) -> str:
        """Its address, as `Message(url)` takes it."""
        if not self._url:
            raise ConfigurationError("this coordinator has not been started.")
        return self._url

    @property
    def grpc_url(self) -> str:
        """The address of its gRPC port, which it has when made with `grpc_port=0`."""
        urls = self._server.urls if self._server is not None else []
        if len(urls) < 2:
            raise ConfigurationError("no gRPC port: make it with grpc_port=0, and start it.")
        return urls[1]

    def start(self) -> str:
        """Start, and return the URL when requests are taken.

        Raises:
            StoreError: the store refuses.
        """
        assert self._thread is None, "it runs already"
        if self._store is None:
            self._folder = tempfile.TemporaryDirectory(prefix="twophase-test-")
            self._store = f"sqlite:///{Path(self._folder.name) / 'coordinator.db'}"
        settings = msgspec.structs.replace(self._settings, store=self._store, host="127.0.0.1", http_port=0)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="twophase coordinator", daemon=True)
        self._thread.start()
        try:
            self._url = self._run(self._start(settings))
        except BaseException:
            self._end_loop()
            raise
        self.clock.watch(self._look_at_the_clock)
        return self._url

    def stop(self) -> None:
        """Drain and stop. Safe to call twice."""
        if self._thread is None:
            return
        try:
            self._run(self._stop())
        finally:
            self._end_loop()
            if self._folder is not None:
                self._folder.cleanup()
                self._folder = None

    def advance(self, span: float | timedelta) -> None:
        """Let `span` pass at once; what is due by then happens now.

        Arguments:
            span: seconds, or a timedelta.
        """
        self.clock.advance(as_ms(span))

    def query(self, gid: str) -> MessageView | None:
        """Return the coordinator's view of a gid; None when it has no message."""
        return self._run(self._running.coordinator.query(gid))

    def state(self, gid: str) -> State:
        """Return the message's state; ABSENT when there is no message."""
        view = self.query(gid)
        return State.ABSENT if view is None else view.state

    def wait_final(self, gid: str, timeout: float | timedelta = 10.0) -> State:
        """Wait in real time until the message is succeeded or failed, and return which.

        Raises:
            TimeoutError: it is not after `timeout`; perhaps the test's clock must `advance`.
        """
        return self.wait_state(gid, *FINAL, timeout=timeout)

    def wait_state(self, gid: str, *states: State, timeout: float | timedelta = 10.0) -> State:
        """Wait in real time until the message is in one of `states`, and return which.

        Raises:
            TimeoutError: it is in another one after `timeout`.
        """
        deadline = time.monotonic() + as_seconds(timeout)
        while True:
            state = self.state(gid)
            if state in states:
                return state
            if time.monotonic() > deadline:
                hints = _HINTS.get(state, "") + _standing_loop()
                raise TimeoutError(f"message {gid!r} is {state} after {as_seconds(timeout):g} s{hints}")
            time.sleep(_POLL_S)

    def settled(self, timeout: float | timedelta = 10.0) -> dict[str, State]:
        """Wait until nothing is left to do, and return every message's state.

        It waits in real time, for what is due at the clock's time. Each message is then final, parked, or due later:
        all check-backs and branch calls that were due have been answered. So after `advance` a test reads only what has
        really happened.

        Raises:
            TimeoutError: something is still due after `timeout`.
        """
        deadline = time.monotonic() + as_seconds(timeout)
        while True:
            views = self._all()
            now_ms = self.clock.now_ms()
            due = [view for view in views if view.due_ms is not None and view.due_ms <= now_ms]
            if not due:
                return {view.message.gid: view.state for view in views}
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{len(due)} of {len(views)} messages are still due after {as_seconds(timeout):g} s, such as "
                    f"{due[0].message.gid!r}, which is {due[0].state}: nobody has answered its last call"
                    f"{_standing_loop()}"
                )
            time.sleep(_POLL_S)

    def __enter__(self) -> InProcessCoordinator:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _all(self) -> list[MessageView]:
        views: list[MessageView] = []
        position = ""
        while True:
            found, position = self._run(self._running.coordinator.search(Search(), position, _PAGE))
            views += found
            if not position:
                return views

    @property
    def _running(self) -> Server:
        if self._server is None or self._loop is None:
            raise ConfigurationError(
                "this coordinator is not running.", remedy="Call `start()`, or use it in a `with`."
            )
        return self._server

    async def _start(self, settings: Settings) -> str:
        self._server = Server(settings, clock=self.clock)
        try:
            return (await self._server.start())[0]
        except BaseException:
            await self._server.stop()
            raise

    async def _stop(self) -> None:
        assert self._server is not None, "it was started"
        await self._server.drain()
        await self._server.stop()

    def _look_at_the_clock(self) -> None:
        if self._loop is not None and self._server is not None:
            self._call(self._server.coordinator.tick)

    def _call(self, function: Callable[[], None]) -> None:
        async def called() -> None:
            function()

        self._run(called())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None, "the loop runs"
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)

    def _end_loop(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        self._url = ""
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result(_PATIENCE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_PATIENCE_S)
        loop.close()


def _standing_loop() -> str:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return ""
    return "; this thread's event loop stood still: if a service runs in it, wait by `await asyncio.to_thread(…)`"


def _require_ours(settings: Mapping[str, object]) -> None:
    for name in ("host", "http_port"):
        if name in settings:
            raise ConfigurationError(
                f"{name}: a test's coordinator listens on a free port of 127.0.0.1; `url` is its address.",
                remedy=f"Leave {name} out.",
            )
