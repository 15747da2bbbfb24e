"""`twophase spark checkback` and `twophase spark abandon`.

A publisher runs them beside its Spark job, or by hand.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer
from rich.table import Table

from twophase.cli.console import cell, echo, plain_console
from twophase.core.credentials import is_reference, secret_of
from twophase.core.errors import ConfigurationError, LedgerUnavailable, TwophaseError
from twophase_spark.cli.ending import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from twophase_spark.sink.ledger import Ledger, ListedBatch

EXIT_FAILED: Final = 2
EXIT_NOTHING: Final = 1
_LIMIT_MAX: Final = 10_000_000
_WAIT_S: Final = 2
"""Time for a connection to the ledger, which a check-back may wait for."""
_WIDTH: Final = 200
"""Width of a table: a narrow terminal folds its lines.

In columns that are squeezed an id cannot be copied.
"""
_LEDGER_HELP: Final = "The ledger: a URL, env:NAME or file:PATH."
_EXPOSED: Final = (
    "warning: without --keys every client that reaches this address is answered; see docs/how-to/sign-calls.md"
)
CHECKBACK_EXAMPLES: Final = """\b
Examples:
  twophase spark checkback --ledger sqlite:///ledger.db
  twophase spark checkback --ledger env:LEDGER_URL --host 0.0.0.0 \\
      --keys 2026-11=file:/etc/twophase/ledger.key \\
      --tls-certificate cert.pem --tls-key key.pem"""
ABANDON_EXAMPLES: Final = """\b
Examples:
  twophase spark abandon --ledger env:LEDGER_URL --publisher orders --limit 200
      lists its batches, undecided ones first
  twophase spark abandon --ledger env:LEDGER_URL --publisher orders --batch 17
      rolls streaming batch 17 back, for ever"""


def checkback(
    ledger: Annotated[str, typer.Option(help=_LEDGER_HELP)],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 36791,
    keys: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID=REFERENCE",
            help="Answer only what this key has signed: ID=env:NAME or ID=file:PATH. Twice while a key is replaced.",
        ),
    ] = None,
    tls_certificate: Annotated[
        str, typer.Option(metavar="FILE", help="PEM file with its certificate chain; without it, plain text.")
    ] = "",
    tls_key: Annotated[
        str, typer.Option(metavar="FILE", help="PEM file with the key of that certificate, of mode 0600.")
    ] = "",
) -> None:
    """Answer the coordinator's questions about messages of the Spark sink.

    Looks into the ledger and changes nothing; several may run. Stop it with Ctrl-C.

    Without --keys it answers every client that reaches it.
    """
    from twophase_spark.sink.checkback_server import CheckBackServer, tls_of  # noqa: PLC0415 -- PySpark is slow to import
    from twophase_spark.sink.database import checked_reference, engine_of, install_ledger  # noqa: PLC0415 -- the same

    try:
        secrets = _secrets_of(keys or [])
        if bool(tls_certificate) != bool(tls_key):
            raise ConfigurationError("--tls-certificate and --tls-key belong together; one of them is missing.")
        tls = tls_of(tls_certificate, tls_key) if tls_certificate else None
        engine = engine_of(checked_reference(ledger), _WAIT_S)
        install_ledger(engine)
        server = CheckBackServer(engine, host, port, secrets, tls=tls)
    except TwophaseError as error:
        _fail(error)
    except (OSError, TypeError) as error:  # the latter: a host that is no name at all
        why = error.strerror if isinstance(error, OSError) else error
        _fail(ConfigurationError(f"Cannot listen on {host}:{port}: {why}."))
    with server:
        if server.is_exposed:
            echo(_EXPOSED, err=True)
        echo(f"twophase spark checkback ready: {server.url}")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None


def abandon(
    ledger: Annotated[str, typer.Option(help=_LEDGER_HELP)],
    publisher: Annotated[
        str | None, typer.Option(help="Whose batches (the sink's option publisher); required with --batch.")
    ] = None,
    batch: Annotated[
        str | None, typer.Option(help="The batch to give up: a streaming batch's number, or any batch's id.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, max=_LIMIT_MAX, help="List at most this many.", show_default="50")
    ] = None,
    every: Annotated[bool | None, typer.Option("--all", help="List all of them.")] = None,
) -> None:
    """Give a batch up: what it prepared and did not publish is rolled back, for ever.

    Of an undecided batch that is all of it; a later try of it publishes nothing. Of a published one it is what only
    failed tries had prepared; what of it was not submitted yet is left to the check-backs.

    Without --batch, batches are listed: undecided ones first, then the latest.

    Exit code 0: done, or listed; 1: no such batch; 2: it could not be done.
    """
    from twophase_spark.sink.database import checked_reference, engine_of, require_ledger  # noqa: PLC0415 -- the same
    from twophase_spark.sink.ledger import ROWS_SHOWN, Ledger  # noqa: PLC0415 -- PySpark is slow to import

    try:
        if batch is not None and publisher is None:
            raise ConfigurationError("--publisher is missing: whose batch is to be given up.")
        if every and limit is not None:
            raise ConfigurationError("--all and --limit exclude each other.")
        shown = _LIMIT_MAX if every else limit or ROWS_SHOWN
        engine = engine_of(checked_reference(ledger))
        require_ledger(engine)
        book = Ledger(engine)
        if batch is None or publisher is None:
            _show(book.batches(publisher, shown + 1), shown)
            return
        code = _give_up(book, publisher, batch, shown)
    except TwophaseError as error:
        _fail(error)
    if code:
        raise typer.Exit(code)


def _secrets_of(keys: list[str]) -> dict[str, str] | None:
    """Return the secrets by key id; None without a key."""
    secrets: dict[str, str] = {}
    for text in keys:
        id_, _, reference = text.partition("=")
        if not is_reference(reference):
            # Not repeated: it may be the secret itself.
            raise ConfigurationError(
                "--keys expects ID=env:NAME or ID=file:PATH, because every user of this machine may read a command."
            )
        if id_ in secrets:
            raise ConfigurationError(f"--keys: there are two keys {id_[:64]!r}.")
        secrets[id_] = secret_of(reference)
    return secrets or None


def _give_up(book: Ledger, publisher: str, requested: str, shown: int) -> int:
    from twophase_spark.sink.ledger import Decision  # noqa: PLC0415 -- PySpark is slow to import

    found = book.find(publisher, requested, shown + 1)
    undecided = [one for one in found if one.decision is Decision.OPEN]
    if len(found) > 1 and len(undecided) == 1:
        found = undecided
    if not found:
        echo(f"There is no batch {requested} of publisher {publisher}.", err=True)
        return EXIT_NOTHING
    if len(found) > 1:
        echo(f"Several batches of publisher {publisher} have number {requested}; give the id of one:", err=True)
        _show(found, shown)
        return EXIT_NOTHING
    decision = book.give_up(found[0].group)
    if decision is Decision.OPEN:
        raise LedgerUnavailable("The ledger did not take it in time; try again.")
    if decision is Decision.GIVEN_UP:
        echo("Given up: the coordinator rolls its messages back when it asks next.")
    else:
        book.set_published(found[0].group, 0)
        echo(
            "It is published; what only failed tries of it had prepared is given up, and what was not submitted yet "
            "is left to the check-backs."
        )
    return 0


def _show(batches: list[ListedBatch], shown: int) -> None:
    table = Table(show_edge=False, pad_edge=False)
    for title in ("publisher", "batch", "number", "query", "begun", "decision", "messages", "submitted", "given up"):
        table.add_column(title, justify="right" if title in {"number", "messages"} else "left")
    for batch in batches[:shown]:
        table.add_row(
            cell(batch.publisher),
            cell(batch.group),
            str(batch.number) if batch.number >= 0 else "write",
            cell(batch.query[:8]),
            _time(batch.begun_ms),
            batch.decision.value,
            str(batch.messages) if batch.messages else "",
            _time(batch.published_ms),
            _time(batch.given_up_ms),
        )
    console = plain_console(width=_WIDTH)
    console.print(table if batches else "no batches")
    if len(batches) > shown:
        echo(f"There are more batches; {shown} are shown. See more with --limit N, or --all.", err=True)


def _time(time_ms: int | None) -> str:
    return "" if time_ms is None else f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"


def _fail(error: TwophaseError) -> NoReturn:
    echo(f"{error.code}: {error.message} {error.remedy}", err=True)
    raise typer.Exit(EXIT_FAILED) from None
