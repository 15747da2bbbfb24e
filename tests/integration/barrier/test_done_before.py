""" "Done before" is read from the branch's row, and never inferred (I6).

The row is durable before the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.integration.barrier.conftest import MARKS, empty_bank
from tests.integration.barrier.test_branch import call_of, spend
from tests.support.business_databases import SYNC_WAYS, Bank, begin, new_gid, run
from tests.support.patient_locks import wait_for_locks
from twophase.barrier.asking import check_back
from twophase.barrier.branch import aonce, once
from twophase.barrier.branch_answer import answer_branch
from twophase.barrier.installing import install
from twophase.barrier.open import open_transaction
from twophase.core.errors import BarrierRowRefused, BranchSpoilt, TransactionLost
from twophase.core.verdict import Verdict

BankAndWay = tuple[Bank, str]
SUPPRESSING = """create trigger changes_only before update on barrier
    for each row execute function suppress_redundant_updates_trigger()"""
ONE_OF_A_KIND = "create unique index one_of_a_kind on barrier (trans_type)"


@pytest.fixture(params=[pytest.param(kind, marks=MARKS[kind]) for kind in SYNC_WAYS])
def own_bank(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bank]:
    """Each database with a barrier of its own, which the test may damage."""
    for bank in empty_bank(request, request.param, tmp_path):
        with bank.engine() as engine:
            install(engine)
        yield bank


@pytest.fixture
def own_postgres_bank(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bank]:
    """PostgreSQL alone, with a barrier of its own."""
    for bank in empty_bank(request, "postgresql", tmp_path):
        with bank.engine() as engine:
            install(engine)
        yield bank


@pytest.mark.postgres
def test_a_trigger_that_suppresses_updates_without_change_holds_no_answer_up(own_postgres_bank: Bank) -> None:
    own_postgres_bank.query(SUPPRESSING)
    call = call_of(new_gid())
    with own_postgres_bank.engine() as engine:
        assert [once(engine, call, lambda _: "done") for _ in range(2)] == ["done", None]
        gid = new_gid()
        assert [check_back(engine, gid).verdict for _ in range(2)] == [Verdict.ROLLED_BACK] * 2


def test_another_key_that_is_taken_is_an_error_and_no_effect_of_a_branch(own_bank: Bank) -> None:
    own_bank.query(ONE_OF_A_KIND)
    with own_bank.engine() as engine:
        assert once(engine, call_of(new_gid()), lambda _: "done") == "done"
        with pytest.raises(BarrierRowRefused, match="TP-6005"):
            once(engine, call_of(new_gid()), lambda _: "done")


def test_another_key_that_is_taken_is_no_word_of_a_check_back(own_bank: Bank) -> None:
    own_bank.query(ONE_OF_A_KIND)
    with own_bank.engine() as engine:
        assert once(engine, call_of(new_gid()), lambda _: "done") == "done"
        transaction = open_transaction(engine)
        with pytest.raises(BarrierRowRefused):
            begin(transaction, new_gid())
        transaction.rollback()
        transaction.close()


DROPPING = {
    "postgresql": [
        (
            "create function drop_row() returns trigger language plpgsql as $$ begin return null; end $$;"
            "create trigger drop_row before insert on barrier for each row execute function drop_row()"
        ),
        "drop function drop_row() cascade",
    ],
    "sqlite": [
        "create trigger drop_row before insert on barrier begin select raise(ignore); end",
        "drop trigger drop_row",
    ],
}


@pytest.mark.parametrize("kind", [pytest.param("postgresql", marks=pytest.mark.postgres), "sqlite"])
def test_a_trigger_that_drops_the_row_is_named_among_the_causes(banks: dict[str, Bank], kind: str) -> None:
    bank, (dropping, kept) = banks[kind], DROPPING[kind]
    named = r"refuses a row although.*triggers that drop the row"
    bank.query(dropping)
    try:
        with bank.engine() as engine:
            with pytest.raises(BarrierRowRefused, match=named):
                once(engine, call_of(new_gid()), spend)
            producer = open_transaction(engine)
            try:
                with pytest.raises(BarrierRowRefused, match=named):
                    begin(producer, new_gid())
            finally:
                producer.rollback()
                producer.close()
            assert check_back(engine, new_gid()).verdict is Verdict.UNKNOWN
    finally:
        bank.query(kept)
    assert bank.balance() == 100


def test_a_sequence_behind_the_rows_loses_no_branch(postgres_bank: Bank) -> None:
    with postgres_bank.engine() as engine:
        assert once(engine, call_of(new_gid()), spend) == "done"
        postgres_bank.query(
            "select setval(pg_get_serial_sequence('barrier', 'id'), (select min(id) from barrier), false)"
        )
        call = call_of(new_gid())
        with pytest.raises(BarrierRowRefused):
            once(engine, call, spend)
        assert postgres_bank.balance() == 70
        assert once(engine, call, spend) == "done"
    assert postgres_bank.balance() == 40


@pytest.mark.mariadb
def test_a_key_that_was_cut_is_no_other_branch(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    for bank in empty_bank(request, "mysql", tmp_path):
        with bank.engine(connect_args={"sql_mode": ""}) as engine:
            install(engine)
            bank.query("alter table barrier modify column gid varchar(8) collate utf8mb4_bin not null")
            bank.query(
                "insert into barrier (trans_type, gid, branch_id, op, barrier_id, reason)"
                " values ('msg', 'long-gid', '01', 'action', '01', 'action')"
            )
            with pytest.raises(BarrierRowRefused):
                once(engine, call_of("long-gid-and-more"), lambda _: "done")


@pytest.mark.mariadb
def test_a_key_that_a_collation_takes_for_another_is_no_other_branch(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    for bank in empty_bank(request, "mysql", tmp_path):
        with bank.engine() as engine:
            install(engine)
            bank.query("alter table barrier modify column gid varchar(128) collate utf8mb4_general_ci not null")
            assert once(engine, call_of("order-k"), lambda _: "done") == "done"
            with pytest.raises(BarrierRowRefused):
                once(engine, call_of("ORDER-K"), lambda _: "done")


VERSION = {"sqlite": "update_time", "postgresql": "xmin", "mysql": "update_time"}


def test_done_before_is_written_once_more_before_it_is_answered(bank_and_way: BankAndWay) -> None:
    bank, way = bank_and_way
    call, version = call_of(new_gid()), f"select {VERSION[bank.kind]} from barrier"
    with bank.reached(way) as engine:
        assert once(engine, call, spend) == "done"
        bank.query("update barrier set update_time = '2026-01-01 00:00:00'")
        first = bank.query(version)
        assert once(engine, call, spend) is None
        assert bank.query(version) != first
    assert bank.balance() == 70


async def test_an_async_call_writes_it_too(bank_and_async_way: BankAndWay) -> None:
    bank, way = bank_and_async_way
    call, version = call_of(new_gid()), f"select {VERSION[bank.kind]} from barrier"

    async def nothing(_: Any) -> str:
        return "done"

    async with bank.areached(way) as engine:
        assert await aonce(engine, call, nothing) == "done"
        bank.query("update barrier set update_time = '2026-01-01 00:00:00'")
        first = bank.query(version)
        assert await aonce(engine, call, nothing) is None
        assert bank.query(version) != first


def test_done_before_is_not_answered_while_its_row_cannot_be_written(
    postgres_bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = call_of(new_gid())
    with postgres_bank.engine() as engine, postgres_bank.plain() as holder:
        assert once(engine, call, spend) == "done"
        with closing(holder.cursor()) as cursor:
            cursor.execute("select id from barrier for update")
        with monkeypatch.context() as hurried:
            wait_for_locks(hurried, 0.2)
            assert answer_branch(lambda: once(engine, call, spend)).status == 425
        holder.rollback()
        assert once(engine, call, spend) is None


def test_a_branch_that_ended_its_transaction_is_refused_ever_after(bank_and_way: BankAndWay) -> None:
    bank, way = bank_and_way
    call = call_of(new_gid())

    def effect(handle: Any) -> None:
        spend(handle)
        run(handle, "commit")

    with bank.reached(way) as engine, pytest.raises(TransactionLost):
        once(engine, call, effect)
    with bank.reached(way) as engine:
        for _ in range(2):
            with pytest.raises(BranchSpoilt, match="branch 01") as caught:
                once(engine, call, spend)
            assert caught.value.gid == call["gid"]
        assert once(engine, call_of(call["gid"], "02"), spend) == "done"
    assert bank.balance() == 40


def test_a_branch_that_a_person_has_completed_is_done(bank: Bank) -> None:
    call = call_of(new_gid())
    with bank.engine() as engine:
        with pytest.raises(TransactionLost):
            once(engine, call, lambda handle: run(handle, "commit"))
        bank.query("update barrier set reason = 'action'")
        assert once(engine, call, spend) is None
    assert bank.balance() == 100


def test_a_call_during_a_block_that_ended_its_transaction_is_not_answered(bank: Bank) -> None:
    call = call_of(new_gid())

    def effect(handle: Any) -> None:
        run(handle, "commit")
        with bank.engine() as other, pytest.raises(BranchSpoilt):
            once(other, call, spend)

    with bank.engine() as engine, pytest.raises(TransactionLost):
        once(engine, call, effect)


async def test_an_async_branch_that_ended_its_transaction_is_refused_ever_after(
    bank_and_async_way: BankAndWay,
) -> None:
    bank, way = bank_and_async_way
    call = call_of(new_gid())

    async def effect(handle: Any) -> None:
        await (handle.execute("commit") if hasattr(handle, "fetch") else handle.commit())

    async with bank.areached(way) as engine:
        with pytest.raises(TransactionLost):
            await aonce(engine, call, effect)
    async with bank.areached(way) as engine:
        with pytest.raises(BranchSpoilt):
            await aonce(engine, call, effect)
