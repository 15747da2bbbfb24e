"""The banks of `tests/integration/barrier`, behind web frameworks."""

import pytest

from tests.integration.barrier.conftest import bank, banks, furnished_banks, postgres_bank, sqlite_bank

__all__ = ["bank", "banks", "furnished_banks", "lock_timeout_ms", "postgres_bank", "sqlite_bank"]


@pytest.fixture
def lock_timeout_ms() -> int:
    """Of the check-backs, which nothing waits for; a statement takes longer than usual where others are at work."""
    return 10_000
