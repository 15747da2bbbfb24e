"""The queues of the coordinators' stores: their holes, and how far groups are.

What is broken here belongs to no message that is still known: an entry that is gone, or the progress of a group. A
queue's numbers, its entries and the progress of its groups are read in one snapshot, and each changes with all that
must change with it in one commit. So one look is enough.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence

import msgspec

from twophase.core.errors import CannotRead
from twophase.core.queue_message import DEAD_LETTERS
from twophase_spark.readers.database import open_database
from twophase_spark.readers.probe import Source

BROKEN_SHOWN = 100
_ENDS_SQL = "select topic, queue, next_number from queue_counter"
_ENTRIES_SQL = "select topic, queue, min(number), count(*) from queue_entry group by topic, queue"
_PROGRESS_SQL = "select topic, queue, consumers, next_number from queue_progress"
_EMPTIED_SQL = "select distinct target from audit_log where act = 'empty-topic' and at_ms > ?"
EMPTYING_MS = 3_600_000
"""Bound on the time in which an operator's request removes a topic.

Its entries go first, step by step.
"""


class Queue(msgspec.Struct, frozen=True):
    """One queue: its entries, and how far each group has come.

    `first`: the lowest entry that stands, `end` where none does; `end`: the number of the next entry; `done`: by group,
    the number below which it has done all; `is_emptied`: an operator removes the topic, whatever groups have done.
    """

    coordinator: str
    topic: str
    queue: int
    first: int
    end: int
    entries: int
    done: dict[str, int]
    is_emptied: bool = False

    @property
    def faults(self) -> list[str]:
        """Return what is broken, in words.

        Cleaning removes from the old end, up to where every group has come; so what stands has no holes.

        >>> Queue("coordinator", "orders", 0, first=4, end=9, entries=5, done={"billing": 4}).faults
        []
        >>> Queue("coordinator", "orders", 0, first=4, end=9, entries=4, done={"stock": 11}).faults
        ['1 lost from 4 to 8', 'group stock has done 9 to 10, which never were']
        """
        found: list[str] = []
        missing = self.end - self.first - self.entries
        if missing > 0:
            found.append(f"{missing} lost from {self.first} to {self.end - 1}")
        elif missing < 0:
            found.append(f"{-missing} too many: the next entry would have number {self.end}")
        for group, done in sorted(self.done.items()):
            if done < self.first and not self.is_emptied:
                found.append(f"{done} to {self.first - 1} cleaned before group {group} had done them")
            elif done > self.end:
                found.append(f"group {group} has done {self.end} to {done - 1}, which never were")
        return found


class BrokenQueue(msgspec.Struct, frozen=True):
    """A queue that breaks a promise, and how."""

    coordinator: str
    topic: str
    queue: int
    faults: tuple[str, ...]


class Queues(msgspec.Struct, frozen=True):
    """The numbers of all queues, and the first that are broken.

    `dead_letters`: the entries among all that a group could not do; `shown`: at most `BROKEN_SHOWN`.
    """

    queues: int = 0
    entries: int = 0
    dead_letters: int = 0
    broken: int = 0
    shown: tuple[BrokenQueue, ...] = ()


def queues_of(sources: Sequence[Source]) -> Queues:
    """Return the state of the queues in these sources.

    Raises:
        CannotRead: a store cannot be read.
    """
    return summed(queue for source in sources if source.has_queues for queue in _read(source))


def summed(queues: Iterable[Queue]) -> Queues:
    """Return the numbers of these queues."""
    found = list(queues)
    broken = [(queue, faults) for queue in found if (faults := queue.faults)]
    return Queues(
        queues=len(found),
        entries=sum(queue.entries for queue in found),
        dead_letters=sum(queue.entries for queue in found if DEAD_LETTERS in queue.topic),
        broken=len(broken),
        shown=tuple(
            BrokenQueue(queue.coordinator, queue.topic, queue.queue, tuple(faults))
            for queue, faults in broken[:BROKEN_SHOWN]
        ),
    )


def _read(source: Source) -> list[Queue]:
    with open_database(source.location) as database:
        ends = {(topic, queue): int(end) for topic, queue, end in database.rows(_ENDS_SQL)}
        standing = {
            (topic, queue): (int(first), int(count)) for topic, queue, first, count in database.rows(_ENTRIES_SQL)
        }
        done: dict[tuple[str, int], dict[str, int]] = {}
        for topic, queue, group, number in database.rows(_PROGRESS_SQL):
            done.setdefault((topic, queue), {})[group] = int(number)
        firsts = {
            key: standing.get(key, (ends.get(key, 0), 0))[0] for key in ends.keys() | standing.keys() | done.keys()
        }
        emptied: set[str] = set()
        if any(number < firsts[key] for key, groups in done.items() for number in groups.values()):
            since_ms = time.time_ns() // 1_000_000 + source.skew_ms - EMPTYING_MS
            with contextlib.suppress(CannotRead):  # an older store has no audit log, and a user may not read it
                emptied = {str(topic) for (topic,) in database.rows(_EMPTIED_SQL, (since_ms,))}
    found: list[Queue] = []
    for (topic, queue), first in sorted(firsts.items()):
        end, count = ends.get((topic, queue), 0), standing.get((topic, queue), (0, 0))[1]
        groups = done.get((topic, queue), {})
        found.append(Queue(source.location.name, topic, queue, first, end, count, groups, topic in emptied))
    return found
