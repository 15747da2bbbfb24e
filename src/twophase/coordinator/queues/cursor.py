"""A group's place in one queue: what is done and what is given out.

It performs no I/O and has no clock. Everything below `done.start` is done. A number that was read and is not done is in
`undone`: it waits for a consumer, or one has it until a time. What is done, how often the rest was given out, and until
when a part of it rests is kept in the store. So a restart gives out again what was given out and not acknowledged, and
nothing else; what rests waits out its pause first.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from twophase.coordinator.queues.ranges import Ranges
from twophase.core.errors import ReceiptStale
from twophase.core.queue_message import QueueMessage
from twophase.stores.queue_rows import PAGE_BYTES_MAX, Progress

NEVER_MS: Final = 2**62
"""A time that does not come."""
_AHEAD_MAX: Final = 512
"""Entries behind others of their message group whose bodies may be kept."""
_TIMES_SPARE: Final = 1_000
"""Times of earlier receipts that may be kept beside those that count."""
_REST_MS_MAX: Final = 24 * 3600 * 1000
"""The longest pause of a group; a longer one that is stored is of another clock."""

_NOT_EXTENDED: Final = (0, 0, False)


class Held(msgspec.Struct, frozen=True):
    """An entry in memory, ready to be given out."""

    message: QueueMessage
    gid: str
    stored_ms: int


class Undone(msgspec.Struct, eq=False):
    """An entry that is not done.

    Arguments:
        attempts: how often it was given out.
        begun: the first receipt of the last time; 0 for none in this process.
        receipt: the newest receipt of that time: each extension makes one.
        until_ms: until then a consumer has it, or it rests; 0: it waits for a consumer.
        rests: it does so until then, also after a restart.
        client_id: the consumer that has it until then, if it is attached so long; empty for none.
        group: its message group, empty for none.
        held: None until it is read, and while a consumer has it.
        listed: it is among the numbers that wait; it may be there although an extension came late.
        extended: the receipt before the last extension, for how long that was, and whether it then rests.
    """

    attempts: int = 0
    begun: int = 0
    receipt: int = 0
    until_ms: int = 0
    rests: bool = False
    client_id: str = ""
    group: str = ""
    held: Held | None = None
    listed: bool = False
    extended: tuple[int, int, bool] = _NOT_EXTENDED


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """The stored form of what is above the first number that is not done.

    `rests`: until when an entry rests, by number. A version that does not know it ignores it.
    """

    done: list[tuple[int, int]] = []
    attempts: dict[int, int] = {}
    rests: dict[int, int] = {}


_decode: Final = msgspec.msgpack.Decoder(Kept).decode
_encode: Final = msgspec.msgpack.Encoder().encode


def done_of(progress: Progress) -> Ranges:
    """Return what a stored progress says is done."""
    kept = _decode(progress.unfinished) if progress.unfinished else Kept()
    return Ranges(progress.next_number, kept.done)


class Cursor:
    """See the module.

    Arguments:
        progress: as it is stored; a new group begins with the oldest entry.
    """

    def __init__(self, progress: Progress) -> None:
        kept = _decode(progress.unfinished) if progress.unfinished else Kept()
        self._progress = progress
        self.done = Ranges(progress.next_number, kept.done)
        self._attempts_before = dict(kept.attempts)
        """Deliveries before this process, by number, until the entry is read."""
        self._rests_before = dict(kept.rests)
        """The ends of pauses that began before this process, likewise."""
        self.read_to = progress.next_number
        """The first number that was not read yet."""
        self.undone: dict[int, Undone] = {}
        self._waiting: deque[int] = deque()
        """Numbers that wait for a consumer."""
        self._times: list[tuple[int, int, int]] = []
        """(until_ms, number, receipt) of those that do not, as a heap."""
        self._of_group: dict[str, deque[int]] = {}
        """The undone numbers of each message group, in their order."""
        self._held_back: set[int] = set()
        """Numbers that wait behind another one of their message group.

        They wait for no consumer yet.
        """
        self._first: list[int] = []
        """Numbers that were held back and now wait for a consumer, as a heap.

        The oldest goes first.
        """
        self.held_bytes = 0
        self.changed = False
        """True when there is something to store that was not reported yet."""
        self.is_new = False
        """True while the store has no row of it, and nothing was given out."""
        self.exhausted = False
        """True when there was nothing behind `read_to` at the last reading."""

    @property
    def key(self) -> tuple[str, str, int]:
        """The group, the topic and the queue."""
        return self._progress.group, self._progress.topic, self._progress.queue

    @property
    def term(self) -> int:
        """The term in which this node serves the topic."""
        return self._progress.term

    def progress(self) -> Progress:
        """Return what is to be stored."""
        attempts = {number: one.attempts for number, one in self.undone.items() if one.attempts}
        rests = {number: one.until_ms for number, one in self.undone.items() if one.rests and one.until_ms}
        kept = Kept(self.done.pairs(), self._attempts_before | attempts, self._rests_before | rests)
        group, topic, queue = self.key
        return Progress(group, topic, queue, self.done.start, _encode(kept), self.term)

    def resume(self, now_ms: int) -> None:
        """Forget the stored pauses that are over; none is longer than a pause can be."""
        last_ms = now_ms + _REST_MS_MAX
        before = self._rests_before.items()
        self._rests_before = {number: min(until_ms, last_ms) for number, until_ms in before if until_ms > now_ms}

    def read(self, entries: Sequence[tuple[int, Held]], *, ahead: bool = True) -> None:
        """Take entries that were read from `read_to` on.

        Numbers that are missing were cleaned.

        Arguments:
            ahead: some bodies of entries behind others of their message group may be kept; the rest are read again.
        """
        for number, held in entries:
            self._cleaned(number)
            self.read_to = number + 1
            if number in self.done:
                continue
            attempts, until_ms = self._attempts_before.pop(number, 0), self._rests_before.pop(number, 0)
            group = held.message.message_group
            one = self.undone[number] = Undone(attempts, until_ms=until_ms, rests=until_ms > 0, group=group)
            if group:
                self._of_group.setdefault(group, deque()).append(number)
            if until_ms:
                heapq.heappush(self._times, (until_ms, number, one.receipt))
            elif group and self._of_group[group][0] != number:
                room = len(self._held_back) < _AHEAD_MAX and self.held_bytes < PAGE_BYTES_MAX
                self._held_back.add(number)
                if ahead and room:
                    self._hold(one, held)
            else:
                self._hold(one, held)
                self._list(number, one)

    def _cleaned(self, up_to: int) -> None:
        while self.read_to < up_to:
            if self.read_to in self.done:
                self.read_to = max(self.read_to + 1, self.done.start)
                continue
            ends = [begin for begin, _ in self.done.pairs() if begin > self.read_to]
            end = min([up_to, *ends])
            self.done.add_up_to(self.read_to, end)
            self.read_to = end
            self.changed = True

    def unread(self, limit: int) -> list[int]:
        """Return the first numbers that wait and are not in memory."""
        found: list[int] = []
        for number in itertools.chain(self._first, self._waiting):
            one = self.undone.get(number)
            if one is not None and one.held is None and not one.until_ms:
                found.append(number)
                if len(found) == limit:
                    break
        return found

    def read_again(self, numbers: Sequence[int], entries: Sequence[tuple[int, Held]]) -> None:
        """Take entries that were read by number; missing ones were cleaned."""
        there = dict(entries)
        for number in numbers:
            one = self.undone.get(number)
            if one is None or one.held is not None:
                continue
            if number in there:
                self._hold(one, there[number])
            else:
                self.finish(number)

    def _hold(self, one: Undone, held: Held) -> None:
        one.held = held
        self.held_bytes += len(held.message.body)

    def _list(self, number: int, one: Undone) -> None:
        self._held_back.discard(number)
        if not one.listed:
            one.listed = True
            self._waiting.append(number)

    def _let_go(self, one: Undone) -> None:
        if one.held is not None:
            self.held_bytes -= len(one.held.message.body)
            one.held = None

    def expire(self, now_ms: int) -> None:
        """Let those whose time is over wait for a consumer again."""
        while self._times and self._times[0][0] <= now_ms:
            _, number, receipt = heapq.heappop(self._times)
            one = self.undone.get(number)
            if one is not None and one.receipt == receipt and 0 < one.until_ms <= now_ms:
                one.until_ms = 0
                self._list(number, one)

    def next_ms(self) -> int:
        """Return when the next time is over; `NEVER_MS` for none."""
        return self._times[0][0] if self._times else NEVER_MS

    def take(self, wanted: Callable[[QueueMessage], bool], limit: int) -> list[tuple[int, Undone, Held]]:
        """Return up to `limit` entries that wait and are in memory.

        Those with other tags are done. An entry waits on while one of its message group before it is not done. The
        caller gives each out, or ends it.
        """
        taken: list[tuple[int, Undone, Held]] = []
        while (self._first or self._waiting) and len(taken) < limit:
            number = heapq.heappop(self._first) if self._first else self._waiting.popleft()
            one = self.undone.get(number)
            if one is None:
                continue
            one.listed = False
            if one.until_ms:
                continue
            if one.group and self._of_group[one.group][0] != number:
                self._held_back.add(number)
            elif one.held is None:
                self._waiting.appendleft(number)
                one.listed = True
                break  # it is read next
            elif not wanted(one.held.message):
                self.finish(number)
            else:
                taken.append((number, one, one.held))
        return taken

    def give_out(self, number: int, receipt: int, until_ms: int, client_id: str = "") -> int:
        """Give an entry that was taken to a consumer; return how often it was given out.

        Arguments:
            client_id: the consumer that has it no longer than it is attached; empty for one that has it until the time.
        """
        one = self.undone[number]
        assert not one.until_ms, "no consumer has it"
        self._let_go(one)
        one.attempts += 1
        one.begun = receipt
        self.postpone(number, receipt, until_ms)
        one.client_id = client_id
        return one.attempts

    def set_aside(self, number: int, receipt: int, until_ms: int) -> None:
        """Keep an entry that was taken from consumers while it is buried."""
        assert not self.undone[number].until_ms, "a message that a consumer has is not buried"
        self.undone[number].begun = receipt
        self.postpone(number, receipt, until_ms)

    def waits(self, number: int, one: Undone) -> bool:
        """Return True for an entry that was taken, and is still to be given out.

        Its earlier receipt may have ended or extended it since.
        """
        return self.undone.get(number) is one and not one.until_ms

    def put_back(self, number: int, one: Undone) -> None:
        """Let an entry that was taken wait on, before all others."""
        if self.waits(number, one) and not one.listed:
            one.listed = True
            self._waiting.appendleft(number)

    def give_back(self, number: int) -> None:
        """Let an entry wait again as if it had not been given out, before all others."""
        one = self.undone[number]
        one.attempts = max(0, one.attempts - 1)
        one.until_ms = one.begun = one.receipt = 0
        one.client_id, one.extended = "", _NOT_EXTENDED
        self.changed = True
        self.put_back(number, one)

    def extend(self, number: int, by: int, receipt: int, until_ms: int, for_ms: int, *, rests: bool = False) -> None:
        """Postpone an entry as a consumer asks; `extended` answers a repetition.

        Arguments:
            number: of the entry.
            by: the receipt that the consumer names. An earlier one than the newest shortens nothing: its request may
                be older than the last extension.
            receipt: the next one; the newest again where the request is repeated.
            until_ms, for_ms: the time to which it is postponed, and how long that is.
            rests: as of `postpone`.

        Raises:
            ReceiptStale: it rests, because its consumer has given it up, and this would keep it from the next.
        """
        one = self.undone[number]
        if one.rests and not rests:
            raise ReceiptStale("its consumer has given it up before.")
        if by != one.receipt:
            until_ms = max(until_ms, one.until_ms)
        self.postpone(number, receipt, until_ms, rests=rests)
        one.extended = by, for_ms, rests

    def extended(self, number: int, receipt: int, for_ms: int, *, rests: bool = False) -> int:
        """Return the newest receipt of an entry whose last act was this extension.

        Returns 0 where it was not. The answer may have been lost.
        """
        one = self.undone.get(number)
        return one.receipt if one is not None and receipt and one.extended == (receipt, for_ms, rests) else 0

    def postpone(self, number: int, receipt: int, until_ms: int, *, rests: bool = False) -> None:
        """Leave an entry with its consumer until a time, under another receipt.

        `rests`: a restart does not end that.
        """
        one = self.undone[number]
        one.receipt, one.until_ms, one.rests, one.client_id = receipt, until_ms, rests, ""
        one.extended = _NOT_EXTENDED
        heapq.heappush(self._times, (until_ms, number, receipt))
        if len(self._times) > _TIMES_SPARE + 2 * len(self.undone):
            self._count_times()

    def set_back(self, by_ms: int) -> None:
        """Let every time come earlier by this."""
        for one in self.undone.values():
            if one.until_ms:
                one.until_ms = max(1, one.until_ms - by_ms)
        self._rests_before = {number: max(1, until_ms - by_ms) for number, until_ms in self._rests_before.items()}
        self._count_times()

    def _count_times(self) -> None:
        self._times = [(one.until_ms, at, one.receipt) for at, one in self.undone.items() if one.until_ms]
        heapq.heapify(self._times)

    def release(self, client_id: str) -> None:
        """Let everything wait again that a client has no longer than it is attached.

        Its receipts count until another consumer has it: the client may live, and acknowledge what it has done.
        """
        for number, one in self.undone.items():
            if one.client_id == client_id and one.until_ms:
                one.until_ms = 0
                self._list(number, one)

    def given(self, number: int, receipt: int) -> bool:
        """Return True for a receipt of the last delivery of an entry that is not done.

        Each receipt of that delivery counts: the answer with a newer one may have been lost.
        """
        one = self.undone.get(number)
        return one is not None and 0 < one.begun <= receipt <= one.receipt

    def superseded(self, number: int, receipt: int) -> bool:
        """Return True when an entry is done, or was given out again after a receipt."""
        one = self.undone.get(number)
        return number in self.done or (one is not None and one.receipt > receipt > 0)

    def finish(self, number: int) -> None:
        """Note that an entry is done."""
        one = self.undone.pop(number)
        self.changed = True
        self._held_back.discard(number)
        self._let_go(one)
        if one.group:
            self._advance(one.group)
        self.done.add(number)

    def _advance(self, group: str) -> None:
        """Let the first of a message group that is not done wait for a consumer."""
        order = self._of_group[group]
        while order and order[0] not in self.undone:
            order.popleft()
        if not order:
            del self._of_group[group]
        elif order[0] in self._held_back:
            self._held_back.discard(order[0])
            first = self.undone[order[0]]
            if not first.until_ms and not first.listed:
                first.listed = True
                heapq.heappush(self._first, order[0])

    def first_of(self, group: str) -> int | None:
        """Return the first number of a message group that is not done.

        None for a group without one, and for the empty name: an entry without a group waits for no other.
        """
        return self._of_group[group][0] if group in self._of_group else None

    @property
    def held_back(self) -> int:
        """The number of entries that wait behind others of their message group."""
        return len(self._held_back)

    @property
    def in_flight(self) -> int:
        """The number of entries that consumers have, or that rest."""
        return sum(one.until_ms > 0 for one in self.undone.values())


class Dead(msgspec.Struct, frozen=True, eq=False):
    """A message that goes into the dead letters."""

    cursor: Cursor
    number: int
    receipt: int
    held: Held
