"""Detection of a pooler before PostgreSQL.

It also finds whether the pooler uses a session for each transaction. The protocol gives a client the process id of its
session. A pooler makes its own, so another id from the server betrays it; and a session that changes hands, or a client
that changes sessions, betrays pooling by transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import sqlalchemy
from sqlalchemy import Connection, Engine

from twophase.cli.findings import Finding, Level

_PREPARED: Final = (
    "Let no driver prepare statements by name behind it: psycopg's prepare_threshold=None, asyncpg's "
    "statement_cache_size=0; from PgBouncer 1.21 on max_prepared_statements is the alternative."
)


def pooling(engine: Engine) -> Iterator[Finding]:
    """Yield a finding when a pooler stands between; none for a direct connection."""
    with engine.connect() as one, engine.connect() as other:
        announced = getattr(getattr(one.connection.driver_connection, "info", None), "backend_pid", None)
        # In this order the move of a session is seen whether the pool gives the last used one or takes turns.
        ones, others = {_session(one), _session(one)}, {_session(other)}
        ones.add(_session(one))
        others |= {_session(other), _session(other)}
    if len(ones) > 1 or len(others) > 1 or ones & others:
        found = "transactions share sessions (PgBouncer in transaction mode, or similar); the barrier works with that"
        yield Finding(Level.WARNING, "pooling", found, _PREPARED)
    elif announced is not None and announced not in ones:
        yield Finding(Level.OK, "pooling", "a pooler gives each connection a session of its own")


def _session(connection: Connection) -> int:
    """Return the process id of the session of this connection's next transaction."""
    with connection.begin():
        number: int = connection.execute(sqlalchemy.text("select pg_backend_pid()")).scalar_one()
    return number
