"""The rules of a bound of bytes, by table: what is beyond it, and what holds that."""

from __future__ import annotations

import pytest

from twophase.coordinator.queues.weighing import Hold, Weighed, cut_ms, hold_of, least_done, samples, why_held
from twophase.stores.queue_rows import Reader, Span, Weight


def weights(*sizes: int, queue: int = 0, begin_ms: int = 1_000) -> list[Weight]:
    """Return messages of these sizes, stored one millisecond after the other."""
    return [Weight(queue, number, begin_ms + number, size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "bytes_max", "kept"),
    [
        ((100, 100, 100, 100), 1_000, 4),
        ((100, 100, 100, 100), 400, 4),
        ((100, 100, 100, 100), 399, 4),  # the message that reaches the bound stays
        ((100, 100, 100, 100), 299, 3),
        ((100, 100, 100, 100), 1, 1),
        ((100, 100, 100, 100), 0, 4),  # no bound
        ((900, 1, 1, 1), 3, 4),
        ((900, 900, 1, 1), 3, 3),
        ((1, 1, 1, 900), 3, 1),
        ((), 100, 0),
    ],
)
def test_the_newest_messages_stay_that_have_the_bytes_of_the_bound(
    sizes: tuple[int, ...], bytes_max: int, kept: int
) -> None:
    cut = cut_ms(weights(*sizes), bytes_max)

    assert len([one for one in weights(*sizes) if one.stored_ms >= cut]) == kept


def test_a_bound_is_one_time_for_all_queues_of_a_topic() -> None:
    old, young = weights(100, 100, queue=0), weights(100, 100, queue=1, begin_ms=2_000)

    assert cut_ms([*young, *old], 150) == 2_000
    assert cut_ms([*old, *young], 250) == 1_001


def test_messages_of_one_moment_stay_together() -> None:
    assert cut_ms([Weight(0, number, 1_000, 100) for number in range(5)], 150) == 1_000


@pytest.mark.parametrize(
    ("number", "stored_ms", "done", "history_ms", "archived_ms", "hold"),
    [
        (3, 100, 4, 200, None, None),
        (3, 100, 3, 200, None, Hold.GROUP),
        (3, 200, 4, 200, None, Hold.HISTORY),
        (3, 200, 3, 200, None, Hold.HISTORY),  # whether a group has done it or not
        (3, 100, 4, 200, 101, None),
        (3, 100, 4, 200, 100, Hold.ARCHIVE),
        (3, 100, 3, 200, 100, Hold.GROUP),  # for which a person can do something
    ],
)
def test_what_holds_a_message_beyond_the_bound(
    number: int, stored_ms: int, done: int, history_ms: int, archived_ms: int | None, hold: Hold | None
) -> None:
    assert hold_of(Weight(0, number, stored_ms, 1), done, history_ms, archived_ms) is hold


def test_the_group_that_has_done_least_counts_and_a_queue_that_one_has_not_begun_counts_as_not_done() -> None:
    readers = [Reader("a", "orders", 0, 9, 1), Reader("b", "orders", 0, 4, 1), Reader("b", "orders", 1, 7, 1)]

    assert least_done(readers, [0, 1]) == {0: (4, "b"), 1: (0, "a")}
    assert least_done([], [0])[0][0] > 2**60


@pytest.mark.parametrize("lengths", [(0,), (1,), (7, 0, 3), (1_000, 10, 1), (5_000, 5_000)])
def test_a_sample_stands_for_every_message_once_and_is_bounded(lengths: tuple[int, ...]) -> None:
    spans = [Span("orders", queue, 50, 50 + length, 1) for queue, length in enumerate(lengths)]

    found = samples(spans, 100)

    assert len(found) <= 100 + 2 * len(spans)
    for span in spans:
        of_queue = [one for one in found if one.queue == span.queue]
        assert sum(one.count for one in of_queue) == span.end - span.first
        begin = span.first
        for one in of_queue:
            assert begin <= one.number < begin + one.count
            begin += one.count


def test_an_estimate_is_near_whatever_the_rhythm_of_the_sizes() -> None:
    sizes = [100_000 if number % 2 else 100 for number in range(10_000)]

    found = samples([Span("orders", 0, 0, len(sizes), 1)], 500)

    estimate = sum(sizes[one.number] * one.count for one in found)
    assert estimate == pytest.approx(sum(sizes), rel=0.15)


def test_what_stands_for_the_same_messages_is_the_same_each_time() -> None:
    before, after = (
        {one.number for one in samples([Span("orders", 0, first, first + 9_000, 1)], 500)} for first in (0, 320)
    )

    assert len(after - before) <= 320 // 32 + 1


def test_each_reason_has_its_remedy() -> None:
    held = {Hold.GROUP: 10, Hold.HISTORY: 20, Hold.ARCHIVE: 30}

    why, remedy = why_held("orders", Weighed(9, 900, 500, 7, held, "billing"))

    assert why == (
        "group 'billing' has not done 10 bytes of them; history keeps 20 bytes of them (retention_ms);"
        " the archive has not got 30 bytes of them"
    )
    assert "twophase groups remove billing" in remedy
    assert "twophase queues change --retention-bytes BYTES orders" in remedy
    assert "twophase spark archive" in remedy
    assert why_held("orders", Weighed(9, 900)) == ("", "")
