"""One database, open for reading in a single read-only snapshot.

So changes that were committed together are seen together. Three engines, one shape. SQLite is opened with `mode=ro` (a
live writer in WAL mode is not disturbed), PostgreSQL REPEATABLE READ READ ONLY, MySQL with a consistent snapshot, read
only. Rows come in lots, never all at once.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from twophase.core.errors import CannotRead, TwophaseError
from twophase_spark.garbage import collecting_nothing
from twophase_spark.locations import Location
from twophase_spark.mysql_url import parameters_of

ROWS_PER_LOT = 10_000
CONNECT_SECONDS_MAX = 10
BUSY_SECONDS_MAX = 30
_MAY_NOT_SELECT = "(1142,"
"""The number of MySQL's refusal, as its driver writes it.

It is the same whether there is such a table or not.
"""

_HIDDEN_SQL = """
with recursive used(relation, reader, caller) as (
  select cast(to_regclass(?) as oid), oid, oid from pg_roles where rolname = current_user
  union
  select below.refobjid, case when exists (
      select 1 from pg_options_to_table(view.reloptions)
      where option_name = 'security_invoker' and cast(option_value as boolean)
    ) then used.caller else view.relowner end, case view.relkind when 'm' then view.relowner else used.caller end
  from used
  join pg_class view on view.oid = used.relation and view.relkind in ('v', 'm')
  join pg_rewrite rule on rule.ev_class = view.oid and rule.ev_type = '1'
  join pg_depend below on below.classid = cast('pg_rewrite' as regclass) and below.objid = rule.oid
    and below.refclassid = cast('pg_class' as regclass) and below.refobjid <> view.oid
)
select exists (
  select 1 from used
  join pg_class relation on relation.oid = used.relation and relation.relrowsecurity
  join pg_roles reader on reader.oid = used.reader and not reader.rolsuper and not reader.rolbypassrls
  where relation.relforcerowsecurity or not pg_has_role(reader.oid, relation.relowner, 'USAGE')
)
"""
"""Asks whether policies apply, as `row_security_active` of PostgreSQL does.

It asks that of the tables below a view, too. A view reads them as its owner; with `security_invoker` it reads them as
this user, also within another view. A materialized view was filled by its owner, who is this user then.
"""


class Database:
    """A snapshot of one database; made by `open_database`."""

    def __init__(self, location: Location, connection: Any) -> None:
        """Wrap an open connection, in its transaction."""
        self._location = location
        self._connection = connection

    def lots(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[Sequence[Sequence[Any]]]:
        """Yield the rows of a query in lots of `ROWS_PER_LOT`.

        Parameters stand as `?` in `sql`.
        """
        for _, lot in self.named_lots(sql, parameters):
            yield lot

    def named_lots(
        self, sql: str, parameters: Sequence[object] = ()
    ) -> Iterator[tuple[list[str], Sequence[Sequence[Any]]]]:
        """Yield the same, each lot with the names of its columns."""
        with reported(self._location), contextlib.closing(self._cursor()) as cursor:
            if self._location.engine == "sqlite":
                cursor.execute(sql, parameters)
            else:
                cursor.execute(sql.replace("?", "%s"), parameters)
            while lot := _fetched(cursor):
                yield [str(column[0]) for column in cursor.description], lot

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[Sequence[Any]]:
        """Return all rows of a small query."""
        return [row for lot in self.lots(sql, parameters) for row in lot]

    def execute(self, sql: str) -> None:
        """Run a statement that has no rows, of PostgreSQL."""
        with reported(self._location):
            self._connection.execute(sql)

    def copy_to(self, target: sqlite3.Connection) -> None:
        """Copy a SQLite database as this snapshot sees it."""
        with reported(self._location):
            self._connection.backup(target, pages=-1)

    def columns(self, table: str) -> frozenset[str]:
        """Return the lower-case column names of a table; empty for an unknown table."""
        return frozenset(self.column_types(table))

    def column_types(self, table: str) -> dict[str, str]:
        """Return the declared type of every column of a table, in lower case.

        It is empty for an unknown table.
        """
        schema, _, name = table.rpartition(".")
        if self._location.engine == "sqlite":
            found = self.rows("select name, type from pragma_table_xinfo(?) where hidden <> 1", (name,))
        elif self._location.engine == "postgresql":
            found = self.rows(
                "select a.attname, format_type(a.atttypid, a.atttypmod) from pg_attribute a "
                "where a.attrelid = to_regclass(?) and a.attnum > 0 and not a.attisdropped",
                (table.lower(),),
            )
        else:
            found = self.rows(
                "select column_name, column_type from information_schema.columns "
                "where table_schema = coalesce(nullif(?, ''), database()) and table_name = ?",
                (schema, name),
            )
        return {str(column).lower(): str(declared).lower() for column, declared in found}

    def is_hidden(self, table: str) -> bool:
        """Return True when this user may not know whether a table exists.

        MySQL shows no table without a right to it.
        """
        if self._location.engine != "mysql":
            return False
        try:
            self.rows(f"select 1 from {table} limit 0")  # noqa: S608 -- validated
        except CannotRead as error:
            return _MAY_NOT_SELECT in error.message
        return False

    def hides_rows(self, table: str) -> bool:
        """Return True when a policy of PostgreSQL may hide rows of a table from this user.

        Of a view it may be a policy of a table below it.
        """
        return self._location.engine == "postgresql" and bool(self.rows(_HIDDEN_SQL, (table.lower(),))[0][0])

    def charset_of(self, table: str, column: str) -> str:
        """Return the lower-case name of a column's character set.

        It is empty on SQLite, and for a column that is no text.
        """
        schema, _, name = table.rpartition(".")
        if self._location.engine == "sqlite":
            return ""
        if self._location.engine == "postgresql":
            found = self.rows("select current_setting('server_encoding')")
        else:
            found = self.rows(
                "select character_set_name from information_schema.columns "
                "where table_schema = coalesce(nullif(?, ''), database()) and table_name = ? and column_name = ?",
                (schema, name, column),
            )
        return str(found[0][0] or "").lower() if found else ""

    def type_of(self, table: str, column: str) -> str:
        """Return the lower-case name of a column's type; empty for an unknown column.

        Of a domain it is the name of the type below it.
        """
        schema, _, name = table.rpartition(".")
        if self._location.engine == "sqlite":
            sql = "select type from pragma_table_xinfo(?) where hidden <> 1 and lower(name) = lower(?)"
            found = self.rows(sql, (name, column))
        elif self._location.engine == "postgresql":
            found = self.rows(
                "with recursive below as (select a.atttypid as type from pg_attribute a "
                "where a.attrelid = to_regclass(?) and a.attname = lower(?) and not a.attisdropped "
                "union all select t.typbasetype from below join pg_type t on t.oid = below.type and t.typtype = 'd') "
                "select t.typname from below join pg_type t on t.oid = below.type and t.typtype <> 'd'",
                (table.lower(), column),
            )
        else:
            found = self.rows(
                "select data_type from information_schema.columns "
                "where table_schema = coalesce(nullif(?, ''), database()) and table_name = ? and column_name = ?",
                (schema, name, column),
            )
        return str(found[0][0]).lower() if found else ""

    def _cursor(self) -> Any:
        if self._location.engine == "postgresql":  # a named cursor stays on the server; a plain one fetches everything
            return self._connection.cursor(name="twophase_audit")
        return self._connection.cursor()


def counting(location: Location, *, escaped: bool = True) -> str:
    """Return the end of a condition in SQL that leaves out a ledger's other rows.

    Arguments:
        escaped: for a driver whose sign of a parameter has a percent sign.
    """
    if not location.where:
        return ""
    is_escaped = escaped and location.engine != "sqlite"
    return f" and ({location.where.replace('%', '%%') if is_escaped else location.where})"


def _fetched(cursor: Any) -> Sequence[Sequence[Any]]:
    with collecting_nothing():
        found: Sequence[Sequence[Any]] = cursor.fetchmany(ROWS_PER_LOT)
        return found


@contextlib.contextmanager
def open_database(location: Location, snapshot: str = "") -> Iterator[Database]:
    """Open a snapshot of the database at `location`, closed at the end of the block.

    Arguments:
        snapshot: of PostgreSQL only, the name of one that another transaction has exported, to see what that sees.

    Raises:
        CannotRead: it does not exist, refuses, its driver is not installed, or the snapshot is gone.
    """
    with reported(location):
        connection = _CONNECT[location.engine](location)
    try:
        if snapshot:
            assert location.engine == "postgresql", "only PostgreSQL exports snapshots"
            with reported(location):
                connection.execute(f"set transaction snapshot '{snapshot}'")
        yield Database(location, connection)
    finally:
        connection.close()


@contextlib.contextmanager
def reported(location: Location) -> Iterator[None]:
    """Turn any driver's error into CannotRead, without a password that it repeats."""
    try:
        yield
    except TwophaseError:
        raise
    except ModuleNotFoundError as error:
        extra = {"postgresql": "postgres"}.get(location.engine, location.engine)
        raise CannotRead(
            f"{location.shown} needs the driver {error.name}: pip install 'twophase-spark[{extra}]'."
        ) from error
    except Exception as error:  # noqa: BLE001 -- any driver's error; its text may carry the password
        raise CannotRead(f"{location.role} {location.name}, {location.shown}: {_hidden(location, error)}.") from None


def _hidden(location: Location, error: Exception) -> str:
    """Return the driver's text in one line, without a password that it repeats."""
    text = " ".join(str(error).split()) or type(error).__name__
    password = urlsplit(location.url).password
    for secret in (password, unquote(password or "")):
        text = text.replace(secret, "…") if secret else text
    return text.rstrip(".")


def _sqlite(location: Location) -> Any:
    path = Path(location.path)
    if not path.is_file():
        raise CannotRead(f"{location.role} {location.name}: there is no file {path}.")
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=ro", uri=True, isolation_level=None, timeout=BUSY_SECONDS_MAX
    )
    connection.execute("begin")
    return connection


def _postgresql(location: Location) -> Any:
    import psycopg  # noqa: PLC0415 -- only who reads PostgreSQL needs its driver

    connection = psycopg.connect(location.url, connect_timeout=CONNECT_SECONDS_MAX)
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.read_only = True
    return connection


def _mysql(location: Location) -> Any:
    import pymysql  # noqa: PLC0415 -- only who reads MySQL needs its driver
    from pymysql.cursors import SSCursor  # noqa: PLC0415 -- the same

    parts = urlsplit(location.url)
    parameters = parameters_of(location.url)
    connection = pymysql.connect(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=unquote(parts.path[1:]),
        connect_timeout=CONNECT_SECONDS_MAX,
        cursorclass=SSCursor,
        **parameters.arguments(),
    )
    with connection.cursor() as cursor:
        if parameters.is_encrypted:
            cursor.execute("show session status like 'Ssl_cipher'")
            if not any(cipher for _, cipher in cursor.fetchall()):
                connection.close()
                raise CannotRead(f"{location.role} {location.name}, {location.shown}: the connection is not encrypted.")
        cursor.execute("set transaction isolation level repeatable read")
        cursor.execute("start transaction with consistent snapshot, read only")
    return connection


_CONNECT = {"sqlite": _sqlite, "postgresql": _postgresql, "mysql": _mysql}
