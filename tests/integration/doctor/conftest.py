"""The banks of `tests/integration/barrier`, examined."""

from tests.integration.barrier.conftest import bank, banks, furnished_banks, postgres_bank, sqlite_bank

__all__ = ["bank", "banks", "furnished_banks", "postgres_bank", "sqlite_bank"]
