"""The Python driver of a URL that names none, and the extra that brings it."""

from __future__ import annotations

from typing import Final

from twophase.core.errors import ConfigurationError

DRIVERS: Final = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
"""Drivers by SQLAlchemy's names.

SQLAlchemy's own choice for MySQL needs a C compiler, and its choice for PostgreSQL is not twophase's.
"""

EXTRAS: Final = {
    "sqlite": "sqlite",
    "postgresql": "postgres",
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
}


_BROUGHT: Final = frozenset({"aiosqlite", "asyncmy", "asyncpg", "greenlet", "psycopg", "pymysql", "sqlalchemy"})
"""The modules that the extras bring."""
_PACKAGES: Final = {"MySQLdb": "mysqlclient", "mysql": "mysql-connector-python", "psycopg2": "psycopg2-binary"}
"""Packages with another name than their module."""


def with_driver(scheme: str) -> str:
    """Return the scheme of a database's URL, with our driver where it names none.

    >>> with_driver("mysql"), with_driver("mysql+asyncmy")
    ('mysql+pymysql', 'mysql+asyncmy')
    """
    return DRIVERS.get(scheme, scheme)


def extra_of(scheme: str) -> str | None:
    """Return the extra with the drivers of a URL's scheme.

    None for an unknown database.

    >>> extra_of("mariadb+pymysql")
    'mysql'
    """
    return EXTRAS.get(scheme.partition("+")[0])


def installation_of(package: str | None, scheme: str) -> str:
    """Return the command that installs the package of a missing driver.

    Arguments:
        package: the module that cannot be imported.
        scheme: of the database's URL.

    >>> installation_of("psycopg", "postgresql+psycopg"), installation_of("MySQLdb", "mysql")
    ("pip install 'twophase[postgres]'", 'pip install mysqlclient')
    """
    top = (package or "").partition(".")[0]
    if not top or top in _BROUGHT:
        return f"pip install 'twophase[{extra_of(scheme)}]'"
    return f"pip install {_PACKAGES.get(top, top)}"


def driver_missing(error: ModuleNotFoundError, scheme: str) -> ConfigurationError:
    """Make the error for a database's driver, or SQLAlchemy, that cannot be imported."""
    return ConfigurationError(
        f"the package {error.name!r} is missing, which reaches {scheme}://….",
        remedy=f"Run `{installation_of(error.name, scheme)}`.",
    )
