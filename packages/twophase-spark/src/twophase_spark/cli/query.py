"""`twophase spark query`: SQL over the lake and the store."""

from __future__ import annotations

import enum
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from twophase.cli.console import plain_console
from twophase_spark.cli.archive import reference_of
from twophase_spark.cli.ending import exit_codes, say

if TYPE_CHECKING:
    from twophase_spark.archive.query import Answer

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
in a condition where you can: only those days are read."""


class Output(enum.StrEnum):
    """The format of the rows."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="The query.")],
    lake: Annotated[Path | None, typer.Option(metavar="DIR", help="The folder of the lake.")] = None,
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
        from twophase_spark.archive.query import Question, ask, is_small, require_sound  # noqa: PLC0415 -- slow
        from twophase_spark.session import SessionSettings, open_session  # noqa: PLC0415 -- the same

        url = None if store is None else reference_of(store)
        question = Question(sql, lake, url, limit, payloads=bool(payloads))
        require_sound(question)
        settings = SessionSettings(
            cores=cores,
            memory_mb=memory,
            name="twophase query",
            short=is_small(question),
            extra=(("spark.hadoop.parquet.page.verify-checksum.enabled", "true"),),
        )
        say("starting Spark")
        with open_session(settings) as spark:
            say("asking")
            answer = ask(spark, question, say)
        _show(answer, output)
        if answer.more:
            typer.echo(f"There are more rows; --limit {limit} are shown.", err=True)


def _show(answer: Answer, output: Output) -> None:
    from twophase_spark.archive.query import as_csv, as_json, as_text  # noqa: PLC0415 -- PySpark is slow to import

    if output is Output.JSON:
        sys.stdout.buffer.write(as_json(answer))
    elif output is Output.CSV:
        sys.stdout.write(as_csv(answer))
    else:
        table = Table(show_edge=False, pad_edge=False)
        for name in answer.names:
            table.add_column(Text(name), overflow="fold")
        for row in answer.rows:
            table.add_row(*(Text(_printable(as_text(value))) for value in row))
        plain_console().print(table)
    sys.stdout.flush()


def _printable(text: str) -> str:
    """Replace characters that are not printable.

    Text of any sender must not move the cursor of a terminal.
    """
    return "".join(character if character.isprintable() else "·" for character in text)
