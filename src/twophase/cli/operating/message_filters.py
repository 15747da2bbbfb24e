"""The filter options of a command, and the query that they make."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
import typer

from twophase.cli.console import echo
from twophase.core.lifecycle import STORED

UNFINISHED: Final = frozenset({"prepared", "submitted"})
"""The states in which an operator can act on a message."""
_STATES: Final = frozenset({*map(str, STORED), "succeed"})
"""The states of a message, and dtm's word for one that has succeeded."""
_AGO: Final = re.compile(r"(\d{1,6})(s|m|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
TIME_HELP: Final = "A time such as 2026-01-31T12:00 (UTC unless it says), or how long ago: 90s, 10m, 2h, 7d."

StateOption = Annotated[
    list[str] | None, typer.Option("--state", help="prepared, submitted, succeeded or failed; may be repeated.")
]
UnfinishedStateOption = Annotated[
    list[str] | None, typer.Option("--state", help="prepared or submitted; may be repeated. Final messages stay.")
]
PrefixOption = Annotated[str, typer.Option("--gid-prefix", metavar="TEXT", help="How the gid begins.")]
DestinationOption = Annotated[
    str,
    typer.Option(
        "--destination",
        metavar="URL",
        help="Beginning of a branch's address, with or without http://: host and port, or these and a path.",
    ),
]
AfterOption = Annotated[str, typer.Option("--created-after", metavar="WHEN", help=TIME_HELP)]
CheckOption = Annotated[
    str, typer.Option("--check-address", metavar="URL", help="Beginning of the check address, in the same way.")
]
BeforeOption = Annotated[str, typer.Option("--created-before", metavar="WHEN", help=TIME_HELP)]


class Filters(msgspec.Struct, frozen=True):
    """The query parameters of a request."""

    query: dict[str, str]

    @classmethod
    def of(
        cls,
        states: list[str] | None,
        gid_prefix: str,
        destination: str,
        created_after: str,
        created_before: str,
        *,
        parked: bool | None,
        check: str = "",
    ) -> Filters:
        """Make the filters from the options.

        The process ends with a sentence when a state or a time cannot be read.
        """
        for state in (one for text in states or () for one in text.split(",")):
            if state and state not in _STATES:
                echo(f"--state: {state!r} is no state of a message: prepared, submitted, succeeded, failed.", err=True)
                raise typer.Exit(2)
        query = {
            "state": ",".join(states or ()),
            "gid": gid_prefix,
            "destination": destination,
            "check": check,
            "created_after": milliseconds_in("--created-after", created_after),
            "created_before": milliseconds_in("--created-before", created_before),
            "parked": "" if parked is None else str(parked).lower(),
        }
        return cls({name: value for name, value in query.items() if value})


def require_unfinished(states: list[str] | None) -> list[str]:
    """Return the states of `--state` of a command that acts.

    A final state ends the process.
    """
    final = sorted(set(states or ()) - UNFINISHED)
    if final:
        echo(f"--state {final[0]}: only messages that are prepared or submitted can be acted on.", err=True)
        raise typer.Exit(2)
    return states or []


def milliseconds_of(text: str, now_s: float) -> int:
    """Return a time as a person writes it in milliseconds since 1970.

    Raises:
        ValueError: the text is no time.

    >>> milliseconds_of("10m", 1_700_000_000), milliseconds_of("2023-11-14T22:03:20", 0)
    (1699999400000, 1699999400000)
    """
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return int((now_s - int(ago[1]) * _SECONDS[ago[2]]) * 1000)
    when = datetime.fromisoformat(text.strip())
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def milliseconds_in(option: str, text: str) -> str:
    """Return the time that an option gives, as digits; empty for no text.

    A text that is no time ends the process with a sentence.
    """
    if not text:
        return ""
    try:
        return str(max(0, milliseconds_of(text, time.time())))
    except (ValueError, OverflowError):
        echo(f"{option}: {text!r} is no time. {TIME_HELP}", err=True)
        raise typer.Exit(2) from None
