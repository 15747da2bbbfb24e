"""The walk along the audit log's chain names the first row that does not fit."""

from __future__ import annotations

import msgspec
import pytest

from twophase.core.audit_chain import Broken, ChainCheck
from twophase.core.audit_log import AuditEntry, AuditHead, AuditRow, chained

ENTRIES = [AuditEntry("eve", "::1", "stop", f"g{number}") for number in range(6)]
ROWS = chained(AuditHead(), 5, 1, ENTRIES)
HEAD = AuditHead(6, ROWS[-1].hash)


def walk(
    rows: list[AuditRow], head: AuditHead = HEAD, *, since: tuple[int, str] | None = None, page: int = 2
) -> tuple[Broken | None, ChainCheck]:
    """Check the rows as a server shows them, page by page."""
    check = ChainCheck(since)
    for _ in range(20):
        behind = [row for row in rows if row.seq > max(check.seq, 0)]
        broken = check.page(behind[:page], head)
        if broken is not None or check.ended:
            return broken, check
    raise AssertionError("the walk has an end")


def test_an_unbroken_chain_ends_at_its_head() -> None:
    broken, check = walk(ROWS)
    assert (broken, check.rows, check.head) == (None, 6, (6, HEAD.hash))


@pytest.mark.parametrize("column", ["at_ms", "node", "who", "peer", "act", "target", "reason", "before", "after"])
def test_a_changed_column_is_named_by_its_row(column: str) -> None:
    value = getattr(ROWS[2], column)
    changed = msgspec.structs.replace(ROWS[2], **{column: value + 1 if isinstance(value, int) else value + "x"})
    broken, _ = walk([*ROWS[:2], changed, *ROWS[3:]])
    assert broken is not None
    assert (broken.seq, "was changed" in broken.why) == (3, True)


def test_a_row_with_a_hash_of_its_own_does_not_join_its_neighbours() -> None:
    (forged,) = chained(AuditHead(2, ROWS[1].hash), 5, 1, [AuditEntry("bob", "", "stop", "g2")])
    broken, _ = walk([*ROWS[:2], forged, *ROWS[3:]])
    assert broken == Broken(4, "it does not follow the row before: one of the two was changed")


def test_missing_rows_are_named() -> None:
    broken, _ = walk([*ROWS[:2], *ROWS[4:]])
    assert broken == Broken(3, "the rows from 3 to 4 are missing")


def test_an_end_that_was_cut_off_is_named() -> None:
    broken, check = walk(ROWS[:4])
    assert broken == Broken(5, "the rows from 5 to 6 are missing at the end")
    assert check.rows == 4


def test_a_head_that_names_another_hash_is_found() -> None:
    broken, _ = walk(ROWS, AuditHead(6, "f" * 64))
    assert broken == Broken(6, "the log's head names another last row")


def test_a_row_that_came_between_two_readings_is_no_fault() -> None:
    check = ChainCheck()
    later = chained(HEAD, 5, 1, [AuditEntry("eve", "", "stop", "g6")])
    assert check.page(ROWS, HEAD) is None
    assert check.page([], AuditHead(7, later[0].hash)) is None
    assert check.page(later, AuditHead(7, later[0].hash)) is None
    assert check.page([], AuditHead(7, later[0].hash)) is None
    assert check.ended


def test_a_chain_begins_behind_what_cleaning_has_removed() -> None:
    broken, check = walk(ROWS[3:], AuditHead(6, HEAD.hash, 3, ROWS[2].hash))
    assert (broken, check.rows) == (None, 3)
    broken, _ = walk(ROWS[3:], AuditHead(6, HEAD.hash, 3, ROWS[1].hash))
    assert broken is not None


def test_cleaning_during_the_walk_is_no_fault() -> None:
    check = ChainCheck()
    assert check.page(ROWS[:2], HEAD) is None
    cleaned = AuditHead(6, HEAD.hash, 4, ROWS[3].hash)
    assert check.page(ROWS[4:], cleaned) is None
    assert check.page([], cleaned) is None
    assert check.ended


def test_a_chain_that_was_written_anew_is_told_by_a_hash_that_was_kept() -> None:
    anew = chained(AuditHead(), 5, 1, [AuditEntry("bob", "", "stop", entry.target) for entry in ENTRIES])
    head = AuditHead(6, anew[-1].hash)
    assert walk(anew, head)[0] is None
    assert walk(ROWS, since=(4, ROWS[3].hash))[0] is None
    assert walk(ROWS[3:], AuditHead(6, HEAD.hash, 3, ROWS[2].hash), since=(3, ROWS[2].hash))[0] is None
    assert walk(anew, head, since=(4, ROWS[3].hash))[0] == Broken(
        4, "its hash is another one than the hash that was kept"
    )
    assert walk(anew[:3], AuditHead(3, anew[2].hash), since=(4, ROWS[3].hash))[0] == Broken(
        4, "the row 4, whose hash was kept, is missing"
    )


def test_a_kept_hash_of_a_row_that_cleaning_has_removed_cannot_be_compared() -> None:
    broken, _ = walk(ROWS[3:], AuditHead(6, HEAD.hash, 3, ROWS[2].hash), since=(2, ROWS[1].hash))
    assert broken == Broken(2, "cleaning has removed it, or its hash is another one than was kept")
