"""kill -9 of the node that serves a queue, while others live.

Nothing committed is lost, what was acknowledged at any node comes at none again, and what comes twice was in flight.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.crash.test_queues import PATIENCE_S, check_queue, drained, entries_of
from tests.servers.database import Database
from twophase.stores.queue_rows import Entry

KILLS = 3
DONE_BEFORE_KILL = 300
IN_FLIGHT_NS = 10 * 1_000_000_000
"""Time before the end of a process in which its consumers may have something."""


class Step(NamedTuple):
    """A step of a process; all processes tell the time by one clock."""

    at_ns: int
    step: str
    id: str
    process: str


class Processes:
    """The processes under way, and the steps of all."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._news = threading.Condition()
        self.steps: list[Step] = []
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.killed: list[str] = []
        self._readers: list[threading.Thread] = []

    def start(self, name: str) -> None:
        """Start a node with producers and consumers."""
        command = [sys.executable, "-m", "tests.crash.queue_load", self._url, name]
        process = self.running[name] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        reader = threading.Thread(target=self._read, args=(name, process), daemon=True)
        self._readers.append(reader)
        reader.start()
        self._until(lambda: any(one.step == "started" and one.process == name for one in self.steps))

    def kill_owner(self) -> str:
        """Wait until one node serves the queue under load, and kill it; return its name."""
        from_ = len(self.steps)
        found: list[str] = []

        def serves() -> bool:
            done = [one.process for one in self.steps[from_:] if one.step == "done" and one.process in self.running]
            found[:] = [name for name in self.running if done.count(name) >= DONE_BEFORE_KILL]
            return bool(found)

        self._until(serves)
        self._kill(found[0])
        self.killed.append(found[0])
        return found[0]

    def end(self) -> None:
        """Kill what is left."""
        for name in list(self.running):
            self._kill(name)

    def _kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
        assert process.returncode == -signal.SIGKILL, f"{name} ended by itself"

    def join(self) -> None:
        """Read what is left of the output."""
        for reader in self._readers:
            reader.join(PATIENCE_S)

    def _read(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                parts = line.split()
                if line.endswith("\n") and len(parts) == 3:
                    with self._news:
                        self.steps.append(Step(int(parts[2]), parts[0], parts[1], name))
                        self._news.notify_all()

    def _until(self, holds: Callable[[], bool]) -> None:
        with self._news:
            assert self._news.wait_for(holds, PATIENCE_S), "in time"


def check(steps: list[Step], killed: list[str], last: list[tuple[str, str]], entries: list[Entry]) -> None:
    """Compare the promises with the queue, and with what consumers of all nodes got."""
    told = [(one.step, one.id) for one in steps] + last
    ended_ns = {one.process: one.at_ns for one in sorted(steps)}
    in_flight = {one.id for one in steps if one.step == "given" and one.at_ns > ended_ns[one.process] - IN_FLIGHT_NS}
    check_queue(told, entries, in_flight)
    done_at: dict[str, int] = {}
    for one in sorted(steps):
        if one.step == "done":
            done_at.setdefault(one.id, one.at_ns)
        elif one.step == "given":
            assert one.id not in done_at, f"{one.id} was acknowledged before it was given out at {one.process}"
    given_last = {id_ for step, id_ in last if step == "given"}
    assert given_last & done_at.keys() == set(), "what was acknowledged is not given out by the last process"
    assert len(set(killed)) > 1, "several nodes served the queue"


@pytest.mark.postgres
@pytest.mark.crash
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_killed_owner_loses_nothing_and_repeats_only_what_was_in_flight(postgres_database: Database) -> None:
    processes = Processes(postgres_database.dsn)
    try:
        processes.start("n0")
        processes.start("n1")
        for number in range(KILLS):
            processes.kill_owner()
            processes.start(f"n{number + 2}")
    finally:
        processes.end()
    processes.join()
    last = drained(postgres_database.dsn)

    check(processes.steps, processes.killed, last, asyncio.run(entries_of(postgres_database.dsn)))
