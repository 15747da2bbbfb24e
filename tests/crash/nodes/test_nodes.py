"""Three nodes on one PostgreSQL behind a round-robin.

Nodes, network and database fail in turn, under load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.agreement import assert_agree
from tests.crash.nodes.audited import written
from tests.crash.nodes.checker import check_nodes
from tests.crash.nodes.cluster import LEASE_MS, Cluster, cluster, pause
from tests.crash.nodes.load import run, under_load
from tests.crash.nodes.report import stories
from tests.servers.plugin import running
from tests.servers.postgres import PostgresServer
from tests.spark.plugin import SharedSpark
from tests.support.waiting import blocked_until

pytestmark = [pytest.mark.crash, pytest.mark.postgres, pytest.mark.timeout(400)]

MESSAGES = 20_000
ROUNDS = 2


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Cluster]:
    with running(PostgresServer()) as server, cluster(tmp_path, server) as three:
        yield three


@pytest.mark.long
def test_no_fault_of_nodes_network_or_database_breaks_a_promise(
    nodes: Cluster, shared_spark: SharedSpark, tmp_path: Path
) -> None:
    outcome = run(nodes, messages=MESSAGES, rounds=ROUNDS)
    print("", outcome.summary(), *outcome.findings.violations, sep="\n")
    assert outcome.findings.violations == []
    assert outcome.history_rows >= MESSAGES
    assert outcome.messages - outcome.history_rows < outcome.messages // 20, "few were refused for good"
    assert all(outcome.faults[fault] >= ROUNDS for fault in outcome.faults)
    assert outcome.counts["check-back submits acknowledged"] > MESSAGES // 20
    audited = assert_agree(shared_spark.session(), written(tmp_path, nodes.dsn, outcome.ledger), outcome.findings)
    assert audited.messages >= outcome.history_rows


REST_S = 30
"""Bound on the time from the last outage to the end of every message."""


OUTAGE_LEASE_MS = 3 * LEASE_MS
"""The lease of nodes on a busy machine.

A process may wait seconds there for its turn. A node that does so for a lease is rightly fenced.
"""


@pytest.fixture
def patient_nodes(tmp_path: Path) -> Iterator[Cluster]:
    with running(PostgresServer()) as server, cluster(tmp_path, server, lease_ms=OUTAGE_LEASE_MS) as three:
        yield three


@pytest.mark.long
def test_an_outage_of_the_database_fences_no_node(
    patient_nodes: Cluster, shared_spark: SharedSpark, tmp_path: Path
) -> None:
    nodes = patient_nodes
    with under_load(nodes, seed=1, at_a_time=4) as load:
        pause(1.2 * OUTAGE_LEASE_MS / 1000)  # all have had contact for a lease
        places = [nodes.place_of(node) for node in nodes.nodes]
        for outage_s in (0.2, 1.5 * OUTAGE_LEASE_MS / 1000):
            nodes.server.crash()
            pause(outage_s)
            nodes.server.restart()
            for node in nodes.nodes:
                assert node.wait_until("twophase_store_up", 1.0)
            pause(1.5 * OUTAGE_LEASE_MS / 1000)
        before = Counter(load.ledger.counts)
        enough = before["prepare 200"] + 10 * len(nodes.nodes)
        blocked_until(lambda: load.ledger.counts["prepare 200"] >= enough, "it goes on by itself")
        assert load.ledger.counts["prepare 503"] == before["prepare 503"], "at every node"
        assert [nodes.place_of(node) for node in nodes.nodes] == places
        assert [node.metrics()["twophase_fenced_total"] for node in nodes.nodes] == [0.0, 0.0, 0.0]
        load.enough()
        nodes.wait_rest(REST_S)
        assert stories(nodes, load.ledger) == []
    findings = check_nodes(nodes.dsn, load.ledger)
    assert findings.violations == []
    assert_agree(shared_spark.session(), written(tmp_path, nodes.dsn, load.ledger), findings)
