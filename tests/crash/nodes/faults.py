"""The faults of a run: every kind, on any node, one after the other, under load."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from tests.crash.nodes.cluster import LEASE_MS, Cluster, Node, pause, place_in

_LEASE_S = LEASE_MS / 1000


class Faults:
    """The maker of faults; it notes a node's mistakes during one.

    Arguments:
        cluster: all nodes run, and are left so.
        chance: which node, and for how long.
        on_fault: called after each.
    """

    def __init__(self, cluster: Cluster, chance: random.Random, on_fault: Callable[[], None]) -> None:
        self._cluster = cluster
        self._chance = chance
        self._on_fault = on_fault
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self._kinds: list[Callable[[], None]] = [
            self.kill_a_node,
            self.freeze_a_node,
            self.partition_a_node,
            self.cut_connections,
            self.kill_the_database,
            self.kill_two_nodes,
        ]

    def round(self, peace_s: float) -> None:
        """Make one fault of each kind, in any order, with rest after each.

        The rest is about `peace_s`.
        """
        for fault in self._chance.sample(self._kinds, len(self._kinds)):
            fault()
            self.counts[fault.__name__] += 1
            self._on_fault()
            pause(self._chance.uniform(0.5, 1.5) * peace_s)

    def kill_a_node(self) -> None:
        """Kill a node by kill -9; it starts again soon, or after others adopted its rows."""
        node = self._any()
        node.service.kill()
        pause(self._chance.choice((0.2, 2 * _LEASE_S)))
        node.start()

    def kill_two_nodes(self) -> None:
        """Kill two nodes by kill -9; the third serves alone."""
        victims = self._chance.sample(self._cluster.nodes, 2)
        for node in victims:
            node.service.kill()
        pause(self._chance.uniform(0.2, 1.5 * _LEASE_S))
        self._cluster.start()

    def freeze_a_node(self) -> None:
        """Stop a node by SIGSTOP until others have adopted its rows, then continue it.

        It must notice that, and join with a new epoch.
        """
        node = self._any()
        before = node.shown()
        node.freeze()
        taken = self._cluster.wait_taken(place_in(before))
        pause(self._chance.uniform(0.0, 1.0))
        node.thaw()
        self._expect_rejoin(node, before, taken, "frozen")

    def partition_a_node(self) -> None:
        """Drop a node's packets to the database until others have adopted its rows.

        Then the packets arrive, late.
        """
        node = self._any()
        before = node.shown()
        node.proxy.partition()
        taken = self._cluster.wait_taken(place_in(before))
        node.proxy.heal()
        self._expect_rejoin(node, before, taken, "partitioned")

    def cut_connections(self) -> None:
        """Reset every node's connections, a few times: outcomes of flushes get lost."""
        for _ in range(10):
            self._any().proxy.cut()
            pause(self._chance.uniform(0.02, 0.3))

    def kill_the_database(self) -> None:
        """Kill PostgreSQL by kill -9; it recovers by itself, and so do the nodes."""
        self._cluster.server.crash()
        pause(self._chance.choice((0.1, 1.5 * _LEASE_S)))
        self._cluster.server.restart()

    def _any(self) -> Node:
        return self._chance.choice(self._cluster.nodes)

    def _expect_rejoin(self, node: Node, before: dict[str, float], taken: bool, how: str) -> None:
        if not taken:
            self.wrong.append(f"nobody took over from node {node.number} while it was {how}")
        elif not node.wait_until("twophase_joined_total", before["twophase_joined_total"] + 1):
            self.wrong.append(f"node {node.number} did not rejoin after it was {how}: {node.service.log_end()}")
        elif not node.wait_until("twophase_ready", 1.0):
            self.wrong.append(f"node {node.number} accepts nothing after it was {how}")
