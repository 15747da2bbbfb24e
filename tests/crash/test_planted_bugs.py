"""The crash suite proves itself with one line broken.

The independent checker finds the broken promise, and the audit names the same messages in the same classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.crash.agreement import assert_agree
from tests.crash.failpoints import databases
from tests.crash.scene import Scene, build
from tests.spark.plugin import SharedSpark

pytestmark = [pytest.mark.crash, pytest.mark.timeout(400)]


@contextmanager
def _scene(folder: Path, planted: dict[str, str]) -> Iterator[Scene]:
    scene = build(folder, *databases(folder), planted)
    try:
        scene.start()
        yield scene
    finally:
        scene.stop()


def _assert_found(scene: Scene, word: str, shared_spark: SharedSpark) -> Counter[str]:
    """Assert that the checker found it, and the audit the same.

    Returns the number of messages in each class.
    """
    findings = scene.check()
    assert any(word in sentence for sentence in findings.violations), findings.violations
    assert_agree(shared_spark.session(), scene.locations(), findings)
    return Counter(flag for flags in findings.classes.values() for flag in flags)


def test_a_missing_barrier_insert_is_caught(tmp_path: Path, shared_spark: SharedSpark) -> None:
    with _scene(tmp_path, {"bank-a": "barrier_insert_missing"}) as scene:
        scene.transfers(5)
        scene.wait_rest(20)
        scene.stop()
        counts = _assert_found(scene, "barrier rows and business rows of bank A do not match", shared_spark)
    assert set(counts) == {"ghost"}


def test_a_check_back_that_only_reads_is_caught(tmp_path: Path, shared_spark: SharedSpark) -> None:
    with _scene(tmp_path, {"bank-a": "check_back_reads_only"}) as scene:
        scene.transfer()
        told = scene.transfer_begun_late()
        scene.wait_rest(20)
        assert told.outcome == "contradicted"
        scene.stop()
        counts = _assert_found(scene, "(lost)", shared_spark)
    assert set(counts) == {"lost", "contrary_verdict"}


def test_an_acknowledgement_before_the_flush_is_caught(tmp_path: Path, shared_spark: SharedSpark) -> None:
    with _scene(tmp_path, {"coordinator": "acknowledged_before_flush"}) as scene:
        scene.transfers(20, customers=8)
        scene.coordinator.kill()
        scene.start()
        scene.wait_rest(5)
        scene.stop()
        counts = _assert_found(scene, "committed messages did not succeed", shared_spark)
    assert counts["lost"] > 0


def test_an_effect_applied_twice_is_caught(tmp_path: Path, shared_spark: SharedSpark) -> None:
    with _scene(tmp_path, {"bank-b": "effect_twice"}) as scene:
        scene.bank_b.kill()
        scene.bank_b.start(failpoint="branch.before_reply:2")
        scene.transfers(5, customers=1)
        assert scene.bank_b.wait_killed(20)
        scene.bank_b.start()
        scene.wait_rest(20)
        scene.stop()
        counts = _assert_found(scene, "(duplicate)", shared_spark)
    assert set(counts) == {"unguarded_effect", "duplicate_effect"}
