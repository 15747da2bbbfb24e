"""SIGKILL at every failpoint, with the banks on PostgreSQL.

No promise breaks, and the audit finds none broken.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.crash.agreement import assert_agree
from tests.crash.failpoints import CASES, survives
from tests.crash.harness import Harness, build
from tests.servers.postgres import PostgresServer
from tests.spark.plugin import SharedSpark

pytestmark = [pytest.mark.crash, pytest.mark.postgres, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def harness(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer, shared_spark: SharedSpark
) -> Iterator[Harness]:
    folder = tmp_path_factory.mktemp("crash-postgres")
    # The server is the whole run's: another worker that takes some of these tests makes its own two databases.
    names = [f"crash_{bank}_{secrets.token_hex(6)}" for bank in ("bank_a", "bank_b")]
    bank_a, bank_b = (postgres_server.create_database(name) for name in names)
    harness = build(folder, bank_a.sqlalchemy_url("psycopg"), bank_b.sqlalchemy_url("psycopg"))
    try:
        yield harness
        harness.stop()
        if harness.has_run:
            assert_agree(shared_spark.session(), harness.locations(), harness.check())
    finally:
        for name in names:
            postgres_server.drop_database(name)


@pytest.mark.parametrize(("failpoint", "process", "passage"), CASES, ids=[case[0] for case in CASES])
def test_kill_at(harness: Harness, failpoint: str, process: str, passage: int) -> None:
    survives(harness, failpoint, process, passage)
