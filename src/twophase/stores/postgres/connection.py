"""The opening of a connection, with a proof of durable commits (rule 8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from asyncpg.exceptions import DuplicatePreparedStatementError, PostgresError

from twophase.core.credentials import shown
from twophase.core.errors import ConfigurationError, UnsafeDurability
from twophase.stores.postgres.failures import DRIVER_LOST
from twophase.stores.postgres.hosts import CONNECT_TIMEOUT_S, connect_primary, read_only

Connection = Any
"""asyncpg's, which has no types."""

POSTGRES_OLDEST = 130_000

_ISOLATION: Final = "read committed"
_SETTINGS: Final = {
    # Each statement of a flush must see what was committed while the one before it waited (correctness 18).
    "default_transaction_isolation": _ISOLATION,
    # A plan is made once, maybe over empty tables, and must be right when they are large: always by an index.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
_FILES: Final = frozenset({"sslrootcert", "sslcert", "sslkey", "sslcrl"})
_NAMES_OF_LIBPQ: Final = (
    "channel_binding connect_timeout fallback_application_name gssdelegation gssencmode hostaddr keepalives"
    " keepalives_count keepalives_idle keepalives_interval load_balance_hosts max_protocol_version min_protocol_version"
    " replication require_auth requirepeer sslcertmode sslcompression sslcrldir sslkeylogfile sslsni tcp_user_timeout"
)
"""The parameters of a URL that libpq takes and the driver does not know.

The driver would hand them to the server as settings.
"""
_STATEMENTS_KEPT: Final = 100


async def connect(url: str, wait_ms: int, timeout_s: float = CONNECT_TIMEOUT_S) -> Connection:
    """Open a connection to a PostgreSQL that takes writes and commits durably.

    A transaction pooler refuses or forgets session settings, and hands every statement to another session: behind one,
    nothing is prepared by name, and the settings are those that the functions bring along. Until it is known that there
    is no pooler, nothing is prepared by name either: the name would stay in the pool, and stop the next process there.

    Arguments:
        url: the database.
        wait_ms: how long a caller waits. The server gives a statement up a little sooner: what hangs at a lock would
            otherwise stay behind there, one more connection with every call that was given up.
        timeout_s: how long the hosts of the URL have, together.

    Raises:
        UnsafeDurability: a commit may be forgotten.
        ConfigurationError: too old, not to be understood, or of an isolation that no flush is right under.
        asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError: as they come; also where the server ends
            the session meanwhile.
    """
    settings = {**_SETTINGS, "statement_timeout": str(wait_ms * 9 // 10)}
    _check_names(url)
    _check_files(url)
    try:
        connection = await _open(url, settings, timeout_s, statements_kept=_STATEMENTS_KEPT)
    except PostgresError as error:
        if not _is_poolers_refusal(error):
            raise
        connection = await _open(url, {}, timeout_s, statements_kept=0)
        is_pooled = True
    else:
        is_pooled = False
    try:
        if not is_pooled and not await _has_settings(connection, settings):
            connection.terminate()
            connection = await _open(url, {}, timeout_s, statements_kept=0)
            is_pooled = True
        await _prove(connection, shown(url), is_pooled=is_pooled)
    except BaseException as error:
        connection.terminate()
        if isinstance(error, DRIVER_LOST):
            raise ConnectionError(str(error)) from error
        raise
    return connection


def _check_names(url: str) -> None:
    """Raise `ConfigurationError` for parameters that only libpq understands.

    `channel_binding` is a demand, which may not be dropped.
    """
    if unknown := sorted(parse_qs(urlsplit(url).query).keys() & set(_NAMES_OF_LIBPQ.split())):
        raise ConfigurationError(
            f"{shown(url)}: {', '.join(unknown)} in the URL is not supported by this driver; remove it."
        )


def _check_files(url: str) -> None:
    """Raise `ConfigurationError` for an unreadable file that the URL names.

    The driver's error would not name it.
    """
    for name, (path, *_) in parse_qs(urlsplit(url).query).items():
        if name in _FILES:
            try:
                with Path(path).open("rb"):
                    pass
            except OSError as error:
                raise ConfigurationError(f"{shown(url)}: {name}: {path} cannot be read: {error.strerror}.") from error


async def _open(url: str, settings: dict[str, str], timeout_s: float, statements_kept: int) -> Connection:
    return await connect_primary(
        url,
        timeout_s,
        server_settings={"application_name": "twophase", **settings},
        statement_cache_size=statements_kept,
        max_cached_statement_lifetime=0,
        max_cacheable_statement_size=0,
    )


def _is_poolers_refusal(error: PostgresError) -> bool:
    """PgBouncer knows a few settings; a client that asks for another is turned away.

    Or it ignores them, and a name of the driver's is known in the session already: it is not a new one. To find the
    primary the driver asks a server before version 14 by a statement with a name, which stays behind in a pool.
    """
    if isinstance(error, DuplicatePreparedStatementError):
        return True
    text = str(error)
    return "unsupported startup parameter" in text and any(name in text for name in _SETTINGS)


async def _has_settings(connection: Connection, settings: dict[str, str]) -> bool:
    """Return True when the session has the settings that were asked for.

    A pooler may be set up to ignore settings that it does not know.

    Without arguments the driver prepares nothing; the rows are counted in the answer's tag.
    """
    pairs = ", ".join(f"('{name}', '{value}')" for name, value in settings.items())
    tag: str = await connection.execute(f"select from pg_settings where (name, setting) in ({pairs})")
    return tag == f"SELECT {len(settings)}"


async def _prove(connection: Connection, database: str, *, is_pooled: bool) -> None:
    """Raise unless COMMIT returns after the fsync, and this is no standby.

    A standby may be behind.

    The isolation is never another one than was asked for, but behind a pooler, where nothing is asked for.
    """
    version, fsync, synchronous, isolation, is_standby = await connection.fetchrow(
        "select current_setting('server_version_num')::integer, current_setting('fsync'),"
        " current_setting('synchronous_commit'), current_setting('transaction_isolation'), pg_is_in_recovery()"
    )
    if is_standby:
        raise read_only()
    if version < POSTGRES_OLDEST:
        raise ConfigurationError(f"{database}: PostgreSQL {version // 10_000} is too old; 13 or newer is needed.")
    if isolation != _ISOLATION:
        raise ConfigurationError(
            f"{database}: transactions are {isolation}, under which a gid could exist twice, and behind a pooler only "
            f"the database can change that: alter database … set default_transaction_isolation = '{_ISOLATION}'."
        )
    if fsync == "off":
        raise UnsafeDurability(f"{database}: fsync is off, so a commit may be lost; set it to on.")
    if synchronous == "off" and is_pooled:
        raise UnsafeDurability(
            f"{database}: synchronous_commit is off, and behind a pooler only the database can change that:"
            " alter database … set synchronous_commit = on."
        )
    if not is_pooled:
        # Of the session from now on, so that a reload of the server's configuration cannot turn it off.
        await connection.execute(f"set synchronous_commit = {'on' if synchronous == 'off' else synchronous}")
