"""The options of a message, as a producer writes them.

Each option is declared here twice, and nowhere else in the SDK: with its type and meaning in `MessageOptions`, and
with its reading in `READERS`. Times are seconds or a timedelta; the wire's names and units are those of
`core.options`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Literal, TypedDict

import msgspec

from twophase.client.draft import checked_headers, count, milliseconds, time_ms
from twophase.core import limits
from twophase.core.errors import InvalidRequest
from twophase.core.options import Durability, Options


class MessageOptions(TypedDict, total=False):
    """The delivery that a producer asks for.

    Give them to `Message` one by one, or keep them: `Client(url, options=MessageOptions(…))` uses them for every
    message that names no other value.

    wait_result: submit answers only after one round of branch calls, and says whether all succeeded.
    delay: seconds between prepare, or the submit of a plain message, and the first branch call at the earliest.
    deliver_at: no branch is called before this time, which needs a zone; with `delay` too, the later one counts.
    headers: go with every branch call and check-back.
    branch_timeout: seconds for one branch call; 0 is the coordinator's default. A check-back has that default at least.
    retry_interval: seconds before the second attempt of a branch; later pauses are longer. 0 is the default.
    check_after: seconds between prepare and the first check-back; 0 is the default (35 s).
    max_rounds: rounds of branch calls that may fail in a row before the message is parked, for an operator to redrive;
        0 is the default (for ever).
    concurrent: call the branches side by side instead of one after the other.
    allow_late_branches: branches may be added inside the local transaction, with values it produced.
    acknowledge: "early" lets the coordinator acknowledge a submit, and call the branches, before the submit is on
        disk; after a crash the check-back finds it again. Only for messages with a check address. "durable" waits
        for the disk.
    strict: judge a branch's answer by its status alone. False is dtm's rule, for branches written for dtm: a 200 whose
        body contains FAILURE anywhere is a refusal, and one with ONGOING is called again.

    >>> MessageOptions(branch_timeout=5, headers={"x-tenant": "blue"})
    {'branch_timeout': 5, 'headers': {'x-tenant': 'blue'}}
    """

    wait_result: bool
    delay: float | timedelta
    deliver_at: datetime | None
    headers: Mapping[str, str] | None
    branch_timeout: float | timedelta
    retry_interval: float | timedelta
    check_after: float | timedelta
    max_rounds: int
    concurrent: bool
    allow_late_branches: bool
    acknowledge: Literal["durable", "early"]
    strict: bool


USUAL: Final = Options(strict=True)
"""The options of a message that asks for none."""

_ACKNOWLEDGE: Final = {"durable": Durability.SUBMIT, "early": Durability.CHECK_BACK}


def _headers(headers: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    return checked_headers(headers) if headers else ()


def _deliver_at(when: datetime | None) -> int:
    return 0 if when is None else time_ms("deliver_at", when)


def _switch(name: str, value: object) -> bool:
    if not isinstance(value, bool):  # a text such as "false" would be true
        raise InvalidRequest(f"{name} is {value!r}; give True or False.")
    return value


def _acknowledge(word: str) -> Durability:
    if word not in _ACKNOWLEDGE:
        raise InvalidRequest(f"acknowledge is {word!r}; 'durable' or 'early' is needed.")
    return _ACKNOWLEDGE[word]


READERS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "wait_result": ("wait_result", partial(_switch, "wait_result")),
    "delay": ("delay_ms", partial(milliseconds, "delay", bound=limits.DELAY_MS_MAX)),
    "deliver_at": ("not_before_ms", _deliver_at),
    "headers": ("headers", _headers),
    "branch_timeout": (
        "request_timeout_ms",
        partial(milliseconds, "branch_timeout", bound=limits.REQUEST_TIMEOUT_MS_MAX),
    ),
    "retry_interval": (
        "retry_interval_ms",
        partial(milliseconds, "retry_interval", bound=limits.RETRY_INTERVAL_MS_MAX),
    ),
    "check_after": ("timeout_to_fail_ms", partial(milliseconds, "check_after", bound=limits.TIMEOUT_TO_FAIL_MS_MAX)),
    "max_rounds": ("attempts_max", partial(count, "max_rounds", bound=limits.ATTEMPTS_MAX)),
    "concurrent": ("concurrent", partial(_switch, "concurrent")),
    "allow_late_branches": ("open", partial(_switch, "allow_late_branches")),
    "acknowledge": ("durability", _acknowledge),
    "strict": ("strict", partial(_switch, "strict")),
}
"""The readers by option: a field of `core.options.Options`, and a function.

The function checks the value and converts it.
"""

assert set(READERS) == set(MessageOptions.__annotations__), "every option is read"


def read_options(asked: Mapping[str, Any], defaults: Options = USUAL) -> Options:
    """Return the options of a message.

    Arguments:
        asked: a `MessageOptions`.
        defaults: the values of options that `asked` does not name.

    Raises:
        InvalidRequest, LimitExceeded: an option cannot have this value; the message names it.
        TypeError: there is no such option.

    >>> read_options({"check_after": 60, "acknowledge": "early"}).timeout_to_fail_ms
    60000
    """
    fields: dict[str, Any] = {}
    for name, value in asked.items():
        if name not in READERS:
            raise TypeError(f"a message has no option {name!r}; its options are {', '.join(READERS)}.")
        field, read = READERS[name]
        fields[field] = read(value)
    return msgspec.structs.replace(defaults, **fields) if fields else defaults
