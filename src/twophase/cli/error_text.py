"""Errors as a command that fails prints them."""

from __future__ import annotations

from twophase.core.errors import StoreError, TwophaseError


def error_text(error: TwophaseError) -> str:
    """Return what happened and what to do about it.

    A message's fate is included only where there is a message.

    >>> from twophase.core.errors import CoordinatorUnreachable
    >>> error_text(CoordinatorUnreachable("http://pay:1 cannot be reached", remedy="Start it."))
    'TP-3003: http://pay:1 cannot be reached. Start it.'
    """
    if error.gid is not None:
        return str(error)
    remedy = error.remedy_now if isinstance(error, StoreError) else error.remedy
    return f"{error.code}: {error.message.rstrip('. ')}. {remedy}"
