"""The choice among the URL's servers: the one that is no standby.

A standby that is behind would be believed: a reader on it would report rows of this node as gone that exist. The
driver tries the hosts too, but within one bound for all of them: a machine that is gone, and does not even refuse,
would use it up, and the hosts behind it in the list would never be reached. So every host has its share of the time.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import asyncpg
from asyncpg.exceptions import ReadOnlySQLTransactionError, TargetServerAttributeNotMatched

from twophase.stores.postgres.failures import FAILURES, is_passing

CONNECT_TIMEOUT_S: Final = 3.0
_CONTENT: Final = frozenset({"any", "prefer-standby"})
"""The demands of a URL that a standby meets, too."""


async def connect_primary(url: str, timeout_s: float, **options: Any) -> Any:
    """Return a connection to the first of the hosts that is reached and takes writes.

    Arguments:
        url: one host, or several: `postgresql://user:password@db1:5432,db2:5432/name`.
        timeout_s: for all hosts together.
        options: the driver's.

    Raises:
        ReadOnlySQLTransactionError: those that are reached are standbys.
        asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError: as it comes.
    """
    urls = _each(url)
    options |= {"timeout": min(CONNECT_TIMEOUT_S, timeout_s / len(urls)), "target_session_attrs": _target(url)}
    failure: BaseException | None = None
    for one in urls:
        try:
            return await asyncpg.connect(one, **options)  # type: ignore[no-untyped-call]
        except TargetServerAttributeNotMatched as error:
            if failure is None:
                failure = read_only()
                failure.__cause__ = error
        except FAILURES as error:
            if not is_passing(error):
                raise
            failure = error
    assert failure is not None, "a URL has a host"
    raise failure


def read_only() -> ReadOnlySQLTransactionError:
    """Return the error of a server that must not write."""
    return ReadOnlySQLTransactionError("no server accepts writes")


def _each(url: str) -> list[str]:
    """Return a URL for every host."""
    parts = urlsplit(url)
    login, separator, hosts = parts.netloc.rpartition("@")
    if "," not in hosts or "port" in parse_qs(parts.query):
        return [url]
    return [parts._replace(netloc=f"{login}{separator}{host}").geturl() for host in hosts.split(",")]


def _target(url: str) -> str:
    (named, *_) = parse_qs(urlsplit(url).query).get("target_session_attrs", ["primary"])
    return "primary" if named in _CONTENT else named
