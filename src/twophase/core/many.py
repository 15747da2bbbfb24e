"""Many messages in one request: what a bulk producer says, and what it is told of each.

Plain values that travel as JSON. A request is no transaction: each message has an outcome of its own, and all of it
may be repeated, because every part of it may (I7).
"""

from __future__ import annotations

import msgspec

PREPARE_PATH = "/api/twophase/prepare-many"
SUBMIT_PATH = "/api/twophase/submit-many"
MESSAGES_MAX = 500
"""Messages in one request."""


class SubmitMany(msgspec.Struct, frozen=True):
    """What is to be delivered: messages that are prepared. An unknown one is told, never begun."""

    gids: tuple[str, ...]


class OneResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome for one message. `code` empty: done, now or before; `state` is where the message stands."""

    code: str = ""
    state: str = ""
    message: str = ""


class ManyReply(msgspec.Struct, frozen=True):
    """The outcomes, in the order of the request."""

    results: tuple[OneResult, ...]
