"""The store, clock, settings and observer that a coordinator's parts share.

They are one value instead of seven constructor arguments.
"""

from __future__ import annotations

import msgspec

from twophase.coordinator.observer import Observer
from twophase.coordinator.owners import Owners
from twophase.coordinator.page_turns import PageTurns
from twophase.coordinator.settings import CoordinatorSettings
from twophase.core.hooks import Chance, Clock
from twophase.stores.base import Store


class Runtime(msgspec.Struct, frozen=True):
    """The store, clock, randomness, settings, observer, owners and turns of a node.

    All its parts share them. `clock` is the store's clock where nodes share the store, else the machine's.
    `queue_counts`: the queues of each topic that has more than one: all, and those of its message groups.
    """

    store: Store
    clock: Clock
    random: Chance
    settings: CoordinatorSettings
    observer: Observer
    owners: Owners = msgspec.field(default_factory=Owners)
    page_turns: PageTurns = msgspec.field(default_factory=PageTurns)
    queue_counts: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
