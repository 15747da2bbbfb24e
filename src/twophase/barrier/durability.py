"""The check that a business database keeps what it has confirmed.

This is correctness rule 8. A producer is refused where the database does not: nothing was begun yet. A check-back and
a branch cannot be refused, because the transaction that they serve may be committed: they log it, once per engine.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from twophase.barrier.by_engine import ByEngine
from twophase.barrier.dialect import Dialect, split_table
from twophase.barrier.transaction import Steps, say, text_of
from twophase.core.errors import UnsafeDatabase

_log = logging.getLogger("twophase.barrier")
_ASKED: Final = ByEngine[bool]()
OF_THE_CONNECTION: Final = "read_own_durability"
"""The statement of a database where it is the connection that decides."""


def require_durability(dialect: Dialect, table: str) -> Steps[None]:
    """Refuse a database that confirms commits before they are on disk.

    Raises:
        UnsafeDatabase: naming the setting.
    """
    statement = OF_THE_CONNECTION if OF_THE_CONNECTION in dialect.statements else "read_durability"
    schema, name = split_table(table)
    rows = yield say(dialect, statement, table, schema=schema, name=name)
    dangers = [str(text_of(row[0])) for row in rows if row[0]]
    if dangers:
        raise UnsafeDatabase(f"A crash could take back a confirmed commit: {'; '.join(dangers)}.")


def warn_once(engine: Any, dialect: Dialect, table: str) -> Steps[None]:
    """Log what `require_durability` would refuse, once in some minutes per engine.

    It runs inside the current transaction, behind its first statements: settings that are possible only at its
    beginning are made by then. A database that cannot even be asked fails only the call that asks.

    Arguments:
        engine: what lasts (`ask_engine`): an engine, a pool or an alias of Django's. Of connections that are handed
            over one by one, the first of its kind stands for all.
    """
    lasts = isinstance(engine, str) or hasattr(engine, "pool") or hasattr(engine, "acquire")
    known_by = engine if lasts else type(engine)
    if _ASKED.get(known_by, table):
        return
    _ASKED.remember(known_by, table, True)
    try:
        yield from require_durability(dialect, table)
    except UnsafeDatabase as danger:
        _log.error("%s %s", danger.message, danger.remedy, extra={"code": danger.code})
