"""A lake under test: small tasks, a clock of its own, and its tables.

The tables are read as any reader of Delta would.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from deltalake import DeltaTable

from tests.spark.source.stores import BORN_MS, StoreUnderTest
from twophase_spark.lake.checking import Verified, verify
from twophase_spark.lake.planning import SETTLING_MS
from twophase_spark.lake.run import Archived, Settings, Spread, archive
from twophase_spark.lake.tables import Extent, File, Lake
from twophase_spark.lake.workers import here
from twophase_spark.source.schema.tables import Kind

DAY_MS = 86_400_000
MADE_MS = 1_700_000_000_000
ROWS_PER_TASK = 10
ARCHIVING = (
    __name__,
    "tests.spark.lake.test_killed",
    "tests.spark.lake.test_killed_in_object_store",
    "tests.spark.lake.test_purge",
)
"""Modules whose work is done in a process of its own."""


def fail_early(store: StoreUnderTest, gids: Sequence[str], apart_ms: int = 1) -> None:
    """Insert a failed attempt of each message.

    Its time lies before that of PostgreSQL's own clock.
    """
    rows = [
        (gid, "branch", "01", "http://b/in", MADE_MS + n * apart_ms, 500, 7, "", "down") for n, gid in enumerate(gids)
    ]
    columns = "(gid, kind, branch_id, target, at_ms, status, latency_ms, result, error)"
    store.many(f"insert into attempt {columns} values ({', '.join('?' * 9)})", rows)


class StoppedClock:
    """A clock that always shows the same time."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms


class InProcess:
    """Workers that are this process, or the given ones."""

    def __init__(self, spread: Spread = here) -> None:
        self._spread = spread

    def __call__(self, rows: int) -> InProcess:
        return self

    def __enter__(self) -> Spread:
        return self._spread

    def __exit__(self, *_: object) -> None:
        pass


class StoreAt(msgspec.Struct, frozen=True):
    """A store as a child process knows it."""

    url: str


class Archive:
    """A lake at a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, store: StoreUnderTest | StoreAt, spread: Spread = here, **settings: Any) -> Archived:
        """Archive, a day after the planted rows were finished."""
        clock = StoppedClock(BORN_MS + DAY_MS + SETTLING_MS)
        known = Settings(clock, InProcess(spread), rows_per_task=ROWS_PER_TASK)
        return archive(store.url, self.folder, Settings(**{**_fields(known), **settings}))

    def verify(self) -> Verified:
        return verify(self.folder, InProcess(), lambda _: None)

    def rows(self, table: str = "history") -> list[dict[str, Any]]:
        """Return the rows of a table, as any tool sees them, by their key."""
        folder = self.folder / table
        if not DeltaTable.is_deltatable(str(folder)):
            return []
        rows: list[dict[str, Any]] = DeltaTable(folder).to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: (row.get("node", 0), row.get("seq", row.get("id"))))

    def places(self) -> list[tuple[int, int]]:
        """Return (node, seq) of all rows of history."""
        return [(row["node"], row["seq"]) for row in self.rows()]

    def files(self, table: str) -> list[File]:
        """Return the files of a table, by its log."""
        return Lake(self.folder).snapshot().files(Kind(table))

    @property
    def extent(self) -> Extent:
        return Lake(self.folder).snapshot().extent()


def _fields(settings: Settings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in settings.__struct_fields__}
