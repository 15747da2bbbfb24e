"""SIGKILL at every failpoint, the banks on PostgreSQL: no promise breaks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.failpoints import CASES, survives
from tests.crash.scene import Scene, build
from tests.servers.postgres import PostgresServer

pytestmark = [pytest.mark.crash, pytest.mark.postgres]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("crash-postgres")
    bank_a = postgres_server.create_database("crash_bank_a")
    bank_b = postgres_server.create_database("crash_bank_b")
    scene = build(folder, bank_a.sqlalchemy_url("psycopg"), bank_b.sqlalchemy_url("psycopg"))
    yield scene
    scene.stop()


@pytest.mark.parametrize(("failpoint", "process", "passage"), CASES, ids=[case[0] for case in CASES])
def test_kill_at(scene: Scene, failpoint: str, process: str, passage: int) -> None:
    survives(scene, failpoint, process, passage)
