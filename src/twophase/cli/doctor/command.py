"""`twophase doctor`: is everything set up that a message will need?

The needs after a crash are included. Exit code 0 when nothing is bad, 1 when something is: also for a deployment's
check. Nothing is written anywhere.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from twophase.cli.console import plain_console
from twophase.cli.doctor.coordinator_side import examine_coordinator
from twophase.cli.findings import Finding, Level, show
from twophase.cli.operating.http_api import DEFAULT_SERVER, SERVER_VARIABLE, JsonOption, print_json
from twophase.core.errors import ConfigurationError

if TYPE_CHECKING:
    from twophase.cli.doctor.database_side import Database

app = typer.Typer(rich_markup_mode=None, add_completion=False)

EXIT_BAD: Final = 1
_EXAMPLES: Final = """\b
Examples:
  twophase doctor
  twophase doctor --check http://orders:8000/twophase/check --database env:ORDERS_URL
  twophase doctor --database sqlite:///bank.db --table pay.barrier
  twophase doctor --server http://pay:36789 --json | jq -e .ok"""


class Diagnosis(msgspec.Struct, frozen=True):
    """The output for programs."""

    ok: bool
    findings: list[Finding]


@app.command(epilog=_EXAMPLES)
def doctor(
    check: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A check address: the coordinator probes it from where it runs."),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="SQLAlchemy URL of a service's database, or env:NAME or file:PATH that holds it."
        ),
    ] = None,
    table: Annotated[str, typer.Option(help="Name of the barrier table there, or schema.name.")] = "barrier",
    server: Annotated[
        str | None,
        typer.Option(
            help=f"Address of the coordinator's HTTP port; default {DEFAULT_SERVER}, or none with --database alone.",
            envvar=SERVER_VARIABLE,
        ),
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Look for what would fail later.

    That is an unreachable check address, the wrong database, settings that lose commits. With both --check and
    --database, the database behind the check address is compared with the given one. Writes nothing. Exit code 0 when
    nothing is bad, else 1.
    """
    asked_server = server or (DEFAULT_SERVER if check is not None or database is None else None)
    seen: list[Finding] = []
    console = plain_console(stderr=as_json)
    with console.status("looking …"):  # shown on a terminal only
        for finding in _findings(asked_server, check, database, table):
            seen.append(finding)
            if not as_json:
                show(console, finding)
    ok = all(finding.level is not Level.BAD for finding in seen)
    if as_json:
        print_json(Diagnosis(ok, seen))
    if not ok:
        raise typer.Exit(EXIT_BAD)


def _findings(server: str | None, check: str | None, database: str | None, table: str) -> Iterator[Finding]:
    examined: Database | None = None
    if database is not None:
        examined = _database(database, table)
        yield from examined.examine()
    if server is not None:
        identity = examined.identity if examined is not None else None
        yield from examine_coordinator(server, check, identity, named=examined is not None)


def _database(url: str, table: str) -> Database:
    if importlib.util.find_spec("sqlalchemy") is None:
        remedy = "Run: pip install 'twophase[sqlalchemy]', or the extra of the database: postgres, mysql or sqlite."
        raise ConfigurationError("--database: the package 'sqlalchemy' is missing.", remedy=remedy)
    from twophase.barrier.dialect import validate_table  # noqa: PLC0415 -- only where a database is looked at
    from twophase.cli.doctor.database_side import Database  # noqa: PLC0415 -- the same

    return Database(url, validate_table(table))
