"""Store URLs: which engine, where. The one place that knows concrete stores."""

from __future__ import annotations

from twophase.core.errors import ConfigurationError
from twophase.core.hooks import Clock
from twophase.server.logs import without_credentials
from twophase.stores.base import Store

_SQLITE = "sqlite"


def open_store(url: str, clock: Clock | None = None) -> Store:
    """The store behind a URL; nothing is opened before its `start`.

    Arguments:
        url: `sqlite:///relative.db` or `sqlite:////absolute/path.db`.

        clock: the store's time, for an engine that has none of its own; the machine's by default.
    Raises:
        ConfigurationError: not a store URL, an engine that is not served, or no path.

    >>> open_store("oracle://scott@db/orcl")
    Traceback (most recent call last):
    twophase.core.errors.ConfigurationError: TP-7000: store: no engine for 'oracle'...
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise ConfigurationError(f"store: {without_credentials(url)!r} is no URL; write sqlite:///file.db.")
    if scheme != _SQLITE:
        raise ConfigurationError(f"store: no engine for {scheme!r}; there is sqlite.")
    if not rest.startswith("/") or len(rest) == 1:
        raise ConfigurationError(
            f"store: {url!r} names no file; write sqlite:///relative.db or sqlite:////absolute.db."
        )
    from twophase.stores.sqlite.store import SqliteStore  # noqa: PLC0415 -- an engine's libraries load with the engine

    return SqliteStore(rest[1:], clock=clock)
