"""The identity of a business database, remembered per engine for as long as the engine lives (rule 6).

Read once per engine and table, not once per transaction: it is a random value written by `twophase barrier
install` that never changes. An engine that cannot be referred to weakly is read each time.
"""

from __future__ import annotations

import weakref
from typing import Any

from twophase.core.errors import OpenTransaction


class Identities:
    """A bounded memory: an entry goes with its engine."""

    def __init__(self) -> None:
        """Starts empty."""
        self._known: weakref.WeakKeyDictionary[Any, dict[str, str]] = weakref.WeakKeyDictionary()

    def get(self, engine: Any, table: str) -> str | None:
        """The identity read before, None when there is none.

        >>> class Engine: ...
        >>> engine, identities = Engine(), Identities()
        >>> identities.remember(engine, "barrier", "7f")
        >>> identities.get(engine, "barrier"), identities.get(engine, "other")
        ('7f', None)
        """
        try:
            tables = self._known.get(_lasting(engine))
        except TypeError:  # neither hashable nor weakly referable
            return None
        return None if tables is None else tables.get(table)

    def remember(self, engine: Any, table: str, identity: str) -> None:
        """Keep what was read."""
        try:
            self._known.setdefault(_lasting(engine), {})[table] = identity
        except TypeError:
            return


def _lasting(engine: Any) -> Any:
    """SQLAlchemy's async engines are thin wrappers, made anew for each AsyncSession; what they wrap lasts."""
    return getattr(engine, "sync_engine", engine)


def require_idle(engine: Any) -> None:
    """Refuse a connection or session in a transaction before anything is sent (rule 2).

    Raises:
        OpenTransaction: it says that it is in one.
    """
    in_transaction = getattr(engine, "in_transaction", None)
    if callable(in_transaction) and in_transaction():
        raise OpenTransaction
