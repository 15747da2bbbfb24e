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
from tests.crash.harness import Harness, build
from tests.spark.plugin import SharedSpark

pytestmark = [pytest.mark.crash, pytest.mark.timeout(400)]


@contextmanager
def _scene(folder: Path, planted: dict[str, str]) -> Iterator[Harness]:
    harness = build(folder, *databases(folder), planted)
    try:
        harness.start()
        yield harness
    finally:
        harness.stop()


def _assert_found(harness: Harness, word: str, shared_spark: SharedSpark) -> Counter[str]:
    """Assert that the checker found it, and the audit the same.

    Returns the number of messages in each class.
    """
    findings = harness.check()
    assert any(word in sentence for sentence in findings.violations), findings.violations
    assert_agree(shared_spark.session(), harness.locations(), findings)
    return Counter(flag for flags in findings.classes.values() for flag in flags)


def test_a_missing_barrier_insert_is_caught(tmp_path: Path, shared_spark: SharedSpark) -> None:
    with _scene(tmp_path, {"bank-a": "barrier_insert_missing"}) as harness:
        harness.transfers(5)
        harness.wait_rest(20)
        harness.stop()
        counts = _assert_found(harness, "barrier rows and business rows of bank A do not match", shared_spark)
    assert set(counts) == {"ghost"}


def test_a_check_back_that_only_reads_is_caught(tmp_path: Path, shared_spark: SharedSpark) -> None:
    with _scene(tmp_path, {"bank-a": "check_back_reads_only"}) as harness:
        harness.transfer()
        told = harness.transfer_begun_late()
        harness.wait_rest(20)
        assert told.outcome == "contradicted"
        harness.stop()
        counts = _assert_found(harness, "(lost)", shared_spark)
    assert set(counts) == {"lost", "contrary_verdict"}


def test_an_acknowledgement_before_the_flush_is_caught(tmp_path: Path, shared_spark: SharedSpark) -> None:
    with _scene(tmp_path, {"coordinator": "acknowledged_before_flush"}) as harness:
        harness.transfers(20, customers=8)
        harness.coordinator.kill()
        harness.start()
        harness.wait_rest(5)
        harness.stop()
        counts = _assert_found(harness, "committed messages did not succeed", shared_spark)
    assert counts["lost"] > 0


def test_an_effect_applied_twice_is_caught(tmp_path: Path, shared_spark: SharedSpark) -> None:
    with _scene(tmp_path, {"bank-b": "effect_twice"}) as harness:
        harness.bank_b.kill()
        harness.bank_b.start(failpoint="branch.before_reply:2")
        harness.transfers(5, customers=1)
        assert harness.bank_b.wait_killed(20)
        harness.bank_b.start()
        harness.wait_rest(20)
        harness.stop()
        counts = _assert_found(harness, "(duplicate)", shared_spark)
    assert set(counts) == {"unguarded_effect", "duplicate_effect"}
