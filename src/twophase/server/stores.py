"""Store URLs: which engine, where. The one place that knows concrete stores."""

from __future__ import annotations

from twophase.core.errors import ConfigurationError
from twophase.core.hooks import Clock
from twophase.server.logs import without_credentials
from twophase.stores.base import Store

SQLITE = "sqlite"
POSTGRES = ("postgresql", "postgres")


def open_store(url: str, clock: Clock | None = None, *, lease_ms: int | None = None) -> Store:
    """The store behind a URL; nothing is opened before its `start`.

    Arguments:
        url: `sqlite:///relative.db`, `sqlite:////absolute/path.db`, or `postgresql://user:password@host:port/database`
            with the parameters libpq knows (`?sslmode=verify-full&sslrootcert=…`).
        clock: the store's time, for an engine that has none of its own; the machine's by default.
        lease_ms: on a shared store, how long a node may be silent; the engine's own choice by default.

    Raises:
        ConfigurationError: not a store URL, an engine that is not served, or no path.

    >>> open_store("oracle://scott@db/orcl")
    Traceback (most recent call last):
    twophase.core.errors.ConfigurationError: TP-7000: store: no engine for 'oracle'...
    """
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise ConfigurationError(f"store: {without_credentials(url)!r} is no URL; write sqlite:///file.db.")
    if scheme in POSTGRES:
        return _open_postgres(url, lease_ms)
    if scheme != SQLITE:
        raise ConfigurationError(f"store: no engine for {scheme!r}; there are sqlite and postgresql.")
    from twophase.stores.sqlite.store import SqliteStore  # noqa: PLC0415 -- an engine's libraries load with the engine

    return SqliteStore(sqlite_path(url), clock=clock)


def sqlite_path(url: str) -> str:
    """The file of a SQLite URL.

    Raises:
        ConfigurationError: it names none.

    >>> sqlite_path("sqlite:///twophase.db"), sqlite_path("sqlite:////var/lib/twophase.db")
    ('twophase.db', '/var/lib/twophase.db')
    """
    rest = url.partition("://")[2]
    if not rest.startswith("/") or len(rest) == 1:
        raise ConfigurationError(
            f"store: {url!r} names no file; write sqlite:///relative.db or sqlite:////absolute.db."
        )
    return rest[1:]


def _open_postgres(url: str, lease_ms: int | None) -> Store:
    try:
        from twophase.stores.postgres.store import LEASE_MS, PostgresStore  # noqa: PLC0415 -- the same
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise ConfigurationError("store: PostgreSQL needs asyncpg; run: pip install 'twophase[postgres]'.") from error
    return PostgresStore(url, lease_ms=lease_ms or LEASE_MS)
