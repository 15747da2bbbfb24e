"""The identity of a business database, remembered per engine for as long as the engine lives (rule 6).

Read once per engine and table, not once per transaction: it is a random value written by `twophase barrier
install` that never changes.
"""

from __future__ import annotations

from typing import Any

from twophase.barrier.by_engine import ByEngine
from twophase.barrier.outer import outer_of
from twophase.core.errors import OpenTransaction

Identities = ByEngine[str]


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
