"""The options of `twophase spark audit`, from the tables, and the end of its help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import msgspec
import typer

from twophase_spark.fleet import OPTIONS, Moment, Options
from twophase_spark.locations import Role

AUDIT_EXAMPLES: Final = """\b
Examples:
  twophase spark audit --coordinator sqlite:///twophase.db \\
      --producer bank_a=sqlite:///a.db --consumer bank_b=sqlite:///b.db
  twophase spark audit --coordinator sqlite:////var/lib/twophase/twophase.db \\
      --producer bank_a=env:BANK_A_URL#pay.barrier \\
      --html report.html
  twophase spark audit --config fleet.toml --state audit.state --every 300
  twophase spark audit --config fleet.toml --write-baseline known.json
  twophase spark audit --config fleet.toml --baseline known.json

\b
Locations:
  --coordinator  URL of its store
  --producer     NAME=URL[#TABLE?urls=PREFIX]    TABLE is barrier by default;
                 PREFIX of the check addresses that it answers
  --consumer     NAME=URL[#TABLE?urls=PREFIX]    only branches that begin so
  --ledger       NAME=URL#TABLE?gid=COLUMN&branch=COLUMN&key=COLUMN
                 NAME is a consumer's; its rows are the real effects
                 &where=SQL for rows that count, &rows_per_effect=2,
                 &agrees=SQL of Spark on payload and ledger.COLUMN
  URL is sqlite:///file.db, postgresql://user:password@host/name or
  mysql://user:password@host/name, or where such a URL stands: env:NAME,
  file:PATH. Quote what contains ? or &.
  --config FILE  the same in TOML, with ${NAME} for the environment"""

_LOCATIONS: Final = {
    Role.COORDINATOR: "A coordinator's store; name every one that calls these consumers.",
    Role.PRODUCER: "A producer's barrier; may be repeated.",
    Role.CONSUMER: "A consumer's barrier; may be repeated.",
    Role.LEDGER: "A consumer's business table; may be repeated.",
}
_METAVARS: Final = {"findings": "PLACE", "since": "TIME"}
Command = Callable[..., None]


def with_options(command: Command) -> Command:
    """Give a command the options of an audit: locations, file, and terms."""
    hints = {field.name: field.type for field in msgspec.structs.fields(Options)}
    parameters = [
        _parameter(role.value, list[str], typer.Option(metavar="LOCATION", help=text))
        for role, text in _LOCATIONS.items()
    ]
    parameters.append(
        _parameter("config", Path, typer.Option(help="A TOML file with these options; the command line wins."))
    )
    for option in OPTIONS:
        kind, least = _type_of(hints[option.field])
        flag = (f"--{option.name.replace('_', '-')}",) if kind is bool else ()
        made = typer.Option(
            *flag,
            min=least,
            metavar=_METAVARS.get(option.name),
            help=option.meaning,
            show_default=(kind in {int, float} and option.default_shown.strip("`")) or False,
        )
        parameters.append(_parameter(option.name, str if kind is Moment else kind, made))
    setattr(command, "__signature__", inspect.Signature(parameters))  # noqa: B010 -- typer reads it; a function has none
    return command


def _type_of(hint: Any) -> tuple[Any, Any]:
    """Return the bare type of an option, and the least number that it may be."""
    kind, *notes = get_args(hint)
    member = next((one for one in get_args(kind) if one is not type(None)), kind)
    bare, *bounds = get_args(member) or (member,)
    return bare, next((note.ge for note in (*notes, *bounds) if isinstance(note, msgspec.Meta)), None)


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )
