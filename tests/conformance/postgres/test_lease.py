"""Nodes judge each other by their own lease.

So the nodes of one database have the same lease, or do not work together.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.postgres.conftest import LEASE_MS, Join, Raw
from tests.support.items import SetClock, flush, prepare
from twophase.core.errors import ConfigurationError, StoreFenced

OTHER_MS = LEASE_MS // 5


async def test_a_node_with_another_lease_is_refused_and_takes_nothing(join: Join, raw: Raw) -> None:
    one = await join()
    await flush(one, prepare("g"))

    with pytest.raises(ConfigurationError, match=f"slot 1 has a lease of {LEASE_MS} ms, and lease_ms is {OTHER_MS}"):
        await join(lease_ms=OTHER_MS)

    assert raw.execute("select id from node where owner <> ''").fetchall() == [(1,)]
    assert (await flush(one, prepare("h"))).refused == {}
    assert (await join()).slot == (2, 1)


async def test_a_refused_node_marks_no_slot(join: Join, raw: Raw) -> None:
    """A node that reads another lease before it takes a slot raises no epoch.

    It leaves no row behind.
    """
    await join()
    await (await join()).stop()
    before = raw.execute("select id, epoch, fence, owner from node order by id").fetchall()

    with pytest.raises(ConfigurationError):
        await join(lease_ms=OTHER_MS)

    assert raw.execute("select id, epoch, fence, owner from node order by id").fetchall() == before


async def test_of_two_that_start_at_once_not_both_are_let_in(join: Join) -> None:
    await (await join()).stop()

    outcomes = await asyncio.gather(join(), join(lease_ms=OTHER_MS), return_exceptions=True)

    assert ConfigurationError in [type(outcome) for outcome in outcomes]


@pytest.mark.parametrize("stopped", [True, False])
async def test_the_lease_may_change_once_no_node_is_left(join: Join, clock: SetClock, stopped: bool) -> None:
    one = await join()
    if stopped:
        await one.stop()
    else:
        clock.time_ms += LEASE_MS + 1

    assert (await join(lease_ms=OTHER_MS)).lease_ms == OTHER_MS


async def test_a_fenced_node_with_another_lease_does_not_come_back_beside_the_others(
    join: Join, clock: SetClock, raw: Raw
) -> None:
    one = await join()
    clock.time_ms += LEASE_MS + 1
    two = await join(lease_ms=OTHER_MS)
    await two.adopt(10)
    with pytest.raises(StoreFenced):
        await one.heartbeat()

    with pytest.raises(ConfigurationError, match=f"slot 2 has a lease of {OTHER_MS} ms"):
        await one.rejoin()
    await two.stop()
    await one.rejoin()

    assert (await flush(one, prepare("g"))).refused == {}


async def test_a_holder_that_does_not_say_its_lease_is_let_be(join: Join, raw: Raw) -> None:
    """A process of a version that did not write its lease is such a holder."""
    await join()
    raw.execute("update node set owner = 'secret'")

    assert (await join(lease_ms=OTHER_MS)).slot == (2, 1)
