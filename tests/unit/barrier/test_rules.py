"""The rules as sequences of statements, without a database.

Correctness depends on the order of the statements.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

import pytest
from pymysql.err import OperationalError
from sqlalchemy.exc import DBAPIError

from twophase import barrier
from twophase.barrier.asking import CheckBackAnswer, CheckBackQuestion, check_back_rule
from twophase.barrier.dialect import MYSQL, POSTGRESQL, SQLITE, Dialect
from twophase.barrier.durability import require_durability
from twophase.barrier.producer import begin_producer, verify_producer, write_branches
from twophase.barrier.transaction import Row, Statement, Steps
from twophase.core.errors import BeginDeadlinePassed, LimitExceeded, TransactionLost, UnsafeDatabase
from twophase.core.limits import BEGIN_DEADLINE_MS
from twophase.core.message import encode_branches
from twophase.core.verdict import Verdict

DIALECTS = pytest.mark.parametrize("dialect", [SQLITE, POSTGRESQL, MYSQL], ids=lambda dialect: dialect.name)
PREPARED_MS = 1_000_000_000


def test_no_name_of_the_package_hides_a_module_of_it() -> None:
    assert [name for name in barrier.__all__ if importlib.util.find_spec(f"twophase.barrier.{name}")] == []


class Script:
    """Answers a rule's statements by their first words, and remembers them."""

    def __init__(self, answers: dict[str, Sequence[Row]]) -> None:
        self.answers = answers
        self.said: list[Statement] = []

    def run(self, steps: Steps[CheckBackAnswer | None]) -> CheckBackAnswer | None:
        """Perform the rule."""
        try:
            statement = next(steps)
            while True:
                self.said.append(statement)
                rows = next((rows for words, rows in self.answers.items() if words in statement.sql), [])
                statement = steps.send(rows)
        except StopIteration as stop:
            answer: CheckBackAnswer | None = stop.value
            return answer

    def position(self, words: str) -> int:
        """Return the position of the statement with these words."""
        return next(number for number, statement in enumerate(self.said) if words in statement.sql)


READ_COMMITTED = {"postgresql": "isolation level read committed", "mysql": "'READ-COMMITTED'"}


def begin(dialect: Dialect, late_ms: int) -> Script:
    now = [[PREPARED_MS + late_ms]]
    script = Script({"barrier (trans_type": [] if dialect is MYSQL else now, "utc_timestamp": now})
    script.run(begin_producer(dialect, "barrier", "g", "token", PREPARED_MS))
    return script


@DIALECTS
def test_begin_is_taken_at_the_deadline(dialect: Dialect) -> None:
    begin(dialect, BEGIN_DEADLINE_MS.value)


@DIALECTS
def test_begin_is_refused_after_the_deadline(dialect: Dialect) -> None:
    with pytest.raises(BeginDeadlinePassed):
        begin(dialect, BEGIN_DEADLINE_MS.value + 1)


@DIALECTS
def test_begin_looks_at_the_clock_after_the_row_is_written(dialect: Dialect) -> None:
    script = begin(dialect, 0)
    row = script.said[script.position("barrier (trans_type")]
    clock = {"sqlite": "julianday", "postgresql": "clock_timestamp", "mysql": "utc_timestamp"}[dialect.name]
    if dialect is MYSQL:
        assert script.position("barrier (trans_type") < script.position(clock)
    else:
        assert row.sql.index("returning") < row.sql.index(clock)


@DIALECTS
def test_values_are_bound_and_never_put_in(dialect: Dialect) -> None:
    script = begin(dialect, 0)
    row = script.said[script.position("barrier (trans_type")]
    bound = {"gid": "g", "token": "token", "prepared_at": PREPARED_MS}
    assert bound.items() <= row.parameters.items()
    assert all(f":{name}" in row.sql for name in row.parameters)


def test_a_gid_too_long_for_the_column_is_refused_before_any_statement() -> None:
    with pytest.raises(LimitExceeded):
        next(begin_producer(SQLITE, "barrier", "ö" * 65, "token", None))


def test_verification_without_a_row_is_a_lost_transaction() -> None:
    with pytest.raises(TransactionLost):
        Script({}).run(verify_producer(POSTGRESQL, "barrier", "g", "token"))


def test_verification_that_fails_is_a_lost_transaction() -> None:
    steps = verify_producer(POSTGRESQL, "barrier", "g", "token")
    next(steps)
    with pytest.raises(TransactionLost) as caught:
        steps.throw(ConnectionError())
    assert isinstance(caught.value.__cause__, ConnectionError)


def test_streamed_rows_that_were_not_read_are_the_reason_and_no_lost_connection() -> None:
    steps = verify_producer(MYSQL, "barrier", "g", "token")
    next(steps)
    unread = OperationalError(2014, "Commands out of sync")  # as mysqlclient's
    with pytest.raises(TransactionLost, match="not read"):
        steps.throw(DBAPIError("release savepoint", None, unread, connection_invalidated=True))


def test_a_danger_is_named() -> None:
    with pytest.raises(UnsafeDatabase, match="fsync is off"):
        Script({"fsync": [["fsync is off"]]}).run(require_durability(POSTGRESQL, "barrier"))


def test_no_danger_passes() -> None:
    Script({}).run(require_durability(SQLITE, "barrier"))


def ask(
    row: Row | None, meta: dict[str, str] | None = None, *, dialect: Dialect = POSTGRESQL, identity: str | None = None
) -> tuple[CheckBackAnswer, Script]:
    rows = [row] if row is not None else []
    script = Script(
        {
            "then 'identity'": [list(item) for item in ({"identity": "mine"} if meta is None else meta).items()],
            "select gid, reason": rows,
            "barrier (trans_type": [] if dialect is MYSQL else rows,
        }
    )
    answer = script.run(check_back_rule(dialect, "barrier", CheckBackQuestion("g", PREPARED_MS, identity), "asker"))
    assert answer is not None
    return answer, script


@DIALECTS
def test_the_check_back_inserts_before_it_reads_anything(dialect: Dialect) -> None:
    _, script = ask(["g", "rollback", "asker", None], dialect=dialect)
    inserted = script.position("barrier (trans_type")
    assert inserted < script.position("then 'identity'")
    assert not any("barrier\n" in statement.sql for statement in script.said[:inserted])


@pytest.mark.parametrize("dialect", [POSTGRESQL, MYSQL], ids=lambda dialect: dialect.name)
def test_the_check_back_is_read_committed_and_bounded_before_it_inserts(dialect: Dialect) -> None:
    _, script = ask(["g", "rollback", "asker", None], dialect=dialect)
    inserted = script.position("barrier (trans_type")
    assert script.position(READ_COMMITTED[dialect.name]) < inserted
    assert script.position("lock_timeout") < inserted


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (["g", "msg", "producer", None], Verdict.COMMITTED),
        (["g", "msg", None, None], Verdict.COMMITTED),
        (["g", "rollback", "asker", None], Verdict.ROLLED_BACK),
        (["g", "rollback", "other", None], Verdict.ROLLED_BACK),
        (["g", "rollback", None, None], Verdict.ROLLED_BACK),
        (["g", "something", None, None], Verdict.UNKNOWN),
        (["g", None, None, None], Verdict.UNKNOWN),
        (["G", "msg", None, None], Verdict.UNKNOWN),
        (None, Verdict.UNKNOWN),
    ],
)
@DIALECTS
def test_only_a_row_of_known_reason_is_a_verdict(dialect: Dialect, row: Row | None, verdict: Verdict) -> None:
    assert ask(row, dialect=dialect)[0].verdict is verdict


@pytest.mark.parametrize("body", [b"", memoryview(b"")])
@DIALECTS
def test_a_committed_row_whose_branches_are_not_written_is_no_verdict(
    dialect: Dialect, body: bytes | memoryview
) -> None:
    answer, _ = ask(["g", "msg", "producer", body], dialect=dialect)
    assert (answer.verdict, answer.branches_lost) == (Verdict.UNKNOWN, True)
    assert answer.evidence.startswith("TP-5013: the local transaction is committed")


def test_a_committed_row_of_an_open_message_without_added_branches_is_a_verdict() -> None:
    answer, _ = ask(["g", "msg", "producer", encode_branches(())])
    assert (answer.verdict, answer.branches_lost) == (Verdict.COMMITTED, False)


def test_branches_are_never_written_as_an_empty_body() -> None:
    with pytest.raises(AssertionError):
        next(write_branches(SQLITE, "barrier", "g", "token", b""))


@pytest.mark.parametrize("meta", [{}, {"identity": "other"}])
def test_another_database_is_unknown(meta: dict[str, str]) -> None:
    assert ask(["g", "msg", None, None], meta, identity="mine")[0].verdict is Verdict.UNKNOWN


def test_a_table_without_an_identity_of_its_own_is_unknown_to_who_names_none() -> None:
    assert ask(["g", "msg", None, None], {})[0].verdict is Verdict.UNKNOWN


def test_a_replica_is_unknown() -> None:
    answer, _ = ask(["g", "msg", None, None], {"identity": "mine", "replica": "it is read-only"}, identity="mine")
    assert (answer.verdict, answer.evidence[:7]) == (Verdict.UNKNOWN, "TP-6008")


def test_a_body_is_handed_on_as_bytes() -> None:
    assert ask(["g", "msg", None, memoryview(b"\x90")])[0].body == b"\x90"


def test_every_wait_is_bounded_by_the_lock_timeout() -> None:
    """Each wait has a bound of its own on MySQL.

    MySQL has no bound for an INSERT as a whole: the waits for rows and for tables, and on MariaDB the statement's time,
    are bounded apart.
    """
    _, script = ask(["g", "rollback", "asker", None], dialect=MYSQL)
    settings = script.said[script.position("lock_timeout_s")]
    assert "innodb_lock_wait_timeout = :lock_timeout_s" in settings.sql
    assert "session lock_wait_timeout = :lock_timeout_s" in settings.sql
    assert settings.parameters == {"lock_timeout_s": 1}
    assert script.said[script.position("insert into")].parameters["lock_timeout_fraction"] == 1.5
    _, script = ask(["g", "rollback", "asker", None], dialect=POSTGRESQL)
    bounds = script.said[script.position("lock_timeout")].parameters
    assert bounds == {"lock_timeout": "1500ms", "statement_timeout": "1500ms"}


@pytest.mark.parametrize(
    ("dialect", "settings"), [(POSTGRESQL, "lock_timeout"), (MYSQL, "lock_timeout_s")], ids=["postgresql", "mysql"]
)
def test_the_isolation_stands_where_the_database_takes_it(dialect: Dialect, settings: str) -> None:
    """PostgreSQL takes the isolation before the transaction's first query.

    MySQL takes it before the statement that begins a transaction.
    """
    _, script = ask(["g", "rollback", "asker", None], dialect=dialect)
    isolation = script.position(READ_COMMITTED[dialect.name])
    if dialect is POSTGRESQL:
        assert (isolation, script.position(settings)) == (0, 1)
    else:
        assert script.position("show") < script.position(settings) < isolation < script.position("insert into")
