"""Options of a message, read from a request of any wire format.

Each is within its limit, or refused by its name. A request without options for its delivery costs one look at each
field, and shares one object with all others of its kind.
"""

from __future__ import annotations

import math
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Final

import msgspec

from twophase.core.errors import InvalidRequest
from twophase.core.headers import why_no_header
from twophase.core.limits import (
    ATTEMPTS_MAX,
    DELAY_MS_MAX,
    HEADER_BYTES_MAX,
    HEADERS_MAX,
    NEXT_CRON_TIME_MS_MAX,
    REQUEST_TIMEOUT_MS_MAX,
    RETRY_INTERVAL_MS_MAX,
    TIMEOUT_TO_FAIL_MS_MAX,
    Limit,
    require,
)
from twophase.core.options import DURABILITIES, Durability, OptionFields, Options
from twophase.server.codecs.trace import Trace

_SECONDS_MAX: Final = 253_402_300_800
"""The end of the year 9999."""
_TIME_EXPECTED: Final = "give RFC 3339 with a zone (2030-01-31T08:00:00Z), or seconds since 1970"
_Zoned = Annotated[datetime, msgspec.Meta(tz=True)]


class RequestOptions(msgspec.Struct, kw_only=True):
    """The option fields of a request, as they are read.

    They are those of `core.options.OptionFields`; every field may be null.
    Times without a unit in their name are in seconds.
    """

    custom_data: str | None = None
    wait_result: bool | None = None
    timeout_to_fail: int | float | None = None
    request_timeout: int | float | None = None
    retry_interval: int | float | None = None
    branch_headers: dict[str, str | None] | list[msgspec.Raw] | None = None
    concurrent: bool | None = None
    delay_ms: int | None = None
    timeout_to_fail_ms: int | None = None
    request_timeout_ms: int | None = None
    retry_interval_ms: int | None = None
    explicit_verdict: bool | None = None
    open: bool | None = None
    durability: str | None = None
    next_cron_time: str | int | float | None = None
    attempts_max: int | None = None
    strict: bool | None = None


OPTION_FIELDS: Final = RequestOptions.__struct_fields__
assert set(OPTION_FIELDS) == set(OptionFields.__struct_fields__), "every option is read"


class _CustomData(msgspec.Struct):
    """The part of dtm's `custom_data` that concerns a message."""

    delay: int | float | None = None


_JUDGED: Final = {
    (explicit, strict): Options(explicit_verdict=explicit, strict=strict)
    for explicit in (False, True)
    for strict in (False, True)
}
_delivery_fields: Final = attrgetter(*(name for name in OPTION_FIELDS if name not in {"explicit_verdict", "strict"}))
_custom_data_decoder = msgspec.json.Decoder(_CustomData | None)


def options_of(request: RequestOptions, check_url: str, gid: str, now_ms: int, trace: Trace) -> Options:
    """Return the options that a request names for its message's delivery.

    Arguments:
        now_ms: the time; 0 where the request names none that could be compared with it.
        trace: headers of the request that the message keeps, unless the request names them itself.

    Raises:
        InvalidRequest, LimitExceeded: as they say.
    """
    return Options(
        concurrent=bool(request.concurrent),
        wait_result=bool(request.wait_result),
        delay_ms=_delay_ms(request, gid),
        timeout_to_fail_ms=_span_ms(TIMEOUT_TO_FAIL_MS_MAX, request.timeout_to_fail, request.timeout_to_fail_ms, gid),
        request_timeout_ms=_span_ms(REQUEST_TIMEOUT_MS_MAX, request.request_timeout, request.request_timeout_ms, gid),
        retry_interval_ms=_span_ms(RETRY_INTERVAL_MS_MAX, request.retry_interval, request.retry_interval_ms, gid),
        headers=_headers(request.branch_headers, gid) if request.branch_headers else (),
        explicit_verdict=bool(request.explicit_verdict),
        open=bool(request.open),
        durability=_durability(request.durability, check_url, gid) if request.durability else Durability.SUBMIT,
        not_before_ms=not_before_ms(request.next_cron_time, now_ms, gid),
        attempts_max=_count(ATTEMPTS_MAX, request.attempts_max, gid),
        trace=_not_named(trace, request),
        strict=bool(request.strict),
    )


def usual_options(request: RequestOptions) -> Options | None:
    """Return the options of a request that needs none of its own; None for any other.

    It leaves every option at its default, except `explicit_verdict` and `strict`. One object serves all requests of its
    kind: a million waiting messages need not carry a million equal options.
    """
    if any(_delivery_fields(request)):
        return None
    return _JUDGED[bool(request.explicit_verdict), bool(request.strict)]


def not_before_ms(value: str | float | None, now_ms: int, gid: str) -> int:
    """Return the time that a request names, in ms since 1970; 0 for none.

    A time in the past has no effect.

    Raises:
        InvalidRequest: no time. LimitExceeded: too far ahead.

    >>> not_before_ms("1970-01-01T01:00:00+01:00", 0, "g"), not_before_ms(1.5, 0, "g")
    (0, 1500)
    """
    if not value:
        return 0
    if isinstance(value, str) and value.isdecimal() and len(value) <= len(str(_SECONDS_MAX)):
        seconds: float = int(value)
    elif isinstance(value, str):
        try:
            seconds = msgspec.convert(value, _Zoned).timestamp()
        except (msgspec.ValidationError, OverflowError) as error:
            raise InvalidRequest(f"next_cron_time is {value[:45]!r}, not a time; {_TIME_EXPECTED}.", gid=gid) from error
    else:
        seconds = value
    # Go writes a time that was never set as the year 1.
    time_ms = math.ceil(round(min(max(seconds, 0), _SECONDS_MAX) * 1000, 3))
    require(NEXT_CRON_TIME_MS_MAX, time_ms - now_ms, gid=gid)
    return time_ms


def _not_named(trace: Trace, request: RequestOptions) -> Trace:
    if not trace or not request.branch_headers:
        return trace
    named = {str(name).lower() for name in request.branch_headers}
    return tuple(pair for pair in trace if pair[0] not in named)


def _count(limit: Limit, number: int | None, gid: str) -> int:
    if not number:
        return 0
    if number < 0:
        raise InvalidRequest(f"{limit.name} is negative.", gid=gid)
    require(limit, number, gid=gid)
    return number


def _span_ms(limit: Limit, seconds: float | None, milliseconds: int | None, gid: str) -> int:
    """Return a span of time given in seconds or, more exactly, in milliseconds.

    0 stands for the default.
    """
    if milliseconds is None:
        if not seconds:
            return 0
        # The comparison comes before the multiplication: JSON numbers reach where floats overflow.
        milliseconds = round(seconds * 1000) if abs(seconds) <= limit.value else limit.value + 1
    if milliseconds < 0:
        raise InvalidRequest(f"{limit.name} is negative.", gid=gid)
    require(limit, milliseconds, gid=gid)
    return milliseconds


def _delay_ms(request: RequestOptions, gid: str) -> int:
    seconds: float | None = None
    if request.custom_data:
        try:
            custom_data = _custom_data_decoder.decode(request.custom_data)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvalidRequest('custom_data: only JSON such as {"delay": seconds} is understood.', gid=gid) from error
        seconds = custom_data.delay if custom_data is not None else None
    return _span_ms(DELAY_MS_MAX, seconds, request.delay_ms, gid)


def _headers(headers: dict[str, str | None] | list[msgspec.Raw], gid: str) -> tuple[tuple[str, str], ...]:
    if isinstance(headers, list):
        # PHP writes an empty map as an empty list; anything in it has no name.
        raise InvalidRequest("branch_headers: an object of names and values is needed.", gid=gid)
    require(HEADERS_MAX, len(headers), gid=gid)
    pairs = tuple((name, value or "") for name, value in headers.items())
    require(HEADER_BYTES_MAX, sum(len(name) + len(value) for name, value in pairs), gid=gid)
    for name, value in pairs:
        why_not = why_no_header(name, value)
        if why_not:
            raise InvalidRequest(f"branch_headers: {why_not}", gid=gid)
    return pairs


def _durability(durability: str, check_url: str, gid: str) -> Durability:
    chosen = DURABILITIES.get(durability)
    if chosen is None:
        raise InvalidRequest(f"durability is {durability[:45]!r}, 'submit' or 'check-back' is needed.", gid=gid)
    if chosen is Durability.CHECK_BACK and not check_url:
        raise InvalidRequest("durability 'check-back' needs query_prepared, the address to check back.", gid=gid)
    return chosen
