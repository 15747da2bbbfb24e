"""A look into a database before it is read.

The table must exist, with the columns it must have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from twophase.core.errors import CannotRead, ConfigurationError
from twophase_spark.locations import Location, Role
from twophase_spark.readers.database import Database, open_database
from twophase_spark.source.options.address import locate
from twophase_spark.source.options.read_options import ReadOptions
from twophase_spark.source.schema.sql import BODY
from twophase_spark.source.schema.tables import HAS_STATE, OF_COORDINATOR, STORED, Kind

_BARRIER = frozenset({"trans_type", "gid", "branch_id", "op", "barrier_id", "reason"})
_ROLES = {Kind.BARRIER: Role.PRODUCER, Kind.LEDGER: Role.LEDGER}


def location_of(options: ReadOptions) -> Location:
    """Return the location to connect to, with the password; not to be kept.

    Raises:
        ConfigurationError: a snapshot is named of a database that lends none.
    """
    location = locate(options.url, options.name)
    if options.snapshot and location.engine != "postgresql":
        raise ConfigurationError(f"Option snapshot is for PostgreSQL, not for {location.engine}.")
    return msgspec.structs.replace(location, role=_ROLES.get(options.kind, Role.COORDINATOR), table=options.relation)


@contextlib.contextmanager
def looked_into(options: ReadOptions) -> Iterator[tuple[Database, str]]:
    """Open the database, in the snapshot that was named if any, and check its tables.

    Yields the database and its engine.

    Raises:
        CannotRead: no such database, table or column.
    """
    location = location_of(options)
    with open_database(location, snapshot=options.snapshot) as database:
        for table, columns in _expected(options).items():
            require_columns(database, location, table, columns)
        yield database, location.engine


def require_columns(database: Database, location: Location, table: str, options: frozenset[str]) -> None:
    """Refuse a table that does not exist or lacks a column."""
    there = database.columns(table)
    if not there:
        remedy = "is this a coordinator's store?" if location.role is Role.COORDINATOR else "name it by tableName."
        raise CannotRead(f"{location.role} {location.name}, {location.shown}: there is no table {table}; {remedy}")
    missing = sorted({name.lower() for name in options} - there)
    if missing:
        raise CannotRead(f"{location.role} {location.name}, {location.shown}: table {table} has no column {missing}.")


def _expected(options: ReadOptions) -> dict[str, frozenset[str]]:
    if options.kind is Kind.BARRIER:
        return {options.relation: _BARRIER}
    if options.kind is Kind.LEDGER:
        named = {options.gid_column, options.branch_column, options.key_column} - {""}
        extra = {name for name in options.columns if name not in {"gid", "branch_id"}}
        return {options.relation: frozenset(named | extra)}
    assert options.kind in OF_COORDINATOR, "the others are above"
    if options.kind not in HAS_STATE:
        return {options.kind.value: STORED[options.kind.value]}
    tables = {"message", "history"} if options.kind is Kind.JOURNAL else {options.kind.value}
    return {table: STORED[table] | {BODY} for table in tables}
