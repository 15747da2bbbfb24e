"""The options of `twophase spark audit`, each once, and the end of its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

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

Coordinator = Annotated[
    list[str] | None,
    typer.Option(metavar="LOCATION", help="A coordinator's store; name every one that calls these consumers."),
]
Producer = Annotated[list[str] | None, typer.Option(metavar="LOCATION", help="A producer's barrier; may be repeated.")]
Consumer = Annotated[list[str] | None, typer.Option(metavar="LOCATION", help="A consumer's barrier; may be repeated.")]
Ledger = Annotated[
    list[str] | None, typer.Option(metavar="LOCATION", help="A consumer's business table; may be repeated.")
]
Config = Annotated[Path | None, typer.Option(help="A TOML file with these options; the command line takes precedence.")]
Grace = Annotated[
    float | None, typer.Option(min=0, help="Seconds before suspicious messages are read again.", show_default="5")
]
Late = Annotated[
    float | None,
    typer.Option(min=0, help="Seconds after which an unfinished message counts as late.", show_default="3600"),
]
Html = Annotated[Path | None, typer.Option(help="Write the report as a page to this file.")]
Json = Annotated[Path | None, typer.Option(help="Write the report as JSON to this file.")]
Junit = Annotated[Path | None, typer.Option(help="Write the report as JUnit XML to this file.")]
Findings = Annotated[
    str | None, typer.Option(metavar="PLACE", help="Append every finding to this Delta table: a folder, or a URL.")
]
Baseline = Annotated[
    Path | None, typer.Option(help="Broken messages that this file acknowledges fail no audit; see --write-baseline.")
]
WriteBaseline = Annotated[
    Path | None, typer.Option(help="Write a file for --baseline that acknowledges all that is broken now.")
]
Since = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Do not expect coordinators to know what was born before, such as 2026-11-01."),
]
State = Annotated[
    Path | None, typer.Option(help="Audit only what is new since the run that wrote this file, and update it.")
]
Every = Annotated[
    float | None, typer.Option(min=0, help="With --state: repeat after this many seconds, until stopped.")
]
Overlap = Annotated[
    float | None,
    typer.Option(min=0, help="Seconds a transaction may stay open, with --state.", show_default="900"),
]
Complete = Annotated[bool | None, typer.Option("--complete", help="Exit with 2 if anything could not be checked.")]
AllowEmpty = Annotated[bool | None, typer.Option("--allow-empty", help="Accept databases without any message.")]
Memory = Annotated[int | None, typer.Option(min=512, help="Memory for Spark in MiB.", show_default="2048")]
Cores = Annotated[int | None, typer.Option(min=1, help="Cores for Spark.", show_default="all, at most 8")]
