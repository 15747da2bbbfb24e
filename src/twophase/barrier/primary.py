"""The look for a replica, which must not decide.

It may be behind the database that the producer wrote to. A replica carries the identity of its primary, so the identity
does not distinguish them. PostgreSQL and a read-only server report it in the statements that read the identity; a MySQL
or MariaDB server that replicates another one and takes writes is recognized here.
"""

from __future__ import annotations

from twophase.barrier.dialect import Dialect
from twophase.barrier.transaction import Steps, say
from twophase.core.errors import DatabaseIsReplica

_CHANNEL = "it replicates another server, and may be behind it"


def require_primary(dialect: Dialect) -> Steps[None]:
    """Refuse a server with a channel of replication.

    A user who may not see the channels is shown on MariaDB only those that run. A stopped one that takes writes is not
    seen by such a user; the barrier's how-to says which right to grant.

    Raises:
        DatabaseIsReplica: there is one.
    """
    if "read_channels" not in dialect.statements:
        return
    try:
        channels = yield say(dialect, "read_channels")
    except Exception as error:
        if not dialect.is_denied(error):
            raise
        channels = yield say(dialect, "read_replica_threads")
    if channels:
        raise DatabaseIsReplica(f"This database must not decide: {_CHANNEL}.")
