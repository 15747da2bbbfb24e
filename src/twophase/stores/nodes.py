"""The places of a store, as a person is shown them."""

from __future__ import annotations

from typing import Final

import msgspec

NODES_SHOWN_MAX: Final = 1_000


class NodeSeen(msgspec.Struct, frozen=True):
    """A node slot: whether a process holds it, and when the process was last seen.

    The time is the store's clock.
    """

    node: int
    epoch: int
    held: bool
    seen_ms: int
