"""kill -9 in the middle of flushes, over and over, on one store.

What was acknowledged is there, in order, once.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import random
import signal
from pathlib import Path

import pytest

from tests.conformance.crash_writer import write_until_killed
from tests.conformance.engines import ENGINES, Engine
from tests.support.items import SetClock
from twophase.core.audit_log import NO_HASH, recomputed
from twophase.stores.base import Store
from twophase.stores.rows import HistoryRow

pytestmark = pytest.mark.crash

KILLS = 40
CHECKED_EVERY = 8
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.conformance.crash_writer"])
"""A life starts in milliseconds from a process that has imported everything already."""


def _write_and_die(engine: Engine, folder: Path, life: int, chance: random.Random) -> list[tuple[str, bool]]:
    hears, speaks = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=write_until_killed, args=(engine.name, folder, life, speaks))
    process.start()
    speaks.close()
    # It still writes while these lines are read, so the signal meets it anywhere in a flush.
    said: list[tuple[str, bool]] = []
    flushes = chance.randrange(1, 60)
    try:
        for flush in itertools.count(1):
            said += hears.recv()
            if flush == flushes:
                process.kill()
    except EOFError:
        process.join()
    assert process.exitcode == -signal.SIGKILL, "it died of nothing else"
    hears.close()
    engine.bury(folder)
    return said


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_what_was_acknowledged_survives_kill_9(engine: Engine, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    all_said: list[tuple[str, bool]] = []
    checked = 0
    for life in range(KILLS):
        all_said += _write_and_die(engine, tmp_path, life, chance)
        if life % CHECKED_EVERY == CHECKED_EVERY - 1:
            asyncio.run(_check(engine, tmp_path, all_said, checked))
            checked = len(all_said)
    asyncio.run(_check(engine, tmp_path, all_said, 0))
    assert len(all_said) > KILLS, f"seed {seed}: the writers had time to write"


async def _check(engine: Engine, folder: Path, said: list[tuple[str, bool]], begin: int) -> None:
    """Check all of history, and the acknowledged rows from `begin` on.

    A row that is lost once is missing at the end, too.
    """
    store = engine.make(folder, SetClock())
    await store.start()
    finished = [gid for gid, is_finished in said if is_finished]
    history = engine.finished(folder, 0)
    known = set(finished)
    for gid in {gid for gid, _ in said[begin:]}:
        await _check_row(store, gid, must_be_final=gid in known)
    audit_log = await store.audit_chain(0, len(history) + 1)
    end = await store.audit_head()
    await store.stop()

    assert [row.target for row in audit_log] == [gid for _, gid in history], "an act and its row, or neither"
    assert (end.seq, end.hash) == (len(audit_log), audit_log[-1].hash)
    assert [row.previous for row in audit_log] == [NO_HASH, *(row.hash for row in audit_log[:-1])]
    assert [row.hash for row in audit_log] == [recomputed(row) for row in audit_log]
    assert [seq for seq, _ in history] == list(range(1, len(history) + 1)), "no number left out or used twice"
    in_history = [gid for _, gid in history]
    assert len(set(in_history)) == len(in_history)
    assert [gid for gid in in_history if gid in known] == finished, "commit order is the order of acknowledgement"


async def _check_row(store: Store, gid: str, *, must_be_final: bool) -> None:
    row = await store.get(gid)
    assert row is not None, gid
    assert isinstance(row, HistoryRow) or not must_be_final, gid
    assert row.body == gid.encode()
