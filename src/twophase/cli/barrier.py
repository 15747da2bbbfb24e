"""`twophase barrier …`: the barrier table of a business database."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from twophase.barrier.dialect import DEFAULT_TABLE, dialect_named, validate_table
from twophase.barrier.install import install as install_barrier
from twophase.barrier.install import script
from twophase.cli.database_url import read_url, sqlite_file, why_refused
from twophase.core.errors import TwophaseError

app = typer.Typer(
    name="barrier",
    help="The barrier table of a business database.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback()
def _barrier() -> None:
    """Keep `install` a subcommand while it is the only one."""


_EXAMPLES: Final = """\b
Examples:
  twophase barrier install sqlite:///bank.db
  twophase barrier install postgresql://user:password@host/bank --table pay.barrier
  twophase barrier install mysql://host/bank --print > barrier.sql"""


@app.command(epilog=_EXAMPLES)
def install(
    url: Annotated[str, typer.Argument(help="SQLAlchemy URL of the business database.", envvar="TWOPHASE_BARRIER_URL")],
    table: Annotated[str, typer.Option(help="Name of the table, or schema.name.")] = DEFAULT_TABLE,
    *,
    print_only: Annotated[bool, typer.Option("--print", help="Print the statements; execute nothing.")] = False,
) -> None:
    """Create the barrier table, or complete one that dtm made. May be repeated."""
    try:
        validate_table(table)
        if print_only:
            _print_script(url, table)
            return
        _install(url, table)
    except TwophaseError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None


def _install(text: str, table: str) -> None:
    url = read_url(text)
    file = sqlite_file(url)
    is_new = file is not None and not file.exists()
    try:
        executed = install_barrier(url.render_as_string(hide_password=False), table)
    except TwophaseError:
        raise
    except Exception as error:  # noqa: BLE001 -- whatever a driver raises, told without the password
        why = why_refused(error, url)
        typer.echo(f"{why[0].upper()}{why[1:]}\nNothing is half-installed: run it again.", err=True)
        raise typer.Exit(1) from None
    for statement in executed:
        typer.echo(f"{statement.split('(', 1)[0].strip()} …")
    where = "" if file is None else f" in {file}{' (new file)' if is_new else ''}"
    typer.echo(f"The barrier {'is installed' if executed else 'was installed already'}{where}.")


def _print_script(url: str, table: str) -> None:
    scheme = url.split(":", 1)[0].split("+", 1)[0]
    dialect = dialect_named("postgresql" if scheme == "postgres" else scheme)
    if dialect is None:
        typer.echo(f"The URL must begin with sqlite, postgresql, mysql or mariadb, not {scheme!r}.", err=True)
        raise typer.Exit(2)
    typer.echo(";\n\n".join(script(dialect, table)) + ";")
