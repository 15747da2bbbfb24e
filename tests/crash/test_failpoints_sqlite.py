"""SIGKILL at every failpoint, the banks on SQLite: no promise breaks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.failpoints import CASES, databases, survives
from tests.crash.scene import Scene, build

pytestmark = pytest.mark.crash


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("crash-sqlite")
    scene = build(folder, *databases(folder))
    yield scene
    scene.stop()


@pytest.mark.parametrize(("failpoint", "process", "passage"), CASES, ids=[case[0] for case in CASES])
def test_kill_at(scene: Scene, failpoint: str, process: str, passage: int) -> None:
    survives(scene, failpoint, process, passage)
