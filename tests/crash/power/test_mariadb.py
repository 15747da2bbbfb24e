"""An acknowledged commit of MariaDB with a binary log is on the disk.

Otherwise the transaction is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from tests.crash.power.bank import Bank
from tests.crash.power.servers import PowerlessMariadb
from tests.servers.plugin import running
from twophase.barrier import check_back, once
from twophase.barrier.probing import probe
from twophase.core.errors import UnsafeDatabase
from twophase.core.probe import ProbeState
from twophase.core.verdict import Verdict

pytestmark = [pytest.mark.crash, pytest.mark.mariadb]


@pytest.fixture(scope="module")
def server() -> Iterator[PowerlessMariadb]:
    with running(PowerlessMariadb(sync_binlog=1)) as one:
        yield one


def _bank(server: PowerlessMariadb, name: str) -> Bank:
    return Bank(server, f"{server.create_database(name).sqlalchemy_url('pymysql')}?ssl_disabled=true")


@contextlib.contextmanager
def _unsynced(bank: Bank) -> Iterator[None]:
    """MariaDB with its default settings."""
    _sync_binlog(bank, 0)
    try:
        yield
    finally:
        _sync_binlog(bank, 1)


def _sync_binlog(bank: Bank, value: int) -> None:
    with bank.engine.connect() as connection:
        connection.execute(text(f"set global sync_binlog = {value}"))


def test_a_transaction_is_on_the_disk_before_its_submit(server: PowerlessMariadb) -> None:
    bank = _bank(server, "synced")

    bank.transfer()

    assert bank.found() == (70, 1)


def test_a_binary_log_of_statements_alone_takes_verdicts_and_repeated_calls(server: PowerlessMariadb) -> None:
    bank = _bank(server, "statements")
    with bank.engine.connect() as connection:
        connection.execute(text("set global binlog_format = 'STATEMENT'"))
    bank.engine.dispose()
    try:
        call = {"gid": "g", "branch_id": "01", "op": "action", "trans_type": "msg"}
        done = [once(bank.engine, call, lambda _: "done") for _ in range(2)]
        verdict = check_back(bank.engine, "never-began").verdict
        found = probe(bank.engine, None, "barrier", 1_500).probe
    finally:
        with bank.engine.connect() as connection:
            connection.execute(text("set global binlog_format = 'MIXED'"))
    assert (done, verdict, found) == (["done", None], Verdict.ROLLED_BACK, ProbeState.READY)


def test_a_binary_log_that_is_not_synced_is_refused(server: PowerlessMariadb) -> None:
    bank = _bank(server, "unsynced")
    with _unsynced(bank), pytest.raises(UnsafeDatabase):
        bank.transfer()

    assert bank.found() == (100, 0)
