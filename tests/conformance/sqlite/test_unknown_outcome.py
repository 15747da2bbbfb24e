"""A COMMIT that fails: the epoch is raised, then the file is read.

Nothing is guessed (correctness rule 20).
"""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.support.items import SetClock, abort, failed_call, flush, live, prepare
from twophase.core.errors import StoreError, StoreFenced, StoreFull
from twophase.stores.batch import Batch
from twophase.stores.sqlite import SqliteStore, connection
from twophase.stores.sqlite.writer import Writer


class Fault(enum.Enum):
    """The fault of a connection's next statements."""

    COMMIT_LOST = "commit raises and has not happened"
    COMMIT_DONE = "commit raises and has happened"
    COMMIT_STUCK = "commit raises, has not happened, and rolling back fails too"


class Faulty(sqlite3.Connection):
    """A real connection whose COMMIT fails on request, which no real disk does."""

    faults: ClassVar[list[Fault]] = []

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql == "rollback" and self.faults[:1] == [Fault.COMMIT_STUCK]:
            self.faults.pop(0)
            raise sqlite3.OperationalError("disk I/O error")
        if sql == "commit" and self.faults:
            if self.faults[0] is Fault.COMMIT_DONE:
                super().execute(sql)
            if self.faults[0] is not Fault.COMMIT_STUCK:
                self.faults.pop(0)
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return super().execute(sql, parameters)


@pytest.fixture(autouse=True)
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Fault]]:
    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: real(*a, factory=Faulty, **k))
    Faulty.faults = []
    yield Faulty.faults
    assert Faulty.faults == [], "every fault was met"


async def _store(folder: Path) -> SqliteStore:
    store = SqliteStore(folder / "store.db", clock=SetClock())
    await store.start()
    return store


def _epoch(folder: Path) -> int:
    raw = sqlite3.connect(folder / "store.db")
    (epoch,) = raw.execute("select epoch from node").fetchone()
    raw.close()
    assert isinstance(epoch, int)
    return epoch


async def test_a_commit_that_did_not_happen_is_an_error_and_the_next_flush_works(
    tmp_path: Path, faults: list[Fault]
) -> None:
    store = await _store(tmp_path)
    faults.append(Fault.COMMIT_LOST)

    with pytest.raises(StoreFull) as caught:
        await flush(store, prepare("g"))

    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert await store.get("g") is None
    assert (await flush(store, prepare("g"))).refused == {}
    await store.stop()


async def test_a_commit_that_happened_all_the_same_is_a_success(tmp_path: Path, faults: list[Fault]) -> None:
    store = await _store(tmp_path)
    await flush(store, prepare("g"))
    known = await live(store, "g")
    faults.append(Fault.COMMIT_DONE)

    result = await store.flush(Batch([prepare("h"), abort("g", version=7)], [failed_call("h")]))

    assert result.refused == {1: known}
    assert (await live(store, "h")).version == 1
    assert await store.attempts("h") == [failed_call("h")]
    assert (await flush(store, abort("h"), abort("g"))).refused == {}
    await store.stop()


@pytest.mark.parametrize("fault", [Fault.COMMIT_LOST, Fault.COMMIT_DONE])
async def test_the_epoch_moves_on_before_the_outcome_is_read(tmp_path: Path, faults: list[Fault], fault: Fault) -> None:
    store = await _store(tmp_path)
    before = _epoch(tmp_path)
    faults.append(fault)

    if fault is Fault.COMMIT_LOST:
        with pytest.raises(StoreFull):
            await flush(store, prepare("g"))
    else:
        await flush(store, prepare("g"))

    assert _epoch(tmp_path) == before + 1
    await store.stop()


async def test_while_it_cannot_be_settled_no_flush_begins_and_then_all_goes_on(
    tmp_path: Path, faults: list[Fault]
) -> None:
    store = await _store(tmp_path)
    faults += [Fault.COMMIT_DONE, Fault.COMMIT_LOST, Fault.COMMIT_DONE, Fault.COMMIT_LOST]

    with pytest.raises(StoreFull):
        await flush(store, prepare("g"))
    with pytest.raises(StoreFull):
        await flush(store, prepare("h"))
    assert await store.get("h") is None
    with pytest.raises(StoreFull):
        await flush(store, prepare("h"))
    assert await store.get("h") is None

    assert (await flush(store, prepare("g"), prepare("h"))).refused == {0: await live(store, "g")}
    await store.stop()


async def test_a_connection_that_cannot_roll_back_is_replaced(tmp_path: Path, faults: list[Fault]) -> None:
    store = await _store(tmp_path)
    faults.append(Fault.COMMIT_STUCK)

    with pytest.raises(StoreError):
        await flush(store, prepare("g"))

    assert await store.get("g") is None
    assert (await flush(store, prepare("g"))).refused == {}
    await store.stop()


def test_a_replaced_connection_knows_its_new_log(tmp_path: Path, faults: list[Fault]) -> None:
    writer = Writer(tmp_path / "store.db", SetClock())
    writer.open()
    faults.append(Fault.COMMIT_STUCK)
    with (tmp_path / "store.db-wal").open("rb"):  # so that the new log cannot get the old one's inode
        with pytest.raises(StoreFull):
            writer.flush(Batch([prepare("g")], []))

        assert writer.flush(Batch([prepare("g")], [])).refused == {}
    writer.close()


def test_a_replaced_connection_writes_only_when_it_is_durable(
    tmp_path: Path, faults: list[Fault], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(tmp_path / "store.db", SetClock())
    writer.open()
    durable = connection.make_durable
    made = []

    def fail_once(opened: sqlite3.Connection) -> None:
        made.append(opened)
        if len(made) == 1:
            raise sqlite3.OperationalError("disk I/O error")
        durable(opened)

    monkeypatch.setattr(connection, "make_durable", fail_once)
    faults.append(Fault.COMMIT_STUCK)
    with pytest.raises(StoreFull):
        writer.flush(Batch([prepare("g")], []))

    assert writer.flush(Batch([prepare("g")], [])).refused == {}
    assert len(made) == 2
    writer.close()


async def test_a_node_replaced_meanwhile_learns_it_instead_of_an_outcome(tmp_path: Path, faults: list[Fault]) -> None:
    store = await _store(tmp_path)
    faults += [Fault.COMMIT_LOST, Fault.COMMIT_LOST]
    with pytest.raises(StoreFull):
        await flush(store, prepare("g"))
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("update node set epoch = epoch + 1, owner = 'another'")
    other.close()

    with pytest.raises(StoreFenced):
        await flush(store, prepare("g"))
    await store.stop()
