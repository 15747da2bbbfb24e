"""A memory of engines' barrier tables.

It lasts for some minutes, and at most as long as the engine lives. A record expires, because its facts may change in a
running process: a server's settings, the role of a server behind an address. It is also removed with its engine, or
for another engine's record. asyncpg's Pool cannot be referred to weakly: the last few pools are kept. Of names (an
alias of Django's, an identity) the last thousand are kept.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any, Final, Generic, TypeVar

from twophase.core.hooks import MonotonicMs, monotonic_ms

V = TypeVar("V")
KNOWN_MS: Final = 300_000
"""The age at which an entry is learnt again."""
_HELD_MAX: Final = 8
_NAMES_MAX: Final = 1024


class ByEngine(Generic[V]):
    """A bounded memory of something about an engine's barrier tables."""

    def __init__(self, clock: MonotonicMs = monotonic_ms) -> None:
        """Start empty; `clock` measures the age of records."""
        self._clock = clock
        self._names: dict[str, dict[str, tuple[V, float]]] = {}
        self._known: weakref.WeakKeyDictionary[Any, dict[str, tuple[V, float]]] = weakref.WeakKeyDictionary()
        # The engine is kept beside its record: as long as it is held, no other object has its id.
        self._held: dict[int, tuple[Any, dict[str, tuple[V, float]]]] = {}

    def get(self, engine: Any, table: str) -> V | None:
        """Return the recent record of a table; None without one.

        >>> class Engine: ...
        >>> engine, identities = Engine(), ByEngine[str]()
        >>> identities.remember(engine, "barrier", "7f")
        >>> identities.get(engine, "barrier"), identities.get(engine, "other")
        ('7f', None)
        """
        tables = self._tables(getattr(engine, "sync_engine", engine))
        learnt = None if tables is None else tables.get(table)
        if learnt is None or self._clock() - learnt[1] >= KNOWN_MS:
            return None
        return learnt[0]

    def remember(self, engine: Any, table: str, learnt: V) -> None:
        """Keep what was learnt."""
        engine = _lasting(engine)
        entry = (learnt, self._clock())
        if isinstance(engine, str):
            if engine not in self._names and len(self._names) >= _NAMES_MAX:
                self._names.pop(next(iter(list(self._names)), ""), None)  # a copy: as below
            self._names.setdefault(engine, {})[table] = entry
            return
        try:
            self._known.setdefault(engine, {})[table] = entry
        except TypeError:
            if not hasattr(engine, "acquire"):
                return  # no pool: a connection lent for one use
            if id(engine) not in self._held and len(self._held) >= _HELD_MAX:
                # A copy, because other threads may do the same; the key may already be gone.
                self._held.pop(next(iter(list(self._held)), 0), None)
            self._held.setdefault(id(engine), (engine, {}))[1][table] = entry

    def forget(self, engine: Any, table: str) -> None:
        """Forget a table's record; it is learnt again at the next use."""
        tables = self._tables(_lasting(engine))
        if tables is not None:
            tables.pop(table, None)

    def _tables(self, engine: Any) -> dict[str, tuple[V, float]] | None:
        if isinstance(engine, str):
            return self._names.get(engine)
        held = self._held.get(id(engine))
        if held is not None:
            return held[1]
        try:
            return self._known.get(engine)
        except TypeError:  # not weakly referable, or not hashable
            return None


def _lasting(engine: Any) -> Any:
    """Return the lasting object behind an engine.

    SQLAlchemy's async engines are thin wrappers, made anew for each AsyncSession; the wrapped engine lasts.
    """
    return getattr(engine, "sync_engine", engine)


def chooses_at_checkout(engine: Any) -> bool:
    """Return True when the application prepares each connection before its use.

    It may choose a schema, for example. The database that a Django alias names may change with its settings.
    """
    if isinstance(engine, str):
        return True
    if hasattr(engine, "acquire"):
        return getattr(engine, "_setup", None) is not None  # asyncpg has no other way to ask
    engine = getattr(engine, "sync_engine", engine)
    pool = getattr(engine, "pool", None)
    if pool is None or "sqlalchemy" not in sys.modules:
        return False
    # On SQLite a listener to `begin` is the recipe for SAVEPOINT.
    begins = engine.dialect.name != "sqlite" and bool(engine.dispatch.begin)
    return begins or bool(pool.dispatch.checkout) or bool(engine.dialect.dispatch.do_connect)
