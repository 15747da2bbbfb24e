"""The threads of a server beside an event loop that is never idle (ADR 0013)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from twophase.server import app
from twophase.server.settings import Settings


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


def test_a_thread_waits_half_a_millisecond_for_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush in a thread asks for it twenty times.

    `make bench PARTS=floods` measures the delay of another client.
    """
    intervals: list[float] = []
    prepared: list[bool] = []

    async def serve(*_: Any) -> int:
        intervals.append(sys.getswitchinterval())
        return app.EXIT_CLEAN

    monkeypatch.setattr(app, "_serve", serve)
    monkeypatch.setattr("twophase.server.app.logs.configure", lambda *_, **__: None)  # other tests share the process
    monkeypatch.setattr(app, "keep_large_blocks_apart", lambda: prepared.append(True))
    sys.setswitchinterval(0.005)

    assert app.run(Settings()) == app.EXIT_CLEAN

    assert intervals == [pytest.approx(0.0005)]
    assert prepared, "the allocator, too (`test_allocator`)"
