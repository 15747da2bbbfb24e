"""A database's URL as an operator types it: its errors, its file, and refusals.

Promise: the text of a driver's error is shown, and the password in the URL never is.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from twophase.barrier.fault import code_of
from twophase.core.credentials import is_reference, secret_of, shown
from twophase.core.database_drivers import extra_of, installation_of, with_driver
from twophase.core.errors import ConfigurationError

_PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}
_UNREACHABLE = frozenset({"MySQL error 2002", "MySQL error 2003", "MySQL error 2005"})
_TEXT_MAX = 500
_OF_ASYNCPG = {
    "ssl": "sslmode",
    "async_fallback": "",
    "command_timeout": "",
    "direct_tls": "",
    "max_cacheable_statement_size": "",
    "max_cached_statement_lifetime": "",
    "prepared_statement_cache_size": "",
    "prepared_statement_name_func": "",
    "statement_cache_size": "",
    "timeout": "",
}
"""psycopg's names of asyncpg's options; empty: psycopg has none."""


def read_url(text: str) -> sqlalchemy.URL:
    """Return the URL, with twophase's own driver where it names none.

    An extra brings that driver. `env:NAME` and `file:PATH` name where the URL is.

    Raises:
        ConfigurationError: no URL, of no database or driver we know, or of a SQLite database that is no file; or what
            it names cannot be read.

    >>> read_url("postgresql://me@db/bank").drivername
    'postgresql+psycopg'
    >>> read_url("shop.db")
    Traceback (most recent call last):
    twophase.core.errors.ConfigurationError: TP-7000: 'shop.db' is no URL; write sqlite:///shop.db...
    """
    given, text = text, secret_of(text)
    if "://" not in text:
        hidden = is_reference(given) or shown(text) != text
        what = f"What {given} holds is no URL" if is_reference(given) else f"{shown(text)!r} is no URL"
        raise ConfigurationError(
            f"{what}; write sqlite:///{'FILE' if hidden else text}.",
            remedy="Other databases: postgresql://user:password@host/name, mysql://user:password@host/name.",
        )
    remedy = "Write sqlite:///file, postgresql://user:password@host/name or mysql://user:password@host/name."
    try:
        url = sqlalchemy.make_url(text)
    except (ArgumentError, ValueError):
        # Without the cause, which shows the text, and the password in it.
        raise ConfigurationError("The URL cannot be read.", remedy=remedy) from None
    if "@" in (url.host or ""):
        # The end of a password; a driver would show it as a host that it does not find.
        raise ConfigurationError("The URL has an '@' in its user or password.", remedy="Write it as %40.")
    url = url.set(drivername=with_driver(url.drivername))
    if extra_of(url.drivername) is None:
        raise ConfigurationError(f"{url.drivername} is not a database that twophase supports.", remedy=remedy)
    try:
        url.get_dialect()
    except NoSuchModuleError:
        raise ConfigurationError(f"SQLAlchemy knows no {url.drivername}.", remedy=remedy) from None
    if url.get_backend_name() == "sqlite" and url.database in {None, "", ":memory:"}:
        raise ConfigurationError(
            "The URL names no file, and a database in memory ends with this command.", remedy=remedy
        )
    return url


def for_sync(url: sqlalchemy.URL) -> sqlalchemy.URL:
    """Return the same database's URL with a synchronous driver.

    An async driver is replaced by the one that twophase's extras bring. asyncpg's options become psycopg's, or are left
    out where they are of asyncpg alone.

    >>> for_sync(sqlalchemy.make_url("postgresql+asyncpg://me@db/bank?ssl=require&command_timeout=5"))
    postgresql+psycopg://me@db/bank?sslmode=require
    """
    if not url.get_dialect().is_async:
        return url
    options = dict(url.query)
    if url.get_driver_name() == "asyncpg":
        renamed = {_OF_ASYNCPG.get(name, name): value for name, value in options.items()}
        options = {name: value for name, value in renamed.items() if name}
    return url.set(drivername=with_driver(url.get_backend_name()), query=options)


def sqlite_file(url: sqlalchemy.URL) -> Path | None:
    """Return the whole path of a SQLite URL's file; None for other databases.

    Raises:
        ConfigurationError: there is no folder for it, or this user may not look into it.
    """
    if url.get_backend_name() != "sqlite" or (url.database or "").startswith("file:"):
        return None
    path = Path(url.database or "").absolute()
    try:
        has_folder = path.parent.is_dir()
        path.exists()
    except OSError as error:
        may_not = isinstance(error, PermissionError)
        raise ConfigurationError(
            f"{path} cannot be looked at: {error.strerror}.",
            remedy="Run this as a user who may, such as the service's." if may_not else None,
        ) from error
    if not has_folder:
        raise ConfigurationError(
            f"There is no folder {path.parent}.",
            remedy="Create it first, or check the slashes: sqlite:///relative.db, sqlite:////absolute/file.db.",
        )
    return path


def why_refused(error: Exception, url: sqlalchemy.URL) -> str:
    """Return the driver's report in one sentence, without the password.

    >>> url = sqlalchemy.make_url("postgresql://me:secret@db/bank")
    >>> why_refused(ConnectionRefusedError("secret: refused"), url)
    'cannot reach db:5432: ***: refused'
    """
    if isinstance(error, ModuleNotFoundError):
        return f"there is no driver: {error}. Run: {installation_of(error.name, url.drivername)}"
    text = _without_password(" ".join(str(getattr(error, "orig", None) or error).split()), url)[:_TEXT_MAX]
    if _is_unreachable(error, text) and url.host:
        return f"cannot reach {url.host}:{url.port or _PORTS.get(url.get_backend_name(), '')}: {text}"
    return f"the database refused: {text} ({code_of(error)})"


def _is_unreachable(error: Exception, text: str) -> bool:
    cause = getattr(error, "orig", None) or error
    if isinstance(cause, OSError):
        return True
    # psycopg gives no code for what happens before a session exists; only a reached server's text has "FATAL".
    nameless = type(cause).__module__.partition(".")[0] == "psycopg" and getattr(cause, "sqlstate", None) is None
    return code_of(error) in _UNREACHABLE or (nameless and "FATAL" not in text)


def _without_password(text: str, url: sqlalchemy.URL) -> str:
    encoded = url.render_as_string(hide_password=False).partition("://")[2].rpartition("@")[0].partition(":")[2]
    for secret in {url.password, encoded} - {None, ""}:
        text = text.replace(str(secret), "***")
    return text
