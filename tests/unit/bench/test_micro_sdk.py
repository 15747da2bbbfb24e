"""The measurement of the SDK's own Python still plays whole messages."""

from __future__ import annotations

import pytest

from benchmarks import sdk


def test_each_sequence_is_played_and_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "_MESSAGES", 2)
    measured = list(sdk.results())
    assert [result.name for result in measured] == [
        "SDK: prepare + submit by hand, CPU without I/O",
        "SDK: a transaction on asyncpg's pool, CPU without I/O",
    ]
