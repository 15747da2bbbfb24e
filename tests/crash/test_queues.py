"""kill -9 under load.

Nothing committed is lost, and nothing acknowledged comes again.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.crash.queue_load import TOPIC
from tests.servers.database import Database
from twophase.core.message import Branch, Message, decode, encode
from twophase.core.queue_message import message_of
from twophase.server.stores import open_store
from twophase.stores.base import Store
from twophase.stores.queue_rows import Entry

KILLS = 4
STEPS_BEFORE_KILL = (200, 1_500)
PATIENCE_S = 300
Steps = list[tuple[str, str]]


def killed(url: str, process: str, steps_max: int) -> Steps:
    """Kill the load after a number of steps; return its steps."""
    with _started(url, process) as running:
        assert running.stdout is not None
        told = [running.stdout.readline() for _ in range(steps_max)]
        running.send_signal(signal.SIGKILL)
        told += running.stdout.readlines()
        assert running.wait(PATIENCE_S) == -signal.SIGKILL, told[-3:]
    return _steps(told)


def drained(url: str) -> Steps:
    """Consume what is left."""
    with _started(url, "last") as running:
        output, _ = running.communicate(timeout=PATIENCE_S)
        assert running.returncode == 0
    return _steps(output.splitlines(keepends=True))


def _started(url: str, process: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.crash.queue_load", url, process]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _steps(told: list[str]) -> Steps:
    """Return the whole lines: the last may be cut."""
    return [(line.split()[0], line.split()[1]) for line in told if line.endswith("\n") and len(line.split()) == 3]


async def entries_of(url: str) -> list[Entry]:
    """Return all entries of the queue, from the store."""
    store = open_store(url)
    await store.start()
    try:
        return [entry async for entry in entries_in(store, TOPIC)]
    finally:
        await store.stop()


async def entries_in(store: Store, topic: str) -> AsyncIterator[Entry]:
    """Yield all entries of a topic with one queue."""
    least = 0
    while page := await store.queue_page(topic, 0, least, 1_000):
        least = page[-1].number + 1
        for entry in page:
            yield entry


def id_of(entry: Entry) -> str:
    """Return the message id of an entry."""
    branch = decode(entry.body).branches[entry.branch]
    return message_of(branch.url, branch.payload).message_id


def check(lives: list[Steps], entries: list[Entry]) -> None:
    """Compare the promises with the queue, and with what consumers got.

    Each process ran after the one before.
    """
    check_queue([step for life in lives for step in life], entries, _in_flight_at_kills(lives))
    earlier: set[str] = set()
    for life in lives:
        given = {id_ for step, id_ in life if step == "given"}
        assert given & earlier == set(), "what was acknowledged is not given out again"
        earlier |= {id_ for step, id_ in life if step == "done"}


def check_queue(steps: Steps, entries: list[Entry], in_flight: set[str]) -> None:
    """Compare the promises with the queue.

    Arguments:
        steps: the steps of all processes.
        entries: of the queue.
        in_flight: what was with consumers of a killed process.
    """
    queued = [*map(id_of, entries)]
    promised = {id_ for step, id_ in steps if step in {"sent", "committed"}}
    rolled_back = {id_ for step, id_ in steps if step == "rolled"}
    halves = {id_ for step, id_ in steps if step == "half"}

    assert [entry.number for entry in entries] == list(range(len(entries)))
    assert [id_ for id_, count in Counter(queued).items() if count > 1] == [], "appended once"
    assert promised - set(queued) == set(), "nothing that was committed is lost"
    assert rolled_back & set(queued) == set(), "nothing that was rolled back is seen"
    assert {id_ for id_ in halves if id_.endswith("commit")} - set(queued) == set(), "each half was decided"
    assert [id_ for id_ in queued if id_.endswith("rollback")] == []
    done = [id_ for step, id_ in steps if step == "done"]
    assert set(queued) - set(done) - in_flight == set(), "everything was consumed"
    assert len(promised) > 100, "there was a load"
    assert len(done) > 100, "on both sides"


def _in_flight_at_kills(lives: list[Steps]) -> set[str]:
    """Return what was with consumers of a killed process.

    Its acknowledgement may have been written.
    """
    return {id_ for life in lives[:-1] for step, id_ in life if step == "given"}


def survive(url: str) -> None:
    """Kill the load several times, drain what is left, and check."""
    choice = random.Random(1)
    lives = [killed(url, f"p{number}", choice.randint(*STEPS_BEFORE_KILL)) for number in range(KILLS)]
    lives.append(drained(url))
    check(lives, asyncio.run(entries_of(url)))


@pytest.mark.timeout(600)
def test_a_killed_process_loses_and_repeats_nothing_on_sqlite(tmp_path: Path) -> None:
    survive(f"sqlite:///{tmp_path / 'store.db'}")


@pytest.mark.postgres
@pytest.mark.timeout(600)
def test_a_killed_process_loses_and_repeats_nothing_on_postgres(postgres_database: Database) -> None:
    survive(postgres_database.dsn)


def test_the_check_notices_what_it_is_for() -> None:
    """Each promise, broken in the steps of a process."""
    entries, steps = _example()
    check([steps, []], entries)
    wrong: list[tuple[list[Steps], list[Entry]]] = [
        ([[*steps, ("sent", "lost-commit")], []], entries),
        ([[*steps, ("rolled", steps[0][1])], []], entries),
        ([steps, [("given", steps[-1][1])]], entries),
        ([steps, []], [*entries, Entry(len(entries), "twice", 0, 0, entries[0].body)]),
        ([steps, []], entries[1:]),
        ([[*steps, ("half", "orphan-commit")], []], entries),
        ([[], [step for step in steps if step != ("done", steps[0][1])]], entries),
    ]
    for lives, queue in wrong:
        with pytest.raises(AssertionError):
            check(lives, queue)


def _example() -> tuple[list[Entry], Steps]:
    ids = [f"{number}-commit" for number in range(101)]
    entries = [
        Entry(number, f"g{number}", 0, 0, encode(Message(f"g{number}", (Branch(f"queue://orders?id={id_}"),))))
        for number, id_ in enumerate(ids)
    ]
    return entries, [(step, id_) for step in ("sent", "given", "done") for id_ in ids]
