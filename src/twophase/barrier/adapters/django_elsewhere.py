"""Writes that a block's code sends to another Django database than its own.

A router (`DATABASE_ROUTERS`), `using=` or another alias' cursor may do so. Such a write would stay when the block is
rolled back, and could be lost when it commits, so it is refused before it is executed (I1, I6). Reads are not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from twophase.core.errors import OutsideTransaction

_SETTING: Final = "TWOPHASE_OTHER_DATABASES"
_FIRST_WORD: Final = re.compile(r"(?:\s+|\(|/\*.*?\*/|--[^\n]*\n)*([a-z]+)", re.DOTALL | re.IGNORECASE)
_WRITES: Final = frozenset(
    {"insert", "update", "delete", "replace", "merge", "truncate", "copy", "load", "call", "do", "exec"}
)
_WRITES_BEHIND_WITH: Final = re.compile(
    r"\b(?:insert\s+into|merge\s+into|delete\s+from|update\s+\S+\s+(?:\S+\s+){0,2}set)\b", re.IGNORECASE
)


def writes(sql: str) -> bool:
    """Return True for a statement that changes rows, by its first word.

    Savepoints, settings and definitions of tables do not count.

    >>> [writes(sql) for sql in ('INSERT INTO "a" …', "/* shop */ update a set b = 1", "with o as (delete from a …")]
    [True, True, True]
    >>> [writes(sql) for sql in ("SELECT … FOR UPDATE", "(select 1)", 'SAVEPOINT "s1"', "with o as (select 1) …", "")]
    [False, False, False, False, False]
    """
    found = _FIRST_WORD.match(sql)
    word = found[1].lower() if found else ""
    return word in _WRITES or (word == "with" and _WRITES_BEHIND_WITH.search(sql) is not None)


class Elsewhere:
    """The refusal of writes on every alias of this thread but the block's.

    It ends when it is released. It is an `execute_wrapper` of their connections. In a block inside a block, the inner
    one's alias counts.
    """

    def __init__(self, own: BaseDatabaseWrapper) -> None:
        """Begin to refuse.

        Arguments:
            own: the connection of the block.
        """
        self._own = own
        self._outer = [one for one in own.execute_wrappers if isinstance(one, Elsewhere)]
        self._others = [one for one in _connections() if one is not own and one.alias not in _allowed()]
        self._released = False
        for wrapper in self._outer:
            own.execute_wrappers.remove(wrapper)
        for other in self._others:
            other.execute_wrappers.append(self)

    def __call__(self, execute: Callable[..., Any], sql: Any, params: Any, many: Any, context: Any) -> Any:
        """Execute a statement of another alias; raises OutsideTransaction if it writes."""
        other = context["connection"]
        if not self._released and writes(_text(sql, other)):
            raise OutsideTransaction(
                f"the block's transaction is on the database {self._own.alias!r}, and its code writes to "
                f"{other.alias!r}. The statement was not executed.",
                remedy=f"Write to {self._own.alias!r}: look at DATABASE_ROUTERS and `using=`. Or open the transaction "
                f"on {other.alias!r}. Where a write may stay although the block fails, such as a log, name its alias "
                f"in the setting {_SETTING}.",
            )
        return execute(sql, params, many, context)

    def release(self) -> None:
        """Allow everything again; a second call does nothing."""
        if self._released:
            return
        self._released = True
        for other in self._others:
            if self in other.execute_wrappers:
                other.execute_wrappers.remove(self)
        self._own.execute_wrappers[:0] = [one for one in self._outer if not one._released]  # noqa: SLF001 -- its own kind


def _connections() -> Iterator[BaseDatabaseWrapper]:
    """Return this thread's connections, one for each alias; none is opened by that."""
    for alias in connections:
        try:
            yield connections[alias]
        except (ImproperlyConfigured, ImportError):
            continue  # its driver is not installed here, so nothing can be written there


def _allowed() -> tuple[str, ...]:
    named = getattr(settings, _SETTING, None) or ()
    return (named,) if isinstance(named, str) else tuple(named)


def _text(sql: Any, connection: BaseDatabaseWrapper) -> str:
    if isinstance(sql, str):
        return sql
    if isinstance(sql, bytes):
        return sql.decode(errors="replace")
    as_string = getattr(sql, "as_string", None)  # psycopg's composed statements
    return str(sql) if as_string is None else str(as_string(connection.connection))
