"""`twophase spark query`: SQL over the lake and the store."""

from __future__ import annotations

import enum
import logging
import os
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table

from twophase.cli.console import cell, echo, plain_console
from twophase.core.printable import printable
from twophase_spark.cli.archive import reference_of
from twophase_spark.cli.ending import exit_codes, say

if TYPE_CHECKING:
    from twophase_spark.lake.query import Answer

_LIMIT_MAX = 1_000_000
QUERY_EXAMPLES: Final = """\b
Examples:
  twophase spark query "select dt, state, count(*) from history group by all" \\
      --lake /data/lake --store file:/run/secrets/store
  twophase spark query "select * from history where gid = 'order-17'" \\
      --lake /data/lake --output json

\b
Views:
  history  every final message, of lake and store, once; dt is the day it ended
  attempt  what went wrong, of both; dt is its day
  message  what is not final yet; only with --store
Columns are those of the Spark source; `describe history` lists them. State dt
in a condition where you can: of a lake in a folder, without --payloads, only
those days are read."""


class Output(enum.StrEnum):
    """The format of the rows."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="The query.")],
    lake: Annotated[str | None, typer.Option(metavar="PLACE", help="The lake: a folder, or a URL.")] = None,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="The coordinator's store, for what is not in the lake yet.")
    ] = None,
    output: Annotated[Output, typer.Option(help="Output format.")] = Output.TABLE,
    limit: Annotated[int, typer.Option(min=1, max=_LIMIT_MAX, help="Print at most this many rows.")] = 1000,
    payloads: Annotated[
        bool | None, typer.Option("--payloads", help="Add a column with payloads; reads more, and shows what was sent.")
    ] = None,
    memory: Annotated[int, typer.Option(min=512, help="Memory for Spark in MiB.")] = 2048,
    cores: Annotated[int, typer.Option(min=1, help="Cores for Spark.")] = min(os.cpu_count() or 1, 8),
) -> None:
    """Ask SQL of archived and present messages.

    Exit code 0: done; 2: could not.
    """
    with exit_codes(command="query", failed="No answer."):
        from twophase_spark.lake.query import Question, ask, require_sound, rows_of  # noqa: PLC0415 -- slow
        from twophase_spark.session import SessionSettings, open_session  # noqa: PLC0415 -- the same

        url = None if store is None else reference_of(store)
        question = Question(sql, lake, url, limit, payloads=bool(payloads))
        require_sound(question)
        settings = SessionSettings(
            cores=cores,
            memory_mb=memory,
            name="twophase query",
            rows=rows_of(question),
            extra=(("spark.hadoop.parquet.page.verify-checksum.enabled", "true"),),
        )
        logging.getLogger("SQLQueryContextLogger").disabled = True  # PySpark writes a trace of a query's mistake there
        say("starting Spark")
        with open_session(settings) as spark:
            say("asking")
            answer = ask(spark, question, say)
        show_rows(answer, output)
        if answer.more:
            echo(f"There are more rows; --limit {limit} are shown.", err=True)


def show_rows(answer: Answer, output: Output) -> None:
    """Print the rows; a terminal obeys no text of them."""
    from twophase_spark.lake.query import as_csv, as_json, as_text  # noqa: PLC0415 -- PySpark is slow to import

    if output is Output.TABLE:
        table = Table(show_edge=False, pad_edge=False)
        for name in answer.names:
            table.add_column(cell(name), overflow="fold")
        for row in answer.rows:
            table.add_row(*(cell(as_text(value)) for value in row))
        plain_console().print(table)
    else:
        text = as_json(answer).decode() if output is Output.JSON else as_csv(answer)
        text = printable(text) if sys.stdout.isatty() else text  # a file or a pipe gets every character
        sys.stdout.buffer.write(text.encode())
    sys.stdout.flush()
