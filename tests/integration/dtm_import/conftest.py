"""Fixtures: dtm's store in each of its databases, a real coordinator, a service.

The service records its calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.integration.dtm_import.services import Service, service
from tests.integration.dtm_import.stores import DtmStore, MysqlStore, PostgresStore, RedisStore
from twophase.testing import InProcessCoordinator

_KINDS: dict[str, tuple[str, Callable[..., DtmStore]]] = {
    "mysql": ("mariadb_database", MysqlStore),
    "postgresql": ("postgres_database", PostgresStore),
    "redis": ("redis_database", RedisStore),
}


@pytest.fixture(
    params=[
        pytest.param("mysql", marks=pytest.mark.mariadb),
        pytest.param("postgresql", marks=pytest.mark.postgres),
        "redis",
    ]
)
def dtm(request: pytest.FixtureRequest) -> Iterator[DtmStore]:
    """An empty store of dtm."""
    yield from _made(request, request.param)


@pytest.fixture(
    params=[
        pytest.param("mysql", marks=pytest.mark.mariadb),
        pytest.param("postgresql", marks=pytest.mark.postgres),
    ]
)
def sql(request: pytest.FixtureRequest) -> Iterator[DtmStore]:
    """An empty store of dtm, in a database."""
    yield from _made(request, request.param)


@pytest.fixture
def mysql(request: pytest.FixtureRequest) -> Iterator[DtmStore]:
    """An empty store of dtm, in MariaDB."""
    yield from _made(request, "mysql")


@pytest.fixture
def postgres(request: pytest.FixtureRequest) -> Iterator[DtmStore]:
    """An empty store of dtm, in PostgreSQL."""
    yield from _made(request, "postgresql")


@pytest.fixture
def keys(request: pytest.FixtureRequest) -> Iterator[DtmStore]:
    """An empty store of dtm, in Redis."""
    yield from _made(request, "redis")


def _made(request: pytest.FixtureRequest, kind: str) -> Iterator[DtmStore]:
    fixture, make = _KINDS[kind]
    with contextlib.closing(make(request.getfixturevalue(fixture))) as store:
        yield store


@pytest.fixture
def coordinator() -> Iterator[InProcessCoordinator]:
    """A real coordinator without messages."""
    with InProcessCoordinator(retry_first_ms=10, retry_cap_ms=50, request_timeout_ms=60_000) as made:
        yield made


@pytest.fixture
def branches() -> Iterator[Service]:
    """A service that takes the calls of every branch."""
    with service() as made:
        yield made
