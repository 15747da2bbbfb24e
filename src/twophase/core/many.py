"""Many messages in one request of a producer, and the outcome of each.

Plain values that travel as JSON. A request is no transaction: each message has an outcome of its own, and all of it
may be repeated, because every part of it may (I7).
"""

from __future__ import annotations

import msgspec

PREPARE_PATH = "/api/twophase/prepare-many"
SUBMIT_PATH = "/api/twophase/submit-many"
MESSAGES_MAX = 500
"""Messages in one request."""
_LATER = frozenset({"TP-3000", "TP-3001", "TP-3002"})


def is_later(code: str) -> bool:
    """Return True for the code of an error that passes: a message may be sent again.

    The coordinator or its store is busy or away.

    >>> is_later("TP-3001"), is_later("TP-2004")
    (True, False)
    """
    return code in _LATER or code.startswith("TP-4")


class SubmitMany(msgspec.Struct, frozen=True):
    """Prepared messages that are to be delivered.

    An unknown one is reported, never begun: nothing but its gid is known.
    """

    gids: tuple[str, ...]


class OneResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome for one message.

    `code` is empty when it is done, now or before; `state` is the message's state.
    """

    code: str = ""
    state: str = ""
    message: str = ""


class ManyReply(msgspec.Struct, frozen=True):
    """The outcomes, in the order of the request."""

    results: tuple[OneResult, ...]
