"""SIGKILL at every failpoint, with the banks on SQLite.

No promise breaks, and the audit finds none broken.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.agreement import assert_agree
from tests.crash.failpoints import CASES, databases, survives
from tests.crash.harness import Harness, build
from tests.spark.plugin import SharedSpark

pytestmark = [pytest.mark.crash, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory, shared_spark: SharedSpark) -> Iterator[Harness]:
    folder = tmp_path_factory.mktemp("crash-sqlite")
    harness = build(folder, *databases(folder))
    yield harness
    harness.stop()
    if harness.has_run:
        assert_agree(shared_spark.session(), harness.locations(), harness.check())


@pytest.mark.parametrize(("failpoint", "process", "passage"), CASES, ids=[case[0] for case in CASES])
def test_kill_at(harness: Harness, failpoint: str, process: str, passage: int) -> None:
    survives(harness, failpoint, process, passage)
