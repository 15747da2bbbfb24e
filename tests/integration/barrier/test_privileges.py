"""A user of the database without a right that a check-back or a branch needs.

The probe finds it before a crash needs the check-back, and the errors name it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy

from tests.support.business_databases import Bank, new_gid
from twophase.barrier import check_back, once
from twophase.barrier.probing import probe
from twophase.core.errors import TransactionLost
from twophase.core.probe import ProbeState
from twophase.core.verdict import Verdict

pytestmark = pytest.mark.postgres


@pytest.fixture
def without_update(postgres_bank: Bank) -> Iterator[sqlalchemy.Engine]:
    """An engine of a user who may read and insert, and not update."""
    user, password = f"teller_{secrets.token_hex(6)}", secrets.token_hex(8)
    with psycopg.connect(f"postgresql://{postgres_bank.where}", autocommit=True) as owner:
        owner.execute(f"create role {user} login password '{password}'".encode())
        owner.execute(f"grant select, insert on barrier, twophase_meta to {user}".encode())
        url = sqlalchemy.make_url(postgres_bank.url("psycopg")).set(username=user, password=password)
        engine = sqlalchemy.create_engine(url)
        yield engine
        engine.dispose()
        owner.execute(f"drop owned by {user}".encode())
        owner.execute(f"drop role {user}".encode())


def test_a_probe_finds_that_no_check_back_could_be_answered(without_update: sqlalchemy.Engine) -> None:
    assert check_back(without_update, new_gid()).verdict is Verdict.UNKNOWN
    report = probe(without_update, None, "barrier", 1500)
    assert (report.probe, report.message) == (ProbeState.DATABASE_FAILED, "the database failed (SQLSTATE 42501)")
    assert report.remedy.startswith("Grant select, insert and update on the barrier table")


def test_a_branch_names_the_right_and_not_its_function(without_update: sqlalchemy.Engine, postgres_bank: Bank) -> None:
    def effect(_: Any) -> None:
        """Change nothing."""

    gid = new_gid()
    with pytest.raises(TransactionLost, match=r"not allowed \(SQLSTATE 42501\).*Grant select, insert and update"):
        once(without_update, {"gid": gid, "branch_id": "01", "op": "action", "trans_type": "msg"}, effect)
    assert postgres_bank.query(f"select reason from barrier where gid = '{gid}'") == []
