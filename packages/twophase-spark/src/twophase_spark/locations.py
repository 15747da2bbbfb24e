"""The locations of an audit: URLs of the command line, taken apart and checked.

The check comes before Spark is started. `sqlite:///file.db`, `postgresql://user@host/db`, `mysql://user@host/db`; the
part behind a `#` names the table and its columns: `#schema.barrier`, `#ledger?gid=gid&branch=branch_id`. In place of a
URL, `env:NAME` or `file:PATH` says where it stands. A password is used and never shown.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

import msgspec

from twophase.barrier.dialect import DEFAULT_TABLE
from twophase.core.credentials import is_reference, secret_of
from twophase.core.errors import ConfigurationError
from twophase_spark import mysql_url
from twophase_spark.option_table import (
    Option,
    identifier,
    identifier_or_none,
    require_fitting,
    table_of,
    unknown,
    values_of,
    whole,
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_SCHEMES = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
}


class Role(enum.StrEnum):
    """The part of a database in the audit."""

    COORDINATOR = "coordinator"
    PRODUCER = "producer"
    CONSUMER = "consumer"
    LEDGER = "ledger"


def _condition(option: str, text: str) -> str:
    if any(sign in text for sign in "?;"):
        raise ConfigurationError(f"Option {option}: a condition holds no ? and no ;.")
    return text


_OF_LEDGER, _CALLED = ((Role.LEDGER,),), ((Role.PRODUCER, Role.CONSUMER),)


class Location(msgspec.Struct, frozen=True, kw_only=True):
    """One database table to read; the options behind its `#` are

    urls: The beginning of the branches' addresses that a consumer serves, or of the check addresses that a producer
        answers, up to the end of a part (`http://b` is not the beginning of `http://bc`); several may be named.
    gid: The column of the gid.
    branch: The column of the branch id.
    key: An indexed integer that grows with every row; with it a later run reads only new rows.
    where: A condition in SQL on the rows that count, such as `voided_at is null`, without `?` and `;`; an effect that
        has other rows only is left out, and not missing.
    rows_per_effect: The number of rows of each effect, such as 2 in double-entry bookkeeping; 1 to 9999.
    agrees: A condition in Spark's SQL on payload and row, see [below](#payloads-and-rows).

    `name` is the service's; `engine` is sqlite, postgresql or mysql; `url` is without `+driver` and `#…`; `table` is
    empty for a coordinator; `urls` is empty for every one.
    """

    role: Role
    name: str
    engine: str
    url: str
    table: str = ""
    urls: Annotated[tuple[str, ...], Option(fits=_CALLED, shown="all")] = ()
    gid_column: Annotated[str, Option(identifier, _OF_LEDGER, "gid")] = "gid"
    branch_column: Annotated[str, Option(identifier, _OF_LEDGER, "branch")] = "branch_id"
    key_column: Annotated[str, Option(identifier_or_none, _OF_LEDGER, "key")] = ""
    where: Annotated[str, Option(_condition, _OF_LEDGER)] = ""
    rows_per_effect: Annotated[int, Option(whole(1, 9999), _OF_LEDGER)] = 1
    agrees: Annotated[str, Option(fits=_OF_LEDGER)] = ""

    @property
    def shown(self) -> str:
        """The URL without its password and parameters, with the table.

        >>> parse_named(Role.PRODUCER, "a=postgresql://me:secret@db/bank?sslmode=require#barrier").shown
        'postgresql://me@db/bank#barrier'
        """
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")
        user = host[0].partition(":")[0]
        netloc = f"{user}@{host[2]}" if user else host[2]
        shown = urlunsplit((parts.scheme, netloc, parts.path, "", ""))
        if self.engine == "sqlite":  # urlunsplit drops the empty authority
            shown = f"sqlite://{parts.path}"
        return f"{shown}#{self.table}" if self.table else shown

    @property
    def path(self) -> str:
        """The file of a SQLite location.

        >>> parse_coordinator("sqlite:///tp.db").path, parse_coordinator("sqlite:////var/tp.db").path
        ('tp.db', '/var/tp.db')
        """
        assert self.engine == "sqlite", "only SQLite has a file"
        return unquote(urlsplit(self.url).path)[1:]


PARAMETERS = table_of(Location)


def parameters_of(role: Role) -> list[str]:
    """Return the parameters that a location of this role may have.

    >>> parameters_of(Role.CONSUMER)
    ['urls']
    """
    return [option.name for option in PARAMETERS if role in option.fits[0]]


def parse_coordinator(text: str) -> Location:
    """Parse `[NAME=]URL` of a coordinator's store.

    >>> parse_coordinator("sqlite:///tp.db").name
    'coordinator'

    Raises:
        ConfigurationError: not such a text, saying what is expected.
    """
    named = re.match(r"([A-Za-z0-9_.-]+)=(.*)", text, re.DOTALL)
    return _parsed(Role.COORDINATOR, *((named[1], named[2]) if named else (Role.COORDINATOR.value, text)))


def parse_named(role: Role, text: str) -> Location:
    """Parse `NAME=URL[#table?…]` of a producer, consumer or ledger.

    >>> ledger = parse_named(Role.LEDGER, "bank-b=sqlite:///b.db#ledger?gid=tx&branch=step")
    >>> ledger.name, ledger.table, ledger.gid_column, ledger.branch_column
    ('bank-b', 'ledger', 'tx', 'step')
    >>> parse_named(Role.PRODUCER, "bank-a=sqlite:///a.db").table
    'barrier'

    Raises:
        ConfigurationError: not such a text, saying what is expected.
    """
    name, _, url = text.partition("=")
    return _parsed(role, name, url)


def database_at(name: str, url: str) -> Location:
    """Return a database that its URL alone names, as for the source and the sink.

    Raises:
        ConfigurationError: not such a URL, saying what is expected and naming no option.
    """
    return _checked(Role.PRODUCER, name, url, "", {})


def _parsed(role: Role, name: str, text: str) -> Location:
    url, _, fragment = text.partition("#")
    is_login = "@" in fragment and "@" not in url and not is_reference(url) and not url.startswith("sqlite")
    if _NAME.fullmatch(name) and is_login:  # the rest of a password, which must not be repeated
        raise ConfigurationError(f"--{role} {name}: a # or @ inside of a URL's login is written %23 or %40.")
    table, _, query = fragment.partition("?")
    return location_of(role, name, url, table, parse_qs(query, keep_blank_values=True))


def location_of(role: Role, name: str, url: str, table: str, given: Mapping[str, Sequence[str]]) -> Location:
    """Return the location, checked.

    Arguments:
        role: the part of the database.
        name: the service's.
        url: of the database, without `#…`; or `env:NAME` or `file:PATH`, where it stands.
        table: in the database; empty for the usual one.
        given: the texts of each of `PARAMETERS` that is given; of `urls` there may be several.

    Raises:
        ConfigurationError: something is unknown, means nothing in this role, or cannot be understood.
    """
    if not _NAME.fullmatch(name):
        # Nothing is repeated: without its NAME= a text is a URL, perhaps with a password.
        raise ConfigurationError(f"--{role} expects NAME=URL, for example bank-a=sqlite:///bank-a.db.")
    try:
        return _checked(role, name, url, table, given)
    except ConfigurationError as error:
        raise ConfigurationError(f"--{role} {name}: {error.message}", remedy=error.remedy) from None


def _checked(role: Role, name: str, reference: str, table: str, given: Mapping[str, Sequence[str]]) -> Location:
    url = secret_of(reference)
    scheme = urlsplit(url).scheme
    engine = _SCHEMES.get(scheme.partition("+")[0])
    if is_reference(reference) and (engine is None or "#" in url):
        raise ConfigurationError(
            f"{reference} holds no URL of a database (it is not shown here); # and the table stand behind its name."
        )
    if engine is None:
        raise ConfigurationError(f"the URL must begin with sqlite:, postgresql: or mysql:, not {scheme!r}.")
    if engine == "sqlite" and not url.startswith(f"{scheme}:///"):
        raise ConfigurationError("a SQLite URL is sqlite:///relative.db or sqlite:////absolute.db.")
    if engine == "mysql":
        mysql_url.parameters_of(url)
    if engine == "postgresql" and "@" in urlsplit(url).netloc.rpartition("@")[0]:
        # The driver would show the end of the password as a host that it does not find.
        raise ConfigurationError("an @ inside of a URL's login is written %40.")
    if role is Role.COORDINATOR and table:
        raise ConfigurationError("a coordinator's tables have fixed names; drop the #.")
    if role is Role.LEDGER and not table:
        raise ConfigurationError("name the table behind #, for example …#ledger?gid=gid&branch=branch_id.")
    for parameter, texts in given.items():
        if parameter not in {option.name for option in PARAMETERS}:
            raise unknown(parameter, parameters_of(role), f"a {role}")
        if len(texts) > 1 and parameter != "urls":
            raise ConfigurationError(f"Option {parameter} is given {len(texts)} times; give it once.")
    require_fitting(PARAMETERS, given, (role,), f"a {role}")
    values = values_of(PARAMETERS, {parameter: texts[0].strip() for parameter, texts in given.items() if texts})
    return Location(
        role=role,
        name=name,
        engine=engine,
        url=url.replace(scheme, scheme.partition("+")[0], 1),
        table=identifier("table", table or DEFAULT_TABLE) if role is not Role.COORDINATOR else "",
        **{**values, "urls": tuple(given.get("urls", ()))},
    )


def require_comparable(locations: list[Location]) -> None:
    """Refuse locations that prove nothing, and those that would be counted twice.

    Raises:
        ConfigurationError: no coordinator, nothing to compare it with, a ledger of no consumer, or one thing twice.
    """
    require_distinct(locations)
    given = {role: {location.name for location in locations if location.role is role} for role in Role}
    if not given[Role.COORDINATOR]:
        raise ConfigurationError("No coordinator is named; give --coordinator, or [[coordinator]] in --config.")
    for name in sorted(given[Role.LEDGER] - given[Role.CONSUMER]):
        raise ConfigurationError(f"--ledger {name}: there is no --consumer {name}; names must match.")
    if not given[Role.PRODUCER] and not given[Role.CONSUMER]:
        raise ConfigurationError("There is nothing to compare the coordinator with; give --producer or --consumer.")


def require_distinct(locations: list[Location]) -> None:
    """Refuse one name, or one database, given twice in the same role.

    Its rows would count as duplicates.

    Raises:
        ConfigurationError: naming both.
    """
    seen: dict[tuple[Role, str], str] = {}
    for location in locations:
        place = location.url if location.engine != "sqlite" else str(Path(location.path).resolve())
        # Services may share a ledger, each with its own rows or columns of it.
        rows = f"{place}#{location.table}?{location.where}&{location.gid_column}&{location.branch_column}"
        for what in (location.name, rows):
            if (location.role, what) in seen:
                raise ConfigurationError(
                    f"--{location.role} {location.name} and {seen[location.role, what]} are the same; give it once."
                )
            seen[location.role, what] = location.name
