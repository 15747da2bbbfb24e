"""The banks of `tests/integration/barrier`, behind web frameworks."""

import pytest

from tests.integration.barrier.conftest import bank, banks, furnished_banks, postgres_bank, sqlite_bank

__all__ = ["bank", "banks", "furnished_banks", "lock_timeout_ms", "postgres_bank", "sqlite_bank"]


@pytest.fixture
def lock_timeout_ms() -> int:
    """Bound of the check-backs' lock waits, which no test waits for.

    A statement takes longer than usual while other tests run.
    """
    return 10_000
