"""The message a producer is writing: gid, branches, options and progress.

The public `Message` and the sans-IO flows share it: `Message` fills it, a flow moves its `progress`. It keeps
the promise that the caller always learns the fate: every way out of a flow leaves one of the final progresses.
"""

from __future__ import annotations

import enum
import functools
import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, assert_never

from twophase.client.payload import payload_bytes
from twophase.core import limits
from twophase.core.address import shown_address, why_no_scheme, why_reserved, with_identity
from twophase.core.errors import InvalidRequest, MessageUsedTwice
from twophase.core.headers import why_no_header
from twophase.core.limits import require
from twophase.core.message import Branch
from twophase.core.message import Message as Content
from twophase.core.options import Options
from twophase.core.queue_message import NOT_TO_BOTH, is_to_both
from twophase.core.spans import as_seconds


class Progress(enum.Enum):
    """The progress of a `Message`, as this process knows it."""

    NEW = "new"
    """Nothing was sent."""
    PREPARED = "prepared"
    """Prepared manually (`Message.prepare`); submit or abort follows."""
    IN_TRANSACTION = "in transaction"
    """Prepared; its local transaction is under way."""
    NOT_STARTED = "not started"
    """The local transaction never began; nothing will be delivered."""
    ROLLED_BACK = "rolled back"
    """Nothing will be delivered.

    The local transaction is rolled back for ever, or the message was aborted.
    """
    COMMITTED = "committed"
    """The local transaction is committed.

    The submit did not get through; the check-back will deliver.
    """
    SUBMITTED = "submitted"
    """The coordinator has acknowledged the submit: it will deliver."""
    BRANCHES_LOST = "branches lost"
    """The local transaction is committed without the branches added in it.

    Nothing is called until a manual submit.
    """
    UNDECIDED = "undecided"
    """The outcome is not known here; the check-back decides.

    Do not repeat the business under a new gid.
    """


def became(progress: Progress) -> str:
    """Describe the fate of a message with this progress.

    >>> became(Progress.COMMITTED)
    'its local transaction is committed; its branches will be called'
    """
    match progress:
        case Progress.NEW:
            return "nothing was sent"
        case Progress.PREPARED:
            return "it was prepared manually; submit or abort follows"
        case Progress.IN_TRANSACTION:
            return "its local transaction is under way, and decides"
        case Progress.NOT_STARTED:
            return "its local transaction was not started"
        case Progress.ROLLED_BACK:
            return "it is rolled back or aborted for ever; no branch will be called"
        case Progress.COMMITTED:
            return "its local transaction is committed; its branches will be called"
        case Progress.SUBMITTED:
            return "it is submitted; its branches are called"
        case Progress.BRANCHES_LOST:
            return (
                "its local transaction is committed without its branches; none is called until it is submitted manually"
            )
        case Progress.UNDECIDED:
            return "whether it committed is not known here; the check-back decides. Do not repeat the operation"
        case _:
            assert_never(progress)


_1970 = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds(name: str, span: float | timedelta, bound: limits.Limit) -> int:
    """Return a span, in seconds or as a timedelta, in whole milliseconds.

    It is rounded up, so that a span above zero stays above zero.

    Raises:
        InvalidRequest: not a number of at least zero.
        LimitExceeded: above `bound`.

    >>> milliseconds("delay", 1.5, limits.DELAY_MS_MAX)
    1500
    """
    seconds = as_seconds(span)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise InvalidRequest(f"{name} is {seconds!r}; give seconds or a timedelta, at least 0.")
    if math.isinf(seconds):
        raise InvalidRequest(f"{name} is infinite; at most {bound.value} {bound.unit} are allowed.")
    duration_ms = math.ceil(round(seconds * 1000, 6))
    require(bound, duration_ms, name=name)
    return duration_ms


def time_ms(name: str, when: datetime) -> int:
    """Return `when` in milliseconds since 1970.

    It is rounded up, so that nothing happens before `when`. A time before 1970 gives 0, which means at once.

    Raises:
        InvalidRequest: no datetime, or one without a zone, which names another time on every machine.
        LimitExceeded: too far ahead.

    >>> time_ms("deliver_at", datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC))
    1
    """
    if not isinstance(when, datetime) or when.utcoffset() is None:
        raise InvalidRequest(
            f"{name} is {when!r}; give a datetime with a zone, such as datetime.now(UTC) + timedelta(…)."
        )
    when_ms = max(0, -((_1970 - when) // timedelta(milliseconds=1)))
    require(limits.NEXT_CRON_TIME_MS_MAX, when_ms - time.time_ns() // 1_000_000, name=name)
    return when_ms


def count(name: str, number: int, bound: limits.Limit) -> int:
    """Return `number` if it is a whole number within `bound`.

    Raises:
        InvalidRequest: no whole number of at least zero. LimitExceeded: above `bound`.
    """
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise InvalidRequest(f"{name} is {number!r}; give a whole number, at least 0.")
    require(bound, number, name=name)
    return number


def checked_headers(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return headers for every branch call, if they are within the limits and valid.

    Raises:
        InvalidRequest: a name or value that could not stand in an HTTP header.
        LimitExceeded: too many, or too large together.

    >>> checked_headers({"x-tenant": "blue"})
    (('x-tenant', 'blue'),)
    """
    if not isinstance(headers, Mapping):
        raise InvalidRequest(f"headers are of {type(headers).__name__}, not a dict.")
    require(limits.HEADERS_MAX, len(headers))
    for name, value in headers.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise InvalidRequest(f"headers: {name!r:.45} or its value is no text; write str(…).")
        why_not = why_no_header(name, value)
        if why_not:
            raise InvalidRequest(f"headers: {why_not}")
    require(limits.HEADER_BYTES_MAX, sum(len(name) + len(value) for name, value in headers.items()))
    return tuple(headers.items())


_NO_TEXT_REMEDIES = {"check": "Write `check=…`: the engine comes first, then the function, then the check address."}
_URL_REMEDIES = {"check": "Write the full http://host:port/path that the coordinator can reach."}


def checked_url(name: str, url: str, *, identities_max: int = 0) -> str:
    """Return `url` if it can be an address.

    Arguments:
        identities_max: how often `barrier` may stand in its query; see `core.address`.

    Raises:
        InvalidRequest: no text, no scheme, a space, a control character or a parameter of the coordinator in it.
        LimitExceeded: too long.
    """
    if not isinstance(url, str):
        raise InvalidRequest(f"{name} is of {type(url).__name__}, not an address.", remedy=_NO_TEXT_REMEDIES.get(name))
    if "://" not in url and url.isprintable():
        raise InvalidRequest(f"{name}: {why_no_scheme(url)}.", remedy=_URL_REMEDIES.get(name))
    if not url.isascii() or not url.isprintable() or " " in url or "://" not in url:
        raise InvalidRequest(
            f"{name} {shown_address(url)!r} is not an address; write scheme://…, percent-encoded.",
            remedy=_URL_REMEDIES.get(name),
        )
    require(limits.URL_BYTES_MAX, len(url))
    if "?" in url and (why_not := why_reserved(url, identities_max=identities_max)):
        raise InvalidRequest(f"{name}: {why_not}.")
    return url


@functools.lru_cache(maxsize=128)
def check_url_with(identity: str, check_url: str) -> str:
    """Return the check address that names the database it must ask (rule 6).

    >>> check_url_with("7f", "http://bank-a/check?tenant=1")
    'http://bank-a/check?tenant=1&barrier=7f'
    """
    return checked_url("check", with_identity(check_url, identity), identities_max=1)


_OPEN_PROGRESSES = frozenset({Progress.PREPARED, Progress.IN_TRANSACTION})
_ENDED_PROGRESSES = frozenset(
    {Progress.ROLLED_BACK, Progress.COMMITTED, Progress.SUBMITTED, Progress.BRANCHES_LOST, Progress.UNDECIDED}
)


class Draft:
    """A message under way.

    It is mutable. One `Message` owns it, and one flow at a time moves it.
    """

    __slots__ = (
        "_branches_bytes",
        "branches",
        "check_url",
        "encoded",
        "fixed",
        "gid",
        "gid_is_ours",
        "options",
        "prepared_at_ms",
        "progress",
        "takes_bytes",
    )

    def __init__(self, gid: str, options: Options, *, gid_is_ours: bool, takes_bytes: bool = False) -> None:
        """Start a message without branches.

        Arguments:
            gid: validated.
            options: how it is delivered.
            gid_is_ours: made just now, so that no other process can have prepared it.
            takes_bytes: the wire to the coordinator carries any payload.
        """
        self.takes_bytes = takes_bytes
        self.gid = gid
        self.gid_is_ours = gid_is_ours
        self.options = options
        self.branches: list[Branch] = []
        self._branches_bytes = 0
        self.check_url = ""
        self.fixed: int | None = None
        self.encoded: tuple[Content, bytes] | None = None
        """The content sent last, or to be sent by submit, and its bytes.

        They are kept until the submit.
        """
        self.prepared_at_ms = 0
        self.progress = Progress.NEW

    def add(self, url: str, payload: Any = None) -> None:
        """Append a branch (`Message.add`)."""
        if self.progress in _ENDED_PROGRESSES:
            raise InvalidRequest(
                f"the branch comes too late: {became(self.progress)}.",
                gid=self.gid,
                remedy="Add each branch before the message is sent; a further call needs a Message of its own.",
            )
        if self.fixed is not None and not (self.options.open and self.progress in _OPEN_PROGRESSES):
            raise InvalidRequest(
                "branches are fixed at prepare; make the Message with allow_late_branches=True to add some until it is "
                "decided.",
                gid=self.gid,
            )
        require(limits.BRANCHES_MAX, len(self.branches) + 1, gid=self.gid)
        if self.branches and (self.options.delay_ms or self.options.not_before_ms):
            self._require_one_kind(url)
        branch = Branch(checked_url("url", url), payload_bytes(payload, takes_bytes=self.takes_bytes))
        size = len(branch.url) + len(branch.payload)
        require(limits.BODY_BYTES_MAX, self._branches_bytes + size, gid=self.gid)
        self._branches_bytes += size
        self.branches.append(branch)

    def _require_one_kind(self, url: str) -> None:
        """Refuse a queue beside another address in a delayed message.

        It is refused here, because a coordinator could refuse a late branch only after the local transaction committed.
        """
        if is_to_both((self.branches[0].url, url)):
            raise InvalidRequest(NOT_TO_BOTH, gid=self.gid)

    def take(self) -> None:
        """Use this message for its one local transaction.

        Raises:
            MessageUsedTwice: it was sent or used before.
        """
        if self.progress is not Progress.NEW:
            raise MessageUsedTwice(f"this Message was used before: {became(self.progress)}.", gid=self.gid)
        self.progress = Progress.NOT_STARTED

    def content(self, *, branches: tuple[Branch, ...] | None = None) -> Content:
        """Return the content to send: the current message, or with other branches."""
        return Content(self.gid, tuple(self.branches) if branches is None else branches, self.check_url, self.options)

    def fixed_branches(self) -> tuple[Branch, ...]:
        """The branches known at prepare."""
        return tuple(self.branches[: self.fixed])

    def added_branches(self) -> tuple[Branch, ...]:
        """The branches added inside the local transaction (decision 1)."""
        return () if self.fixed is None else tuple(self.branches[self.fixed :])
