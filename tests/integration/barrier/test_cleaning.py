"""Cleaning never changes a verdict (I10).

A paused producer, a delayed check-back and a late call meet it on real databases.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from sqlalchemy.exc import OperationalError

from tests.support.business_databases import SPEND, Bank, begin, new_gid, run
from twophase.barrier.asking import CLOCK_SKEW_MS, CheckBackAnswer, check_back
from twophase.barrier.branch import once
from twophase.barrier.cleaning import (
    DAY_MS,
    KEEP_LEAST_MS,
    KEEP_MS,
    LOCAL_TIME_MS,
    Cleaned,
    Found,
    Horizons,
    Kind,
    clean,
    database_now_ms,
    remove_rule,
)
from twophase.barrier.dialect import BRANCH_HORIZON, HORIZON
from twophase.barrier.open import open_transaction
from twophase.barrier.transaction import perform
from twophase.core.errors import BarrierTableMissing, BeginDeadlinePassed, ConfigurationError
from twophase.core.limits import BEGIN_DEADLINE_MS
from twophase.core.verdict import Verdict


def now_ms() -> int:
    """Return this machine's clock.

    A module's constant would be as old as the test run.
    """
    return time.time_ns() // 1_000_000


NOW_MS = now_ms()
"""The time when this module was loaded: for ages in days."""
OLD_MS = NOW_MS - KEEP_MS - DAY_MS
TIMES = {
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', {} / 1000.0, 'unixepoch')",
    "postgresql": "to_timestamp({} / 1000.0)",
    "mysql": "from_unixtime({} / 1000.0)",
}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twophase.barrier.cleaning._PAUSE", 0)


def put(bank: Bank, gid: str, prepared_ms: int | None, reason: str = "msg", trans_type: str = "msg") -> str:
    """Insert a committed producer's or check-back's row of that age."""
    prepared, token = ("null", "null") if prepared_ms is None else (prepared_ms, "'t'")
    written = TIMES[bank.kind].format(prepared_ms or OLD_MS)
    bank.query(
        "insert into barrier (trans_type, gid, branch_id, op, barrier_id, reason, token, prepared_at, create_time)"
        f" values ('{trans_type}', '{gid}', '00', 'msg', '01', '{reason}', {token}, {prepared}, {written})"
    )
    return gid


def put_branch(bank: Bank, gid: str, written_ms: int, token: str = "'t'") -> str:
    """Insert a branch's row of that age."""
    bank.query(
        "insert into barrier (trans_type, gid, branch_id, op, barrier_id, reason, token, create_time)"
        f" values ('msg', '{gid}', '01', 'action', '01', 'action', {token}, {TIMES[bank.kind].format(written_ms)})"
    )
    return gid


def clean_bank(bank: Bank, undecided_ms: int | None = NOW_MS, unfinished_ms: int | None = NOW_MS) -> Cleaned:
    with bank.engine() as engine:
        return clean(engine, undecided_ms=undecided_ms, unfinished_ms=unfinished_ms)


def gids(bank: Bank) -> set[str]:
    return {str(gid) for (gid,) in bank.query("select gid from barrier")}


def found(bank: Bank) -> list[Found]:
    """Return every row, as a cleaning reads it."""
    return [Found(int(id_), str(gid)) for id_, gid in bank.query("select id, gid from barrier")]


def horizon(bank: Bank, name: str = HORIZON) -> int | None:
    rows = bank.query(f"select value from twophase_meta where name = '{name}'")
    return int(rows[0][0]) if rows else None


def test_old_rows_of_producers_and_check_backs_go_and_young_ones_stay(bank: Bank) -> None:
    put(bank, "committed", OLD_MS)
    put(bank, "barred", OLD_MS, reason="rollback")
    put(bank, "young", NOW_MS - KEEP_MS + DAY_MS)

    cleaned = clean_bank(bank)

    assert (cleaned.producer_rows, cleaned.held) == (2, 0)
    assert gids(bank) == {"young"}
    known = horizon(bank)
    assert known == cleaned.horizons.producer_ms
    assert known is not None
    assert abs(known - (now_ms() - KEEP_MS)) < 600_000


def test_nothing_younger_than_the_oldest_undecided_message_goes(bank: Bank) -> None:
    put(bank, "older", OLD_MS - 1)
    put(bank, "as old", OLD_MS)

    assert clean_bank(bank, undecided_ms=OLD_MS).producer_rows == 1
    assert gids(bank) == {"as old"}
    assert horizon(bank) == OLD_MS


def test_old_rows_of_branches_go_below_what_is_unfinished(bank: Bank) -> None:
    margin_ms = CLOCK_SKEW_MS + LOCAL_TIME_MS
    put_branch(bank, "older", OLD_MS - 3 * margin_ms)
    put_branch(bank, "younger", OLD_MS + 60_000)

    cleaned = clean_bank(bank, unfinished_ms=OLD_MS)

    assert cleaned.branch_rows == 1
    assert gids(bank) == {"younger"}
    assert horizon(bank, BRANCH_HORIZON) == cleaned.horizons.branch_ms
    assert horizon(bank) == cleaned.horizons.producer_ms


def test_a_branch_s_row_stays_while_its_clock_and_its_time_zone_may_be_to_blame(sqlite_bank: Bank) -> None:
    """Local times may be 14 hours off, and clocks differ by five minutes."""
    hour_ms = 3_600_000
    put_branch(sqlite_bank, "five minutes ahead of 14 hours", OLD_MS - 14 * hour_ms - 240_000)
    put_branch(sqlite_bank, "older than both", OLD_MS - 14 * hour_ms - 360_000)

    clean_bank(sqlite_bank, unfinished_ms=OLD_MS)

    assert gids(sqlite_bank) == {"five minutes ahead of 14 hours"}


def test_a_branch_of_an_unfinished_message_takes_effect_once_whatever_is_cleaned(bank: Bank) -> None:
    """Message and effect are old, and the last answer was lost.

    So the branch is called again after the cleaning.
    """
    call = {"gid": put_branch(bank, new_gid(), OLD_MS), "branch_id": "01", "op": "action", "trans_type": "msg"}

    clean_bank(bank, unfinished_ms=OLD_MS - 1)

    with bank.engine() as engine:
        once(engine, call, lambda connection: run(connection, SPEND))
    assert bank.balance() == 100


@pytest.mark.parametrize("frozen", ["undecided_ms", "unfinished_ms"])
def test_a_silent_coordinator_freezes_its_kind_of_rows(bank: Bank, frozen: str) -> None:
    put(bank, "producer", OLD_MS)
    put_branch(bank, "branch", OLD_MS - 2 * DAY_MS)

    with bank.engine() as engine:
        undecided_ms, unfinished_ms = (None if frozen == name else NOW_MS for name in ("undecided_ms", "unfinished_ms"))
        clean(engine, undecided_ms=undecided_ms, unfinished_ms=unfinished_ms)

    assert gids(bank) == {"producer" if frozen == "undecided_ms" else "branch"}
    assert horizon(bank, HORIZON if frozen == "undecided_ms" else BRANCH_HORIZON) is None


def test_rows_of_others_stay_whatever_their_age(bank: Bank) -> None:
    """dtm's own producers have no begin deadline; its coordinators report no horizon."""
    kept = {put(bank, "no time told", None), put(bank, "saga", OLD_MS, trans_type="saga")}
    kept.add(put_branch(bank, "of another library", OLD_MS - 2 * DAY_MS, token="null"))

    assert clean_bank(bank).producer_rows == 0
    assert gids(bank) == kept


def test_a_dry_run_counts_and_changes_nothing(bank: Bank) -> None:
    put(bank, "old", OLD_MS)
    put_branch(bank, "branch", OLD_MS - 2 * DAY_MS)

    with bank.engine() as engine:
        cleaned = clean(engine, undecided_ms=NOW_MS, unfinished_ms=NOW_MS, dry_run=True)

    assert (cleaned.producer_rows, cleaned.branch_rows) == (1, 1)
    assert gids(bank) == {"old", "branch"}
    assert horizon(bank) is None


def test_the_horizon_never_falls(bank: Bank) -> None:
    put(bank, "a", OLD_MS - 2)
    clean_bank(bank)
    high = horizon(bank)
    put(bank, "b", OLD_MS - 2)

    clean_bank(bank, undecided_ms=OLD_MS - 1)

    assert gids(bank) == set()
    assert horizon(bank) == high


def test_many_rows_go_in_many_batches(bank: Bank) -> None:
    columns = "trans_type, gid, branch_id, op, barrier_id, reason, token, prepared_at, create_time"
    written = TIMES[bank.kind].format(OLD_MS)
    rows = ", ".join(
        f"('msg', 'g{number:04}', '00', 'msg', '01', 'msg', 't', {OLD_MS - number}, {written})"
        for number in range(2_300)
    )
    bank.query(f"insert into barrier ({columns}) values {rows}")
    put(bank, "young", NOW_MS)

    assert clean_bank(bank, undecided_ms=OLD_MS - 50).producer_rows == 2_249
    assert len(gids(bank)) == 52, "0 to 50, and the young one"


def test_rows_written_after_the_horizons_are_not_even_read(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twophase.barrier.cleaning.PAGE_ROWS", 2)
    for gid, at_ms in (("old", OLD_MS), ("young", NOW_MS), ("y2", NOW_MS), ("y3", NOW_MS), ("behind", OLD_MS)):
        put(bank, gid, at_ms)
    bank.query("update barrier set create_time = current_timestamp where gid = 'behind'")

    assert clean_bank(bank).producer_rows == 1
    assert "behind" in gids(bank)


def test_less_than_a_day_is_refused(sqlite_bank: Bank) -> None:
    with sqlite_bank.engine() as engine, pytest.raises(ConfigurationError, match="a day"):
        clean(engine, undecided_ms=1, unfinished_ms=1, keep_ms=KEEP_LEAST_MS - 1)
    assert 4 * (BEGIN_DEADLINE_MS.value + CLOCK_SKEW_MS) < KEEP_LEAST_MS


def test_without_a_table_it_says_what_to_run(bank: Bank) -> None:
    with bank.engine() as engine, pytest.raises(BarrierTableMissing):
        clean(engine, undecided_ms=1, unfinished_ms=1, table="elsewhere")


def test_every_database_tells_its_time(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    with bank.reached(way) as engine:
        assert abs(database_now_ms(engine) - time.time_ns() // 1_000_000) < 5_000


def test_a_producer_that_slept_through_cleaning_cannot_begin(bank: Bank) -> None:
    """A producer prepares and sleeps through a check-back and the cleaning of its row.

    The check-back's row had barred the begin; then it is cleaned, the producer wakes up and begins.
    """
    gid = new_gid()
    with bank.engine() as engine:
        assert check_back(engine, gid, prepared_at_ms=OLD_MS).verdict is Verdict.ROLLED_BACK
        bank.query(f"update barrier set create_time = {TIMES[bank.kind].format(OLD_MS)}")
        assert clean_bank(bank).producer_rows == 1
        assert bank.reasons(gid) == []

        transaction = open_transaction(engine)
        with pytest.raises(BeginDeadlinePassed):
            begin(transaction, gid, prepared_at_ms=OLD_MS)
        transaction.rollback()
        transaction.close()
    assert bank.reasons(gid) == []


def test_a_check_back_that_comes_after_cleaning_is_no_verdict(bank: Bank) -> None:
    """The message was committed, delivered, forgotten and cleaned.

    A check-back that the network kept for weeks finds no row.
    """
    gid = put(bank, new_gid(), OLD_MS)
    with bank.engine() as engine:
        assert check_back(engine, gid, prepared_at_ms=OLD_MS).verdict is Verdict.COMMITTED
        bank.query(f"update barrier set create_time = {TIMES[bank.kind].format(OLD_MS)}")
        clean_bank(bank)

        assert check_back(engine, gid, prepared_at_ms=OLD_MS).verdict is Verdict.UNKNOWN
    assert bank.reasons(gid) == [], "and it has written nothing"


def test_a_check_back_that_waits_for_the_cleaner_sees_the_horizon_too(bank: Bank) -> None:
    """The check-back waits for a row that is deleted, so its own insert succeeds.

    The horizon must be visible in that very moment.
    """
    gid = put(bank, new_gid(), OLD_MS)
    rows = found(bank)
    answers: list[CheckBackAnswer] = []
    with bank.engine() as engine, bank.engine() as cleaner:
        transaction = open_transaction(cleaner)
        perform(remove_rule("barrier", Horizons(NOW_MS, None), Kind.PRODUCERS, rows, transaction.dialect), transaction)
        asker = threading.Thread(target=lambda: answers.append(check_back(engine, gid, prepared_at_ms=OLD_MS)))
        asker.start()
        asker.join(0.3)
        assert asker.is_alive(), "it waits for the cleaner's lock"
        transaction.commit()
        transaction.close()
        asker.join(60)
    assert [answer.verdict for answer in answers] == [Verdict.UNKNOWN]


def test_rows_and_horizon_go_together_or_not_at_all(bank: Bank) -> None:
    gid = put(bank, new_gid(), OLD_MS)
    rows = found(bank)
    with bank.engine() as engine:
        transaction = open_transaction(engine)
        perform(remove_rule("barrier", Horizons(NOW_MS, None), Kind.PRODUCERS, rows, transaction.dialect), transaction)
        transaction.rollback()
        transaction.close()

    assert horizon(bank) is None
    assert bank.reasons(gid) == ["msg"]


SERVERS = pytest.mark.parametrize(
    "kind",
    [pytest.param("postgresql", marks=pytest.mark.postgres), pytest.param("mysql", marks=pytest.mark.mariadb)],
)
"""Databases with more than one writer at a time."""


def _open(bank: Bank, gid: str) -> Iterator[None]:
    with bank.engine() as engine:
        transaction = open_transaction(engine)
        begin(transaction, gid, prepared_at_ms=now_ms())
        run(transaction.handle, SPEND)
        yield
        transaction.commit()
        transaction.close()


@SERVERS
def test_a_fresh_begin_does_not_wait_for_the_cleaner_nor_the_cleaner_for_it(banks: dict[str, Bank], kind: str) -> None:
    """A range delete at REPEATABLE READ would lock the gap of every begin's insert.

    This is rule 17.
    """
    bank = banks[kind]
    for number in range(50):
        put(bank, f"old{number:02}", OLD_MS)
    before = _open(bank, "zz open before")
    next(before)
    rows = [row for row in found(bank) if row.gid.startswith("old")]
    with bank.engine() as cleaner:
        transaction = open_transaction(cleaner)
        horizons = Horizons(NOW_MS - DAY_MS, None)
        perform(remove_rule("barrier", horizons, Kind.PRODUCERS, rows, transaction.dialect), transaction)
        began_s = time.monotonic()
        with bank.engine() as engine:
            for gid in ("a begins meanwhile", "old99", "zzz"):
                other = open_transaction(engine)
                begin(other, gid, prepared_at_ms=now_ms())
                other.commit()
                other.close()
        took_s = time.monotonic() - began_s
        transaction.commit()
        transaction.close()
    next(before, None)

    assert took_s < 20, "the cleaner ends behind them: whoever waited for it would wait for the end of its patience"
    assert gids(bank) == {"zz open before", "a begins meanwhile", "old99", "zzz"}


@SERVERS
def test_a_held_row_is_left_and_reported(banks: dict[str, Bank], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twophase.barrier.cleaning.LOCK_TIMEOUT_MS", 300)
    bank = banks[kind]
    held = put(bank, new_gid(), OLD_MS)
    with bank.plain() as holder:
        holder.cursor().execute("update barrier set reason = 'rollback'")
        cleaned = clean_bank(bank)
        holder.rollback()

    assert (cleaned.producer_rows, cleaned.held) == (0, 1)
    assert bank.reasons(held) == ["msg"]
    assert horizon(bank) is None
    assert clean_bank(bank).producer_rows == 1


def test_a_busy_sqlite_file_is_left_as_it_is(sqlite_bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twophase.barrier.cleaning.LOCK_TIMEOUT_MS", 100)
    held = put(sqlite_bank, new_gid(), OLD_MS)
    with sqlite_bank.plain() as holder:
        holder.execute("begin immediate")
        with pytest.raises(OperationalError, match="locked"):
            clean_bank(sqlite_bank)

    assert gids(sqlite_bank) == {held}
    assert horizon(sqlite_bank) is None
