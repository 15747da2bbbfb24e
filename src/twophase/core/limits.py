"""The limits of the protocol, in one table.

So nothing is unbounded, and every refusal names its bound.

Limits of one process (queues, connections, memory) are settings of the server; those here are part of the
protocol: a message that keeps them is accepted by every node.
"""

from __future__ import annotations

import msgspec

from twophase.core.errors import LimitExceeded


class Limit(msgspec.Struct, frozen=True):
    """One bound: its name, its value with unit, and why it is there."""

    name: str
    value: int
    unit: str
    why: str


GID_BYTES_MAX = Limit("gid", 128, "bytes", "dtm's column width; some databases silently truncate longer ones")
BRANCHES_MAX = Limit(
    "branches", 63, "branches", "a message is one row, with one bit for each branch in a signed 64-bit column"
)
CALLS_MAX = Limit(
    "branches with all subscribers of their topics", BRANCHES_MAX.value, "calls", "each is one bit of that column"
)
TOPIC_BYTES_MAX = Limit("topic", 128, "bytes", "dtm's column width")
SUBSCRIBERS_MAX = Limit("subscribers of a topic", BRANCHES_MAX.value, "addresses", "a message to it calls all of them")
REMARK_BYTES_MAX = Limit("remark", 512, "bytes", "a note for people")
TOPICS_MAX = Limit("topics", 10_000, "topics", "every node keeps all of them, and reads them again after every change")
URL_BYTES_MAX = Limit("url", 2048, "bytes", "common servers accept this in a request line")
PAYLOAD_BYTES_MAX = Limit("payload", 1024 * 1024, "bytes", "one branch's body")
BODY_BYTES_MAX = Limit("request body", 4 * 1024 * 1024, "bytes", "one request, all payloads together")
REQUEST_VALUES_MAX = Limit(
    "values of a request",
    10_000,
    "values",
    "texts, or members of lists and objects; counted in a request beyond 64 KiB",
)
OPEN_ANSWER_BYTES_MAX = Limit(
    "check-back's answer of an open message", 6 * 1024 * 1024, "bytes", "all added branches, in base64"
)
HEADERS_MAX = Limit("branch_headers", 64, "headers", "they go with every call of the message")
HEADER_BYTES_MAX = Limit("branch_headers", 16 * 1024, "bytes", "names and values together")
REQUEST_HEADER_BYTES_MAX = Limit("request headers", 64 * 1024, "bytes", "request line and headers of one request")
DELAY_MS_MAX = Limit("delay", 366 * 24 * 3600 * 1000, "ms", "a longer delay belongs in a calendar")
TIMEOUT_TO_FAIL_MS_MAX = Limit(
    "timeout_to_fail", 24 * 3600 * 1000, "ms", "the longest wait before the first check-back"
)
REQUEST_TIMEOUT_MS_MAX = Limit("request_timeout", 600 * 1000, "ms", "a call keeps a connection for this time")
RETRY_INTERVAL_MS_MAX = Limit("retry_interval", 24 * 3600 * 1000, "ms", "the first pause between two attempts")
NEXT_CRON_TIME_MS_MAX = Limit("next_cron_time", 366 * 24 * 3600 * 1000, "ms from now", "as with delay")
ATTEMPTS_MAX = Limit("attempts_max", 1_000_000, "attempts", "at a minute each, two years")
ERROR_TEXT_BYTES_MAX = Limit("recorded error", 512, "bytes", "evidence kept with an attempt")
BEGIN_DEADLINE_MS = Limit(
    "begin deadline", 3600 * 1000, "ms", "a local transaction must begin within this time after prepare"
)

LIMITS: tuple[Limit, ...] = (
    GID_BYTES_MAX,
    BRANCHES_MAX,
    CALLS_MAX,
    TOPIC_BYTES_MAX,
    SUBSCRIBERS_MAX,
    REMARK_BYTES_MAX,
    TOPICS_MAX,
    URL_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    BODY_BYTES_MAX,
    REQUEST_VALUES_MAX,
    OPEN_ANSWER_BYTES_MAX,
    HEADERS_MAX,
    HEADER_BYTES_MAX,
    REQUEST_HEADER_BYTES_MAX,
    DELAY_MS_MAX,
    TIMEOUT_TO_FAIL_MS_MAX,
    REQUEST_TIMEOUT_MS_MAX,
    RETRY_INTERVAL_MS_MAX,
    NEXT_CRON_TIME_MS_MAX,
    ATTEMPTS_MAX,
    ERROR_TEXT_BYTES_MAX,
    BEGIN_DEADLINE_MS,
)


def require(limit: Limit, actual: int, *, gid: str | None = None, name: str | None = None) -> None:
    """Refuse `actual` when it passes `limit`, naming both.

    `name` is the caller's own name of the bounded value; the limit's by default.

    Raises:
        LimitExceeded: `actual` is greater than the limit's value.

    >>> require(GID_BYTES_MAX, 128)
    >>> require(GID_BYTES_MAX, 129)
    Traceback (most recent call last):
    twophase.core.errors.LimitExceeded: TP-1001: gid is 129 bytes, at most 128 are allowed. ...
    """
    if actual > limit.value:
        raise LimitExceeded(
            f"{name or limit.name} is {actual} {limit.unit}, at most {limit.value} are allowed.", gid=gid
        )
