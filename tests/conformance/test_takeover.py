"""The note of a takeover, which audits read."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.engines import Engine
from twophase.stores.base import Store


async def test_the_time_of_a_takeover_never_falls(store: Store, engine: Engine, tmp_path: Path) -> None:
    assert engine.taken_over_ms(tmp_path) is None

    await store.note_takeover(500, again=False)
    assert engine.taken_over_ms(tmp_path) == 500

    await store.note_takeover(900, again=False)
    assert engine.taken_over_ms(tmp_path) == 500

    await store.note_takeover(800, again=True)
    await store.note_takeover(700, again=True)
    assert engine.taken_over_ms(tmp_path) == 800
    assert await store.history_horizon_ms() == 0
