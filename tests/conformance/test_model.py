"""Random batches against a store and against a model of a few lines.

Both give the same rows and the same refusals.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.conformance.engines import ENGINES, Engine
from tests.support.items import LONE_SURROGATE, SetClock
from twophase.core.lifecycle import State
from twophase.stores.base import Store
from twophase.stores.batch import (
    Batch,
    Complete,
    Decide,
    DecideEarly,
    Finish,
    FlushResult,
    Insert,
    Item,
    Park,
    Redirect,
    Rejected,
    Reschedule,
)
from twophase.stores.queue_rows import Append
from twophase.stores.rows import DecidedBy, HistoryRow, LiveRow

GIDS = [f"g{number}" for number in range(8)]
POISON = "p" + LONE_SURROGATE

_gids = st.sampled_from([*GIDS, POISON])
_times = st.integers(0, 1_000)
_counts = st.integers(0, 5)
_versions = st.integers(0, 1)
"""0: the row's version; 1: one less."""
_bodies = st.binary(max_size=8)
_items = st.one_of(
    st.builds(Insert, _gids, st.sampled_from([State.PREPARED, State.SUBMITTED]), _times, _bodies),
    st.builds(Decide, _gids, _versions, _times, st.sampled_from(DecidedBy), st.none() | _bodies),
    st.builds(DecideEarly, _gids, _versions, _times, st.sampled_from(DecidedBy), _counts, _counts),
    st.builds(Reschedule, _gids, _versions, _times, _counts, _counts),
    st.builds(Park, _gids, _versions, st.booleans(), _times, st.none() | _counts, st.none() | _counts),
    st.builds(Redirect, _gids, _versions, _times, _counts, _bodies),
    st.builds(Complete, _gids, _counts, _bodies),
    st.builds(
        Finish,
        _gids,
        _versions,
        st.sampled_from([State.SUCCEEDED, State.FAILED]),
        st.sampled_from(["", "why", LONE_SURROGATE]),
        st.sampled_from(["", *DecidedBy]),
        _counts,
        _counts,
    ),
)
_batches = st.lists(
    st.tuples(_items, st.lists(st.integers(0, 1), max_size=2)), max_size=10, unique_by=lambda one: one[0].gid
)
"""Items, and the queues to which each is appended where the lifecycle appends."""


class Model:
    """The rules of the protocol over a dictionary."""

    def __init__(self) -> None:
        self.rows: dict[str, LiveRow | HistoryRow] = {}
        self.seq = 0
        self.queues: dict[int, list[str]] = {0: [], 1: []}
        """The gids in each queue, in their order."""

    def append(self, queue: int, gid: str) -> int:
        """Append to a queue; return the number."""
        self.queues[queue].append(gid)
        return len(self.queues[queue]) - 1

    def apply(self, item: Item, now_ms: int) -> bool:
        """Return True when it applied."""
        row = self.rows.get(item.gid)
        if isinstance(item, Insert):
            if row is None:
                submitted = item.state is State.SUBMITTED
                self.rows[item.gid] = LiveRow(
                    gid=item.gid,
                    state=item.state,
                    version=1,
                    due_ms=now_ms + item.due_in_ms,
                    created_ms=now_ms,
                    decided_ms=now_ms if submitted else 0,
                    decided_by="submit" if submitted else "",
                    attempts=0,
                    parked=False,
                    done=0,
                    body=item.body,
                )
            return row is None
        if isinstance(item, Complete):
            if row is None:
                self.seq += 1
                self.rows[item.gid] = HistoryRow(
                    node=1,
                    seq=self.seq,
                    gid=item.gid,
                    state=State.SUCCEEDED,
                    created_ms=now_ms,
                    decided_ms=now_ms,
                    finished_ms=now_ms,
                    decided_by="submit",
                    reason="",
                    attempts=0,
                    done=item.done,
                    body=item.body,
                )
            return row is None
        if not isinstance(row, LiveRow) or row.version != item.version:
            return False
        return self._change(row, item, now_ms)

    def _change(
        self, row: LiveRow, item: Decide | DecideEarly | Reschedule | Park | Redirect | Finish, now_ms: int
    ) -> bool:
        match item:
            case Decide() | DecideEarly():
                if row.state is not State.PREPARED:
                    return False
                changed = msgspec.structs.replace(
                    row,
                    state=State.SUBMITTED,
                    due_ms=now_ms + item.due_in_ms,
                    decided_ms=now_ms,
                    decided_by=item.decided_by,
                    attempts=0 if isinstance(item, Decide) else item.attempts,
                    parked=False,
                    done=0 if isinstance(item, Decide) else item.done,
                    body=row.body if isinstance(item, DecideEarly) or item.body is None else item.body,
                )
            case Reschedule():
                changed = msgspec.structs.replace(row, due_ms=item.due_ms, attempts=item.attempts, done=item.done)
            case Park():
                changed = msgspec.structs.replace(
                    row,
                    parked=item.parked,
                    due_ms=item.due_ms,
                    attempts=row.attempts if item.attempts is None else item.attempts,
                    done=row.done if item.done is None else item.done,
                )
            case Redirect():
                changed = msgspec.structs.replace(row, due_ms=item.due_ms, attempts=0, done=item.done, body=item.body)
            case Finish():
                self.seq += 1
                self.rows[row.gid] = HistoryRow(
                    node=1,
                    seq=self.seq,
                    gid=row.gid,
                    state=item.state,
                    created_ms=row.created_ms,
                    decided_ms=now_ms if item.decided_by else row.decided_ms,
                    finished_ms=now_ms,
                    decided_by=item.decided_by or row.decided_by,
                    reason=item.reason,
                    attempts=item.attempts,
                    done=item.done,
                    body=row.body,
                )
                return True
        self.rows[row.gid] = msgspec.structs.replace(changed, version=row.version + 1)
        return True


async def _written(store: Store, batch: Batch) -> FlushResult:
    return await store.flush(batch)


def _poisoned(item: Item) -> bool:
    return LONE_SURROGATE in item.gid or (isinstance(item, Finish) and LONE_SURROGATE in item.reason)


def _appends(item: Item) -> bool:
    """Return True for a change with which a queue's branch is appended."""
    decides = isinstance(item, (Insert, Finish)) and item.state in {State.SUBMITTED, State.SUCCEEDED}
    return decides or isinstance(item, (Complete, Decide))


class StoreAgainstModel(RuleBasedStateMachine):
    """The state machine, subclassed for each engine."""

    engine: Engine

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.clock = SetClock(1_000_000)
        self.runner = asyncio.Runner()
        self.model = Model()
        self.branches = 0
        self.store = self._open()

    def _open(self) -> Store:
        store = self.engine.make(Path(self.folder.name), self.clock)
        self.runner.run(store.start())
        return store

    @rule(batch=_batches)
    def flush(self, batch: list[tuple[Item, list[int]]]) -> None:
        items = [self._at_its_version(item) for item, _ in batch]
        appends = {index: self._entries(queues) for index, (item, queues) in enumerate(batch) if _appends(item)}
        before = dict(self.model.rows)
        result = self.runner.run(_written(self.store, Batch(items, [], {}, appends)))

        assert result.at_ms == self.clock.time_ms
        assert set(result.refused) <= set(range(len(items)))
        # What ends is numbered in the order in which the engine wrote it: by kind, or in parts around poison.
        ends = [self.runner.run(self.store.get(item.gid)) for item in items]
        seqs = [row.seq if isinstance(row, HistoryRow) else 0 for row in ends]
        for index in sorted(range(len(items)), key=lambda index: seqs[index]):
            item = items[index]
            told = result.refused.get(index, "applied")
            if isinstance(told, Rejected):
                assert _poisoned(item), told
            elif _poisoned(item):
                # A poisoned change of a missing row may be refused for either cause.
                assert told == before.get(item.gid)
            else:
                applied = self.model.apply(item, self.clock.time_ms)
                assert told == ("applied" if applied else self.model.rows.get(item.gid))
        for index in sorted(appends.keys() - result.refused.keys()):
            taken = [self.model.append(entry.queue, items[index].gid) for entry in appends[index]]
            assert result.numbers.get(index, ()) == tuple(taken)
        self.clock.time_ms += 7

    def _entries(self, queues: list[int]) -> tuple[Append, ...]:
        self.branches += len(queues)
        return tuple(Append("orders", queue, self.branches + at) for at, queue in enumerate(queues))

    def _at_its_version(self, item: Item) -> Item:
        if isinstance(item, (Insert, Complete)):
            return item
        row = self.model.rows.get(item.gid)
        version = row.version if isinstance(row, LiveRow) else 1
        return msgspec.structs.replace(item, version=version - item.version)

    @precondition(lambda self: self.model.rows)
    @rule()
    def restart(self) -> None:
        self.runner.run(self.store.stop())
        self.store = self._open()

    @invariant()
    def the_rows_are_the_same(self) -> None:
        if not hasattr(self, "store"):
            return
        for gid in GIDS:
            assert self.runner.run(self.store.get(gid)) == self.model.rows.get(gid)

    @invariant()
    def the_queues_are_the_same(self) -> None:
        if not hasattr(self, "store"):
            return
        for queue, gids in self.model.queues.items():
            page = self.runner.run(self.store.queue_page("orders", queue, 0, 1_000))
            assert [(entry.number, entry.gid) for entry in page] == list(enumerate(gids))
            assert [entry.body for entry in page] == [self.model.rows[gid].body for gid in gids]

    @invariant()
    def what_is_due_is_the_same(self) -> None:
        if not hasattr(self, "store"):
            return
        until_ms = self.clock.time_ms + 500
        due = [row for row in self.model.rows.values() if isinstance(row, LiveRow)]
        due = [row for row in due if not row.parked and row.due_ms <= until_ms]
        due.sort(key=lambda row: (row.due_ms, row.gid))
        assert self.runner.run(self.store.due(until_ms, (-1, ""), 100)) == due

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.runner.run(self.store.stop())
            self.runner.close()
            self.folder.cleanup()


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_a_store_does_what_the_model_does(engine: Engine) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    machine = type("Machine", (StoreAgainstModel,), {"engine": engine})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=25,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
