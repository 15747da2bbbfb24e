"""Store URLs: engine and address. Only this module knows concrete stores."""

from __future__ import annotations

import importlib.util
import stat
from pathlib import Path

from twophase.core.credentials import shown
from twophase.core.errors import ConfigurationError
from twophase.core.hooks import Clock
from twophase.stores.base import Store
from twophase.stores.rows import Secrets

SQLITE = "sqlite"
POSTGRES = ("postgresql", "postgres")


def open_store(
    url: str, clock: Clock | None = None, *, lease_ms: int | None = None, secrets: Secrets | None = None
) -> Store:
    """Return the store behind a URL; nothing is opened before its `start`.

    Arguments:
        url: `sqlite:///relative.db`, `sqlite:////absolute/path.db`, or `postgresql://user:password@host:port/database`
            with the parameters libpq knows (`?sslmode=verify-full&sslrootcert=…`).
        clock: the store's time, for an engine that has none of its own; the machine's by default.
        lease_ms: on a shared store, how long a node may be silent; the engine's own choice by default.
        secrets: on a shared store, by which this process holds its node slot.

    Raises:
        ConfigurationError: not a store URL, an engine that is not served, or no path.

    >>> open_store("oracle://scott@db/orcl")
    Traceback (most recent call last):
    twophase.core.errors.ConfigurationError: TP-7000: store: no engine for 'oracle'...
    """
    if _is_postgres(url):
        from twophase.stores.postgres.store import LEASE_MS, PostgresStore  # noqa: PLC0415 -- loads with its engine

        return PostgresStore(url, lease_ms=lease_ms or LEASE_MS, secrets=secrets)
    from twophase.stores.sqlite.store import SqliteStore  # noqa: PLC0415 -- the same

    return SqliteStore(sqlite_path(url), clock=clock)


async def migrate_store(url: str) -> tuple[int, int]:
    """Bring the store's schema to the newest version.

    Returns the version before, 0 for none, and the version after.

    Raises:
        ConfigurationError, StoreError: as `open_store` and `Store.start` say.
    """
    if _is_postgres(url):
        from twophase.stores.postgres.migrating import migrate_database  # noqa: PLC0415 -- the same

        return await migrate_database(url)
    from twophase.stores.sqlite import schema  # noqa: PLC0415 -- the same
    from twophase.stores.sqlite.store import SqliteStore, version_of  # noqa: PLC0415 -- the same

    before = version_of(sqlite_path(url))
    store = SqliteStore(sqlite_path(url))
    await store.start()
    await store.stop()
    return before, schema.SCHEMA_VERSION


def schema_script(url: str) -> str:
    """Return the statements that make a new store of this engine.

    Raises:
        ConfigurationError: as `open_store` says.
    """
    if _is_postgres(url):
        from twophase.stores.postgres.schema import schema  # noqa: PLC0415 -- the same

        return schema()
    sqlite_path(url)
    from twophase.stores.sqlite import schema as sqlite_schema  # noqa: PLC0415 -- the same

    return sqlite_schema.schema()


def is_open_to_others(url: str) -> bool:
    """Return True when every user of this machine may read the store's file."""
    if not url.startswith(SQLITE):
        return False
    file = Path(sqlite_path(url)).absolute()
    try:
        return bool(file.stat().st_mode & stat.S_IROTH and file.parent.stat().st_mode & stat.S_IXOTH)
    except OSError:
        return False


def _is_postgres(url: str) -> bool:
    """Return True for PostgreSQL, False for SQLite.

    Raises:
        ConfigurationError: it is neither, or the library is missing.
    """
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise ConfigurationError(f"store: {shown(url)!r} is no URL; write sqlite:///file.db.")
    if scheme not in (*POSTGRES, SQLITE):
        raise ConfigurationError(f"store: no engine for {scheme!r}; there are sqlite and postgresql.")
    if scheme in POSTGRES and importlib.util.find_spec("asyncpg") is None:
        raise ConfigurationError("store: PostgreSQL needs asyncpg; run: pip install 'twophase[postgres]'.")
    return scheme in POSTGRES


def sqlite_path(url: str) -> str:
    """Return the file of a SQLite URL.

    Raises:
        ConfigurationError: it names none.

    >>> sqlite_path("sqlite:///twophase.db"), sqlite_path("sqlite:////var/lib/twophase.db")
    ('twophase.db', '/var/lib/twophase.db')
    """
    rest = url.partition("://")[2]
    if "?" in rest and not Path(rest[1:]).exists():
        # It would be a part of the file's name: a store without messages beside the right one.
        raise ConfigurationError(f"store: {shown(url)!r} has options, and SQLite's take none; write sqlite:///file.db.")
    if not rest.startswith("/") or len(rest) == 1:
        raise ConfigurationError(
            f"store: {shown(url)!r} names no file; write sqlite:///relative.db or sqlite:////absolute.db."
        )
    return rest[1:]
