"""The node slots of a store, as a person is shown them."""

from __future__ import annotations

from tests.support.items import SetClock, flush, prepare
from twophase.stores.base import Store
from twophase.stores.rows import NodeSeen


async def test_a_node_is_shown_with_its_last_sign_of_life(store: Store, clock: SetClock) -> None:
    clock.time_ms += 5
    await flush(store, prepare("g"))

    assert await store.nodes() == [NodeSeen(*store.slot, held=True, seen_ms=clock.time_ms)]
