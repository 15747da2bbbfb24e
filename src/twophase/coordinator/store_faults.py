"""Errors of a store that failed, for requesters and for the log.

Every task that uses the store continues after any failure, and every requester gets an answer; so each exception
becomes the one kind of error that both understand.
"""

from __future__ import annotations

from twophase.core.errors import StoreError, TwophaseError


def as_store_error(cause: Exception) -> StoreError:
    """Return a StoreError as it is, any other failure wrapped in one.

    A fault that names its cause and remedy keeps both: a certificate that ran out or a database that was dropped is a
    ConfigurationError also while the server runs.
    """
    if isinstance(cause, StoreError):
        return cause
    if isinstance(cause, TwophaseError):
        error = StoreError(cause.message, gid=cause.gid, remedy=cause.remedy)
    else:
        error = StoreError(f"the store failed unexpectedly: {type(cause).__name__}.")
    error.__cause__ = cause
    return error


def log_text(cause: Exception) -> str:
    """Return the same for a log line: what happened, and what to do."""
    error = as_store_error(cause)
    return f"{error.message} {error.remedy}"
