"""The JSON about queues: what was written is read again as the same."""

from __future__ import annotations

import msgspec

from twophase.core.queue_operating import (
    DefineTopic,
    ManyLetters,
    QueueSituation,
    RedriveLetters,
    ShownHalf,
    ShownLetter,
    ShownPlace,
    ShownWait,
)


def test_a_body_needs_no_words() -> None:
    assert msgspec.json.decode(b"{}", type=DefineTopic) == DefineTopic("", "")
    first, second = RedriveLetters(numbers=[1]), msgspec.json.decode(b'{"numbers":[2]}', type=RedriveLetters)
    first.set_properties["shop"] = "7"
    assert (second.numbers, second.set_properties, second.remove_properties) == ([2], {}, [])


def test_what_has_no_value_is_left_out_of_a_letter() -> None:
    letter = ShownLetter(0, "g", "orders", "1", 7, 2)
    assert b"body_base64" not in msgspec.json.encode(letter)
    page = ManyLetters("billing", [letter], 0, 9)
    assert msgspec.json.decode(msgspec.json.encode(page), type=ManyLetters) == page


def test_a_situation_is_read_as_it_was_written() -> None:
    place = ShownPlace("01", "orders", 0, 7, [ShownWait("billing", "waits", "it waits for a consumer")])
    half = ShownHalf("g", "orders", "shop", "c1", 1, 2, 3, 15, 2, "away", "no producer is connected")
    for found in (QueueSituation([place], half, 9), QueueSituation([], None, 9)):
        assert msgspec.json.decode(msgspec.json.encode(found), type=QueueSituation) == found
