"""PostgreSQL's SQLSTATEs as the errors of `core.errors`, and a statement's fate.

Three questions decide everything: is the connection gone (then the outcome is unknown, correctness 20), did the
transaction merely lose against another one (then nothing happened, and it is tried again), or does the database
reject the data (22)? Any other error is reported to the operator.
"""

from __future__ import annotations

import ssl
from typing import Final

from asyncpg.exceptions import ClientConfigurationError, InterfaceError, InternalClientError, PostgresError

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

FORGOTTEN: Final = "TP015"
"""Raised by `flush.sql`: a new gid is older than history, and nothing was written."""

FAILURES: Final = (PostgresError, InterfaceError, OSError, TimeoutError)
"""The errors that the driver raises."""
DRIVER_LOST: Final = (RuntimeError, InternalClientError)
"""The errors of a driver that does not know yet that its connection is lost.

The loop has closed the socket, or the server has ended the session and the driver has lost its place in the protocol.
"""

_LOST_STATES: Final = ("08", "57P01", "57P02", "57P03", "57P04", "57P05", "25006")
"""The SQLSTATEs of a connection that is gone or about to go.

25006: this server has become a standby, and another is the primary.
"""
_NOT_YET_STATES: Final = (*_LOST_STATES, "53300", "55006")
"""A connection refused with one of these may be given a moment later."""
_DATA_STATES: Final = ("22", "23", "54")
_DENIED_STATES: Final = ("28", "42501")
_URL_STATES: Final = ("3D000", "42704")
"""No such database; no such setting, or whatever else the URL names."""
_MISSING_STATES: Final = ("42P01", "42703", "42883", "3F000")
_MEANINGS: Final = {
    "53300": "All connections of the database are in use (max_connections).",
    "57014": "The database cancelled the statement (statement_timeout?); nothing of it was done.",
    "55P03": "The database gave up waiting for a lock (lock_timeout?); nothing was done.",
    "53200": "The database is out of memory.",
}


def is_lost(error: BaseException) -> bool:
    """Return True when the connection is no longer of use.

    A statement that was under way on it may or may not have happened.
    """
    if isinstance(error, PostgresError):
        return _state(error).startswith(_LOST_STATES)
    return isinstance(error, (InterfaceError, OSError, TimeoutError))


def is_passing(error: BaseException) -> bool:
    """Return True when another try to connect may succeed without a person's help."""
    if isinstance(error, PostgresError):
        return _state(error).startswith(_NOT_YET_STATES)
    if isinstance(error, (ssl.SSLError, ssl.CertificateError)) or "rejected SSL" in str(error):
        return False
    return isinstance(error, (OSError, TimeoutError))


def is_beaten(error: BaseException) -> bool:
    """Return True when the transaction lost against another one.

    After a deadlock or a serialization failure nothing has happened, and it is tried again.
    """
    return _state(error).startswith("40")


def is_data(error: BaseException) -> bool:
    """Return True when the database, or the driver before it, refuses a value."""
    return _state(error).startswith(_DATA_STATES)


def store_error(error: BaseException, database: str, doing: str) -> TwophaseError:
    """Return the error to raise from `error`.

    Arguments:
        error: what the driver raised.
        database: the database, without its password.
        doing: what was tried, for the message.

    >>> from asyncpg.exceptions import DiskFullError
    >>> store_error(DiskFullError("no space left on device"), "db1", "writing").code
    'TP-4004'
    """
    # Time ran out over it: that tells more than the time.
    reason = error.__cause__ if isinstance(error, TimeoutError) else None
    state = _state(reason or error)
    text = f"{database}: {doing} failed: {str(error).rstrip('.') or type(error).__name__}."
    if meaning := _MEANINGS.get(state):
        return StoreUnavailable(f"{text} {meaning}")
    if isinstance(error, (ssl.SSLError, ssl.CertificateError)) or "rejected SSL" in str(error):
        return ConfigurationError(f"{text} See sslmode and sslrootcert of the store's URL.")
    if state == "25006":
        return StoreReadOnly(f"{text} This server is a standby, or read-only by its settings; name the primary too.")
    if state.startswith("53100"):
        return StoreFull(text)
    if state.startswith(_DENIED_STATES):
        return StoreDenied(text)
    if state.startswith(_MISSING_STATES):
        return SchemaMissing(text)
    if isinstance(error, ValueError) and not isinstance(error, (PostgresError, InterfaceError)):
        # The driver's text may hold a piece of the password.
        return ConfigurationError(f"{database}: the URL cannot be understood; percent-encode its special characters.")
    if state in _URL_STATES or isinstance(error, ClientConfigurationError):
        return ConfigurationError(text)
    if state.startswith("XX00") and state != "XX000":
        return StoreCorrupt(text)
    if is_lost(error) or is_passing(error):
        return StoreUnavailable(text)
    return StoreError(text)


def _state(error: BaseException) -> str:
    state = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else ""
