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


def driver_missing(error: ModuleNotFoundError, scheme: str) -> ConfigurationError:
    """Make the error for a database's driver, or SQLAlchemy, that cannot be imported."""
    return ConfigurationError(
        f"the package {error.name!r} is missing, which reaches {scheme}://….",
        remedy=f"Run `pip install 'twophase[{extra_of(scheme)}]'`.",
    )
