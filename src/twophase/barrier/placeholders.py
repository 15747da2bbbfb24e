"""Named parameters, written `:name` in our statements, in the styles of the libraries."""

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
    """`$1`, as PostgreSQL itself takes it, with the names in the order of their numbers.

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
