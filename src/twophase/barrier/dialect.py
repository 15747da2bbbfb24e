"""The databases' differences: their statements and their names for errors.

The statements are in `dialects/<name>/*.sql`.
A statement is text of this library with a validated table name put in, and parameters that are bound, never put in.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import re

import msgspec

from twophase.barrier.fault import Fault, fault_of
from twophase.core.errors import ConfigurationError

DEFAULT_TABLE = "barrier"
META_TABLE = "twophase_meta"

IDENTITY, HORIZON, BRANCH_HORIZON = "identity", "horizon_ms", "branch_horizon_ms"
"""The rows of the meta table.

Those of any other barrier table than `barrier` carry its name (`meta_row`).
"""

_ROW_NAME_MAX = 40
_KEY_NAME_MAX = 58
"""PostgreSQL takes 63 bytes for a name; `uniq_` stands before it."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")


def validate_table(table: str) -> str:
    """Return `table` when it may stand in a statement: a plain name, or `schema.name`.

    Raises:
        ConfigurationError: anything else.

    >>> validate_table("bank.barrier")
    'bank.barrier'
    >>> validate_table("barrier; drop table account")
    Traceback (most recent call last):
    twophase.core.errors.ConfigurationError: ...
    """
    if not _NAME.fullmatch(table):
        raise ConfigurationError("The barrier table's name must be `name` or `schema.name`, of letters, digits and _.")
    return table


def split_table(table: str) -> tuple[str | None, str]:
    """Return the schema, None when it is left to the connection, and the bare name.

    >>> split_table("bank.barrier"), split_table("barrier")
    (('bank', 'barrier'), (None, 'barrier'))
    """
    schema, _, name = table.rpartition(".")
    return schema or None, name


def meta_table(table: str) -> str:
    """Return the name of the meta table that belongs to barrier table `table`.

    >>> meta_table("bank.barrier")
    'bank.twophase_meta'
    """
    schema, _ = split_table(table)
    return f"{schema}.{META_TABLE}" if schema else META_TABLE


def constraint_of(table: str) -> str:
    """Return the name of a table's unique key.

    It is dtm's name for dtm's table; another table has its own name. In PostgreSQL a constraint's index shares the
    namespace of its schema's tables.

    >>> constraint_of("bank.barrier"), constraint_of("orders_barrier")
    ('uniq_barrier', 'uniq_orders_barrier')
    """
    _, name = split_table(table)
    if len(name) > _KEY_NAME_MAX:
        name = f"{name[: _KEY_NAME_MAX - 17]}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return f"uniq_{name}"


@functools.cache
def meta_row(row: str, table: str, dialect: str) -> str:
    """Return the name of the meta table's row for barrier table `table`.

    Two barrier tables of one schema share the meta table, and must not be taken for each other. A long name is cut and
    closed with its digest, because the column takes 64 characters.

    Arguments:
        dialect: the database's name; on MySQL and MariaDB tables may differ in case alone.

    >>> meta_row("identity", "bank.barrier", "sqlite"), meta_row("identity", "bank.Orders", "postgresql")
    ('identity', 'identity.orders')
    """
    _, name = split_table(table)
    if dialect != "mysql":
        name = name.lower()
    if name == DEFAULT_TABLE:
        return row
    if len(name) > _ROW_NAME_MAX:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        name = f"{name[: _ROW_NAME_MAX - 17]}~{digest}"
    return f"{row}.{name}"


_DIALECTS = importlib.resources.files("twophase.barrier") / "dialects"


@functools.cache
def _template(dialect: str, statement: str) -> str:
    lines = (_DIALECTS / dialect / f"{statement}.sql").read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("--"))


@functools.cache
def _statement(dialect: str, statement: str, table: str, schema: str) -> str:
    validate_table(table)
    if dialect == "sqlite" and "." not in table:
        table = f"main.{table}"  # a temporary table of the same name would be found first
    text = _template(dialect, statement).replace("{table}", table).replace("{constraint}", constraint_of(table))
    text = text.replace("{meta}", f"{schema}.{META_TABLE}" if schema else meta_table(table))
    for row in (IDENTITY, HORIZON):
        text = text.replace(f"{{{row}}}", meta_row(row, table, dialect))
    return text


class Dialect(msgspec.Struct, frozen=True):
    """One database's way to say it."""

    name: str
    statements: frozenset[str]
    """The names of its statements.

    A statement that this database does not need is not among them.
    """

    def sql(self, statement: str, table: str = DEFAULT_TABLE, *, schema: str = "") -> str:
        """Return the text of `dialects/<name>/<statement>.sql` for a barrier table.

        Arguments:
            schema: quoted by the database; where the meta table stands, if not where `table` says.

        >>> SQLITE.sql("begin")
        'begin immediate'
        """
        return _statement(self.name, statement, table, schema)

    def is_missing_table(self, error: BaseException) -> bool:
        """Return True when `error` says that the barrier was never installed here."""
        return fault_of(error) is Fault.TABLE_MISSING

    def is_denied(self, error: BaseException) -> bool:
        """Return True when `error` says that this user, or this version, may not ask so."""
        return fault_of(error) is Fault.DENIED

    def is_unusable_table(self, error: BaseException) -> bool:
        """Return True when `error` says that the table cannot be used.

        It lacks transactions, or the unique key that the barrier's insert names.
        """
        return fault_of(error) is Fault.TABLE_UNUSABLE

    def is_duplicate(self, error: BaseException) -> bool:
        """Return True when `error` says that the unique key is taken."""
        return fault_of(error) is Fault.DUPLICATE


def _dialect(name: str) -> Dialect:
    folder = _DIALECTS / name
    return Dialect(name, frozenset(file.name.removesuffix(".sql") for file in folder.iterdir()))


SQLITE = _dialect("sqlite")
POSTGRESQL = _dialect("postgresql")
MYSQL = _dialect("mysql")
"""MySQL and MariaDB.

Their differences are in comments that only one of them executes.
"""

_BY_NAME = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "mysql": MYSQL, "mariadb": MYSQL}


def dialect_named(name: str) -> Dialect | None:
    """Return the dialect of a library's name for a database; None if unknown.

    >>> dialect_named("mariadb").name
    'mysql'
    """
    return _BY_NAME.get(name)
