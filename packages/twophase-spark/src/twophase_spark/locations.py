"""The locations of an audit: URLs of the command line, taken apart and checked.

The check comes before Spark is started. `sqlite:///file.db`, `postgresql://user@host/db`, `mysql://user@host/db`; the
part behind a `#` names the table and its columns: `#schema.barrier`, `#ledger?gid=gid&branch=branch_id`. In place of a
URL, `env:NAME` or `file:PATH` says where it stands. A password is used and never shown.
"""

from __future__ import annotations

import enum
import re
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

import msgspec

from twophase.barrier.dialect import DEFAULT_TABLE, validate_table
from twophase.core.credentials import is_reference, secret_of
from twophase.core.errors import ConfigurationError, TwophaseError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_SCHEMES = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
}
_PARAMETERS = {"gid", "branch", "urls", "key", "where", "rows_per_effect", "agrees"}


class Role(enum.StrEnum):
    """The part of a database in the audit."""

    COORDINATOR = "coordinator"
    PRODUCER = "producer"
    CONSUMER = "consumer"
    LEDGER = "ledger"


class Location(msgspec.Struct, frozen=True):
    """One database table to read.

    `name` is the service's; `engine` is sqlite, postgresql or mysql; `url` is without `+driver` and `#…`; `table` is
    empty for a coordinator; `urls`: the beginnings of the branches that this consumer serves, empty for every one, or
    of the check addresses that this producer answers;
    `key_column`: of a ledger, an indexed integer that grows with every row, by which it is cut and followed; empty for
    none; `where`: a condition in SQL on the ledger's rows that count, empty for all; `rows_per_effect`: how many rows a
    ledger has for each effect; `agrees`: a condition in Spark's SQL on the payload and the ledger's row of an effect,
    empty for none.
    """

    role: Role
    name: str
    engine: str
    url: str
    table: str = ""
    gid_column: str = "gid"
    branch_column: str = "branch_id"
    urls: tuple[str, ...] = ()
    key_column: str = ""
    where: str = ""
    rows_per_effect: int = 1
    agrees: str = ""

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


def parse_coordinator(text: str) -> Location:
    """Parse `[NAME=]URL` of a coordinator's store.

    >>> parse_coordinator("sqlite:///tp.db").name
    'coordinator'

    Raises:
        ConfigurationError: not such a text, saying what is expected.
    """
    named = re.match(r"([A-Za-z0-9_.-]+)=(.*)", text, re.DOTALL)
    name, url = (named[1], named[2]) if named else ("coordinator", text)
    location = _parse(Role.COORDINATOR, name, url)
    if location.table:
        raise ConfigurationError(
            f"--coordinator {location.shown}: a coordinator's tables have fixed names; drop the #."
        )
    return location


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
    name, equals, url = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        # The text is not repeated: without its NAME= it is a URL, perhaps with a password.
        raise ConfigurationError(f"--{role} expects NAME=URL, for example bank-a=sqlite:///bank-a.db.")
    location = _parse(role, name, url)
    if location.table:
        return location
    if role is Role.LEDGER:
        raise ConfigurationError(
            f"--ledger {name}: name the table behind #, for example …#ledger?gid=gid&branch=branch_id."
        )
    return msgspec.structs.replace(location, table=DEFAULT_TABLE)


def _parse(role: Role, name: str, text: str) -> Location:
    given, _, fragment = text.partition("#")
    url = secret_of(given)
    scheme = urlsplit(url).scheme
    engine = _SCHEMES.get(scheme.partition("+")[0])
    if is_reference(given) and (engine is None or "#" in url):
        raise ConfigurationError(
            f"--{role} {name}: {given} holds no URL of a database (it is not shown here); # and the table stand behind "
            "its name."
        )
    if engine is None:
        raise ConfigurationError(
            f"--{role} {name}: the URL must begin with sqlite:, postgresql: or mysql:, not {scheme!r}."
        )
    if engine == "sqlite" and not url.startswith(f"{scheme}:///"):
        raise ConfigurationError(f"--{role} {name}: a SQLite URL is sqlite:///relative.db or sqlite:////absolute.db.")
    if "@" in fragment and "@" not in url and engine != "sqlite":  # the rest of a password, which must not be repeated
        raise ConfigurationError(f"--{role} {name}: a # or @ inside of a URL's login is written %23 or %40.")
    table, _, query = fragment.partition("?")
    parameters = parse_qs(query, keep_blank_values=True)
    unknown = set(parameters) - _PARAMETERS
    if unknown:
        raise ConfigurationError(
            f"--{role} {name}: unknown {sorted(unknown)} behind the table; known: {', '.join(sorted(_PARAMETERS))}."
        )
    return Location(
        role=role,
        name=name,
        engine=engine,
        url=url.replace(scheme, scheme.partition("+")[0], 1),
        table=_identifier(role, name, table) if table else "",
        gid_column=_identifier(role, name, parameters.get("gid", ["gid"])[0]),
        branch_column=_identifier(role, name, parameters.get("branch", ["branch_id"])[0]),
        urls=tuple(parameters.get("urls", ())),
        key_column=_identifier(role, name, parameters["key"][0]) if "key" in parameters else "",
        where=_condition(role, name, parameters.get("where", [""])[0]),
        rows_per_effect=_row_count(role, name, parameters.get("rows_per_effect", ["1"])[0]),
        agrees=parameters.get("agrees", [""])[0].strip(),
    )


def _condition(role: Role, name: str, text: str) -> str:
    if any(sign in text for sign in "?;"):
        raise ConfigurationError(f"--{role} {name}: a condition in where= holds no ? and no ;.")
    return text


def _row_count(role: Role, name: str, text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,3}", text):
        raise ConfigurationError(f"--{role} {name}: rows_per_effect={text!r} is not a number from 1 to 9999.")
    return int(text)


def _identifier(role: Role, name: str, text: str) -> str:
    try:
        return validate_table(text)
    except TwophaseError as error:
        raise ConfigurationError(f"--{role} {name}: {text!r} is not a table or column name.") from error


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
        for what in (location.name, f"{location.url}#{location.table}"):
            if (location.role, what) in seen:
                raise ConfigurationError(
                    f"--{location.role} {location.name} and {seen[location.role, what]} are the same; give it once."
                )
            seen[location.role, what] = location.name
