"""The statements that write, by their text."""

from __future__ import annotations

import re
from typing import Final

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
