"""Fill of a coordinator."""

from __future__ import annotations

import msgspec


class Gauges(msgspec.Struct, frozen=True):
    """Fill of every bounded part, as of now."""

    active: int
    active_bytes: int
    waiting_for_store: int
    branch_calls: int
    branch_calls_waiting: int
    check_backs: int
    check_backs_waiting: int
    check_addresses: int
    check_addresses_failing: int
    node: int = 0
    epoch: int = 0
