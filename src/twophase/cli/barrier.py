"""`twophase barrier …`: install and clean the barrier table of a database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

import sqlalchemy
import typer

from twophase.barrier.cleaning import DAY_MS, KEEP_MS, Cleaned, database_now_ms, identity_of
from twophase.barrier.cleaning import clean as clean_barrier
from twophase.barrier.dialect import DEFAULT_TABLE, dialect_named, validate_table
from twophase.barrier.installing import install as install_barrier
from twophase.barrier.installing import script
from twophase.cli.console import echo
from twophase.cli.database_url import for_sync, read_url, sqlite_file, why_refused
from twophase.cli.error_text import error_text
from twophase.client.horizons import Frozen, agree
from twophase.core.bearer import authorization_of
from twophase.core.credentials import secret_of
from twophase.core.errors import ConfigurationError, TwophaseError

app = typer.Typer(
    name="barrier",
    help="Install and clean the barrier table of a business database.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


_URL_HELP: Final = "SQLAlchemy URL of the business database, or env:NAME or file:PATH that holds it."
_EXAMPLES: Final = """\b
Examples:
  twophase barrier install sqlite:///bank.db
  twophase barrier install postgresql://user@host/bank --table pay.barrier
  twophase barrier install mysql://host/bank --print > barrier.sql"""


@app.command(epilog=_EXAMPLES)
def install(
    url: Annotated[str, typer.Argument(help=_URL_HELP, envvar="TWOPHASE_BARRIER_URL")],
    table: Annotated[str, typer.Option(help="Name of the table, or schema.name.")] = DEFAULT_TABLE,
    *,
    print_only: Annotated[bool, typer.Option("--print", help="Print the SQL statements; execute nothing.")] = False,
) -> None:
    """Create the barrier table, or complete one that dtm made. Safe to repeat."""
    try:
        validate_table(table)
        if print_only:
            _print_script(secret_of(url), table)
            return
        _install(url, table)
    except TwophaseError as error:
        echo(error_text(error), err=True)
        raise typer.Exit(2) from None


def _install(text: str, table: str) -> None:
    url = read_url(text)
    file = sqlite_file(url)
    is_new = file is not None and not file.exists()
    try:
        executed = install_barrier(url.render_as_string(hide_password=False), table)
    except TwophaseError:
        raise
    except Exception as error:  # noqa: BLE001 -- whatever a driver raises, reported without the password
        why = why_refused(error, url)
        echo(f"{why[0].upper()}{why[1:]}\nNothing is half-installed: run it again.", err=True)
        raise typer.Exit(1) from None
    for statement in executed:
        echo(f"{statement.split('(', 1)[0].strip()} …")
    where = "" if file is None else f" in {file}{' (new file)' if is_new else ''}"
    echo(f"The barrier {'is installed' if executed else 'was installed already'}{where}.")


_CLEAN_EXAMPLES: Final = """\b
Examples:
  twophase barrier clean sqlite:///bank.db --coordinator http://localhost:36789 --dry-run
  twophase barrier clean postgresql://host/bank --coordinator http://pay:36789 --coordinator http://mail:36789

Name every coordinator whose messages are prepared from this database, or whose branches are called in it; of
several nodes on one store, any one will do. If one of them does not answer, nothing is removed (exit code 3)."""


@app.command(epilog=_CLEAN_EXAMPLES)
def clean(
    url: Annotated[str, typer.Argument(help=_URL_HELP, envvar="TWOPHASE_BARRIER_URL")],
    coordinator: Annotated[list[str], typer.Option(help="A coordinator that uses this table; may be repeated.")],
    keep: Annotated[float, typer.Option(help="Days for which every row is kept; at least 1.")] = KEEP_MS / DAY_MS,
    table: Annotated[str, typer.Option(help="Name of the table, or schema.name.")] = DEFAULT_TABLE,
    check_url: Annotated[
        str, typer.Option(metavar="PREFIX", help="Only wait for messages whose check address begins with this.")
    ] = "",
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing; say what would be removed.")] = False,
) -> None:
    """Remove barrier rows that no verdict and no call can need any more.

    Safe to repeat, at any time.
    """
    try:
        validate_table(table)
        known = for_sync(read_url(url))
        file = sqlite_file(known)
        if file is not None and not file.exists():
            raise ConfigurationError(f"There is no file {file}.")
        cleaned = _clean(known, coordinator, int(keep * DAY_MS), table, check_url, dry_run=dry_run)
    except Frozen as error:
        echo(f"Nothing is removed, because not every coordinator agrees: {error}", err=True)
        raise typer.Exit(3) from None
    except TwophaseError as error:
        echo(error_text(error), err=True)
        raise typer.Exit(2) from None
    verb = "would be removed" if dry_run else "removed"
    echo(f"Producers' rows {verb}: {cleaned.producer_rows}, of messages prepared {_until(cleaned, 0)}.")
    echo(f"Branches' rows {verb}: {cleaned.branch_rows}, of effects {_until(cleaned, 1)}.")
    if cleaned.held:
        echo(f"In use, and left for the next time: {cleaned.held}.")


def _clean(
    url: sqlalchemy.URL, servers: list[str], keep_ms: int, table: str, check_url: str, *, dry_run: bool
) -> Cleaned:
    engine = sqlalchemy.create_engine(url, hide_parameters=True)
    try:
        agreed = agree(
            servers,
            check_prefix=check_url,
            identity=identity_of(engine, table),
            now_ms=database_now_ms(engine, table),
            authorization=authorization_of(),
        )
        return clean_barrier(
            engine,
            undecided_ms=agreed.oldest_undecided_ms,
            unfinished_ms=agreed.oldest_unfinished_ms,
            keep_ms=keep_ms,
            table=table,
            dry_run=dry_run,
        )
    except (TwophaseError, Frozen):
        raise
    except Exception as error:  # noqa: BLE001 -- whatever a driver raises, reported without the password
        why = why_refused(error, url)
        echo(f"{why[0].upper()}{why[1:]}\nWhat was removed before stays removed: run it again.", err=True)
        raise typer.Exit(1) from None
    finally:
        engine.dispose()


def _until(cleaned: Cleaned, index: int) -> str:
    horizon_ms = (cleaned.horizons.producer_ms, cleaned.horizons.branch_ms)[index]
    assert horizon_ms is not None, "every coordinator has agreed"
    return f"before {datetime.fromtimestamp(horizon_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _print_script(url: str, table: str) -> None:
    scheme = url.split(":", 1)[0].split("+", 1)[0]
    dialect = dialect_named("postgresql" if scheme == "postgres" else scheme)
    if dialect is None:
        echo(f"The URL must begin with sqlite, postgresql, mysql or mariadb, not {scheme!r}.", err=True)
        raise typer.Exit(2)
    echo(";\n\n".join(script(dialect, table)) + ";")
