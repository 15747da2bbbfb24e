"""A memory of an engine ages.

So a setting that changes in a running process is noticed.
"""

from __future__ import annotations

import pytest

from twophase.barrier import durability
from twophase.barrier.by_engine import KNOWN_MS, ByEngine
from twophase.barrier.dialect import POSTGRESQL
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
    assert caplog.records == []
    clock.now_ms = KNOWN_MS
    ask([["fsync is off"]])
    assert [record.__dict__["code"] for record in caplog.records] == [UnsafeDatabase.code]
