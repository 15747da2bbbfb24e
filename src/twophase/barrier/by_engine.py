"""What is known of an engine, for as long as the engine lives.

Bounded: an entry goes with its engine, or makes room for one of another. asyncpg's Pool cannot be referred to weakly:
the last few of its kind are held on to.
"""

from __future__ import annotations

import weakref
from typing import Any, Final, Generic, TypeVar

V = TypeVar("V")
_HELD_MAX: Final = 8


class ByEngine(Generic[V]):
    """A bounded memory of something about an engine's barrier tables."""

    def __init__(self) -> None:
        """Starts empty."""
        self._known: weakref.WeakKeyDictionary[Any, dict[str, V]] = weakref.WeakKeyDictionary()
        # The engine beside what is known of it: as long as it is held, no other object has its id.
        self._held: dict[int, tuple[Any, dict[str, V]]] = {}

    def get(self, engine: Any, table: str) -> V | None:
        """What was learnt before; None when nothing was.

        >>> class Engine: ...
        >>> engine, identities = Engine(), ByEngine[str]()
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

    def remember(self, engine: Any, table: str, learnt: V) -> None:
        """Keep what was learnt."""
        engine = _lasting(engine)
        try:
            self._known.setdefault(engine, {})[table] = learnt
        except TypeError:
            if not hasattr(engine, "acquire"):
                return  # no pool: a connection lent for one use, or Django's alias, and what that names may change
            if id(engine) not in self._held and len(self._held) >= _HELD_MAX:
                # A copy, and no matter if it is gone: threads may do the same.
                self._held.pop(next(iter(list(self._held)), 0), None)
            self._held.setdefault(id(engine), (engine, {}))[1][table] = learnt


def _lasting(engine: Any) -> Any:
    """SQLAlchemy's async engines are thin wrappers, made anew for each AsyncSession; what they wrap lasts."""
    return getattr(engine, "sync_engine", engine)
