"""The places of a store, as a person is shown them."""

from __future__ import annotations

from typing import Final

import msgspec

NODES_SHOWN_MAX: Final = 1_000


class NodeSeen(msgspec.Struct, frozen=True):
    """A place: whether a process holds it, and when that was last seen, by the store's clock."""

    node: int
    epoch: int
    held: bool
    seen_ms: int
