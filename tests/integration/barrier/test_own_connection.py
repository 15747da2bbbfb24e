"""The application's own use of a SQLite connection changes no answer (I1, I2, I6)."""

from __future__ import annotations

import signal
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.integration.barrier.test_branch import call_of
from tests.support.business_databases import new_gid, verify
from twophase.barrier.asking import check_back
from twophase.barrier.branch import once
from twophase.barrier.installing import install
from twophase.barrier.open import open_transaction, peek_identity
from twophase.barrier.producer import begin_producer, read_identity
from twophase.barrier.transaction import perform
from twophase.core.verdict import Verdict

Connect = Callable[[Path], sqlite3.Connection]


def _bytes(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.text_factory = bytes
    return connection


def _converted(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, detect_types=sqlite3.PARSE_DECLTYPES)


def _shadowed(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    for name in ("barrier", "twophase_meta"):
        (made,) = connection.execute("select sql from main.sqlite_master where name = ?", (name,)).fetchone()
        connection.execute(
            made.replace(f"main.{name}", name).replace("TABLE", "table").replace("table", "temp table", 1)
        )
    connection.execute("insert into temp.twophase_meta select * from main.twophase_meta")
    connection.commit()
    return connection


def test_a_transaction_that_cannot_be_rolled_back_is_ended_with_its_connection(path: Path) -> None:
    """SQLite interrupts ROLLBACK too, as long as an earlier statement is under way."""
    connection = sqlite3.connect(path)
    ours = open_transaction(connection)
    cursor = connection.execute("select 1 union select 2 union select 3")
    assert cursor.fetchone() == (1,)
    connection.interrupt()
    with pytest.raises(sqlite3.OperationalError, match="interrupted"):
        connection.execute("delete from barrier")
    ours.rollback()
    ours.close()
    del cursor
    with closing(sqlite3.connect(path, timeout=0)) as other:
        assert check_back(other, new_gid()).verdict is Verdict.ROLLED_BACK


@pytest.fixture(params=[_bytes, _converted, _shadowed])
def connect(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """A way to connect; converters are of the whole process, so they are put back."""
    converters: dict[str, Any] = sqlite3.converters  # undocumented, and the only way
    for name in ("TEXT", "VARCHAR", "INTEGER", "BLOB"):
        monkeypatch.setitem(converters, name, lambda _: "converted")
    chosen: Connect = request.param
    return chosen


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with a barrier and an account."""
    path = tmp_path / "bank.db"
    with closing(sqlite3.connect(path)) as connection:
        install(connection)
        connection.execute("create table account (effects integer)")
        connection.execute("insert into account values (0)")
        connection.commit()
    return path


def test_a_branch_takes_effect_once(connect: Connect, path: Path) -> None:
    call = call_of(new_gid())

    def effect(connection: sqlite3.Connection) -> str:
        connection.execute("update account set effects = effects + 1")
        return "done"

    answers = []
    for _ in range(3):
        with closing(connect(path)) as connection:
            answers.append(once(connection, call, effect))
    assert answers == ["done", None, None]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select effects from account").fetchall() == [(1,)]


def test_a_committed_transaction_is_committed(connect: Connect, path: Path) -> None:
    gid = new_gid()
    with closing(connect(path)) as connection:
        factory = connection.text_factory
        transaction = open_transaction(connection)
        dialect = transaction.dialect
        identity = perform(read_identity(dialect, "barrier"), transaction)
        assert identity == peek_identity(connection, "barrier")
        perform(begin_producer(dialect, "barrier", gid, gid, None, identity=identity), transaction)
        verify(transaction, gid)
        transaction.commit()
        transaction.close()
        assert connection.text_factory is factory
        assert check_back(connection, gid).verdict is Verdict.COMMITTED
    with closing(sqlite3.connect(path)) as connection:
        assert check_back(connection, gid).verdict is Verdict.COMMITTED


class TimeLimit(Exception):
    """The exception that a job queue's worker raises in a signal's handler."""


def test_a_time_limit_that_ends_the_wait_for_the_lock_leaves_no_transaction(path: Path) -> None:
    def raise_it(*_: object) -> None:
        raise TimeLimit

    with closing(sqlite3.connect(path, check_same_thread=False)) as other, closing(sqlite3.connect(path)) as own:
        install(own)
        other.execute("begin immediate")
        end = threading.Timer(0.3, other.rollback)
        before = signal.signal(signal.SIGALRM, raise_it)
        end.start()
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            with pytest.raises(TimeLimit):
                open_transaction(own)
        finally:
            signal.signal(signal.SIGALRM, before)
            end.join()
        assert not own.in_transaction
        assert once(own, call_of(new_gid()), lambda _: "done") == "done"
