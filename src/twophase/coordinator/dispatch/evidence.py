"""Records of calls without success: status, latency and a short excerpt.

The excerpt is printable.
"""

from __future__ import annotations

import re

from twophase.core.limits import ERROR_TEXT_BYTES_MAX
from twophase.core.verdict import word_that_decided
from twophase.destinations.base import Answer
from twophase.stores.rows import Attempt, AttemptKind

_EXCERPT_BYTES_MAX = 200
_OWN = re.compile(
    r"[a-z_]+ arrived late, the message was (failed|redirected)"
    r"|the token of '[\w.-]+' does not allow the branches that the producer added"
)
"""This side's words about an answer that has no effect."""


def attempt_of(
    gid: str, kind: AttemptKind, branch_id: str, target: str, at_ms: int, answer: Answer, result: str
) -> Attempt:
    """Return the record of one call.

    The target stands there without its query string, which may carry the application's data.
    """
    error = answer.error or excerpt(answer.body)
    return Attempt(
        gid,
        kind,
        branch_id,
        target.partition("?")[0],
        at_ms,
        answer.status,
        round(answer.latency_ms),
        result,
        error[: ERROR_TEXT_BYTES_MAX.value],
    )


def not_allowed(owner: str) -> str:
    """Return the error of a check-back that adds branches beyond its owner's tokens."""
    return f"the token of {owner!r} does not allow the branches that the producer added"


def tellable(attempt: Attempt) -> str:
    """Return the error for a log or an alert: this side's view, no text of the answer.

    Of the answer only dtm's own words are named, where one of them decided: its text may repeat the payload. A gRPC
    service that answers UNAVAILABLE gives no HTTP status, but its text may stand in the error: only the code is named.
    """
    if attempt.status and not _OWN.fullmatch(attempt.error):
        return word_that_decided(attempt.status, attempt.result)
    return attempt.error.partition(":")[0] if attempt.error.startswith("gRPC ") else attempt.error


def excerpt(body: bytes) -> str:
    r"""Return the beginning of an answer's body, on one line.

    >>> excerpt(b"no such\naccount\x00")
    'no such account'
    """
    text = body[:_EXCERPT_BYTES_MAX].decode("utf-8", "replace")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
