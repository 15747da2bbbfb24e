"""The supervisor of workers.

It starts them, starts those again that end, and stops all. It accepts no connection itself. It keeps the ports for its
workers by sockets that are bound and never listen, so the number that it printed stays theirs while they come and go,
and no other server of the same user joins them by chance. The first worker starts alone: it migrates the store, and
what refuses to start says so once. A worker that ends later is started again, after a pause that doubles up to a bound.
Stopping drains all at once, within one drain time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator
from secrets import token_hex
from typing import Final

import msgspec
import structlog

from twophase.core.credentials import shown
from twophase.core.errors import ConfigurationError
from twophase.core.printable import printable
from twophase.core.schedule import Schedule
from twophase.server import logs
from twophase.server.api import grpc_port
from twophase.server.settings import Settings
from twophase.server.workers.assignment import Assignment, Ready, of_worker
from twophase.stores.rows import Secrets

EXIT_CLEAN: Final = 0
EXIT_CONFIGURATION: Final = 2
EXIT_KILLED: Final = 1
_DRAINED: Final = frozenset({EXIT_CLEAN, -signal.SIGTERM})
"""Exit codes of workers that lose nothing by ending.

SIGTERM ends a worker at once that only starts.
"""
_HANGUP: Final = frozenset({signal.SIGHUP})
_PAUSES: Final = Schedule(first_ms=100, cap_ms=10_000, jitter=0.0)
_STEADY_S: Final = 60.0
"""A worker that ran this long begins anew with the shortest pause."""
_KILL_AFTER_DRAIN_S: Final = 5.0
_FORMER_MAX: Final = 100
"""Former processes that are remembered.

With the pauses between them, the lease of an older one is over.
"""

_log = structlog.get_logger("twophase.workers")


def supervise(settings: Settings) -> int:
    """Run `settings.workers` servers until SIGTERM or SIGINT. Returns the exit code."""
    logs.configure(settings.log_level, log_format=settings.log_format)
    try:
        with contextlib.ExitStack() as stack:
            settings = _with_ports(settings, stack)
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="twophase-workers-"))
            return asyncio.run(_Supervisor(settings, folder).run())
    except ConfigurationError as error:
        print(printable(str(error)), file=sys.stderr, flush=True)  # noqa: T201 -- for the person who started it
        return EXIT_CONFIGURATION


class _Supervisor:
    """One run; see the module."""

    def __init__(self, settings: Settings, folder: str) -> None:
        self._settings = settings
        self._folder = folder
        self._stopping = asyncio.Event()
        self._running: dict[int, Process] = {}
        self._ready: set[Process] = set()
        """Processes that have read their files, and read them again at SIGHUP."""
        self._rereads = 0
        self._former: dict[int, tuple[str, ...]] = {}
        """The secrets of each number's processes, since the last one that was ready.

        One that is killed while it starts may hold a slot, or may not have given back the slot before.
        """

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._reread)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANGUP)
        try:
            return await self._run()
        finally:
            await self._stop()

    def _reread(self) -> None:
        """Let every worker read the files again that may change."""
        self._rereads += 1
        for process in self._ready:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGHUP)

    async def _run(self) -> int:
        settings = self._settings
        starting = asyncio.create_task(self._start_all())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
            return EXIT_CLEAN
        urls = starting.result()
        if not urls:
            return await self._exit_code(1)
        text = f"{' '.join(urls)} (store {shown(settings.store)}, {settings.workers} workers)"
        print(f"twophase server ready: {text}", flush=True)  # noqa: T201 -- the ready line
        kept = [asyncio.create_task(self._keep(number)) for number in range(1, settings.workers + 1)]
        await self._stopping.wait()
        _log.info("draining", timeout_ms=settings.drain_timeout_ms, workers=len(self._running))
        for task in kept:
            task.cancel()
        await asyncio.wait(kept)
        codes = await self._stop()
        return EXIT_CLEAN if set(codes) <= _DRAINED else EXIT_KILLED

    async def _start_all(self) -> list[str]:
        """Start the first worker, then the others.

        Returns the URLs; none when the first one refuses to start.
        """
        first = await self._start(1)
        if first is None:
            return []
        others = range(2, self._settings.workers + 1)
        await asyncio.gather(*(self._start(number) for number in others))  # what ended is started again by `_keep`
        return first.urls

    async def _start(self, number: int) -> Ready | None:
        """Start a worker; None when it ended before it was ready."""
        # The former processes have ended: only what the database is committing of them can still be written.
        given = Secrets(token_hex(16), self._former.get(number, ()))
        self._former[number] = (*given.former, given.own)[-_FORMER_MAX:]
        # A worker inherits the mask, and takes the signal once it can. One sent to all processes would end it before.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANGUP)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "twophase.server.workers", stdin=PIPE, stdout=PIPE, env=dict(os.environ)
            )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANGUP)
        self._running[number] = process
        rereads = self._rereads
        assert process.stdin is not None, "a pipe"
        assert process.stdout is not None, "a pipe"
        with contextlib.suppress(OSError):  # it may have ended already
            process.stdin.write(Assignment(of_worker(self._settings, number), number, self._folder, given).line())
            await process.stdin.drain()
        line = await process.stdout.readline()
        if not line:
            return None
        self._former[number] = (given.own,)
        self._ready.add(process)
        if self._rereads != rereads:
            process.send_signal(signal.SIGHUP)  # it may have read its files before that
        return msgspec.json.decode(line, type=Ready)

    async def _keep(self, number: int) -> None:
        """Start a worker again whenever it ends."""
        loop = asyncio.get_running_loop()
        failures = 0
        started_s = loop.time()
        while True:
            code = await self._running[number].wait()
            self._ready.discard(self._running[number])
            failures = 1 if loop.time() - started_s > _STEADY_S else failures + 1
            pause_ms = _PAUSES.pause_ms(failures, 0.0)
            _log.error("a worker ended; it is started again", worker=number, exit_code=code, pause_ms=pause_ms)
            await asyncio.sleep(pause_ms / 1000)
            started_s = loop.time()
            if await self._start(number) is not None:
                _log.info("a worker is ready again", worker=number)

    async def _exit_code(self, number: int) -> int:
        code = await self._running[number].wait()
        if code > 0:
            return code  # it has said why
        _log.error("the first worker ended before it was ready", worker=number, exit_code=code)
        return EXIT_KILLED

    async def _stop(self) -> list[int]:
        """Drain every worker, and kill those that take too long.

        Returns their exit codes. A worker that had ended before, and was to be started again, has nothing to drain.
        """
        alive = [process for process in self._running.values() if process.returncode is None]
        for process in alive:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        waiting = [asyncio.create_task(process.wait()) for process in alive]
        if waiting:
            await asyncio.wait(waiting, timeout=self._settings.drain_timeout_ms / 1000 + _KILL_AFTER_DRAIN_S)
        for process in alive:
            if process.returncode is None:
                _log.error("a worker did not end in time, and is killed", pid=process.pid)
                process.kill()
        self._running.clear()
        return [await process.wait() for process in alive]


def _with_ports(settings: Settings, stack: contextlib.ExitStack) -> Settings:
    """Return the settings with the ports that are kept for the workers.

    Raises:
        ConfigurationError: a port is taken, or cannot be used.
    """
    http = stack.enter_context(_kept(settings.host, settings.http_port, "http_port"))
    grpc: int | str = settings.grpc_port
    if grpc == "auto":
        grpc = "off" if settings.http_port == 0 or not grpc_port.installed() else grpc_port.DEFAULT_PORT
    if isinstance(grpc, int):
        try:
            grpc = stack.enter_context(_kept(settings.host, grpc, "grpc_port"))
        except ConfigurationError as error:
            if settings.grpc_port != "auto":
                raise
            _log.warning("no gRPC port: the default one is taken; set grpc_port", reason=error.message)
            grpc = "off"
    return msgspec.structs.replace(settings, http_port=http, grpc_port=grpc)


@contextlib.contextmanager
def _kept(host: str, port: int, setting: str) -> Iterator[int]:
    """Keep a port for the workers, who may all bind it; yields its number."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, socket.SOCK_STREAM) as alone:
            # Without SO_REUSEPORT: a port that other servers share already is not ours to join.
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind(address)
            address = alone.getsockname()
        kept = socket.socket(family, socket.SOCK_STREAM)
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        kept.bind(address)
    except OSError as error:
        raise ConfigurationError(f"host, {setting}: cannot listen on {host}:{port}: {error.strerror}.") from error
    with kept:
        yield int(address[1])
