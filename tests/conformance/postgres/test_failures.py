"""The database's errors as an operator reads them.

They show the code, and whether waiting helps.
"""

from __future__ import annotations

import ssl

import asyncpg
import pytest

from twophase.core.errors import (
    ConfigurationError,
    SchemaMissing,
    StoreCorrupt,
    StoreDenied,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TwophaseError,
)
from twophase.stores.postgres import PostgresStore
from twophase.stores.postgres.failures import is_beaten, is_data, is_lost, is_passing, store_error

MEANINGS: list[tuple[BaseException, type[TwophaseError]]] = [
    (asyncpg.DiskFullError("could not extend file"), StoreFull),
    (asyncpg.InvalidPasswordError("password authentication failed"), StoreDenied),
    (asyncpg.InsufficientPrivilegeError("permission denied for table message"), StoreDenied),
    (asyncpg.QueryCanceledError("canceling statement due to statement timeout"), StoreUnavailable),
    (asyncpg.LockNotAvailableError("canceling statement due to lock timeout"), StoreUnavailable),
    (asyncpg.TooManyConnectionsError("sorry, too many clients already"), StoreUnavailable),
    (asyncpg.CannotConnectNowError("the database system is starting up"), StoreUnavailable),
    (asyncpg.AdminShutdownError("terminating connection"), StoreUnavailable),
    (ConnectionRefusedError(111, "Connect call failed"), StoreUnavailable),
    (TimeoutError(), StoreUnavailable),
    (asyncpg.InvalidCatalogNameError("database does not exist"), ConfigurationError),
    (ValueError("invalid literal for int() with base 10: 'secret'"), ConfigurationError),
    (ssl.SSLCertVerificationError("certificate verify failed"), ConfigurationError),
    (ConnectionError("PostgreSQL server at h:1 rejected SSL upgrade"), ConfigurationError),
    (asyncpg.UndefinedTableError('relation "node" does not exist'), SchemaMissing),
    (asyncpg.ReadOnlySQLTransactionError("cannot execute UPDATE in a read-only transaction"), StoreReadOnly),
    (asyncpg.IndexCorruptedError("right sibling is not"), StoreCorrupt),
    (asyncpg.PostgresSyntaxError("syntax error"), StoreError),
]


@pytest.mark.parametrize(("error", "wanted"), MEANINGS, ids=lambda value: type(value).__name__)
def test_every_failure_has_its_meaning(error: BaseException, wanted: type[TwophaseError]) -> None:
    made = store_error(error, "postgresql://db/x", "writing")

    assert type(made) is wanted
    assert "secret" not in str(made)


def test_what_is_known_of_the_fate_of_a_statement() -> None:
    lost = [asyncpg.AdminShutdownError(""), asyncpg.ConnectionDoesNotExistError(""), ConnectionResetError()]
    beaten = [asyncpg.DeadlockDetectedError(""), asyncpg.SerializationError("")]
    data = [asyncpg.NumericValueOutOfRangeError(""), asyncpg.DataError(""), asyncpg.ProgramLimitExceededError("")]

    for question, holds in ((is_lost, lost), (is_beaten, beaten), (is_data, data)):
        for error in (*lost, *beaten, *data):
            assert question(error) is (error in holds), (question, error)


def test_some_failures_to_connect_pass_by_themselves() -> None:
    assert is_passing(asyncpg.TooManyConnectionsError(""))
    assert is_passing(asyncpg.CannotConnectNowError(""))
    assert is_passing(ConnectionRefusedError())
    assert not is_passing(asyncpg.InvalidPasswordError(""))
    assert not is_passing(ssl.SSLError())


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("postgresql://me:secret@db:port/x", ConfigurationError),
        ("postgresql://me:secret@127.0.0.1:1/x", StoreUnavailable),
        ("postgresql://127.0.0.1:1/x?user=me&password=secret", StoreUnavailable),
        ("postgresql://127.0.0.1:1/x?user=me&password=any@secret", StoreUnavailable),
        ("postgresql://me:secret@127.0.0.1/x?sslmode=sometimes", ConfigurationError),
        ("postgresql://me:secret@127.0.0.1/x?sslmode=verify-full&sslrootcert=/not/there", ConfigurationError),
        ("postgresql://me:secret@127.0.0.1:1/x?connect_timeout=10", ConfigurationError),
        ("postgresql://me:secret@127.0.0.1:1/x?sslmode=prefer&channel_binding=require", ConfigurationError),
    ],
)
async def test_a_url_that_leads_nowhere_is_reported_without_its_password(url: str, wanted: type[TwophaseError]) -> None:
    with pytest.raises(wanted) as caught:
        await PostgresStore(url, outage_wait_ms=200).start()

    assert "secret" not in str(caught.value)
