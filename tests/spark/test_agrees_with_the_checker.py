"""The audit and the independent checker look at the same databases, and say the same: kept, or broken in this way.

The checker shares no code with the audit, and sees what customers were told; the audit sees only what the databases
say. On a run that ends well both find nothing; with a bug planted both find its class.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.crash.failpoints import databases
from tests.crash.scene import Scene, build
from twophase.spark.auditing.run import look_into, run
from twophase.spark.inputs.plan import Plan
from twophase.spark.locations import Role, parse_coordinator, parse_named
from twophase.spark.rules.comparison import AuditResult

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(600)]


class Played(msgspec.Struct, frozen=True):
    """What happened on one scene: the checker's sentences, and the audit's counts."""

    sentences: tuple[str, ...]
    audited: AuditResult


def play(folder: Path, name: str) -> Scene:
    """One scene, played to its rest and stopped."""
    folder.mkdir()
    planted = {
        "barrier_insert_missing": {"bank-a": "barrier_insert_missing"},
        "check_back_reads_only": {"bank-a": "check_back_reads_only"},
        "acknowledged_before_flush": {"coordinator": "acknowledged_before_flush"},
        "effect_twice": {"bank-b": "effect_twice"},
    }.get(name, {})
    scene = build(folder, *databases(folder), planted)
    try:
        scene.start()
        _ACTS[name](scene)
    finally:
        scene.stop()
    return scene


def _killed_and_kept(scene: Scene) -> None:
    for number in range(3):
        scene.orphan(number)
    scene.transfers(10, customers=2)
    for service in scene.services:
        service.kill()
        scene.start()
        scene.transfers(5, customers=2)
    scene.wait_rest(60)


def _barrier_insert_missing(scene: Scene) -> None:
    scene.transfers(5)
    scene.wait_rest(30)


def _check_back_reads_only(scene: Scene) -> None:
    scene.transfer()
    scene.transfer_begun_late()
    scene.wait_rest(30)


def _acknowledged_before_flush(scene: Scene) -> None:
    scene.transfers(20, customers=8)
    scene.coordinator.kill()
    scene.start()
    scene.wait_rest(10)


def _effect_twice(scene: Scene) -> None:
    scene.bank_b.kill()
    scene.bank_b.start(failpoint="branch.before_reply:2")
    scene.transfers(5, customers=1)
    assert scene.bank_b.wait_killed(30)
    scene.bank_b.start()
    scene.wait_rest(30)


_ACTS = {
    "kept": _killed_and_kept,
    "barrier_insert_missing": _barrier_insert_missing,
    "check_back_reads_only": _check_back_reads_only,
    "acknowledged_before_flush": _acknowledged_before_flush,
    "effect_twice": _effect_twice,
}
_BOTH_SAY = {
    "barrier_insert_missing": ("barrier rows and business rows of bank A do not match", "ghost"),
    "check_back_reads_only": ("(lost)", "lost"),
    "acknowledged_before_flush": ("committed messages did not succeed", "lost"),
    "effect_twice": ("(duplicate)", "duplicate_effect"),
}


def audit_of(spark: SparkSession, scene: Scene) -> AuditResult:
    """The audit of a scene's databases, as an operator would run it."""
    locations = (
        parse_coordinator(scene.store),
        parse_named(Role.PRODUCER, f"bank-a={scene.database_a}"),
        parse_named(Role.CONSUMER, f"bank-b={scene.database_b}"),
        parse_named(Role.LEDGER, f"bank-b={scene.database_b}#ledger"),
    )
    plan = Plan(locations, grace_s=0)
    return run(spark, plan, look_into(plan)).result


def test_the_audit_and_the_independent_checker_agree(spark: SparkSession, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        scenes = dict(zip(_ACTS, pool.map(lambda name: play(tmp_path / name, name), _ACTS), strict=True))
    played = {name: Played(tuple(scene.check().violations), audit_of(spark, scene)) for name, scene in scenes.items()}

    kept = played.pop("kept")
    assert (kept.sentences, kept.audited.violations) == ((), 0)
    assert kept.audited.messages > 20
    for name, (sentence, flag) in _BOTH_SAY.items():
        one = played[name]
        assert any(sentence in said for said in one.sentences), (name, one.sentences)
        assert one.audited.counts[flag] > 0, (name, one.audited.counts)
