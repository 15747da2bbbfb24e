"""The kind of an error that a database reported, through any library.

A verdict depends on it: a lock that another transaction holds is an answer (in progress), everything unexpected is not
(unknown). Only codes are read and only codes are repeated, because messages of databases and libraries carry parameter
values, and DSNs.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator


class Fault(enum.Enum):
    """The kinds of trouble the rules tell apart."""

    BUSY = "busy"
    """A lock, a deadlock, a serialization failure or a timeout: ask again.

    The timeout is one that this library set.
    """
    DUPLICATE = "duplicate"
    """The unique key is taken."""
    TABLE_MISSING = "table missing"
    """No barrier table, or one that lacks our columns."""
    TABLE_UNUSABLE = "table unusable"
    """The table has no transactions, or lacks its unique key.

    The key must be immediate, over the columns that an insert names.
    """
    DENIED = "denied"
    """The user may not ask this."""
    OTHER = "other"


_POSTGRESQL = {
    "40001": Fault.BUSY,  # serialization_failure
    "40P01": Fault.BUSY,  # deadlock_detected
    "55P03": Fault.BUSY,  # lock_not_available: lock_timeout
    "57014": Fault.BUSY,  # query_canceled: statement_timeout
    "23505": Fault.DUPLICATE,  # unique_violation
    "42P10": Fault.TABLE_UNUSABLE,  # invalid_column_reference: no unique index for ON CONFLICT
    "55000": Fault.TABLE_UNUSABLE,  # object_not_in_prerequisite_state: the unique constraint is deferrable
    "42P01": Fault.TABLE_MISSING,  # undefined_table
    "42703": Fault.TABLE_MISSING,  # undefined_column
    "3F000": Fault.TABLE_MISSING,  # invalid_schema_name
    "42501": Fault.DENIED,  # insufficient_privilege
}
_MYSQL = {
    1205: Fault.BUSY,  # lock wait timeout
    1213: Fault.BUSY,  # deadlock
    1020: Fault.BUSY,  # MariaDB: record has changed since last read
    1969: Fault.BUSY,  # MariaDB: max_statement_time exceeded
    3024: Fault.BUSY,  # MySQL: max_execution_time exceeded
    1062: Fault.DUPLICATE,  # duplicate entry
    1178: Fault.TABLE_UNUSABLE,  # the storage engine supports no SAVEPOINT
    1146: Fault.TABLE_MISSING,  # no such table
    1054: Fault.TABLE_MISSING,  # unknown column
    1049: Fault.TABLE_MISSING,  # unknown database
    1142: Fault.DENIED,  # command denied to this user for a table
    1143: Fault.DENIED,  # for a column
    1227: Fault.DENIED,  # access denied: a privilege is missing
    1064: Fault.DENIED,  # MySQL before 8.0.22 does not know `show replica status`
    1065: Fault.DENIED,  # query was empty: the same, in an executable comment
}
_TIMEOUTS = {"SQLSTATE 57014", "MySQL error 1969", "MySQL error 3024"}
"""The codes of a statement that took too long, whatever it waited for."""
_GONE = {
    "SQLSTATE 57P01",  # admin_shutdown
    "SQLSTATE 57P02",  # crash_shutdown
    "SQLSTATE 57P03",  # cannot_connect_now
    "SQLSTATE 57P05",  # idle_session_timeout
    "SQLSTATE 25P03",  # idle_in_transaction_session_timeout
    "SQLSTATE 25P04",  # transaction_timeout
    "MySQL error 0",  # PyMySQL: the connection is closed
    "MySQL error 1053",  # server shutdown in progress
    "MySQL error 1927",  # MariaDB: connection was killed
    "MySQL error 2006",  # server has gone away
    "MySQL error 2013",  # lost connection during query
    "MySQL error 2055",  # the same, with the system's error
    "MySQL error 4031",  # MySQL: disconnected because of inactivity
}
"""The codes of a statement whose connection has ended."""
_UNREAD = "MySQL error 2014"
"""The code of mysqlclient for a statement behind rows that were not read."""
_CONNECTION_EXCEPTION = "SQLSTATE 08"
_CLOSED = ("connection is closed", "has been released back to the pool")
"""Texts of psycopg and asyncpg without a code.

asyncpg's pool takes a connection back that the server closes.
"""
_SQLITE_PRIMARY = {5: Fault.BUSY, 6: Fault.BUSY}  # SQLITE_BUSY, SQLITE_LOCKED, with all their extended codes
_SQLITE_EXTENDED = {2067: Fault.DUPLICATE, 1555: Fault.DUPLICATE}  # SQLITE_CONSTRAINT_UNIQUE, _PRIMARYKEY
_SQLITE_MISSING = ("no such table", "no such column", "has no column named", "unknown database")
_SQLITE_KEYLESS = "ON CONFLICT clause does not match"
_MYSQL_LIBRARIES = ("pymysql", "asyncmy", "aiomysql", "MySQLdb", "mysql")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and the errors that it wraps.

    SQLAlchemy keeps a wrapped error as `orig`, Django and asyncpg's adapter keep it as the cause.
    """
    seen: set[int] = set()
    pending: list[object] = [error]
    while pending:
        current = pending.pop()
        if not isinstance(current, BaseException) or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        pending += [current.__cause__, getattr(current, "orig", None)]


def _look_at(error: BaseException) -> tuple[Fault, str] | None:
    # Before the SQLSTATE, which PyMySQL reports too: MySQL's are too coarse.
    if type(error).__module__.split(".")[0] in _MYSQL_LIBRARIES and error.args and isinstance(error.args[0], int):
        return _MYSQL.get(error.args[0], Fault.OTHER), f"MySQL error {error.args[0]}"
    sqlstate = _sqlstate_of(error)
    if sqlstate is not None:
        return _POSTGRESQL.get(sqlstate, Fault.OTHER), f"SQLSTATE {sqlstate}"
    number = getattr(error, "sqlite_errorcode", None)
    if isinstance(number, int):
        fault = _SQLITE_PRIMARY.get(number & 0xFF) or _SQLITE_EXTENDED.get(number, Fault.OTHER)
        if number == 1 and any(words in str(error) for words in _SQLITE_MISSING):
            fault = Fault.TABLE_MISSING
        elif number == 1 and _SQLITE_KEYLESS in str(error):
            fault = Fault.TABLE_UNUSABLE
        return fault, f"SQLite error {number}"
    return None


def _sqlstate_of(error: BaseException) -> str | None:
    """Return the SQLSTATE of an error.

    psycopg 3 and asyncpg carry it in one way, psycopg2 and pg8000 each in another.
    """
    fields = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
    for sqlstate in (getattr(error, "sqlstate", None), getattr(error, "pgcode", None), fields.get("C")):
        if isinstance(sqlstate, str) and len(sqlstate) == 5:
            return sqlstate
    return None


def _found(error: BaseException) -> tuple[Fault, str, str] | None:
    """Return the fault, the code and the class of the database's error in the chain."""
    for link in _chain(error):
        found = _look_at(link)
        if found is not None:
            return (*found, type(link).__name__)
    return None


def fault_of(error: BaseException) -> Fault:
    """Return the kind of trouble that `error`, or an error it wraps, reports.

    >>> import sqlite3
    >>> try:
    ...     sqlite3.connect(":memory:").execute("select * from barrier")
    ... except sqlite3.Error as error:
    ...     fault_of(error)
    <Fault.TABLE_MISSING: 'table missing'>
    """
    found = _found(error)
    return found[0] if found is not None else Fault.OTHER


def code_of(error: BaseException) -> str:
    """Return the database's code for `error`, or the name of its class.

    It never returns the text, which may carry values.

    >>> code_of(ValueError("secret"))
    'ValueError'
    """
    found = _found(error)
    return found[1] if found is not None else type(error).__name__


def timed_out(error: BaseException) -> bool:
    """Recognise a statement that a timeout of the database ended.

    One that met a lock or a deadlock is another kind.
    """
    return code_of(error) in _TIMEOUTS


def connection_ended(error: BaseException) -> bool:
    """Recognise a statement whose connection has ended, as far as its library says so.

    >>> connection_ended(ConnectionResetError()), connection_ended(ValueError())
    (True, False)
    """
    code = code_of(error)
    return (
        code in _GONE
        or code.startswith(_CONNECTION_EXCEPTION)
        or any(
            # SQLAlchemy says it of every driver.
            getattr(one, "connection_invalidated", False) is True
            or isinstance(one, ConnectionError)
            or (
                type(one).__name__ in ("InterfaceError", "OperationalError")
                and any(words in str(one) for words in _CLOSED)
            )
            for one in _chain(error)
        )
    )


def rows_unread(error: BaseException) -> bool:
    """Recognise a statement that was not sent because of rows left unread.

    SQLAlchemy takes it for the end of the connection.
    """
    return code_of(error) == _UNREAD


def described(error: BaseException) -> str:
    """Return the database's code for `error`, with the driver's class.

    Without a code it is the name of the error's class. It never returns the text, as `code_of`.

    >>> described(ValueError("secret"))
    'ValueError'
    """
    found = _found(error)
    return f"{found[1]}, {found[2]}" if found is not None else type(error).__name__
