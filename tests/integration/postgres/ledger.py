"""The comparison of a store with its producers and branches.

Producers know the answers to their requests, and branches know their calls. The store is read by plain SQL, without
twophase.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import psycopg

from tests.integration.postgres.traffic import Traffic
from tests.support.server_process import BranchService

SUCCEEDED, FAILED = 4, 5


async def until_at_rest(dsn: str, timeout_s: float = 60.0) -> None:
    """Return when no message is live, or when time is up.

    `violations` then reports it.
    """
    deadline = time.monotonic() + timeout_s
    with psycopg.connect(dsn, autocommit=True) as connection:
        while time.monotonic() < deadline and connection.execute("select 1 from message limit 1").fetchone():
            await asyncio.sleep(0.05)


def violations(dsn: str, traffic: Traffic, branches: BranchService) -> list[str]:
    """Return every broken promise, as a sentence; the store must be at rest."""
    with psycopg.connect(dsn) as connection:
        live = {gid for (gid,) in connection.execute("select gid from message")}
        final = connection.execute("select gid, state, node, seq from history").fetchall()
    state = {gid: number for gid, number, _, _ in final}
    called = {gid for _, gid in branches.calls}
    told = traffic.told.items()
    prepared = {gid for gid, about in told if about.prepared}
    submitted = {gid for gid, about in told if about.submitted}
    aborted = {gid for gid, about in told if about.aborted}
    found = {
        "are both live and final": live & state.keys(),
        "are final twice": {gid for gid, times in Counter(gid for gid, *_ in final).items() if times > 1},
        "share a place in history": {key for key, times in Counter(row[2:] for row in final).items() if times > 1},
        "were acknowledged as prepared and are gone": prepared - state.keys() - live,
        "were acknowledged as submitted and did not succeed": {gid for gid in submitted if state.get(gid) != SUCCEEDED},
        "were acknowledged as submitted and never delivered": submitted - called,
        "were acknowledged as aborted and did not fail": {gid for gid in aborted if state.get(gid) != FAILED},
        "were aborted and called all the same": aborted & called,
        "never came to their end": live,
        "are known to nobody": (state.keys() | live) - traffic.told.keys(),
    }
    sentences = [f"{len(which)} {what}: {sorted(map(str, which))[:5]}" for what, which in found.items() if which]
    return [*sentences, *traffic.unexpected[:5]]
