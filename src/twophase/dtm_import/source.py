"""The way from the URL that an operator types to a source.

Keeps one promise: the text of a driver's error is shown, and no password.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from twophase.core.credentials import shown, without_credentials
from twophase.core.database_drivers import DRIVERS
from twophase.core.errors import SourceError
from twophase.dtm_import.found import Source

_REDIS: Final = frozenset({"redis", "rediss"})
_DRIVERS: Final = {**DRIVERS, "mariadb": DRIVERS["mysql"]}
"""The drivers by scheme; mariadb:// may mean a MySQL, and the tables are the same."""
_REMEDY: Final = (
    "Write mysql://user:password@host/dtm, postgresql://user:password@host/name or redis://:password@host:6379/0."
)
_BOLT: Final = "dtm's file store (boltdb) cannot be read by other programs; let dtm finish what it has instead."
_TEXT_MAX: Final = 300
_DENIED: Final = frozenset(
    {
        "42501",
        "28P01",
        "28000",
        1044,
        1045,
        1142,
        1143,
        "AuthenticationError",
        "AuthorizationError",
        "NoPermissionError",
    }
)
"""SQLSTATEs, MySQL's error numbers, and the names of Redis' errors."""


def open_source(url: str, *, prefix: str, zone: ZoneInfo | None) -> Source:
    """A source that has been looked at: dtm's tables or keys are there.

    Arguments:
        url: where dtm keeps its transactions.
        prefix: of keys in Redis, dtm's Store.RedisPrefix.
        zone: of dtm's machine, where it is not the database's; Redis holds times with their zone.

    Raises:
        SourceError: it cannot be read; the text says why, and shows no password.
    """
    scheme = url.partition("://")[0].lower()
    if "://" not in url:
        raise SourceError(
            f"{without_credentials(url)!r} is no URL. {_BOLT if url.endswith('.bolt') else ''}".strip(), remedy=_REMEDY
        )
    backend = scheme.partition("+")[0]
    if scheme not in _REDIS and backend not in _DRIVERS:
        raise SourceError(f"{scheme} is not a store of dtm that this version reads. {_BOLT}", remedy=_REMEDY)
    source: Any = None
    try:
        if scheme in _REDIS:
            source = import_module("twophase.dtm_import.redis").RedisSource(url, prefix)
        else:
            source = import_module("twophase.dtm_import.sql").SqlSource(_sql_url(url, backend), zone)
        source.check()
    except SourceError:
        if source is not None:
            source.close()
        raise
    except Exception as error:  # noqa: BLE001 -- whatever a driver raises
        # Without the cause: a driver's error may show what it was given.
        raise unusable(error, url) from None
    found: Source = source
    return found


def unusable(error: Exception, url: str) -> SourceError:
    """Why dtm's store cannot be read, from whatever its driver raised."""
    scheme = url.partition("://")[0].lower()
    name = "redis" if scheme in _REDIS else "postgresql" if scheme.startswith("postgres") else "mysql"
    if isinstance(error, ModuleNotFoundError):
        return SourceError(
            f"the package {error.name!r} is missing, which reads {name}.",
            remedy="Run: pip install 'twophase[dtm-import]'",
        )
    origin = getattr(error, "orig", None) or error
    text = without_credentials(" ".join(str(origin).split()))
    for secret in _secrets(url):
        text = text.replace(secret, "***")
    remedy = "Repair that, then run this again; what was copied stays."
    codes = {getattr(origin, "sqlstate", None), *origin.args[:1]}
    if codes & _DENIED or type(origin).__name__ in _DENIED or "password authentication failed" in text:
        remedy = (
            "Check user, password and rights. Reading is enough: select on trans_global, trans_branch_op and kv; for "
            "Redis +@read, +multi and +exec."
        )
    elif "MOVED" in text:
        remedy = "This is one node of a cluster: name the one that holds dtm's keys."
    return SourceError(f"dtm's store at {shown(url)} cannot be read: {text[:_TEXT_MAX].rstrip('.')}.", remedy=remedy)


def _sql_url(text: str, backend: str) -> Any:
    sqlalchemy = import_module("sqlalchemy")
    try:
        url = sqlalchemy.make_url(text)
    except (sqlalchemy.exc.ArgumentError, ValueError):
        raise SourceError("the URL cannot be read.", remedy=_REMEDY) from None
    if "@" in (url.host or ""):
        # The end of a password; a driver would show it as a host that it does not find.
        raise SourceError("the URL has an '@' in its user or password.", remedy="Write it as %40.")
    return url.set(drivername=_DRIVERS[backend])


def _secrets(url: str) -> list[str]:
    password = url.partition("://")[2].rpartition("@")[0].partition(":")[2]
    return [one for one in {password, unquote(password)} if one]
