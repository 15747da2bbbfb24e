"""A barrier row inside a transaction of the application's Session (decision 4).

The Session has opened the transaction, and ends it itself.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.orm import Session

from tests.support.business_databases import SPEND, Bank, begin, new_gid, verify
from twophase.barrier.open import join_transaction
from twophase.core.errors import AutocommitRefused, TransactionLost, UnsupportedEngine


def _durable(engine: Engine) -> Engine:
    """Set SQLite's durability, as an application that writes before it joins must."""

    @event.listens_for(engine, "connect")
    def _extra(connection: Any, _: object) -> None:
        if engine.dialect.name == "sqlite":
            connection.execute("pragma synchronous = extra")

    return engine


def test_the_row_shares_the_session_s_fate(bank: Bank) -> None:
    kept, dropped = new_gid(), new_gid()
    with bank.engine() as engine, Session(_durable(engine)) as session:
        for gid in (kept, dropped):
            session.execute(text(SPEND))
            begin(join_transaction(session), gid)
            verify(join_transaction(session), gid)
            if gid == kept:
                session.commit()
            else:
                session.rollback()
    assert (bank.reasons(kept), bank.reasons(dropped), bank.balance()) == (["msg"], [], 70)


def test_a_row_inside_a_savepoint_counts_while_the_savepoint_does(bank: Bank) -> None:
    gid = new_gid()
    with bank.engine() as engine, Session(_durable(engine)) as session:
        session.execute(text(SPEND))
        with session.begin_nested():
            begin(join_transaction(session), gid)
            session.flush()
        if bank.kind == "postgresql":
            verify(join_transaction(session), gid)
        session.commit()
    assert bank.reasons(gid) == ["msg"]


def test_a_row_whose_savepoint_is_rolled_back_is_missed(bank: Bank) -> None:
    gid = new_gid()
    with bank.engine() as engine, Session(_durable(engine)) as session:
        session.execute(text(SPEND))
        with contextlib.suppress(LookupError), session.begin_nested():
            begin(join_transaction(session), gid)
            raise LookupError
        with pytest.raises(TransactionLost):
            verify(join_transaction(session), gid)
        session.rollback()
    assert (bank.reasons(gid), bank.balance()) == ([], 100)


def test_an_autocommit_session_is_refused(bank: Bank) -> None:
    with (
        bank.engine(isolation_level="AUTOCOMMIT") as engine,
        Session(engine) as session,
        pytest.raises(AutocommitRefused),
    ):
        join_transaction(session)


def test_only_sessions_are_joined(sqlite_bank: Bank) -> None:
    with sqlite_bank.plain() as connection, pytest.raises(UnsupportedEngine):
        join_transaction(connection)
