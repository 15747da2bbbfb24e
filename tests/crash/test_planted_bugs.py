"""The crash suite proves itself: with one line broken, the independent checker finds the broken promise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.crash.failpoints import databases
from tests.crash.scene import Scene, build

pytestmark = pytest.mark.crash


@contextmanager
def _scene(folder: Path, planted: dict[str, str]) -> Iterator[Scene]:
    scene = build(folder, *databases(folder), planted)
    try:
        scene.start()
        yield scene
    finally:
        scene.stop()


def _found(scene: Scene, word: str) -> bool:
    return any(word in sentence for sentence in scene.check().violations)


def test_a_missing_barrier_insert_is_caught(tmp_path: Path) -> None:
    with _scene(tmp_path, {"bank-a": "barrier_insert_missing"}) as scene:
        scene.transfers(5)
        scene.wait_rest(20)
        assert _found(scene, "barrier rows and business rows of bank A do not match")


def test_a_check_back_that_only_reads_is_caught(tmp_path: Path) -> None:
    with _scene(tmp_path, {"bank-a": "check_back_reads_only"}) as scene:
        scene.transfer()
        told = scene.transfer_begun_late()
        scene.wait_rest(20)
        assert told.outcome == "contradicted"
        assert _found(scene, "(lost)")


def test_an_acknowledgement_before_the_flush_is_caught(tmp_path: Path) -> None:
    with _scene(tmp_path, {"coordinator": "acknowledged_before_flush"}) as scene:
        scene.transfers(20, customers=8)
        scene.coordinator.kill()
        scene.start()
        scene.wait_rest(5)
        assert _found(scene, "committed messages did not succeed")


def test_an_effect_applied_twice_is_caught(tmp_path: Path) -> None:
    with _scene(tmp_path, {"bank-b": "effect_twice"}) as scene:
        scene.bank_b.kill()
        scene.bank_b.start(failpoint="branch.before_reply:2")
        scene.transfers(5, customers=1)
        assert scene.bank_b.wait_killed(20)
        scene.bank_b.start()
        scene.wait_rest(20)
        assert _found(scene, "(duplicate)")
