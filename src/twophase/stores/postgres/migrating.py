"""Migration by itself, for `twophase migrate`.

A user who may create tables runs it before servers that may not.
"""

from __future__ import annotations

from twophase.core.errors import SchemaMissing
from twophase.stores.postgres import schema
from twophase.stores.postgres.connection import Connection
from twophase.stores.postgres.failures import FAILURES, store_error
from twophase.stores.postgres.reconnecting import Deadline, ReconnectingConnection

_WAIT_MS = 10_000
_DENIED = "42501"


async def migrate_database(url: str) -> tuple[int, int]:
    """Bring a database's schema to the newest version.

    Returns the version before (0: none) and after.

    Raises:
        StoreError, ConfigurationError: as `Store.start` says; StoreDenied: this user may not create tables.
    """
    reconnecting = ReconnectingConnection(url, _WAIT_MS)
    try:
        connection = await reconnecting.connected(reconnecting.deadline())
        try:
            return await schema.migrate(connection, reconnecting.database)
        except FAILURES as error:
            raise store_error(error, reconnecting.database, "migrating") from error
    finally:
        await reconnecting.close()


async def make_ready(reconnecting: ReconnectingConnection, connection: Connection, deadline: Deadline) -> None:
    """Check that the schema is the newest; migrate it where this user may.

    The look is bounded by the deadline, the wait for another process that migrates by a longer one of its own; a
    migration takes what it takes.

    Raises:
        StoreUnavailable: another process migrates, and does not end in time.
        SchemaMissing: it is missing, older or half migrated, and this user may not change that.
        asyncpg.PostgresError: as it comes.
    """
    database = reconnecting.database
    version = await reconnecting.within(deadline, schema.identify(connection, database))
    if version == schema.SCHEMA_VERSION:
        return
    try:
        await schema.migrate(connection, database)
    except FAILURES as error:
        if getattr(error, "sqlstate", "") != _DENIED:
            raise
        found = f"has schema version {version}" if version else "has no schema yet"
        raise SchemaMissing(
            f"{database} {found}; version {schema.SCHEMA_VERSION} is needed, and this user may not create it: {error}."
        ) from error
