"""A request that a service repeats under its own gid.

The error names the state of the first request.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from twophase import Message, State
from twophase.barrier import install
from twophase.errors import CommittedDespiteError, ContentConflict, Fate, StateConflict
from twophase.testing import InProcessCoordinator

NOWHERE = "http://127.0.0.1:1"


class Overdrawn(Exception):
    """A refusal by the business code."""


class Orders:
    """A producer whose orders carry a key from the caller, which is the gid."""

    def __init__(self, url: str, path: Path) -> None:
        self.url = url
        self.connection = sqlite3.connect(path)
        install(self.connection)
        self.connection.execute("create table orders(pieces integer)")

    def order(self, key: str, pieces: int = 2, fails: BaseException | None = None) -> None:
        message = Message(self.url, key).add(f"{NOWHERE}/reserve", {"pieces": pieces})
        with message.transaction(self.connection, check=f"{NOWHERE}/check") as connection:
            connection.execute("insert into orders values (?)", (pieces,))
            if isinstance(fails, SystemExit):
                connection.commit()  # the process ends between commit and submit
            if fails is not None:
                raise fails

    def pieces(self) -> list[int]:
        return [pieces for (pieces,) in self.connection.execute("select pieces from orders")]


@pytest.fixture(params=["http", "grpc"])
def orders(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Orders]:
    with InProcessCoordinator(grpc_port=0) as coordinator:
        url = coordinator.url if request.param == "http" else coordinator.grpc_url
        one = Orders(url, tmp_path / "orders.db")
        with contextlib.closing(one.connection):
            yield one


def test_a_repeat_of_what_was_submitted_names_the_state_and_runs_nothing(orders: Orders) -> None:
    orders.order("key-1")
    with pytest.raises(StateConflict) as refused:
        orders.order("key-1")

    error = refused.value
    assert (error.state, error.fate, orders.pieces()) == (State.SUBMITTED, Fate.NOT_STARTED, [2])
    assert "prepare is refused: the message is submitted" in error.message
    assert "FAILURE" not in str(error)


def test_a_repeat_of_what_was_rolled_back_says_so(orders: Orders) -> None:
    with pytest.raises(Overdrawn):
        orders.order("key-1", fails=Overdrawn())
    with pytest.raises(StateConflict) as refused:
        orders.order("key-1")
    assert (refused.value.state, refused.value.fate, orders.pieces()) == (State.FAILED, Fate.NOT_STARTED, [])


def test_another_order_under_the_same_key_was_not_started(orders: Orders) -> None:
    Message(orders.url, "key-1").add(f"{NOWHERE}/reserve", {"pieces": 2}).prepare(f"{NOWHERE}/check")
    with pytest.raises(ContentConflict) as refused:
        orders.order("key-1", pieces=3)
    assert (refused.value.state, refused.value.fate, orders.pieces()) == (State.PREPARED, Fate.NOT_STARTED, [])
    assert "FAILURE" not in str(refused.value)


def test_a_repeat_of_what_committed_without_its_submit_is_committed_once(orders: Orders) -> None:
    with pytest.raises(SystemExit):
        orders.order("key-1", fails=SystemExit())
    with pytest.raises(CommittedDespiteError):
        orders.order("key-1")
    assert orders.pieces() == [2]
