"""A set-up seen from the service.

That is its database, the barrier there, and the durability of a confirmed commit. The barrier's own rules are applied:
what they would refuse in production is reported here. Writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import sqlalchemy
from sqlalchemy import Engine

from twophase.barrier.dialect import POSTGRESQL, SQLITE
from twophase.barrier.durability import require_durability
from twophase.barrier.fault import Fault, fault_of
from twophase.barrier.open import open_transaction
from twophase.barrier.producer import read_identity
from twophase.barrier.transaction import Statement, SyncTransaction, perform, say
from twophase.cli.database_url import for_sync, read_url, sqlite_file, why_refused
from twophase.cli.doctor.clocks import compared
from twophase.cli.doctor.pooling import pooling
from twophase.cli.findings import Finding, Level
from twophase.core.credentials import shown
from twophase.core.errors import AutocommitRefused, TwophaseError

LOCK_TIMEOUT_MS: Final = 3_000
_REACH: Final = "Correct the URL, or start the database."
_ALLOW: Final = "Correct what the database names; grant the role of the URL what it lacks."
_BUSY: Final = "Another connection has held the write lock for long: run this again when the database is less busy."
_TRANSACTIONS: Final = "Give the URL, or the pool behind it, a mode in which transactions of several statements work."
_WRITABLE: Final = "Name the primary, not a standby; and let this role write: default_transaction_read_only = off."


class Database:
    """A database under examination.

    `identity` is its name as soon as it has been read, else None.

    Arguments:
        url: SQLAlchemy's, with a password or without.
        table: the barrier's name, `name` or `schema.name`.

    Raises:
        ConfigurationError: the URL cannot be used.
    """

    def __init__(self, url: str, table: str) -> None:
        self._url = for_sync(read_url(url))
        self._table = table
        self.identity: str | None = None

    def examine(self) -> Iterator[Finding]:
        """Yield all findings in their order.

        Those that need a connection are yielded only when there is one.
        """
        file = sqlite_file(self._url)
        if file is not None and not file.exists():
            yield Finding(Level.BAD, "database", f"there is no file {file}", _REACH)
            return
        try:
            engine = sqlalchemy.create_engine(self._url, hide_parameters=True)
        except ModuleNotFoundError as error:
            yield Finding(Level.BAD, "database", why_refused(error, self._url), "Install it, and run this again.")
            return
        try:
            yield from self._look(engine)
        finally:
            engine.dispose()

    def _look(self, engine: Engine) -> Iterator[Finding]:
        try:
            with engine.connect() as connection:
                isolation = connection.get_isolation_level()
            pooled = list(pooling(engine)) if engine.dialect.name == POSTGRESQL.name else []
        except Exception as error:  # noqa: BLE001 -- whatever the driver raises, it is the finding
            reached = self._opens_a_session(engine)
            what, remedy = ("transactions", _TRANSACTIONS) if reached else ("database", _REACH)
            yield Finding(Level.BAD, what, why_refused(error, self._url), remedy)
            return
        kind = "mariadb" if getattr(engine.dialect, "is_mariadb", False) else engine.dialect.name
        version = ".".join(str(part) for part in engine.dialect.server_version_info or ())
        yield Finding(Level.OK, "database", f"{kind} {version} at {shown(self._url.render_as_string())}")
        yield from pooled
        try:
            transaction = open_transaction(engine, lock_timeout_ms=LOCK_TIMEOUT_MS)
        except AutocommitRefused as error:
            yield self._refusal("transactions", error)
            return
        except Exception as error:  # noqa: BLE001 -- as above
            busy = fault_of(error) is Fault.BUSY
            level, remedy = (Level.WARNING, _BUSY) if busy else (Level.BAD, _TRANSACTIONS)
            yield Finding(level, "transactions", why_refused(error, self._url), remedy)
            return
        try:
            yield Finding(Level.OK, "transactions", f"isolation level {isolation.lower()}")
            if transaction.dialect is POSTGRESQL:
                yield from _read_only(transaction)
            yield from self._inside(transaction)
        finally:
            transaction.rollback()
            transaction.close()

    def _opens_a_session(self, engine: Engine) -> bool:
        """Tell a pooler in statement mode from a PostgreSQL that cannot be reached.

        The pooler lets a session begin, and refuses the transaction with which every driver goes on.
        """
        if engine.dialect.name != POSTGRESQL.name:
            return False
        arguments, options = engine.dialect.create_connect_args(self._url)
        try:
            engine.dialect.connect(*arguments, **options).close()
        except Exception:  # noqa: BLE001 -- the first error is reported, not this one
            return False
        return True

    def _inside(self, transaction: SyncTransaction) -> Iterator[Finding]:
        """Read everything in one transaction.

        The barrier comes last, because its absence spoils a transaction.
        """
        dialect = transaction.dialect
        before_ms = _own_ms()
        [(now_ms,)] = perform(_rows(say(dialect, "now", self._table)), transaction)
        if dialect is not SQLITE:  # SQLite's clock is this machine's
            yield compared("its", int(now_ms), "this machine's", (before_ms + _own_ms()) // 2)
        try:
            perform(require_durability(dialect, self._table), transaction)
            yield Finding(Level.OK, "durability", "a confirmed commit is on disk")
        except Exception as error:  # noqa: BLE001 -- as above
            yield self._refusal("durability", error)
        try:
            self.identity = perform(read_identity(dialect, self._table, allow_unsafe=True), transaction)
            yield Finding(Level.OK, "barrier", f"table {self._table}, database {self.identity[:8]}…")
        except Exception as error:  # noqa: BLE001 -- as above
            yield self._refusal("barrier", error)

    def _refusal(self, what: str, error: Exception) -> Finding:
        if isinstance(error, TwophaseError):
            return Finding(Level.BAD, what, f"{error.code}: {error.message}", error.remedy)
        return Finding(Level.BAD, what, why_refused(error, self._url), _ALLOW)


def _read_only(transaction: SyncTransaction) -> Iterator[Finding]:
    """Report a standby, or a role that may only read.

    Both would show the barrier and take no row.
    """
    [(read_only,)] = transaction.execute(Statement("select current_setting('transaction_read_only')", {}))
    if read_only == "on":
        yield Finding(Level.BAD, "writes", "transactions are read-only", _WRITABLE)


def _rows(statement: Any) -> Any:
    return (yield statement)


def _own_ms() -> int:
    return time.time_ns() // 1_000_000
