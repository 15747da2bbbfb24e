"""Named parameters in the styles of the libraries.

This library's statements write them as `:name`.
"""

from __future__ import annotations

import functools
import re

_NAMED = re.compile(r":([a-z_]+)")


@functools.cache
def pyformat(sql: str) -> str:
    """`%(name)s`, as psycopg, PyMySQL and Django take it.

    >>> pyformat("select :gid")
    'select %(gid)s'
    """
    return _NAMED.sub(r"%(\1)s", sql.replace("%", "%%"))


@functools.cache
def numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement in PostgreSQL's own style, `$1`.

    The names are in the order of their numbers.

    >>> numbered("select :gid, :token, :gid")
    ('select $1, $2, $1', ('gid', 'token'))
    """
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return _NAMED.sub(number, sql), tuple(names)
