"""One cut over several tables and tasks, without Spark.

Rows change between any two of them, and no read shows it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from tests.servers.database import Database
from tests.spark.source import reads
from tests.spark.source.stores import StoreUnderTest, add_history, fail, finish, gid_of, history_row, live, remove
from tests.support.secret_files import secret_in
from twophase.barrier.installing import install
from twophase.core.errors import ConfigurationError
from twophase_spark import consistent_cut

MANY = 60
LIVE = [gid_of(1, seq) for seq in range(MANY + 1, 2 * MANY + 1)]
DONE = [gid_of(1, seq) for seq in range(1, MANY + 1)]


@pytest.mark.usefixtures("small_parts")
def test_all_tasks_see_one_moment_while_rows_change(store: StoreUnderTest) -> None:
    """Messages end, are born, and are removed by retention.

    They do so before every task, and before the planning.
    """
    live(store, LIVE)
    finish(store, 1, 1, MANY)
    fail(store, LIVE)
    seqs = iter(range(MANY + 1, 2 * MANY))

    def change() -> None:
        seq = next(seqs)
        store.many("delete from message where gid = ?", [(gid_of(1, seq),)])
        add_history(store, history_row(1, seq))
        live(store, [f"new-{seq}"])
        fail(store, [f"new-{seq}"])
        remove(store, 1, seq - MANY, seq - MANY)

    found: dict[str, list[str]] = {}
    with consistent_cut(store.url) as cut:
        for table, driver in (("journal", "auto"), ("message", "python"), ("attempt", "auto")):
            change()
            reader, parts = reads.planned(**cut, table=table, columns="gid", partitions=2, driver=driver)
            assert len(parts) > 1, "several tasks share the cut"
            found[table] = []
            for part in parts:
                change()
                found[table] += [row["gid"] for row in reads.rows_of(reader, part)]

    wanted = {"journal": DONE + LIVE, "message": LIVE, "attempt": LIVE}
    assert {table: sorted(gids) for table, gids in found.items()} == wanted


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("engine_name", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_a_barrier_and_its_ledger_in_one_cut(request: pytest.FixtureRequest, tmp_path: Path, engine_name: str) -> None:
    """A transaction writes both; no read sees one half of it."""
    url = f"sqlite:///{tmp_path / 'bank.db'}"
    if engine_name == "postgres":
        server: Database = request.getfixturevalue("postgres_database")
        url = server.sqlalchemy_url("psycopg")
    install(url)
    reference = secret_in(tmp_path / "url", url)
    engine = create_engine(url)

    def book(first: int, last: int) -> None:
        rows = [{"gid": f"g{n:04}"} for n in range(first, last + 1)]
        with engine.begin() as connection:
            connection.execute(
                text(
                    "insert into barrier (trans_type, gid, branch_id, op, barrier_id, reason) "
                    "values ('msg', :gid, '01', 'action', '01', 'action')"
                ),
                rows,
            )
            connection.execute(text("insert into ledger (gid, branch_id) values (:gid, '01')"), rows)
            connection.execute(text("delete from ledger where gid = 'g0001'"))

    with engine.begin() as connection:
        connection.execute(text("create table ledger (gid varchar(40), branch_id varchar(9))"))
        connection.execute(text("create index ledger_gid on ledger (gid)"))
    book(2, MANY)
    later = iter(range(MANY + 1, 2 * MANY))
    found: list[list[str]] = []
    with consistent_cut(reference) as cut:
        for options in ({"table": "barrier"}, {"table": "ledger", "tableName": "ledger"}):
            number = next(later)
            book(number, number)
            reader, parts = reads.planned(**cut, **options, columns="gid", partitions=2)
            assert len(parts) > 1
            rows = []
            for part in parts:
                number = next(later)
                book(number, number)
                rows += reads.rows_of(reader, part)
            found.append(sorted(row["gid"] for row in rows))
    engine.dispose()

    assert found == [[f"g{n:04}" for n in range(2, MANY + 1)]] * 2


def test_mysql_lends_no_snapshot() -> None:
    with (
        pytest.raises(ConfigurationError, match=r"MySQL and MariaDB lend no snapshot; .* partitions=1"),
        consistent_cut("mysql://me@127.0.0.1:1/bank"),
    ):
        pass


@pytest.mark.parametrize("url", ["sqlite:///tp.db", "mysql://me@127.0.0.1:1/bank"])
@pytest.mark.parametrize("options", [{"table": "barrier"}, {"table": "ledger", "tableName": "t", "columns": "gid,n"}])
def test_a_snapshot_of_another_engine_is_refused(url: str, options: dict[str, str]) -> None:
    engine = url.split(":", maxsplit=1)[0]
    with pytest.raises(ConfigurationError, match=f"snapshot is for PostgreSQL, not for {engine}"):
        reads.batch(url=url, snapshot="00000003-1", **options)
