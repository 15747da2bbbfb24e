"""The addresses of host names, looked up in threads of their own.

A resolver may hang for minutes, and a thread that waits for it cannot be stopped. So look-ups have their own threads,
few for the names of one parent domain, and a part of them for all domains that were slow lately. Promise: until all
threads hang, which takes over a hundred domains that were not slow before, names that hang delay no name of another
domain; and no thread is waited for when the process ends. Answers are remembered for seconds, so that a service that
moved is found; while the resolver fails, the last answer of a name serves on.
"""

from __future__ import annotations

import asyncio
import math
import socket
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final

Addresses = list[tuple[int, str]]
"""Families and addresses, in the resolver's order."""

FRESH_S: Final = 10.0
FAILED_S: Final = 5.0
STALE_S: Final = 3600.0
PATIENCE_S: Final = 1.0
"""Time that a look-up may take before a stale answer is used."""
SLOW_S: Final = 2.0
"""Time that a look-up may take before its parent domain counts as slow."""
SLOW_KEPT_S: Final = 60.0
_PRIVATE: Final = {"local", "internal", "lan", "corp", "intranet"}
"""Last parts of names that an organisation gives out itself."""
_UNKNOWN: Final = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}
"""Errors by which a resolver denies a name; the others say that it did not work."""


class _Known:
    """The last answer for a name, and the last failure since; times are the loop's."""

    __slots__ = ("addresses", "as_of_s", "failed_s", "failure")

    def __init__(self) -> None:
        self.addresses: Addresses = []
        self.as_of_s = -math.inf
        self.failure: OSError | None = None
        self.failed_s = -math.inf


class Names:
    """Resolves names for the calls of one event loop.

    Arguments:
        threads_max: look-ups at once.
        slow_threads_max: those of them for names of domains that were slow lately.
        threads_per_parent_max: look-ups at once of names of one domain.
        names_max: names whose answers or failures are remembered.
    """

    def __init__(
        self,
        *,
        threads_max: int = 256,
        slow_threads_max: int = 64,
        threads_per_parent_max: int = 2,
        names_max: int = 4096,
    ) -> None:
        self._threads_max = threads_max
        self._slow_threads_max = slow_threads_max
        self._threads_per_parent_max = threads_per_parent_max
        self._names_max = names_max
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._look_ups: dict[str, asyncio.Future[Addresses]] = {}
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._askers: Counter[str] = Counter()
        self._parents: Counter[str] = Counter()
        self._slow: OrderedDict[str, float] = OrderedDict()
        """Domains that were slow lately, and the time until which each counts as slow."""

    @property
    def under_way(self) -> int:
        """Number of look-ups with a thread."""
        return self._parents.total()

    @property
    def slow_domains(self) -> int:
        """Number of domains that are remembered as slow."""
        return len(self._slow)

    async def addresses(self, host: str) -> Addresses:
        """Return the addresses of a name.

        Raises:
            OSError: the resolver knows none, or failed and there is no answer from before.
        """
        now_s = asyncio.get_running_loop().time()
        known = self._known.get(host) or _Known()
        if now_s - known.as_of_s < FRESH_S:
            return known.addresses
        has_stale = now_s - known.as_of_s < STALE_S
        failure = known.failure
        if failure is None or now_s - known.failed_s >= FAILED_S:
            try:
                async with asyncio.timeout(PATIENCE_S if has_stale else None):
                    return await self._look_up(host)
            except OSError as error:  # with what stands in for an answer, too slow is a failure, too
                failure = error
        if has_stale and failure.errno not in _UNKNOWN:
            return known.addresses
        raise OSError(*failure.args)

    def forget(self, host: str) -> None:
        """Ask the resolver again at the next call: no address could be connected to."""
        known = self._known.get(host)
        if known is not None:
            known.as_of_s -= FRESH_S

    async def _look_up(self, host: str) -> Addresses:
        found = self._look_ups.get(host)
        if found is None:
            found = self._look_ups[host] = asyncio.get_running_loop().create_future()
            self._waiting[host] = None
            self._start()
        self._askers[host] += 1
        try:
            return await asyncio.shield(found)
        finally:
            self._askers[host] -= 1
            if not self._askers[host]:
                del self._askers[host]
                if host in self._waiting:  # the last asker has gone, and no thread has begun
                    del self._waiting[host]
                    self._look_ups.pop(host).cancel()

    def _start(self) -> None:
        """Start the look-ups that wait and may have a thread, the oldest first."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        while self._slow and next(iter(self._slow.values())) <= now_s:
            self._slow.popitem(last=False)
        slow_threads = sum(count for parent, count in self._parents.items() if parent in self._slow)
        for host in list(self._waiting):
            if self.under_way >= self._threads_max:
                return
            parent = _parent(host)
            is_slow = parent in self._slow
            if is_slow and slow_threads >= self._slow_threads_max:
                continue
            if self._parents[parent] < self._threads_per_parent_max:
                del self._waiting[host]
                self._parents[parent] += 1
                slow_threads += is_slow
                # A daemon thread: the end of the process does not wait for it.
                ask = threading.Thread(
                    target=_resolve, args=(loop, host, now_s, self._resolved), name="names", daemon=True
                )
                try:
                    ask.start()
                except RuntimeError as error:  # the machine has no thread left
                    loop.call_soon(self._resolved, host, now_s, OSError(str(error)))

    def _resolved(self, host: str, since_s: float, found: Addresses | OSError) -> None:
        parent = _parent(host)
        self._parents[parent] -= 1
        if not self._parents[parent]:
            del self._parents[parent]
        asked = self._look_ups.pop(host)
        known = self._known.setdefault(host, _Known())
        self._known.move_to_end(host)
        if len(self._known) > self._names_max:
            self._known.popitem(last=False)
        now_s = asyncio.get_running_loop().time()
        if now_s - since_s >= SLOW_S:
            self._slow[parent] = now_s + SLOW_KEPT_S
            self._slow.move_to_end(parent)
            if len(self._slow) > self._names_max:
                self._slow.popitem(last=False)
        if isinstance(found, OSError):
            known.failure, known.failed_s = found, now_s
            asked.set_exception(found)
            asked.exception()  # seen by those who ask, unless all gave up
        else:
            known.addresses, known.as_of_s, known.failure = found, now_s, None
            asked.set_result(found)
        self._start()


def _parent(host: str) -> str:
    """Return the domain of a name, by its number of parts.

    Two, or three below the `co.uk` of a country, or four where an organisation gives out names itself.

    >>> _parent("a.b.example.com."), _parent("a.b.example.co.uk"), _parent("bank-b")
    ('example.com', 'example.co.uk', 'bank-b')
    >>> _parent("bank.prod.svc.cluster.local")
    'prod.svc.cluster.local'
    """
    parts = host.removesuffix(".").split(".")
    count = 2
    if parts[-1] in _PRIVATE:
        count = 4
    elif len(parts) > 2 and len(parts[-1]) == 2 and len(parts[-2]) <= 3:
        count = 3
    return ".".join(parts[-count:])


def _resolve(
    loop: asyncio.AbstractEventLoop,
    host: str,
    since_s: float,
    on_done: Callable[[str, float, Addresses | OSError], None],
) -> None:
    """Ask the system's resolver, in a thread."""
    found: Addresses | OSError
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        found = list(dict.fromkeys((int(family), str(where[0])) for family, _, _, _, where in answers))
    except OSError as error:
        found = error
    except UnicodeError as error:
        found = OSError(str(error))
    try:
        loop.call_soon_threadsafe(on_done, host, since_s, found)
    except RuntimeError:
        return  # the loop was closed meanwhile
