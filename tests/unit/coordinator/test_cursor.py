"""A cursor against a model of a few sets.

Each entry is done once, and with one consumer at a time.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from twophase.coordinator.queues.cursor import Cursor, Held
from twophase.coordinator.queues.ranges import Ranges
from twophase.core.errors import ReceiptStale
from twophase.core.queue_message import QueueMessage
from twophase.stores.queue_rows import Progress

_GROUPS = ("", "", "a", "b")


def entry(number: int) -> tuple[int, Held]:
    """Return an entry whose group and tag follow from its number."""
    message = QueueMessage(
        "orders",
        "",
        str(number),
        bytes(number % 5),
        tag="odd" if number % 2 else "even",
        message_group=_GROUPS[number % 4],
    )
    return number, Held(message, f"g{number}", 0)


class CursorAgainstModel(RuleBasedStateMachine):
    """One group and one queue, with restarts and cleaned entries."""

    def __init__(self) -> None:
        super().__init__()
        self.cursor = Cursor(Progress("billing", "orders", 0, 0, b""))
        self.end = 0
        self.cleaned: set[int] = set()
        self.done: set[int] = set()
        self.with_consumers: dict[int, tuple[int, int]] = {}
        """Number to (receipt, until when)."""
        self.receipts: dict[int, list[int]] = {}
        """The receipts of the last delivery, by number."""
        self.attached: set[int] = set()
        """Those of them that a consumer has no longer than it is attached."""
        self.rests: dict[int, int] = {}
        """Until when entries rest that no consumer has, or that one lets rest."""
        self.deliveries: dict[int, int] = {}
        self.stored_deliveries: dict[int, int] = {}
        self.now_ms = 1
        self.receipt = 0

    @rule(count=st.integers(1, 6))
    def append(self, count: int) -> None:
        self.end += count

    @rule(count=st.integers(1, 5), ahead=st.booleans())
    def read(self, count: int, ahead: bool = True) -> None:
        numbers = [number for number in range(self.cursor.read_to, self.end) if number not in self.cleaned]
        self.cursor.read([entry(number) for number in numbers[:count]], ahead=ahead)

    @rule(
        limit=st.integers(1, 4),
        odd_only=st.booleans(),
        for_ms=st.integers(1, 30),
        client_id=st.sampled_from(["", "c"]),
    )
    def take(self, limit: int, odd_only: bool, for_ms: int, client_id: str) -> None:
        self._load()
        before = set(self.cursor.undone)
        taken = self.cursor.take(lambda message: not odd_only or message.tag == "odd", limit)
        assert len(taken) <= limit
        skipped = before - set(self.cursor.undone)
        assert all(odd_only and number % 2 == 0 for number in skipped)
        self.done |= skipped
        for number in skipped:
            self.with_consumers.pop(number, None)
        for number, _, held in taken:
            assert held == entry(number)[1]
            assert number not in self.done
            assert self.with_consumers.get(number, (0, 0))[1] <= self.now_ms, "one consumer at a time"
            assert self.rests.pop(number, 0) <= self.now_ms, "it waits out its pause"
            if _GROUPS[number % 4]:
                mates = {mate for mate in range(number) if _GROUPS[mate % 4] == _GROUPS[number % 4]}
                assert mates <= self.done | self.cleaned, "those before it are done"
            self.receipt += 1
            self.deliveries[number] = self.deliveries.get(number, 0) + 1
            attempts = self.cursor.give_out(number, self.receipt, self.now_ms + for_ms, client_id)
            assert attempts == self.deliveries[number]
            assert not any(self.cursor.extended(number, earlier, for_ms) for earlier in range(self.receipt))
            self.with_consumers[number] = self.receipt, self.now_ms + for_ms
            self.receipts[number] = [self.receipt]
            (self.attached.add if client_id else self.attached.discard)(number)

    @precondition(lambda self: self.with_consumers)
    @rule(data=st.data(), extends=st.booleans(), rests=st.booleans(), for_ms=st.integers(1, 30))
    def end_one(self, data: st.DataObject, extends: bool, rests: bool, for_ms: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.with_consumers)))
        receipt = data.draw(st.sampled_from(self.receipts[number]))
        assert self.cursor.given(number, receipt)
        assert not self.cursor.given(number, self.receipts[number][0] - 1)
        assert not self.cursor.given(number, receipt + 1_000_000)
        if extends and not rests and number in self.rests:
            with pytest.raises(ReceiptStale):
                self.cursor.extend(number, receipt, self.receipt + 1, self.now_ms + for_ms, for_ms)
        elif extends:
            self.receipt += 1
            newest, until_ms = self.with_consumers[number]
            until_ms = max(self.now_ms + for_ms, until_ms if receipt != newest and until_ms > self.now_ms else 0)
            self.cursor.extend(number, receipt, self.receipt, self.now_ms + for_ms, for_ms, rests=rests)
            assert self.cursor.extended(number, receipt, for_ms, rests=rests) == self.receipt
            assert not self.cursor.extended(number, receipt, for_ms, rests=not rests)
            assert not self.cursor.extended(number, receipt, for_ms + 1, rests=rests)
            self.rests.pop(number, None)
            if rests:
                self.rests[number] = until_ms
            self.with_consumers[number] = self.receipt, until_ms
            self.receipts[number].append(self.receipt)
            self.attached.discard(number)
        else:
            self.cursor.finish(number)
            del self.with_consumers[number]
            self.done.add(number)

    @precondition(lambda self: self.with_consumers)
    @rule(data=st.data())
    def repeat_an_extension(self, data: st.DataObject) -> None:
        """Extend an entry by the request of its last extension: the receipt stays."""
        number = data.draw(st.sampled_from(sorted(self.with_consumers)))
        receipt, for_ms, rests = self.cursor.undone[number].extended
        newest, until_ms = self.with_consumers[number]
        if receipt:
            until_ms = max(self.now_ms + for_ms, until_ms)
            self.cursor.extend(number, receipt, newest, self.now_ms + for_ms, for_ms, rests=rests)
            assert self.cursor.extended(number, receipt, for_ms, rests=rests) == newest
            self.with_consumers[number] = newest, until_ms
            if rests:
                self.rests[number] = until_ms

    @rule(ms=st.integers(1, 20))
    def pass_time(self, ms: int) -> None:
        """Let time pass; a last receipt counts until the next delivery."""
        self.now_ms += ms
        self.cursor.expire(self.now_ms)

    @rule()
    def leave(self) -> None:
        """Let the consumer detach; what it has waits for another."""
        for number in self.attached & set(self.with_consumers):
            receipt, until_ms = self.with_consumers[number]
            if until_ms > self.now_ms:
                del self.with_consumers[number]
                assert self.cursor.given(number, receipt)
        self.cursor.release("c")
        for number, one in self.cursor.undone.items():
            assert number in self.with_consumers or number in self.rests or not one.until_ms

    @rule()
    def restart(self) -> None:
        progress = self.cursor.progress()
        self.cursor = Cursor(progress)
        self.cursor.resume(self.now_ms)
        self.with_consumers.clear()

    @rule(count=st.integers(1, 3))
    def clean(self, count: int) -> None:
        """Cleaning removes what is done, from the beginning."""
        start = len(self.cleaned)
        self.cleaned |= set(range(start, min(start + count, self.cursor.done.start)))

    def _load(self) -> None:
        numbers = self.cursor.unread(100)
        self.cursor.read_again(numbers, [entry(number) for number in numbers if number not in self.cleaned])

    @invariant()
    def each_entry_has_one_condition(self) -> None:
        for number in range(self.end):
            known = number in self.cursor.undone
            assert (number in self.cursor.done) == (number in self.done), number
            assert not (known and number in self.done)
            assert known or number in self.done or number >= self.cursor.read_to
        assert self.cursor.held_bytes == sum(
            len(one.held.message.body) for one in self.cursor.undone.values() if one.held is not None
        )

    def teardown(self) -> None:
        """Whatever happened, everything can be done in the end, and is done once."""
        self.now_ms += 1_000
        self.cursor.expire(self.now_ms)
        self.with_consumers.clear()
        while len(self.done) < self.end:
            before = len(self.done)
            self.read(100)
            self.cursor.expire(self.now_ms)
            self._load()
            for number, one, _ in self.cursor.take(lambda _: True, 100):
                assert self.cursor.waits(number, one)
                self.cursor.finish(number)
                assert number not in self.done
                self.done.add(number)
            assert len(self.done) > before
        assert self.cursor.done.start == self.end
        assert self.cursor.done.pairs() == []


CursorAgainstModel.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestCursor = CursorAgainstModel.TestCase


def test_ranges_are_a_set_of_numbers() -> None:
    ranges = Ranges()
    for number in (5, 3, 4, 9, 0, 7):
        assert ranges.add(number)
    assert (ranges.start, ranges.pairs()) == (1, [(3, 6), (7, 8), (9, 10)])
    ranges.add_up_to(1, 3)
    assert (ranges.start, ranges.pairs()) == (6, [(7, 8), (9, 10)])
    assert [number in ranges for number in (0, 6, 7, 8, 9)] == [True, False, True, False, True]
