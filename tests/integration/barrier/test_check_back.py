"""The check-back against a producer at every stage, on two real connections.

Each row of dtm-wire §5.4 has a test.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from tests.servers.mariadb import lock_waits
from tests.support.business_databases import SPEND, Bank, begin, new_gid, run, verify
from tests.support.waiting import blocked_until
from twophase.barrier.asking import (
    CLOCK_SKEW_MS,
    CheckBackAnswer,
    CheckBackQuestion,
    check_back,
    check_back_rule,
)
from twophase.barrier.fault import Fault, fault_of
from twophase.barrier.open import open_transaction
from twophase.barrier.producer import write_branches
from twophase.barrier.transaction import Statement, perform
from twophase.core.errors import CheckBackCameFirst, ConfigurationError, InvalidRequest
from twophase.core.verdict import Verdict

LONG_MS = 20_000
EMPTY = {"sqlite": "x''", "postgresql": "''", "mysql": "x''"}
MARGIN_S = 20.0
"""Time that a busy machine may add to a bounded wait.

Without the bound the shortest of the waits, MariaDB's, takes 50 seconds.
"""


def committed(bank: Bank, gid: str, body: bytes | None = None) -> None:
    """Run a producer to its commit."""
    with bank.plain() as connection:
        transaction = open_transaction(connection)
        begin(transaction, gid)
        run(connection, SPEND)
        if body is not None:
            perform(write_branches(transaction.dialect, "barrier", gid, gid, body), transaction)
        transaction.commit()
        transaction.close()


def await_waiters(bank: Bank, count: int) -> None:
    """Wait until `count` sessions wait for a lock; SQLite does not report them."""
    if bank.kind == "sqlite":
        return
    blocked_until(lambda: _waiters(bank) >= count, f"{count} sessions wait for a lock")


def _waiters(bank: Bank) -> int:
    if bank.kind == "mysql":
        return lock_waits(bank.query)
    waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    return int(bank.query(waiting)[0][0])


def ask_in_thread(
    pool: ThreadPoolExecutor, bank: Bank, way: str, gid: str, lock_timeout_ms: int = LONG_MS
) -> Future[CheckBackAnswer]:
    """Start a check-back on its own connection; return once it is about to ask."""
    started = threading.Event()

    def ask() -> CheckBackAnswer:
        with bank.reached(way) as engine:
            started.set()
            return check_back(engine, gid, lock_timeout=lock_timeout_ms / 1000)

    future = pool.submit(ask)
    assert started.wait(60)
    return future


def end_while_asked(bank: Bank, way: str, end: Callable[[Any], None], askers: int = 1) -> list[Verdict]:
    """Return the verdicts of check-backs that wait while a producer's work ends.

    They wait for the end of its transaction.
    """
    gid = new_gid()
    with bank.plain() as connection, ThreadPoolExecutor(askers) as pool:
        transaction = open_transaction(connection)
        begin(transaction, gid)
        run(connection, SPEND)
        asked = [ask_in_thread(pool, bank, way, gid) for _ in range(askers)]
        await_waiters(bank, askers)
        end(transaction)
        transaction.close()
        return [future.result(30).verdict for future in asked]


def test_committed_is_answered(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    gid = new_gid()
    committed(bank, gid)
    with bank.reached(way) as engine:
        assert check_back(engine, gid).verdict is Verdict.COMMITTED
        assert check_back(engine, gid).verdict is Verdict.COMMITTED
    assert bank.reasons(gid) == ["msg"]


def test_branches_of_the_block_are_answered(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    gid = new_gid()
    committed(bank, gid, b"\x91\x00\xff")
    with bank.reached(way) as engine:
        assert check_back(engine, gid).body == b"\x91\x00\xff"


def test_a_row_whose_branches_are_not_written_is_written_again_before_it_is_spoken_of(
    bank_and_way: tuple[Bank, str],
) -> None:
    bank, way = bank_and_way
    gid = new_gid()
    committed(bank, gid)
    bank.query(f"update barrier set body = {EMPTY[bank.kind]} where gid = '{gid}'")
    changed = f"select {'xmin' if bank.kind == 'postgresql' else 'update_time'} from barrier where gid = '{gid}'"
    before = bank.query(changed)
    with bank.reached(way) as engine:
        answer = check_back(engine, gid)
    assert (answer.verdict, answer.branches_lost) == (Verdict.UNKNOWN, True)
    assert bank.query(changed) != before, "its own durable write stands behind what it says"
    assert bank.reasons(gid) == ["msg"]


def test_never_started_is_rolled_back_and_may_never_start(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    gid = new_gid()
    with bank.reached(way) as engine:
        assert check_back(engine, gid).verdict is Verdict.ROLLED_BACK
        transaction = open_transaction(engine)
        with pytest.raises(CheckBackCameFirst):
            begin(transaction, gid)
        transaction.rollback()
        transaction.close()
        assert check_back(engine, gid).verdict is Verdict.ROLLED_BACK
    assert bank.reasons(gid) == ["rollback"]


def test_a_transaction_under_way_that_commits_is_waited_for(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    assert end_while_asked(bank, way, lambda transaction: transaction.commit()) == [Verdict.COMMITTED]


def test_a_transaction_under_way_that_rolls_back_is_waited_for(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    assert end_while_asked(bank, way, lambda transaction: transaction.rollback()) == [Verdict.ROLLED_BACK]


def test_several_check_backs_see_a_commit_alike(bank: Bank) -> None:
    verdicts = end_while_asked(bank, "engine", lambda transaction: transaction.commit(), askers=4)
    assert set(verdicts) == {Verdict.COMMITTED}


def test_several_check_backs_never_contradict_each_other_after_a_rollback(bank: Bank) -> None:
    verdicts = end_while_asked(bank, "engine", lambda transaction: transaction.rollback(), askers=4)
    assert set(verdicts) <= {Verdict.ROLLED_BACK, Verdict.IN_PROGRESS}
    assert Verdict.ROLLED_BACK in verdicts


def test_a_transaction_that_stays_is_in_progress_within_the_lock_timeout(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    gid = new_gid()
    with bank.plain() as connection, bank.reached(way) as engine:
        transaction = open_transaction(connection)
        begin(transaction, gid)
        began = time.monotonic()
        assert check_back(engine, gid, lock_timeout=1).verdict is Verdict.IN_PROGRESS
        assert time.monotonic() - began < 1.0 + MARGIN_S
        verify(transaction, gid)  # the question did not harm the transaction
        transaction.commit()
        transaction.close()
        assert check_back(engine, gid).verdict is Verdict.COMMITTED


def test_a_table_that_is_locked_is_in_progress_within_the_lock_timeout(bank: Bank) -> None:
    lock = {
        "sqlite": "begin exclusive",
        "postgresql": "lock table barrier in access exclusive mode",
        "mysql": "lock tables barrier write",
    }[bank.kind]
    with bank.plain() as connection, bank.engine() as engine:
        run(connection, lock)
        began = time.monotonic()
        assert check_back(engine, new_gid(), lock_timeout=1).verdict is Verdict.IN_PROGRESS
        assert time.monotonic() - began < 1.0 + MARGIN_S
        connection.rollback()
        if bank.kind == "mysql":
            run(connection, "unlock tables")


def test_an_unrelated_writer_holds_sqlite_up(sqlite_bank: Bank) -> None:
    with sqlite_bank.plain() as connection, sqlite_bank.engine() as engine:
        run(connection, SPEND)
        assert check_back(engine, new_gid(), lock_timeout=0.05).verdict is Verdict.IN_PROGRESS


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize(
    "kind", [pytest.param("postgresql", marks=pytest.mark.postgres), pytest.param("mysql", marks=pytest.mark.mariadb)]
)
def test_an_engine_s_own_isolation_level_does_not_matter(banks: dict[str, Bank], kind: str, level: str) -> None:
    bank, gid = banks[kind], new_gid()
    with bank.plain() as connection, bank.engine(isolation_level=level) as engine, ThreadPoolExecutor(1) as pool:
        transaction = open_transaction(connection)
        begin(transaction, gid)
        asked = pool.submit(check_back, engine, gid, lock_timeout=LONG_MS / 1000)
        await_waiters(bank, 1)
        transaction.commit()
        transaction.close()
        assert asked.result(30).verdict is Verdict.COMMITTED


@pytest.mark.mariadb
def test_a_check_back_locks_no_gaps_on_mysql(mysql_bank: Bank) -> None:
    """Above READ COMMITTED the check-back would delay the begins of other messages."""
    with mysql_bank.engine(isolation_level="REPEATABLE READ") as engine:
        transaction = open_transaction(engine)
        question = CheckBackQuestion(new_gid())
        assert perform(check_back_rule(transaction.dialect, "barrier", question, "token"), transaction).decided
        [[own]] = transaction.execute(Statement("select connection_id()", {}))
        assert _isolation_on_mysql(mysql_bank, own) == "READ COMMITTED"
        transaction.rollback()
        transaction.close()


@pytest.mark.mariadb
def test_a_check_back_writes_where_the_binary_log_takes_statements_alone(mysql_bank: Bank) -> None:
    """InnoDB refuses writes in READ COMMITTED there.

    Every check-back would be unknown for ever.
    """
    with mysql_bank.engine(connect_args={"init_command": "set session binlog_format = 'STATEMENT'"}) as engine:
        transaction = open_transaction(engine)
        question = CheckBackQuestion(new_gid())
        assert perform(check_back_rule(transaction.dialect, "barrier", question, "token"), transaction).decided
        [[own]] = transaction.execute(Statement("select connection_id()", {}))
        assert _isolation_on_mysql(mysql_bank, own) == "REPEATABLE READ"
        transaction.rollback()
        [[own]] = transaction.execute(Statement("select @@session.tx_isolation", {}))
        assert own == "REPEATABLE-READ"
        transaction.close()


def _isolation_on_mysql(bank: Bank, thread: int) -> str:
    """Return the isolation of a thread's transaction.

    The table that shows it is renewed only a moment after it was last read.
    """
    deadline = time.monotonic() + 60
    between_looks = threading.Event()
    while True:
        rows = bank.query(
            f"select trx_isolation_level from information_schema.innodb_trx where trx_mysql_thread_id = {thread}"
        )
        if rows:
            return str(rows[0][0])
        assert time.monotonic() < deadline, "no transaction of this thread is told"
        between_looks.wait(0.2)


@pytest.mark.postgres
def test_all_waits_of_a_check_back_together_are_bounded(postgres_bank: Bank) -> None:
    """A bound on locks starts anew for each open transaction that a check-back meets."""
    with postgres_bank.plain() as connection:
        transaction = open_transaction(connection)
        question = CheckBackQuestion(new_gid())
        rule = check_back_rule(transaction.dialect, "barrier", question, "token", lock_timeout_ms=1234)
        assert perform(rule, transaction).decided
        assert connection.execute("show statement_timeout").fetchone() == ("1234ms",)
        transaction.rollback()


@pytest.mark.parametrize(
    "kind", [pytest.param("postgresql", marks=pytest.mark.postgres), pytest.param("mysql", marks=pytest.mark.mariadb)]
)
def test_a_producer_with_an_older_snapshot_is_refused(banks: dict[str, Bank], kind: str) -> None:
    bank, gid = banks[kind], new_gid()
    # PostgreSQL itself refuses to continue from a snapshot that does not show the row.
    refusal = {"postgresql": DBAPIError, "mysql": CheckBackCameFirst}[kind]
    with bank.engine(isolation_level="REPEATABLE READ") as engine, bank.engine() as other:
        transaction = open_transaction(engine)
        run(transaction.handle, "select * from account")
        assert check_back(other, gid).verdict is Verdict.ROLLED_BACK
        with pytest.raises(refusal) as caught:
            begin(transaction, gid)
        assert kind == "mysql" or fault_of(caught.value) is Fault.BUSY
        transaction.rollback()
        transaction.close()


def test_a_reader_that_the_check_back_overtook_cannot_begin(sqlite_bank: Bank) -> None:
    gid = new_gid()
    with sqlite_bank.plain() as connection, sqlite_bank.engine() as engine:
        sqlite_bank.query("pragma journal_mode = wal")
        run(connection, "begin")
        connection.execute("select * from account").fetchall()
        assert check_back(engine, gid).verdict is Verdict.ROLLED_BACK
        with pytest.raises(Exception, match="locked"):
            run(connection, f"insert into barrier (gid, branch_id, op, barrier_id) values ('{gid}', '00', 'msg', '01')")
        connection.rollback()
    sqlite_bank.query("pragma journal_mode = delete")


def test_a_deadlock_is_no_verdict(mysql_bank: Bank) -> None:
    """Two rows in two orders: the server kills the check-back, which has written less."""
    gid = new_gid()
    mysql_bank.query("create table if not exists heavy (id int primary key, n int)")
    mysql_bank.query("replace into heavy select seq, 0 from seq_1_to_500")
    with mysql_bank.plain() as connection, mysql_bank.plain() as asker, ThreadPoolExecutor(1) as pool:
        transaction = open_transaction(connection)
        begin(transaction, gid)
        run(connection, "update heavy set n = n + 1")
        run(asker, "update account set balance = balance - 1")

        def ask_in_the_wrong_order() -> Exception | None:
            try:
                run(asker, f"insert into barrier (gid, branch_id, op, barrier_id) values ('{gid}', '00', 'msg', '01')")
            except Exception as error:  # noqa: BLE001 -- handed to the test
                return error
            return None

        asked = pool.submit(ask_in_the_wrong_order)
        await_waiters(mysql_bank, 1)
        run(connection, SPEND)
        error = asked.result(30)
        assert error is not None
        assert fault_of(error) is Fault.BUSY
        transaction.rollback()
        transaction.close()


def test_another_database_is_unknown_and_stays_untouched(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    gid = new_gid()
    with bank.reached(way) as engine:
        assert check_back(engine, gid, identity="of another shard").verdict is Verdict.UNKNOWN
    assert bank.reasons(gid) == []


def test_its_own_database_is_recognised(bank: Bank) -> None:
    gid = new_gid()
    committed(bank, gid)
    (identity,) = bank.query("select value from twophase_meta where name = 'identity'")[0]
    with bank.engine() as engine:
        assert check_back(engine, gid, identity=identity).verdict is Verdict.COMMITTED


def set_horizon(bank: Bank, horizon_ms: int) -> None:
    bank.query(f"insert into twophase_meta (name, value) values ('horizon_ms', '{horizon_ms}')")


def test_below_the_horizon_an_absent_row_proves_nothing(bank: Bank) -> None:
    gid = new_gid()
    set_horizon(bank, 1_000_000_000)
    with bank.engine() as engine:
        below = check_back(engine, gid, prepared_at_ms=1_000_000_000 + CLOCK_SKEW_MS - 1)
        assert below.verdict is Verdict.UNKNOWN
        assert bank.reasons(gid) == []
        assert check_back(engine, gid).verdict is Verdict.UNKNOWN
        above = check_back(engine, gid, prepared_at_ms=1_000_000_000 + CLOCK_SKEW_MS)
        assert above.verdict is Verdict.ROLLED_BACK


def test_below_the_horizon_a_row_that_stands_still_counts(bank: Bank) -> None:
    gid, barred = new_gid(), new_gid()
    committed(bank, gid)
    with bank.engine() as engine:
        check_back(engine, barred)
        set_horizon(bank, 1_000_000_000)
        assert check_back(engine, gid, prepared_at_ms=1).verdict is Verdict.COMMITTED
        assert check_back(engine, barred, prepared_at_ms=1).verdict is Verdict.ROLLED_BACK


def test_a_row_of_no_known_reason_is_unknown(bank: Bank) -> None:
    gid = new_gid()
    bank.query(
        f"insert into barrier (gid, branch_id, op, barrier_id, reason) values ('{gid}', '00', 'msg', '01', 'something')"
    )
    with bank.engine() as engine:
        assert check_back(engine, gid).verdict is Verdict.UNKNOWN


def test_without_a_table_it_is_unknown(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    bank.query("drop table barrier")
    with bank.reached(way) as engine:
        answer = check_back(engine, new_gid())
    assert answer.verdict is Verdict.UNKNOWN
    assert "twophase barrier install" in answer.evidence


def test_a_dead_database_is_unknown_and_keeps_its_password_secret(
    bank: Bank, caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    nowhere = Bank(
        bank.kind, str(tmp_path / "no" / "bank.db") if bank.kind == "sqlite" else "me:hush-hush@127.0.0.1:1/x"
    )
    with nowhere.engine() as engine:
        answer = check_back(engine, new_gid())
    assert answer.verdict is Verdict.UNKNOWN
    assert "hush" not in answer.evidence + caplog.text


def test_gids_that_differ_in_case_are_two(bank: Bank) -> None:
    committed(bank, "Order-1")
    with bank.engine() as engine:
        assert check_back(engine, "order-1").verdict is Verdict.ROLLED_BACK
        assert check_back(engine, "Order-1").verdict is Verdict.COMMITTED


def test_text_in_a_gid_stays_text(bank_and_way: tuple[Bank, str]) -> None:
    bank, way = bank_and_way
    gid = "x'; delete from account; -- %s :gid $1 ö"
    with bank.reached(way) as engine:
        assert check_back(engine, gid).verdict is Verdict.ROLLED_BACK
    assert bank.balance() == 100


@pytest.mark.parametrize("gid", ["", "x" * 129, "a\x00b"])
def test_an_impossible_gid_is_refused(sqlite_bank: Bank, gid: str) -> None:
    with sqlite_bank.engine() as engine, pytest.raises(InvalidRequest):
        check_back(engine, gid)


def test_an_impossible_table_is_refused(sqlite_bank: Bank) -> None:
    with sqlite_bank.engine() as engine, pytest.raises(ConfigurationError):
        check_back(engine, "g", table="barrier where 1=1; --")


def test_settings_of_the_connection_are_put_back(bank: Bank) -> None:
    asked = {
        "sqlite": "pragma busy_timeout",
        "postgresql": "select current_setting('lock_timeout'), current_setting('statement_timeout')",
        "mysql": "select @@session.innodb_lock_wait_timeout, @@session.lock_wait_timeout, @@session.tx_isolation",
    }[bank.kind]
    with bank.plain() as connection:
        cursor = connection.cursor()
        cursor.execute(asked)
        before = cursor.fetchone()
        connection.rollback()
        check_back(connection, new_gid())
        cursor.execute(asked)
        assert cursor.fetchone() == before
        connection.rollback()
        cursor.close()


def test_each_answer_about_a_commit_writes_the_row_anew(mysql_bank: Bank) -> None:
    """Only a commit that wrote something flushes InnoDB's log up to earlier commits.

    The check-back answers about such an earlier commit (rule 8).
    """
    gid = new_gid()
    committed(mysql_bank, gid)
    seen = mysql_bank.query("select update_time from barrier")
    with mysql_bank.engine() as engine:
        for _ in range(3):
            check_back(engine, gid)
            now = mysql_bank.query("select update_time from barrier")
            assert now != seen
            seen = now


@pytest.mark.postgres
def test_the_verdict_is_durable_whatever_the_session_says(postgres_bank: Bank) -> None:
    """A verdict that a server's crash takes back loses a message or delivers a ghost.

    This is rule 8.
    """
    with postgres_bank.plain() as connection:
        connection.execute("set synchronous_commit = off")
        connection.commit()
        transaction = open_transaction(connection)
        question = CheckBackQuestion(new_gid())
        assert perform(check_back_rule(transaction.dialect, "barrier", question, "token"), transaction).decided
        assert connection.execute("show synchronous_commit").fetchone() == ("on",)
        transaction.rollback()


@pytest.mark.parametrize(
    "other",
    [
        ("msg", "'00'", "'msg'", "'01'"),
        ("saga", "'00'", "'msg'", "'01'"),
        ("msg", "null", "'msg'", "'01'"),
        ("msg", "'00'", "null", "'01'"),
        ("msg", "'00'", "'msg'", "null"),
    ],
    ids=["the same", "another trans_type", "no branch_id", "no op", "no barrier_id"],
)
def test_the_key_is_four_columns_and_none_of_them_is_null(bank: Bank, other: tuple[str, str, str, str]) -> None:
    """With trans_type in the key, or a nullable column, both rows could be inserted.

    They are the producer's row and the check-back's (rule 9).
    """
    gid = new_gid()
    committed(bank, gid)
    trans_type, branch_id, op, barrier_id = other
    with pytest.raises(Exception, match=r"(?i)unique|duplicate|null"):
        bank.query(
            "insert into barrier (trans_type, gid, branch_id, op, barrier_id, reason)"
            f" values ('{trans_type}', '{gid}', {branch_id}, {op}, {barrier_id}, 'rollback')"
        )
