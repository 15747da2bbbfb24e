"""The identities of barrier tables (rule 6).

They are remembered per engine for some minutes. An engine may give connections of several schemas or databases, one
per tenant. Then nothing is remembered for it: its identity is read before each prepare. The statement that writes the
barrier row returns the identity of the table that it wrote to, so a wrong identity is found before the business.

A connection of `sqlite3` cannot be referred to weakly, so nothing can be remembered for it. There the identity is read
without a transaction, and what is remembered is that the table of this identity was proven.
"""

from __future__ import annotations

from typing import Any

from twophase.barrier.by_engine import ByEngine, chooses_at_checkout
from twophase.barrier.open import peek_identity
from twophase.core.hooks import MonotonicMs, monotonic_ms


class Identities:
    """The known identities of engines' barrier tables."""

    def __init__(self, clock: MonotonicMs = monotonic_ms) -> None:
        """Start empty; `clock` measures the age of a known identity."""
        self._known = ByEngine[str](clock)
        self._switching = ByEngine[bool](lambda: 0.0)
        self._proven = ByEngine[bool](clock)

    def get(self, engine: Any, table: str) -> str | None:
        """Return the identity; None when the table must be proven and its identity read."""
        known = self._known.get(engine, table)
        if known is None:
            seen = peek_identity(engine, table)
            if seen is not None and self._proven.get(seen, table):
                return seen
        return known

    def remember(self, engine: Any, table: str, identity: str) -> None:
        """Keep an identity that was read from a table that was proven.

        It is not kept for the engine when that gives connections of several databases.
        """
        self._proven.remember(identity, table, True)
        if not self._switching.get(engine, table) and not chooses_at_checkout(engine):
            self._known.remember(engine, table, identity)

    def distrust(self, engine: Any, table: str) -> None:
        """Read the identity before each prepare from now on.

        A transaction began in another database than expected.
        """
        self._switching.remember(engine, table, True)
        self._known.forget(engine, table)
