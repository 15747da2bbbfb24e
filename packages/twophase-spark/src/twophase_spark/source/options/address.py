"""The database that the source reads, named so that no password ever enters Spark.

Spark keeps the options of a source in its plan, and every reader of the plan, the UI or the event log may see them. So
the option `url` never carries a password: a URL that does is refused, unseen. It names an environment variable
(`env:STORE_URL`) or a file (`file:/run/secrets/store`) that holds the whole URL, or it is a URL without password, which
PostgreSQL completes from `~/.pgpass` or PGPASSWORD. The reference is resolved where a connection is opened, on the
driver and on every executor, and only there; the reference travels between them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from twophase.core.errors import ConfigurationError
from twophase_spark.locations import Location, database_at
from twophase_spark.references import looked_up

ENVIRONMENT, FILE = "env:", "file:"
_PASSWORD_PARAMETER = re.compile(r"(?i)(?:ssl)?pass(?:word|wd)?|pwd")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOW = (
    "name an environment variable (env:STORE_URL) or a file (file:/run/secrets/store) that holds the URL, "
    "or leave the password to ~/.pgpass or PGPASSWORD"
)


def require_no_secret(reference: str) -> str:
    """Return the value of option `url` when it may stand in a plan.

    >>> require_no_secret("env:STORE_URL"), require_no_secret("postgresql://audit@db/store")
    ('env:STORE_URL', 'postgresql://audit@db/store')

    Raises:
        ConfigurationError: it carries a password, or may carry one. Its text shows nothing of it.
    """
    if reference.startswith((ENVIRONMENT, FILE)):
        return reference
    if not _is_well_formed(reference):
        raise ConfigurationError(f"Option url is not a URL with everything encoded (it is not shown here); {_HOW}.")
    parts = urlsplit(reference)
    parameters = (name for name, _ in parse_qsl(parts.query, keep_blank_values=True))
    if parts.password is not None or any(_PASSWORD_PARAMETER.fullmatch(name) for name in parameters):
        raise ConfigurationError(f"Option url must not carry a password, because Spark shows options; {_HOW}.")
    return reference


def locate(reference: str, name: str, environment: Mapping[str, str] = os.environ) -> Location:
    """Return the database that `reference` stands for, with its password.

    It is for the moment of connecting only.

    Arguments:
        reference: the value of option `url`.
        name: the database's name in errors.
        environment: where `env:` looks.

    Raises:
        ConfigurationError: there is no such variable or file, every user of the machine may use the file, or what it
            holds is no URL of a database.
    """
    url = looked_up("url", require_no_secret(reference), environment)
    if not _is_well_formed(url):
        raise ConfigurationError(f"{_holder(reference)} holds no URL with everything encoded (it is not shown here).")
    try:
        return database_at(name, url.partition("#")[0])
    except ConfigurationError as error:
        raise ConfigurationError(f"{_holder(reference)}: {error.message}", remedy=error.remedy) from None


def _is_well_formed(url: str) -> bool:
    """Return True when user, password and host are separated without doubt.

    Otherwise a driver's complaint would repeat pieces.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    login = parts.netloc.rpartition("@")[0]
    return not (
        _BROKEN_ESCAPE.search(parts.netloc)
        or "@" in login
        or "@" in parts.path + parts.query + parts.fragment
        or any(character.isspace() for character in url)
    )


def _holder(reference: str) -> str:
    return f"Option url: {reference}" if reference.startswith((ENVIRONMENT, FILE)) else "Option url"
