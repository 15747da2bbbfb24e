"""A store that gives up soon, for as long as a test wants it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from twophase.stores.postgres import PostgresStore


@contextlib.contextmanager
def in_a_hurry(store: PostgresStore, wait_ms: int) -> Iterator[None]:
    """Let the store's calls give up after `wait_ms` in the block.

    Around it they wait as long as a busy machine may need.
    """
    connections = (store._reconnecting, *store._read_connections)
    patient_ms = [one._wait_ms for one in connections]
    for one in connections:
        one._wait_ms = wait_ms
    try:
        yield
    finally:
        for one, before_ms in zip(connections, patient_ms, strict=True):
            one._wait_ms = before_ms
