"""The options of a message: as values, and as the fields of a request.

Every option is declared here once: its value (`Options`), its field in a request of JSON or protobuf (`OptionFields`)
with its meaning, and the way from one to the other (`option_fields`). The server reads a request's fields more
tolerantly (`server.codecs.options`). dtm's fields count whole seconds, twophase's beside them milliseconds; a
coordinator of dtm's reads only the former (dtm-wire §1.2).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from twophase.core.schedule import whole_seconds


class Durability(enum.IntEnum):
    """The write that must be on disk before a submit is acknowledged."""

    SUBMIT = 0
    CHECK_BACK = 1


DURABILITIES: Final[Mapping[str, Durability]] = {"submit": Durability.SUBMIT, "check-back": Durability.CHECK_BACK}
"""By the words that producers and requests have for them."""


class Options(msgspec.Struct, frozen=True, array_like=True):
    """The delivery that a producer asks for.

    Times are in milliseconds; 0 stands for the coordinator's default.
    """

    concurrent: bool = False
    wait_result: bool = False
    delay_ms: int = 0
    timeout_to_fail_ms: int = 0
    request_timeout_ms: int = 0
    retry_interval_ms: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    explicit_verdict: bool = False
    """The check-back's answer must carry the verdict header; see `core.verdict`.

    twophase's SDK asks for it.
    """
    open: bool = False
    """More branches may be added until the local transaction commits (decision 1)."""
    durability: Durability = Durability.SUBMIT
    not_before_ms: int = 0
    """No branch is called before this time, in ms since 1970; 0: none was named."""
    attempts_max: int = 0
    """Rounds of branch calls that may fail in a row before the message is parked."""
    trace: tuple[tuple[str, str], ...] = ()
    """Headers of the request that began the message.

    They go with its calls, so that one trace shows all of it.
    """
    strict: bool = False
    """A branch's answer is judged by its status alone; see `core.verdict`.

    No word in its body counts. twophase's SDK asks for it.
    """

    def first_call_ms(self, created_ms: int) -> int:
        """Return the earliest time of a branch call; 0 for at once.

        Of two wishes the later one counts.

        >>> Options(delay_ms=5, not_before_ms=1_000).first_call_ms(created_ms=990), Options().first_call_ms(990)
        (1000, 0)
        """
        after_delay_ms = created_ms + self.delay_ms if self.delay_ms else 0
        return max(after_delay_ms, self.not_before_ms)


class OptionFields(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The fields by which a request names its options; a default is not sent."""

    branch_headers: dict[str, str] = {}
    wait_result: bool = False
    timeout_to_fail: int = 0
    retry_interval: int = 0
    request_timeout: int = 0
    concurrent: bool = False
    delay_ms: int = 0
    timeout_to_fail_ms: int = 0
    request_timeout_ms: int = 0
    retry_interval_ms: int = 0
    explicit_verdict: bool = False
    open: bool = False
    durability: str = ""
    next_cron_time: str = ""
    attempts_max: int = 0
    strict: bool = False
    custom_data: str = ""


MEANINGS: Final[Mapping[str, str]] = {
    "custom_data": 'JSON text; `{"delay": SECONDS}`',
    "wait_result": "answer submit only after the first round of calls",
    "timeout_to_fail": "seconds from prepare to the first check-back",
    "request_timeout": "seconds one call may take; a check-back has the server's default at least",
    "retry_interval": "seconds of the first pause between two calls",
    "branch_headers": "headers of every call",
    "concurrent": "call all branches at once",
    "delay_ms": "first delivery so many milliseconds after the submit",
    "timeout_to_fail_ms": "as `timeout_to_fail`, in milliseconds",
    "request_timeout_ms": "as `request_timeout`, in milliseconds",
    "retry_interval_ms": "as `retry_interval`, in milliseconds",
    "explicit_verdict": "the check-back's answer must carry the verdict header",
    "open": "more branches may come with the submit",
    "durability": "`submit` (the default) or `check-back`",
    "next_cron_time": "RFC 3339, or seconds since 1970: no delivery before",
    "attempts_max": "park after so many failed rounds in a row; 0 is the setting",
    "strict": "judge a branch's answer by its status alone, and look for no words in its body",
}
"""The meaning of each field, for the HTTP API's description."""

assert set(MEANINGS) == set(OptionFields.__struct_fields__), "every field has a meaning"

USUAL_OPTIONS: Final = (Options(explicit_verdict=True, strict=True), Options(strict=True))


def option_fields(options: Options) -> dict[str, Any]:
    """Return the fields that name `options`.

    A field that is absent, empty or zero is not sent.

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
    """Return a time in ms since 1970 as RFC 3339 in UTC; empty for none.

    >>> time_text(1_700_000_000_123), time_text(0)
    ('2023-11-14T22:13:20.123Z', '')
    """
    if not time_ms:
        return ""
    seconds, milliseconds = divmod(time_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"
