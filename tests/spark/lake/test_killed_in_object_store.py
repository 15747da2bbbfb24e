"""Archives into an object store die by kill -9 at every point.

The next one goes on, and every row is there once. The store answers as S3 does to a conditional write, which is how a
commit is one instant there. It is on loopback, so no answer is lost on the way.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator, Mapping

import pytest
from deltalake import DeltaTable

from tests.spark.lake.archiving import ARCHIVING, DAY_MS, ROWS_PER_TASK, InProcess, StoppedClock, fail_early
from tests.spark.lake.test_killed import POINTS, cut_short, forget_released
from tests.spark.source.stores import BORN_MS, SqliteUnderTest, finish, gid_of
from tests.support.dying_child import exit_code_of
from tests.support.object_store import object_store
from twophase_spark.lake.checking import verify
from twophase_spark.lake.planning import SETTLING_MS
from twophase_spark.lake.run import Archived, Settings, archive

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(400)]
PLACE = "s3://bucket/lake"


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mapping[str, str]]:
    with object_store() as found:
        for name, value in found.items():
            monkeypatch.setenv(name, value)
        yield found


def archived(url: str, settings: Mapping[str, object] | None = None) -> Archived:
    clock = StoppedClock(BORN_MS + DAY_MS + SETTLING_MS)
    return archive(url, PLACE, Settings(clock, InProcess(), rows_per_task=ROWS_PER_TASK, **(settings or {})))  # type: ignore[arg-type]


def archived_until(url: str, variables: Mapping[str, str], point: str, passage: int) -> None:
    """Archive, and die when the point is reached for the `passage`-th time."""
    os.environ.update(variables)
    passed = itertools.count(1)

    def reached(name: str) -> None:
        if name == point and next(passed) == passage:
            os.kill(os.getpid(), signal.SIGKILL)

    cut_short(reached)
    archived(url, {"reached": reached})


def seqs() -> list[int]:
    """Return what a reader of the table sees now."""
    if not DeltaTable.is_deltatable(f"{PLACE}/history"):
        return []
    return sorted(DeltaTable(f"{PLACE}/history").to_pyarrow_table()["seq"].to_pylist())


@pytest.mark.parametrize("point", POINTS)
def test_nothing_is_lost_and_nothing_is_there_twice(
    sqlite_store: SqliteUnderTest, variables: Mapping[str, str], point: str
) -> None:
    last, kills = 0, 0
    for passage in (1, 2):
        finish(sqlite_store, 1, last + 1, last + 95)  # more than one round
        fail_early(sqlite_store, [gid_of(1, 1)] if passage == 1 else [])
        last += 95
        code = exit_code_of(archived_until, sqlite_store.url, dict(variables), point, passage, imports=ARCHIVING)
        assert code in {0, -signal.SIGKILL}
        kills += code == -signal.SIGKILL
        forget_released(sqlite_store)
        seen = seqs()
        assert len(set(seen)) == len(seen), "a reader of the table saw a row twice"

    assert kills >= 1
    done = archived(sqlite_store.url)
    forget_released(sqlite_store)

    assert seqs() == list(range(1, last + 1))
    assert done.through == {1: last}
    assert verify(PLACE, InProcess(), lambda _: None).faults == ()
