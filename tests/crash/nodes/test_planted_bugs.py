"""The suite proves itself: the checker reports a planted bug.

One line of the fencing is broken, or durability is given up. The audit reads the databases at the end: it knows nothing
of what the witness saw during the run, and must report the same of what is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.crash.agreement import assert_agree
from tests.crash.checker import Findings
from tests.crash.nodes.audited import written
from tests.crash.nodes.checker import check_nodes
from tests.crash.nodes.cluster import LEASE_MS, Cluster, cluster, pause
from tests.crash.nodes.load import Load, under_load
from tests.servers.plugin import running
from tests.servers.postgres import PostgresServer
from tests.spark.plugin import SharedSpark

pytestmark = [pytest.mark.crash, pytest.mark.postgres, pytest.mark.timeout(400)]


@contextmanager
def _scene(folder: Path, planted: str | None = None) -> Iterator[Cluster]:
    with running(PostgresServer()) as server, cluster(folder, server, planted) as nodes:
        yield nodes


def _break(nodes: Cluster, function: str, right: str, wrong: str) -> None:
    """Plant a bug in one of the store's functions."""
    with psycopg.connect(nodes.dsn, autocommit=True) as connection:
        found = connection.execute("select pg_get_functiondef(%s::regproc)", (function,)).fetchone()
        assert found is not None
        assert found[0].count(right) == 1, "the planted bug must reach the code"
        connection.execute(found[0].replace(right, wrong).encode())


def _found(findings: Findings, word: str) -> bool:
    return any(word in sentence for sentence in findings.violations)


def _assert_agree(nodes: Cluster, load: Load, folder: Path, shared_spark: SharedSpark) -> Findings:
    """Assert that the audit reports of what is left what the checker reports.

    Returns the checker's findings. The nodes are stopped.
    """
    for node in nodes.nodes:
        node.service.kill()
    nodes.wait_left()
    findings = check_nodes(nodes.dsn, load.ledger)
    assert_agree(shared_spark.session(), written(folder, nodes.dsn, load.ledger), findings)
    return findings


def _freeze_until(nodes: Cluster, load: Load, word: str) -> bool:
    """Freeze and thaw nodes until the checker, at rest or not, finds `word`."""
    for number in range(6):
        node = nodes.nodes[number % len(nodes.nodes)]
        place = nodes.place_of(node)
        node.freeze()
        nodes.wait_taken(place)
        node.thaw()
        node.wait_until("twophase_joined_total", 2.0)
        pause(0.5)
        if _found(check_nodes(nodes.dsn, load.ledger), word):
            return True
    return False


@pytest.mark.long
def test_a_fence_that_lets_every_node_through_is_caught(tmp_path: Path, shared_spark: SharedSpark) -> None:
    with _scene(tmp_path) as nodes:
        _break(nodes, "twophase_flush_owned", " and node.fence = of_fence", "")
        with under_load(nodes, seed=2) as load:
            pause(LEASE_MS / 1000)
            assert _freeze_until(nodes, load, "which another node had raised")
        _assert_agree(nodes, load, tmp_path, shared_spark)


@pytest.mark.long
def test_an_epoch_ended_before_its_lease_is_caught(tmp_path: Path, shared_spark: SharedSpark) -> None:
    with _scene(tmp_path) as nodes:
        _break(nodes, "twophase_adopt", "silent.seen_ms < now_ms - lease_ms", "silent.seen_ms < now_ms - 100")
        with under_load(nodes, seed=3) as load:
            pause(LEASE_MS / 1000)
            assert _freeze_until(nodes, load, "was taken from its holder")
            load.enough()
        assert _found(_assert_agree(nodes, load, tmp_path, shared_spark), "was taken from its holder")


@pytest.mark.long
def test_an_acknowledgement_before_the_flush_is_caught(tmp_path: Path, shared_spark: SharedSpark) -> None:
    with _scene(tmp_path, "acknowledged_before_flush") as nodes:
        with under_load(nodes, seed=4) as load:
            pause(2.0)
            for node in nodes.nodes:
                node.service.kill()
            load.enough()
        findings = _assert_agree(nodes, load, tmp_path, shared_spark)
        assert _found(findings, "(lost)")
        assert any("lost" in classes for classes in findings.classes.values())
