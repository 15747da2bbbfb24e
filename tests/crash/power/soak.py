"""Loss of power at any moment of a flush, over and over: `make soak PARTS=power`.

A process writes to a store as fast as it can and prints what was acknowledged. The power is lost in the middle, and
everything printed must be there. The store continues with what is left, so a loss meets the traces of those before it.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from examples.banks.processes import ROOT
from tests.crash.power.disk import Disk
from tests.crash.power.servers import PowerlessPostgres
from tests.servers.plugin import running
from tests.support.items import abort, prepare
from twophase.stores.base import Store
from twophase.stores.batch import Batch
from twophase.stores.postgres.store import PostgresStore
from twophase.stores.rows import HistoryRow
from twophase.stores.sqlite import SqliteStore

LOSSES = 50
_LINES_MAX = 1_000
_LEASE_MS = 500
_CHECKED_TOGETHER = 50


def open_store(place: str) -> Store:
    """Return the store at a PostgreSQL URL or in a file, not started."""
    return PostgresStore(place, lease_ms=_LEASE_MS) if place.startswith("postgresql") else SqliteStore(Path(place))


async def write(place: str, life: int) -> None:
    """Insert some, finish those of the last flush, print what is durable, and repeat.

    It ends with the power.
    """
    store = open_store(place)
    await store.start()
    before: list[str] = []
    for number in itertools.count():
        gids = [f"life{life}-{number}-{index}" for index in range(number % 7 + 1)]
        result = await store.flush(Batch([*map(prepare, gids), *map(abort, before)], []))
        assert not result.refused
        print(*[f"live {gid}" for gid in gids], *[f"final {gid}" for gid in before], sep="\n", flush=True)
        before = gids


async def missing(place: str, said: Iterable[str]) -> list[str]:
    """Return the acknowledged lines that the store does not hold."""
    if place.startswith("postgresql"):
        return await _missing(place, said)
    with tempfile.TemporaryDirectory() as folder:  # the next life begins with what the loss left, untouched
        copied = shutil.copytree(Path(place).parent, Path(folder) / "data")
        return await _missing(str(copied / Path(place).name), said)


async def _missing(place: str, said: Iterable[str]) -> list[str]:
    store = open_store(place)
    await store.start()
    wrong: list[str] = []
    for line in said:
        state, gid = line.split()
        row = await store.get(gid)
        if row is None or (state == "final" and not isinstance(row, HistoryRow)):
            wrong.append(line)
    await store.stop()
    return wrong


def live(
    place: str,
    number: int,
    lines: int,
    lose_power: Callable[[Callable[[], None]], None],
    environment: Mapping[str, str],
) -> list[str]:
    """Write until the power is lost after `lines` lines; return the printed lines."""
    command = [sys.executable, "-m", "tests.crash.power.soak", "--writer", place, "--life", str(number)]
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **environment, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        said = list(itertools.islice(writer.stdout, lines))
        lose_power(writer.kill)
        said += [line for line in writer.stdout if line.endswith("\n")]
    return said


def lose_often(
    name: str,
    place: str,
    losses: int,
    chance: random.Random,
    lose_power: Callable[[Callable[[], None]], None],
    environment: Mapping[str, str],
) -> list[str]:
    """Return what was lost over all lives; empty when the store keeps its promise."""
    all_said: list[str] = []
    wrong: list[str] = []
    for number in range(losses):
        said = live(place, number, chance.randrange(1, _LINES_MAX), lose_power, environment)
        wrong += asyncio.run(missing(place, said[-_CHECKED_TOGETHER:]))
        all_said += said
        print(f"{name}: {number + 1} of {losses} losses, {len(all_said)} acknowledged, {len(wrong)} lost", flush=True)
    return wrong + asyncio.run(missing(place, chance.sample(all_said, min(len(all_said), 2_000))))


def _on_sqlite(losses: int, chance: random.Random) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "data"
        root.mkdir()
        disk = Disk(root)
        return lose_often("SQLite", str(root / "store.db"), losses, chance, disk.lose_power, disk.environment)


def _on_postgres(losses: int, chance: random.Random) -> list[str]:
    with running(PowerlessPostgres()) as server:
        dsn = server.create_database("coordinator").dsn
        return lose_often("PostgreSQL", dsn, losses, chance, server.lose_power, {})


def main() -> int:
    """Lose the power of both stores; 1 when anything acknowledged is lost."""
    parser = argparse.ArgumentParser(prog="make soak PARTS=power", description="The power goes, over and over.")
    parser.add_argument("--losses", type=int, default=LOSSES, help=f"of each store's power (default {LOSSES})")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="repeats the moments of a run")
    parser.add_argument("--writer", help=argparse.SUPPRESS)
    parser.add_argument("--life", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.writer is not None:
        asyncio.run(write(options.writer, options.life))
    chance = random.Random(options.seed)
    lost = _on_sqlite(options.losses, chance) + _on_postgres(options.losses, chance)
    print(f"seed {options.seed}: {f'lost: {lost[:20]}' if lost else 'nothing acknowledged was lost'}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
