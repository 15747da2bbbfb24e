"""The fate of each transaction: a message for this server, or the reason for none.

This module is pure.

Three things decide that nothing is lost or done twice. A branch keeps its number, also when those before it are done:
its receiver's barrier knows it by that. A prepared message stays prepared, so that the producer's barrier decides, not
this program. And a transaction that cannot be understood is named and left in dtm, never guessed.

Times are carried as what is left of them: the rest of a delay, the rest of the wait before the first check-back. dtm
doubles the pause after each failure without an end; such a pause is cut to twophase's cap.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from twophase.core.address import TOPIC_PREFIX
from twophase.core.limits import REQUEST_TIMEOUT_MS_MAX, RETRY_INTERVAL_MS_MAX, TIMEOUT_TO_FAIL_MS_MAX
from twophase.core.takeover import TakenBranch, TakenMessage, TakenState
from twophase.dtm_import.found import Found, FoundBranch, Topic

T = TypeVar("T")

DEFAULT_TIMEOUT_S: Final = 35
DEFAULT_INTERVAL_S: Final = 10
PAUSE_MS_MAX: Final = 60_000
"""Our own cap of the pause after a failure, which dtm's has none of."""
FUTURE_MS: Final = 5 * 60_000
"""The furthest that a row's time may lie in the future.

A later time was written by another clock, or in another time zone than it is read by.
"""

_BRANCH_ID: Final = re.compile(r"(\d{2,})(?:-(\d{2,}))?")
_LIVE: Final = frozenset(TakenState)
_DONE: Final = {"prepared": False, "succeed": True}

ONLY_DTM: Final = (
    "Let dtm finish it before you copy; after that, dtm would deliver again what was copied "
    "(docs/how-to/move-from-dtm.md)."
)


class Skipped(msgspec.Struct, frozen=True):
    """A transaction that is not copied, with the reason and the remedy.

    `kind` is its type and state.
    """

    gid: str
    kind: str
    reason: str
    remedy: str


class Planned(msgspec.Struct, frozen=True):
    """A message to copy; `notes` say what will be different from what it was there."""

    message: TakenMessage
    notes: tuple[str, ...] = ()


class _Options(msgspec.Struct):
    """dtm's `options`, as far as they concern a message.

    `wait_result` is left out: no client waits any more.
    """

    concurrent: bool | None = None
    timeout_to_fail: int | float | None = None
    request_timeout: int | float | None = None
    retry_interval: int | float | None = None
    branch_headers: dict[str, str | None] | None = None


class _CustomData(msgspec.Struct):
    delay: int | float | None = None


class _Ext(msgspec.Struct):
    """The headers of a request that dtm up to 1.16 kept (`passthrough_headers`)."""

    headers: dict[str, str | None] | None = None


class _Unreadable(Exception):
    """Why it is not copied; the second argument is what to do."""


_options = msgspec.json.Decoder(_Options | None)
_custom_data = msgspec.json.Decoder(_CustomData | None)
_ext = msgspec.json.Decoder(_Ext | None)
_LOOK: Final = "Look at it in dtm's store; send it again under a new gid if it should happen."


def plan(found: Found, topics: Sequence[Topic], now_ms: int) -> Planned | Skipped:
    """Return the fate of one transaction.

    >>> branch = FoundBranch("01", "action", "prepared", "http://b/in", b"{}")
    >>> done = FoundBranch("01", "action", "succeed", "http://b/in", b"{}")
    >>> plan(Found("g", status="submitted", branches=(branch,)), (), 0).message.branches[0].calls
    ('http://b/in',)
    >>> plan(Found("g", status="submitted", branches=(done,)), (), 0).message.branches[0].calls
    ('',)
    """
    kind = f"{found.trans_type or 'unknown'} {found.status}".strip()
    try:
        _require_message(found)
        options = _read(_options, found.options, "options")
        notes: list[str] = []
        message = TakenMessage(
            found.gid,
            TakenState(found.status),
            _branches(found, topics),
            created_ms=found.created_ms or 0,
            query_prepared=found.query_prepared,
            protocol=found.protocol,
            concurrent=bool(options and options.concurrent),
            branch_headers=_headers(found, options),
            **_times(found, options or _Options(), now_ms, notes),
        )
    except _Unreadable as error:
        reason, remedy = error.args
        return Skipped(found.gid, kind, reason, remedy)
    if message.state is TakenState.PREPARED and not message.query_prepared:
        notes.append(
            "it has no check address: dtm would take it for committed after its timeout; here it is parked until an "
            "operator decides (twophase messages)"
        )
    if found.created_ms is not None and found.created_ms > now_ms + FUTURE_MS:
        notes.append("it was written in the future: give --time-zone, the zone of dtm's machine")
    return Planned(message, tuple(notes))


def _require_message(found: Found) -> None:
    if found.expired:
        raise _Unreadable(
            "its content has expired in Redis (dtm keeps it seven days from its last change)",
            "dtm has lost it too. Ask its producer whether it committed, and send it again.",
        )
    if found.broken:
        raise _Unreadable("its content in Redis cannot be read", _LOOK)
    if found.trans_type != "msg":
        raise _Unreadable(
            "it is not a message, and only messages are supported here",
            ONLY_DTM,
        )
    if found.status not in _LIVE:
        raise _Unreadable(f"a message cannot be {found.status!r}", _LOOK)
    if not found.gid:
        raise _Unreadable("it has no gid", _LOOK)


def _branches(found: Found, topics: Sequence[Topic]) -> tuple[TakenBranch, ...]:
    """The branches by their number, subscribers of one topic together."""
    groups: dict[int, dict[int, FoundBranch]] = {}
    for branch in found.branches:
        matched = _BRANCH_ID.fullmatch(branch.branch_id)
        if matched is None or branch.op != "action" or branch.status not in _DONE:
            what = f"{branch.branch_id!r}, op {branch.op!r}, status {branch.status!r}"
            raise _Unreadable(f"it has a branch that dtm does not write ({what})", _LOOK)
        calls = groups.setdefault(int(matched[1]), {})
        position = int(matched[2] or 0)
        if position in calls:
            raise _Unreadable(f"it has branch {branch.branch_id} twice", _LOOK)
        calls[position] = branch
    if not groups and found.step_urls:
        raise _Unreadable("its branches are missing in dtm's store", _LOOK)
    if sorted(groups) != list(range(1, len(groups) + 1)):
        raise _Unreadable("not all of its branches are in dtm's store", _LOOK)
    step_urls = found.step_urls if len(found.step_urls) == len(groups) else ()
    return tuple(
        _branch(groups[number], step_urls[number - 1] if step_urls else None, topics)
        for number in range(1, len(groups) + 1)
    )


def _branch(calls: dict[int, FoundBranch], step_url: str | None, topics: Sequence[Topic]) -> TakenBranch:
    """Return one step: an address, or a topic's subscribers when it was sent.

    Where `step_url` is unknown (SQL), an address may have been the only subscriber of a topic. It is handed over as
    one, so that a producer who now submits to the topic is understood (`core.message.same_content`).
    """
    if list(calls) == [0]:
        only = calls[0]
        url = step_url or only.url
        if _DONE[only.status]:
            return TakenBranch(url, only.payload, ("",))
        is_subscriber = url.startswith(TOPIC_PREFIX) or (step_url is None and url)
        return TakenBranch(url, only.payload, (only.url,) if is_subscriber else None)
    if sorted(calls) != list(range(1, len(calls) + 1)) or len(calls) == 1:
        raise _Unreadable("not all of its branches are in dtm's store", _LOOK)
    ordered = [calls[position] for position in range(1, len(calls) + 1)]
    if len({branch.payload for branch in ordered}) > 1:
        raise _Unreadable("one topic's branches have different payloads", _LOOK)
    url = step_url or _topic_of([branch.url for branch in ordered], topics)
    addresses = tuple("" if _DONE[branch.status] else branch.url for branch in ordered)
    return TakenBranch(url, ordered[0].payload, addresses)


def _topic_of(urls: Sequence[str], topics: Sequence[Topic]) -> str:
    """Return the topic that these addresses came from: dtm does not keep its name.

    It is unknown when no topic, or several, have exactly them.
    """
    names = [
        topic.name
        for topic in topics
        if topic.subscribers is not None and [each.url for each in topic.subscribers] == urls
    ]
    return f"{TOPIC_PREFIX}{names[0]}" if len(names) == 1 else TOPIC_PREFIX


def _headers(found: Found, options: _Options | None) -> dict[str, str]:
    """Return the headers of each call: dtm adds those of the message itself last."""
    ext = _read(_ext, found.ext_data, "ext_data")
    own = (options and options.branch_headers) or {}
    names = {name.lower() for name in own}
    passed = {name: value for name, value in ((ext and ext.headers) or {}).items() if name.lower() not in names}
    return {name: value or "" for name, value in (passed | own).items()}


def _times(found: Found, options: _Options, now_ms: int, notes: list[str]) -> dict[str, int]:
    created_ms = now_ms if found.created_ms is None else found.created_ms
    timeout_ms = _ms(options.timeout_to_fail) or DEFAULT_TIMEOUT_S * 1000
    custom = _read(_custom_data, found.custom_data, "custom_data")
    delay_ms = _ms(custom.delay) if custom else 0
    due_ms = created_ms + delay_ms if delay_ms else 0
    times = {
        "request_timeout_ms": _at_most(
            REQUEST_TIMEOUT_MS_MAX.value, _ms(options.request_timeout), "request_timeout", notes
        ),
        "retry_interval_ms": _at_most(
            RETRY_INTERVAL_MS_MAX.value, _ms(options.retry_interval), "retry_interval", notes
        ),
    }
    if found.status == TakenState.PREPARED:
        left_ms = min(created_ms + timeout_ms - now_ms, timeout_ms)
        times["timeout_to_fail_ms"] = min(max(left_ms, 1), TIMEOUT_TO_FAIL_MS_MAX.value)
    elif found.due_ms is not None:
        usual_s = (options.retry_interval or 0) or DEFAULT_INTERVAL_S
        # After failures dtm's pause is longer than the usual one; else a producer chose the time (a delay).
        is_pause = found.interval_s > usual_s
        due_ms = max(due_ms, min(found.due_ms, now_ms + PAUSE_MS_MAX) if is_pause else found.due_ms)
    times["delay_ms"] = max(due_ms - now_ms, 0)
    return times


def _ms(seconds: float | None) -> int:
    return max(round((seconds or 0) * 1000), 0)


def _at_most(limit_ms: int, value_ms: int, name: str, notes: list[str]) -> int:
    if value_ms > limit_ms:
        notes.append(f"{name} is {value_ms // 1000} s there, and {limit_ms // 1000} s, the most, here")
    return min(value_ms, limit_ms)


def _read(decoder: msgspec.json.Decoder[T | None], text: str, name: str) -> T | None:
    if not text:
        return None
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        raise _Unreadable(f"its {name} cannot be read", _LOOK) from None
