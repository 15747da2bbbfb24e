"""The rows of the audit log: their texts, their hashes, and the pages of a search."""

from __future__ import annotations

import hashlib

import pytest

from twophase.core.audit_log import (
    NO_HASH,
    TEXT_CHARACTERS_MAX,
    AuditEntry,
    AuditHead,
    AuditPage,
    chained,
    hash_of,
    old_until,
    page_bounds,
    page_of,
)

ROWS = chained(AuditHead(), 5, 1, [AuditEntry("eve", "::1", "stop", f"g{number}") for number in range(4)])


def test_a_hash_covers_each_value_with_its_length() -> None:
    texts = ("é", "", "stop", "g", "", "", "")
    told = f"64:{NO_HASH}1:12:171:3" + "2:é0:4:stop1:g0:0:0:"
    assert hash_of(NO_HASH, 1, 17, 3, texts) == hashlib.sha256(told.encode()).hexdigest()


def test_rows_follow_the_head_and_each_other() -> None:
    more = chained(AuditHead(4, ROWS[-1].hash), 6, 2, [AuditEntry("eve", "", "park", "g")])
    assert [(row.seq, row.previous) for row in more] == [(5, ROWS[3].hash)]
    assert [row.previous for row in ROWS] == [NO_HASH, *(row.hash for row in ROWS[:3])]


def test_texts_are_cut_and_what_a_terminal_obeys_is_spelled_out() -> None:
    entry = AuditEntry("e" * 201, "\x1b[2J", "stop", "g" * 2_000, "r" * 2_001, "\ud800", "\0").bounded()
    assert entry == AuditEntry("e" * 199 + "…", "\\x1b[2J", "stop", "g" * 2_000, "r" * 1_999 + "…", "\\ud800", "\\x00")


def test_a_page_looks_at_a_bounded_number_of_rows() -> None:
    assert page_bounds(0, 17) == (18, 0)
    assert page_bounds(99, 17) == (18, 0)
    assert page_bounds(20_001, 30_000) == (20_001, 10_001)


def test_a_page_goes_on_behind_its_last_row_or_what_it_looked_at() -> None:
    assert page_of([ROWS[3], ROWS[2]], 2, 0, 0) == AuditPage((ROWS[3], ROWS[2]), 3)
    assert page_of([], 2, 10_001, 0) == AuditPage((), 10_001)
    assert page_of([ROWS[1]], 1, 0, 1).position == 0


def test_only_the_beginning_of_the_log_is_old() -> None:
    assert old_until([(4, 10), (5, 20), (6, 15)], 16) == 4
    assert old_until([(4, 10), (5, 12)], 16) == 5
    assert old_until([(4, 20)], 16) == 0


@pytest.mark.parametrize("removed", [0, 30, 59])
def test_what_a_long_state_has_lost_or_got_stands_in_the_row(removed: int) -> None:
    known = [f"http://bank-{number}:8080/{'in' * 40}/rates" for number in range(60)]
    left = [*known[:removed], *known[removed + 1 :]]
    for before, after in ((known, left), (left, known)):
        states = f"[{', '.join(before)}]", f"[{', '.join(after)}]"
        row = AuditEntry("eve", "::1", "subscribe", "rates", "", *states).bounded()
        assert sum(known[removed] in state for state in (row.before, row.after)) == 1
        assert max(len(row.before), len(row.after)) <= TEXT_CHARACTERS_MAX


def test_short_states_are_whole() -> None:
    row = AuditEntry("eve", "::1", "subscribe", "rates", "", "[http://b/in]", "[http://b/in, http://c/in]").bounded()
    assert (row.before, row.after) == ("[http://b/in]", "[http://b/in, http://c/in]")
