"""The calls that make a store execute every statement it has.

Batches are small and large, and the tables may have any size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.support.items import MADE, abort, failed_call, prepare
from twophase.core.audit_log import AuditEntry, AuditSearch
from twophase.core.lifecycle import State
from twophase.stores.base import Store
from twophase.stores.batch import Batch, Complete, Decide, DecideEarly, Finish, Insert, Item, Park, Redirect, Reschedule
from twophase.stores.queue_rows import Append, Definition, Progress
from twophase.stores.rows import Subscriber
from twophase.stores.search import Search

SIZES = (1, 100)
TIMES = 2
"""Number of executions of each batch.

The store's sessions and functions force the lasting plan from the first execution on.
"""


async def execute_all(store: Store, name: str, *, sizes: Sequence[int] = SIZES, times: int = TIMES) -> None:
    """Call every method of a started store, until each plan is the lasting one.

    Arguments:
        name: distinguishes the gids of this call from those of others.
        sizes, times: of batches, and how often each.
    """
    for time in range(times):
        for size in sizes:
            gids = [f"{name}-{time}-{size}-{number}" for number in range(size)]
            for items in _lives(gids):
                await store.flush(Batch(list(items), [failed_call(gids[0])]))
            await _act(store, f"{name}-{time}-{size}-act", size)
            await _queue(store, f"{name}-{time}-{size}-queued", size)
        await _read_all(store, f"{name}-{time}-{sizes[0]}-0")
    while await store.adopt(60):
        pass
    await store.rejoin()


def _lives(gids: Sequence[str]) -> Iterator[list[Item]]:
    """Yield batches in which messages of these gids are made, changed and ended.

    In each batch some items are refused.
    """
    taken: Insert = prepare(gids[0])
    half = len(gids) // 2
    yield [prepare(gid) for gid in gids]
    yield [*(Decide(gid, 1, 0, "submit") for gid in gids[1:half]), taken]
    yield [DecideEarly(gid, 1, 0, "submit", 1, 1) for gid in gids[max(1, half) :]]
    yield [Reschedule(gid, 2, 5, 1, 0) for gid in gids]
    yield [*(Redirect(gid, 3, 5, 0, b"new") for gid in gids), Redirect("nobody's", 1, 5, 0, b"new")]
    yield [*(Park(gid, 4, parked=True, due_ms=9) for gid in gids[:half]), *(abort(gid, 7) for gid in gids[half:])]
    yield [Finish(gid, 5 if number < half else 4, State.SUCCEEDED) for number, gid in enumerate(gids)]
    yield [abort(gids[0])]
    yield [Decide(gids[0], 9, 0, "submit")]
    yield [Insert(gid, State.SUBMITTED, 0, b"body", 7) for gid in gids]


async def _act(store: Store, name: str, size: int) -> None:
    """Flush operators' acts, some of them refused, and read the audit log."""
    entry = AuditEntry("eve", "", "stop", name)
    gids = [f"{name}-{number}" for number in range(size)]
    acts = dict.fromkeys(range(size), entry)
    await store.flush(Batch([prepare(gid) for gid in gids], [], acts))
    await store.flush(Batch([Redirect(gid, 1, 5, 0, b"new") for gid in gids], [], acts))
    await store.flush(Batch([abort(gid, 2 if at % 2 else 9) for at, gid in enumerate(gids)], [], acts))
    taken: list[Item] = [Insert(f"{gid}-taken", State.SUBMITTED, 0, b"body", 7) for gid in gids]
    await store.flush(Batch(taken, [], acts))
    await store.append_audit([entry])
    seen = await store.tokens_seen()
    await store.note_tokens(seen, {"shop": name}, [entry])
    await store.note_tokens(seen, {}, [entry])
    await store.audit_head()
    await store.audit_chain(0, 100)
    await store.audit_search(AuditSearch(who="eve"), 0, 100)
    await store.purge(await store.now_ms() + 60_000, 1)


async def _queue(store: Store, name: str, size: int) -> None:
    """Append to queues, some of it refused, and read and clean them."""
    gids = [f"{name}-{number}" for number in range(size)]
    entries: dict[int, tuple[Append, ...]] = {
        index: (Append("orders", index % 2, 0), Append("bills", 0, 1)) for index in range(size)
    }
    progress = [Progress("group", "orders", queue, 0, b"") for queue in range(2)]
    completes: list[Item] = [Complete(gid, 1, b"body") for gid in gids]
    await store.flush(Batch(completes, [], {}, entries, progress))
    await store.flush(Batch(completes, [], {}, entries, progress))
    await store.define_queue(Definition("topic", "orders", name), MADE)
    await store.queue_definitions()
    await store.queue_page("orders", 0, 0, 100)
    await store.queue_entries("orders", 1, list(range(100)))
    await store.queue_ends("orders")
    await store.queue_place(gids[0], 0)
    await store.queue_ends_of(["orders", "bills"])
    await store.queue_progress("group", "orders")
    term = await store.own_topic("orders") or 0
    owned = [Progress("group", "orders", queue, 0, b"", term) for queue in range(2)]
    assert (await store.flush(Batch([], [], progress=owned))).lost == frozenset()
    await store.give_up_topic("orders", term)
    await store.announce("here")
    await store.pass_on([(gid, 1) for gid in gids], 1)
    await store.wake(["orders"])
    await store.purge_queues(1, 100, {"orders": 1})
    await store.queue_spans()
    await store.queue_spans("orders")
    await store.queue_first("orders", 0, 0)
    await store.queue_weights("orders", [(0, 0), (0, 1)])
    await store.queue_readers("orders", "group")
    act = AuditEntry("eve", "::1", "change-queue", name)
    made, changed = Definition("group", name, "one"), Definition("group", name, "two")
    await store.change_queue(None, made, act)
    await store.change_queue(made, changed, act)
    await store.change_queue(changed, None, act)
    await store.reset_queues([Progress(name, "bills", 0, 0, b"")], act)
    await store.empty_queue(name, 0, 1, 1)


async def _read_all(store: Store, gid: str) -> None:
    await store.get(gid)
    await store.get("nobody's")
    await store.attempts(gid)
    await store.due(2**62, (-1, ""), 500)
    await store.due(2**62, (5, gid), 500)
    await store.overview()
    await store.waiting_by_owner()
    await store.size_bytes()
    await store.nodes()
    await store.now_ms()
    await store.history_horizon_ms()
    await store.oldest_undecided(2**62, (-1, ""), 100)
    await store.oldest_undecided(2**62, (5, gid), 100)
    await store.later((-1, ""), 100)
    await store.later((5, gid), 100)
    await _look_for(store, Search())
    await _look_for(store, Search(parked=True, gid_prefix=gid, destination="b", created_from_ms=5))
    await _look_for(store, Search(frozenset({State.FAILED}), gid_prefix=gid, destination="b", created_from_ms=5))
    await store.moved([(gid, 1), ("nobody's", 2)])
    await store.moved([(f"{gid}-{number}", 1) for number in range(400)])
    topics = await store.topics()
    assert topics is not None
    await store.topics(topics.revision)
    await store.change_topic(topics.revision, "t", [Subscriber("http://b/in")])
    await store.change_topic(topics.revision + 1, "t", [])
    await store.change_topic(topics.revision + 2, "t", None)
    await store.change_topic(topics.revision, "t", None)
    await store.heartbeat()
    await store.purge(1, 100)
    await store.note_takeover(5, again=True)


async def _look_for(store: Store, wanted: Search) -> None:
    position = (await store.search(wanted, "", 100)).position
    await store.search(wanted, position, 100)
    await store.search(wanted, "h", 100)
