"""A message's options as the fields of a request, for JSON and for protobuf: every option is spelled here once.

dtm's fields count whole seconds, ours beside them milliseconds; a coordinator of dtm's reads only the former
(dtm-wire §1.2).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from twophase.core.message import Durability, Options
from twophase.core.schedule import whole_seconds

USUAL_OPTIONS: Final = (Options(explicit_verdict=True, strict=True), Options(strict=True))


def option_fields(options: Options) -> dict[str, Any]:
    """The fields that say `options`; one that is left out, empty or zero is not sent.

    `trace` is no field: it came with a request's headers, and goes with a call's.

    >>> fields = option_fields(Options(delay_ms=1_500, headers=(("x-tenant", "blue"),)))
    >>> fields["custom_data"], fields["delay_ms"], fields["branch_headers"]
    ('{"delay":2}', 1500, {'x-tenant': 'blue'})
    """
    if options in USUAL_OPTIONS:
        return {"explicit_verdict": options.explicit_verdict, "strict": options.strict}
    return {
        # A coordinator of dtm's reads the delay here.
        "custom_data": f'{{"delay":{whole_seconds(options.delay_ms)}}}' if options.delay_ms else "",
        "wait_result": options.wait_result,
        "timeout_to_fail": whole_seconds(options.timeout_to_fail_ms),
        "request_timeout": whole_seconds(options.request_timeout_ms),
        "retry_interval": whole_seconds(options.retry_interval_ms),
        "branch_headers": dict(options.headers),
        "concurrent": options.concurrent,
        "explicit_verdict": options.explicit_verdict,
        "open": options.open,
        "delay_ms": options.delay_ms,
        "timeout_to_fail_ms": options.timeout_to_fail_ms,
        "request_timeout_ms": options.request_timeout_ms,
        "retry_interval_ms": options.retry_interval_ms,
        "durability": "check-back" if options.durability is Durability.CHECK_BACK else "",
        "next_cron_time": time_text(options.not_before_ms),
        "attempts_max": options.attempts_max,
        "strict": options.strict,
    }


def time_text(time_ms: int) -> str:
    """A time in ms since 1970 as RFC 3339 in UTC; empty for none.

    >>> time_text(1_700_000_000_123), time_text(0)
    ('2023-11-14T22:13:20.123Z', '')
    """
    if not time_ms:
        return ""
    seconds, milliseconds = divmod(time_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"
