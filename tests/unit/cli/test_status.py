"""The lines of `twophase status` claim no more of a node than its slot shows."""

from __future__ import annotations

import pytest

from twophase.cli.operating.status import lines_of
from twophase.core.operating import ServerStatus, ShownNode

NOW_MS = 90_000
LEASE_MS = 10_000


@pytest.mark.parametrize(
    ("node", "line"),
    [
        (ShownNode(1, held=True, seen_ms=NOW_MS, answers=True), "node 1     answers"),
        (ShownNode(2, held=True, seen_ms=NOW_MS - 3_000), "node 2     runs, seen 3 s ago"),
        (
            ShownNode(2, held=True, seen_ms=NOW_MS - 20_000),
            "node 2     is silent for 20 s: the others take over its messages",
        ),
        (
            ShownNode(2, held=False, seen_ms=NOW_MS - 20_000),
            "node 2     is vacant: its process has stopped, or was silent for longer than its lease",
        ),
    ],
    ids=["answers", "runs", "is silent", "stopped, paused or cut off"],
)
def test_a_node_is_shown_by_its_slot(node: ShownNode, line: str) -> None:
    status = ServerStatus("1.0", True, NOW_MS, LEASE_MS, 0, 0, 0, None, None, [node], [])
    assert list(lines_of(status, "http://c"))[-1] == line
