"""The identity of a business database, remembered per engine for as long as the engine lives (rule 6).

Read once per engine and table, not once per transaction: it is a random value written by `twophase barrier
install` that never changes. asyncpg's Pool cannot be referred to weakly: the last few of its kind are held on to.
"""

from __future__ import annotations

import weakref
from typing import Any, Final

from twophase.barrier.outer import outer_of
from twophase.core.errors import OpenTransaction

_HELD_MAX: Final = 8


class Identities:
    """A bounded memory: an entry goes with its engine, or makes room for one of another."""

    def __init__(self) -> None:
        """Starts empty."""
        self._known: weakref.WeakKeyDictionary[Any, dict[str, str]] = weakref.WeakKeyDictionary()
        # The engine beside what is known of it: as long as it is held, no other object has its id.
        self._held: dict[int, tuple[Any, dict[str, str]]] = {}

    def get(self, engine: Any, table: str) -> str | None:
        """The identity read before, None when there is none.

        >>> class Engine: ...
        >>> engine, identities = Engine(), Identities()
        >>> identities.remember(engine, "barrier", "7f")
        >>> identities.get(engine, "barrier"), identities.get(engine, "other")
        ('7f', None)
        """
        engine = _lasting(engine)
        held = self._held.get(id(engine))
        if held is not None:
            return held[1].get(table)
        try:
            tables = self._known.get(engine)
        except TypeError:  # not weakly referable, or not hashable
            return None
        return None if tables is None else tables.get(table)

    def remember(self, engine: Any, table: str, identity: str) -> None:
        """Keep what was read."""
        engine = _lasting(engine)
        try:
            self._known.setdefault(engine, {})[table] = identity
        except TypeError:
            if not hasattr(engine, "acquire"):
                return  # no pool: a connection lent for one use, or Django's alias, and what that names may change
            if id(engine) not in self._held and len(self._held) >= _HELD_MAX:
                del self._held[next(iter(self._held))]
            self._held.setdefault(id(engine), (engine, {}))[1][table] = identity


def _lasting(engine: Any) -> Any:
    """SQLAlchemy's async engines are thin wrappers, made anew for each AsyncSession; what they wrap lasts."""
    return getattr(engine, "sync_engine", engine)


def require_idle(engine: Any) -> None:
    """Refuse a connection or session in a transaction before anything is sent (rule 2).

    Raises:
        OpenTransaction: it says that it is in one.
    """
    outer = outer_of(engine)
    if outer is not None:
        outer.require_idle(engine)
        return
    in_transaction = getattr(engine, "in_transaction", None)
    if callable(in_transaction) and in_transaction():
        raise OpenTransaction
