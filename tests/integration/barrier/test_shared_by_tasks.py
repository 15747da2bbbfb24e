"""One connection that several tasks or threads of a service use.

It has one transaction at a time. The end of one is never the end of another that began behind it.
"""

from __future__ import annotations

import sqlite3

import pytest

from tests.support.business_databases import SPEND, Bank, abegin, arun, averify, begin, new_gid, run
from twophase.barrier.open import aopen_transaction, open_transaction
from twophase.core.errors import OpenTransaction, TransactionLost

PLAIN = [
    pytest.param(("sqlite", "aiosqlite plain"), id="aiosqlite"),
    pytest.param(("postgresql", "psycopg plain"), id="psycopg", marks=pytest.mark.postgres),
]


@pytest.mark.parametrize("way", PLAIN)
@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_what_another_task_begins_behind_the_end_of_a_transaction_stays(
    banks: dict[str, Bank], way: tuple[str, str], end: str
) -> None:
    bank = banks[way[0]]
    async with bank.areached(way[1]) as connection:
        ours = await aopen_transaction(connection)
        await abegin(ours, new_gid())
        await (ours.commit() if end == "commit" else ours.rollback())
        await arun(connection, SPEND)  # another task
        if end == "commit":
            await ours.rollback()  # as everything that gives a connection back
        await ours.close()
        await connection.commit()
    assert bank.balance() == 70


@pytest.mark.parametrize("way", [param.values[0] for param in PLAIN[:1]] + [("postgresql", "psycopg")])
def test_what_another_thread_begins_behind_the_end_of_a_transaction_stays(
    banks: dict[str, Bank], way: tuple[str, str]
) -> None:
    bank = banks[way[0]]
    with bank.plain() as connection:
        ours = open_transaction(connection)
        begin(ours, new_gid())
        ours.commit()
        run(connection, SPEND)  # another thread
        ours.rollback()
        ours.close()
        connection.commit()
    assert bank.balance() == 70


async def test_a_transaction_in_the_place_of_one_that_another_task_ended_is_its_own(sqlite_bank: Bank) -> None:
    """Another task's commit ends the first one, and the second one begins behind it."""
    first_gid, second_gid = new_gid(), new_gid()
    async with sqlite_bank.areached("aiosqlite plain") as connection:
        first = await aopen_transaction(connection)
        await abegin(first, first_gid)
        await connection.commit()
        second = await aopen_transaction(connection)
        await abegin(second, second_gid)
        with pytest.raises(TransactionLost):
            await first.commit()
        await first.rollback()
        await first.close()
        await arun(connection, SPEND)
        await averify(second, second_gid)
        await second.commit()
        await second.close()
    assert (sqlite_bank.balance(), sqlite_bank.reasons(second_gid)) == (70, ["msg"])


class _LookedAtTooEarly(sqlite3.Connection):
    """A connection on which another thread begins between the look at it and BEGIN."""

    looks = 0

    @property
    def in_transaction(self) -> bool:
        self.looks += 1
        return self.looks > 1 and super().in_transaction


def test_a_transaction_that_cannot_begin_leaves_the_one_in_its_way(sqlite_bank: Bank) -> None:
    connection = sqlite3.connect(sqlite_bank.where, factory=_LookedAtTooEarly)
    connection.execute("pragma synchronous = extra")  # nothing is left to change, so BEGIN is the first to fail
    run(connection, SPEND)
    with pytest.raises(sqlite3.OperationalError):
        open_transaction(connection)
    connection.commit()
    connection.close()
    assert sqlite_bank.balance() == 70


def test_the_wait_for_the_writer_is_put_back_also_beside_another_transaction(sqlite_bank: Bank) -> None:
    with sqlite_bank.plain() as connection:
        before = connection.execute("pragma busy_timeout").fetchone()
        ours = open_transaction(connection, lock_timeout_ms=1)
        ours.rollback()
        run(connection, SPEND)  # `synchronous` cannot be put back inside it
        ours.close()
        assert connection.execute("pragma busy_timeout").fetchone() == before != (1,)
        connection.rollback()


@pytest.mark.postgres
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_two_threads_never_share_one_transaction(postgres_bank: Bank, end: str) -> None:
    """Before its first statement, the server knows of no transaction.

    The commit of one would be that of half the other.
    """
    with postgres_bank.plain() as connection:
        ours = open_transaction(connection)
        with pytest.raises(OpenTransaction):
            open_transaction(connection)
        begin(ours, new_gid())
        getattr(ours, end)()
        ours.close()
        theirs = open_transaction(connection)
        begin(theirs, new_gid())
        ours.rollback()
        run(connection, SPEND)
        theirs.commit()
    assert postgres_bank.balance() == 70


@pytest.mark.postgres
async def test_two_tasks_never_share_one_transaction(postgres_bank: Bank) -> None:
    async with postgres_bank.areached("psycopg plain") as connection:
        ours = await aopen_transaction(connection)
        with pytest.raises(OpenTransaction):
            await aopen_transaction(connection)
        await ours.rollback()
        theirs = await aopen_transaction(connection)
        await abegin(theirs, new_gid())
        await theirs.commit()
