"""A group's consumers of one topic: its cursors, and those that wait for messages."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from twophase.coordinator.queues.cursor import NEVER_MS, Cursor, Held, Undone
from twophase.core.errors import InvalidRequest
from twophase.core.message import decode
from twophase.core.queue_message import QueueMessage, message_of
from twophase.stores.base import Store
from twophase.stores.queue_rows import Entry, Progress

PAGE_ENTRIES = 64
_CROWDED_BYTES = 64 * 1024
"""Bytes that one request takes where memory holds enough."""
_PAGES_MAX = 64
"""Pages that one request reads at once, and one of each queue.

A filter may leave out millions. What is found is given out meanwhile, others have their turn, and polls end in time.
"""
_OVERTIME_MS = 2_000
"""The clients of RocketMQ wait three seconds longer than they ask for."""

Taken = tuple[Cursor, int, Undone, Held]


class Subscription:
    """See the module. One taking is under way at a time.

    Arguments:
        store: has the entries.
        progress: of the group in each queue of the topic.
        undone_max: a cursor with more reads no new entries.
    """

    def __init__(self, store: Store, progress: Mapping[int, Progress], undone_max: int) -> None:
        self._store = store
        self._undone_max = undone_max
        self.cursors: dict[int, Cursor] = {}
        self.lacks_queue = False
        """True when there are entries in a queue without a cursor."""
        self._is_cut = False
        """True when the last taking ended for the number of its pages alone."""
        self._appends: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._turn = 0
        self._lock = asyncio.Lock()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.add(progress)

    def add(self, progress: Mapping[int, Progress]) -> None:
        """Add the queues that are new: a topic may get more of them."""
        for queue, one in progress.items():
            if queue not in self.cursors:
                self.cursors[queue] = Cursor(one)
                self._appends[queue] = self._ends[queue] = 0

    @property
    def idle(self) -> bool:
        """True when no consumer waits, and none has anything."""
        return not self._waiters and not any(cursor.undone for cursor in self.cursors.values())

    @property
    def overtime_ms(self) -> int:
        """The time for which a poll goes on behind its own, because there is more to read."""
        return _OVERTIME_MS if self._is_cut else 0

    @property
    def in_flight(self) -> int:
        """The number of entries that consumers have, or that rest."""
        return sum(cursor.in_flight for cursor in self.cursors.values())

    @property
    def behind(self) -> int:
        """The number of entries that wait behind others of their message group."""
        return sum(cursor.held_back for cursor in self.cursors.values())

    @property
    def lag(self) -> int:
        """The number of entries that are not done, as far as they are known here."""
        return sum(cursor.done.missing_below(self._ends[queue]) for queue, cursor in self.cursors.items())

    def appended(self, queue: int, end: int) -> None:
        """Look for new entries of a queue. `end`: its next number, 0 for unknown."""
        if queue in self.cursors:
            self._ends[queue] = max(self._ends[queue], end)
            self._appends[queue] += 1
            self.cursors[queue].exhausted = False
        else:
            self.lacks_queue = True
        self.wake()

    def ends_at(self, queue: int, end: int) -> None:
        """Look for entries of a queue, if its next number is another than was known."""
        if end > self._ends.get(queue, 0):
            self.appended(queue, end)

    def wake(self) -> None:
        """Let the consumer look that has waited longest."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def wake_all(self) -> None:
        """Let every consumer look."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def wait(self, seconds: float, now_ms: int) -> None:
        """Wait for something to look for, no longer than this."""
        if self._is_cut:
            return  # there is more to read
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self.watch(now_ms)
        try:
            await asyncio.wait((waiter,), timeout=seconds)
        except asyncio.CancelledError:
            if waiter.done():
                self.wake()  # it was this one's turn
            raise
        finally:
            if not waiter.done():
                self._waiters.remove(waiter)

    def watch(self, now_ms: int) -> None:
        """Wake a consumer when the next entry waits for one again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        next_ms = min(cursor.next_ms() for cursor in self.cursors.values())
        if self._waiters and next_ms < NEVER_MS:
            pause_s = max(1, next_ms - now_ms) / 1000
            self._timer = asyncio.get_running_loop().call_later(pause_s, self.wake)

    def set_back(self, by_ms: int, now_ms: int) -> None:
        """End all leases earlier by this: the clock was set back."""
        for cursor in self.cursors.values():
            cursor.set_back(by_ms)
        self.watch(now_ms)

    async def take(
        self,
        wanted: Callable[[QueueMessage], bool],
        limit: int,
        now_ms: Callable[[], int],
        page_entries: Callable[[], int],
        bytes_max: int | None,
    ) -> list[Taken]:
        """Take up to `limit` entries; when this is cancelled, none.

        Nothing more is read when the bodies have enough bytes: what is read and not given out fills the memory.

        Arguments:
            page_entries: how many entries may be read at once: one, where memory holds enough.
            bytes_max: the bytes that are given out at most; None for any number.
        """
        taken: list[Taken] = []

        def is_enough() -> bool:
            size = sum(len(held.message.body) for _, _, _, held in taken)
            is_full = bytes_max is not None and size >= bytes_max
            return len(taken) >= limit or is_full or (size >= _CROWDED_BYTES and page_entries() == 1)

        try:
            async with self._lock:
                self._is_cut, left = False, _PAGES_MAX
                for queue in self._in_turn():
                    cursor = self.cursors[queue]
                    cursor.expire(now_ms())
                    more, has_read = True, False
                    while more and not is_enough():
                        found = cursor.take(wanted, limit - len(taken))
                        taken += [(cursor, *one) for one in found]
                        if has_read and left <= 0:
                            self._is_cut = True
                            break
                        left, has_read = left - 1, True
                        more = not is_enough() and await self._read(cursor, queue, page_entries())
        except BaseException:
            self.put_back(taken)
            self.wake()  # it was this one's turn, and what it was woken for waits on
            raise
        if self._is_cut:
            self.wake()  # the poll of this one may end
        taken = [one for one in taken if one[0].waits(one[1], one[2])]
        return taken if bytes_max is None else _within(taken, bytes_max)

    def put_back(self, taken: Sequence[Taken]) -> None:
        """Let what was taken wait on, before all others."""
        for cursor, number, one, _ in reversed(taken):
            cursor.put_back(number, one)

    def _in_turn(self) -> list[int]:
        """Return the queues, each time beginning with the next."""
        queues = sorted(self.cursors)
        self._turn = (self._turn + 1) % len(queues)
        return queues[self._turn :] + queues[: self._turn]

    async def _read(self, cursor: Cursor, queue: int, limit: int) -> bool:
        """Read entries; False when nothing more can be read now."""
        _, topic, _ = cursor.key
        numbers = cursor.unread(limit)
        if numbers:
            entries = await self._store.queue_entries(topic, queue, numbers)
            cursor.read_again(numbers, [(entry.number, held_of(entry)) for entry in entries])
            return True
        if cursor.exhausted or len(cursor.undone) >= self._undone_max:
            return False
        appends = self._appends[queue]
        entries = await self._store.queue_page(topic, queue, cursor.read_to, limit)
        cursor.read([(entry.number, held_of(entry)) for entry in entries], ahead=limit > 1)
        cursor.exhausted = not entries and appends == self._appends[queue]
        return bool(entries)


def held_of(entry: Entry) -> Held:
    """Return an entry as it is given out."""
    branch = decode(entry.body).branches[entry.branch]
    message = message_of(branch.url, branch.payload)
    if not message.message_id:
        message = msgspec.structs.replace(message, message_id=entry.gid)
    return Held(message, entry.gid, entry.stored_ms)


def wanted_by(expression: str, group: str = "") -> Callable[[QueueMessage], bool]:
    """Return the test of a filter expression, for a group.

    A message for one group alone is not wanted by the others.

    Raises:
        InvalidRequest: neither `*` nor tags.

    >>> wanted_by("paid || sent")(QueueMessage("orders", "", "1", b"", tag="sent"))
    True
    >>> wanted_by("amount > 3")
    Traceback (most recent call last):
    twophase.core.errors.requests.InvalidRequest: TP-1000: 'amount > 3' is not a filter: write * or tags as a || b...
    """
    text = expression.strip()
    if text in {"", "*"}:
        return lambda message: message.only_group in {"", group}
    tags = frozenset(tag.strip() for tag in text.split("||"))
    if any(not tag or any(character.isspace() for character in tag) for tag in tags):
        raise InvalidRequest(f"{text[:64]!r} is not a filter: write * or tags as a || b.")
    return lambda message: message.tag in tags and message.only_group in {"", group}


def _within(taken: list[Taken], bytes_max: int) -> list[Taken]:
    """Return the first messages, whose bodies have that many bytes together.

    It is one message in any case. The others wait on.
    """
    total = 0
    for count, (_, _, _, held) in enumerate(taken):
        total += len(held.message.body)
        if count and total > bytes_max:
            for cursor, number, one, _ in reversed(taken[count:]):
                cursor.put_back(number, one)
            return taken[:count]
    return taken


def parted(taken: Sequence[Taken], attempts_max: int) -> tuple[list[Taken], list[Taken]]:
    """Return the messages to give out, and those that were given out too often.

    It is asked before any is given out, because that counts, and the last time is one of those that are allowed.

    Arguments:
        attempts_max: the times that a message is given out; 0 for no limit.
    """
    if not attempts_max:
        return list(taken), []
    alive = [one for one in taken if one[2].attempts < attempts_max]
    return alive, [one for one in taken if one[2].attempts >= attempts_max]
