"""A temporary table that hides the barrier on MariaDB is refused (I2, I6)."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import event

from tests.integration.barrier.test_branch import call_of
from tests.support.business_databases import Bank, new_gid
from twophase.barrier.asking import acheck_back, check_back
from twophase.barrier.branch import aonce, once
from twophase.barrier.open import open_transaction
from twophase.barrier.producer import read_identity
from twophase.barrier.transaction import perform
from twophase.core.errors import BarrierTableUnusable
from twophase.core.verdict import Verdict

pytestmark = pytest.mark.mariadb
HIDE = "create temporary table hiding like barrier"
NAME = "alter table hiding rename to barrier"


def _hide(raw: Any, *_: Any) -> None:
    cursor = raw.cursor()
    try:
        cursor.execute(HIDE)
        cursor.execute(NAME)
    finally:
        cursor.close()


@pytest.mark.parametrize("way", ["engine", "pymysql"])
def test_branch_producer_and_check_back_refuse_it(mysql_bank: Bank, way: str) -> None:
    with mysql_bank.reached(way) as engine:
        if way == "engine":
            event.listen(engine, "connect", _hide)
        else:
            _hide(engine)
        for _ in range(2):
            with pytest.raises(BarrierTableUnusable, match="temporary"):
                once(engine, call_of(new_gid()), lambda _: pytest.fail("the effect ran"))
            answer = check_back(engine, new_gid())
            assert (answer.verdict, answer.evidence[:7]) == (Verdict.UNKNOWN, "TP-6006")
        transaction = open_transaction(engine)
        try:
            with pytest.raises(BarrierTableUnusable, match="temporary"):
                perform(read_identity(transaction.dialect, "barrier"), transaction)
        finally:
            transaction.rollback()
            transaction.close()


async def test_an_async_engine_refuses_it(mysql_bank: Bank) -> None:
    async def effect(_: Any) -> None:
        pytest.fail("the effect ran")

    async with mysql_bank.areached("asyncmy engine") as engine:
        event.listen(engine.sync_engine, "connect", _hide)
        with pytest.raises(BarrierTableUnusable, match="temporary"):
            await aonce(engine, call_of(new_gid()), effect)
        assert (await acheck_back(engine, new_gid())).verdict is Verdict.UNKNOWN
