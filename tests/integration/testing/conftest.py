"""The banks of `tests/integration/barrier`, for tests that roll everything back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.barrier.conftest import banks, furnished_banks
from tests.support.business_databases import Bank
from tests.support.patient_locks import patient_locks
from tests.support.recording_coordinator import RecordingCoordinator

__all__ = ["bank", "banks", "coordinator", "furnished_banks", "patient_locks"]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def bank(request: pytest.FixtureRequest, banks: dict[str, Bank]) -> Bank:
    """The databases whose savepoints differ most."""
    return banks[request.param]


@pytest.fixture
def coordinator() -> Iterator[RecordingCoordinator]:
    """A coordinator that answers 200 to every request."""
    with RecordingCoordinator().running() as running:
        yield running
