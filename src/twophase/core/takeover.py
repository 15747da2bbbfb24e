"""Unfinished messages of another coordinator, handed over by `twophase import`.

The server's answers to it are here, too.

Plain values that travel as JSON (`POST /api/twophase/import`), payloads in base 64. A message keeps what its producer
and its receivers know it by: the gid, and of each branch the number and the bytes. What has been called already keeps
its number with an empty address, which succeeds without a call, so that branch `02` is still `02` to the receiver's
barrier.
"""

from __future__ import annotations

import enum

import msgspec

PATH = "/api/twophase/import"
MESSAGES_MAX = 100
"""Messages in one request."""


class TakenState(enum.StrEnum):
    """The state that a message had in dtm, in dtm's words."""

    PREPARED = "prepared"
    SUBMITTED = "submitted"


class TakenBranch(msgspec.Struct, frozen=True, omit_defaults=True):
    """One branch.

    `calls` None: `url` is called. Otherwise exactly these are called, one after the other; "" is done already.
    """

    url: str
    payload: bytes = b""
    calls: tuple[str, ...] | None = None


class TakenMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message, with its options as in a prepare or submit.

    `delay_ms` counts from now on. `created_ms` is the time at which it was begun there, milliseconds since 1970, and
    stays its birth here; 0 when unknown, and then no barrier row of its kind is cleaned while it is unfinished.
    """

    gid: str
    state: TakenState
    branches: tuple[TakenBranch, ...] = ()
    created_ms: int = 0
    query_prepared: str = ""
    protocol: str = ""
    concurrent: bool = False
    delay_ms: int = 0
    timeout_to_fail_ms: int = 0
    request_timeout_ms: int = 0
    retry_interval_ms: int = 0
    branch_headers: dict[str, str] = {}


class TakeoverRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Some messages.

    `dry_run`: change nothing, only say what would become of each. `never_taken`: none of them was handed over before,
    so that also one may be new which is older than what the server remembers.
    """

    messages: tuple[TakenMessage, ...]
    dry_run: bool = False
    never_taken: bool = False


class Outcome(enum.StrEnum):
    """The outcome of taking a message over."""

    COPIED = "copied"
    """It is stored here, and driven. In a dry run: it would be."""
    PRESENT = "present"
    """It was here before, or is further here than there."""
    CONFLICT = "conflict"
    """Something else has its gid here, or the opposite was decided here."""
    REFUSED = "refused"
    """It cannot be stored here."""
    LATER = "later"
    """The server cannot take it now; send it again."""


class TakenResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome for one message.

    `state` is its state here, when it was here before.
    """

    gid: str
    outcome: Outcome
    state: str = ""
    code: str = ""
    message: str = ""
    remedy: str = ""


class TakeoverReply(msgspec.Struct, frozen=True):
    """The outcomes, in the order of the request."""

    results: tuple[TakenResult, ...]
