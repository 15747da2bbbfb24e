"""A memory of an engine ages.

So a setting that changes in a running process is noticed.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from twophase.barrier import durability, install
from twophase.barrier.by_engine import KNOWN_MS, ByEngine
from twophase.barrier.dialect import POSTGRESQL
from twophase.barrier.open import peek_identity
from twophase.client.identity import Identities
from twophase.core.errors import UnsafeDatabase


class Engine:
    """An engine of which something is remembered."""

    pool = None


class Clock:
    """Virtual time."""

    now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


def test_identity_is_read_again_after_some_minutes() -> None:
    clock, engine = Clock(), Engine()
    identities = Identities(clock)
    identities.remember(engine, "barrier", "7f")
    clock.now_ms = KNOWN_MS - 1
    assert identities.get(engine, "barrier") == "7f"
    clock.now_ms = KNOWN_MS
    assert identities.get(engine, "barrier") is None


def test_distrusted_engine_is_never_remembered_again() -> None:
    engine, identities = Engine(), Identities()
    identities.remember(engine, "barrier", "7f")
    identities.distrust(engine, "barrier")
    identities.remember(engine, "barrier", "8a")
    assert identities.get(engine, "barrier") is None


def _codes(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the codes of the product's own lines.

    What another test left behind may log too.
    """
    return [record.__dict__["code"] for record in caplog.records if record.name.startswith("twophase")]


def test_server_is_asked_again_after_some_minutes_whether_it_keeps_commits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, engine = Clock(), Engine()
    monkeypatch.setattr(durability, "_ASKED", ByEngine[bool](clock))

    def ask(answer: list[list[str]]) -> None:
        steps = durability.warn_once(engine, POSTGRESQL, "barrier")
        for _ in steps:
            try:
                steps.send(answer)
            except StopIteration:
                return

    ask([])
    ask([["fsync is off"]])
    assert _codes(caplog) == []
    clock.now_ms = KNOWN_MS
    ask([["fsync is off"]])
    assert _codes(caplog) == [UnsafeDatabase.code]


def test_identities_of_many_names_are_forgotten_oldest_first() -> None:
    known = ByEngine[int]()
    for number in range(1025):
        known.remember(f"name {number}", "barrier", number)
    assert known.get("name 0", "barrier") is None
    assert known.get("name 1", "barrier") == 1
    assert known.get("name 1024", "barrier") == 1024


def test_proven_table_of_sqlite3_is_recognized_on_every_connection_until_it_ages(tmp_path: Path) -> None:
    clock = Clock()
    identities = Identities(clock)
    with (
        closing(sqlite3.connect(tmp_path / "bank.db")) as first,
        closing(sqlite3.connect(tmp_path / "bank.db")) as other,
    ):
        install(first)
        assert identities.get(first, "barrier") is None, "not proven yet"
        identity = peek_identity(first, "barrier")
        assert identity is not None
        identities.remember(first, "barrier", identity)
        assert identities.get(first, "barrier") == identities.get(other, "barrier") == identity
        clock.now_ms = KNOWN_MS
        assert identities.get(other, "barrier") is None


def test_file_that_was_made_anew_is_no_proven_one(tmp_path: Path) -> None:
    identities = Identities()
    file = tmp_path / "bank.db"
    for _ in range(2):
        with closing(sqlite3.connect(file)) as connection:
            install(connection)
            assert identities.get(connection, "barrier") is None
            identity = peek_identity(connection, "barrier")
            assert identity is not None
            identities.remember(connection, "barrier", identity)
        file.unlink()


def test_connection_without_a_barrier_has_no_identity_to_peek_at() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        assert peek_identity(connection, "barrier") is None
    assert peek_identity(connection, "barrier") is None, "closed"
    assert peek_identity(Engine(), "barrier") is None
