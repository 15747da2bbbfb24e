"""The worlds that are explored in full.

The protocol is judged by the first; each other adds one trouble.
"""

from __future__ import annotations

from types import MappingProxyType

from .rules import Size

WORLDS = MappingProxyType(
    {
        "two attempts, two nodes": Size(attempts=2, nodes=2, pauses=1),
        "two attempts, swallowed errors": Size(attempts=2, nodes=1, swallowed_errors=True, swallowed_deadlocks=True),
        "three attempts": Size(attempts=3, nodes=1, pauses=0),
        "three nodes": Size(attempts=1, nodes=3, pauses=0),
        "an operator": Size(attempts=1, nodes=2, operator=True),
        "history is purged": Size(attempts=1, nodes=2, history_is_purged=True),
        "barrier rows are cleaned": Size(attempts=2, nodes=1, pauses=0, barrier_is_cleaned=True),
        "barrier rows and history are cleaned": Size(
            attempts=1, nodes=2, history_is_purged=True, barrier_is_cleaned=True
        ),
        "contrary words": Size(attempts=2, nodes=2, contrary_words=True),
        "contrary words, an operator, a purge": Size(
            attempts=1, nodes=2, contrary_words=True, operator=True, history_is_purged=True
        ),
    }
)
