"""`twophase log …`: show the audit log, and verify its chain."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Annotated, Final

import msgspec
import typer

from twophase.cli.console import echo
from twophase.cli.operating.explanation import clock
from twophase.cli.operating.http_api import (
    DEFAULT_SERVER,
    EXIT_REFUSED,
    Api,
    JsonOption,
    ServerOption,
    path_of,
    print_json,
)
from twophase.cli.operating.message_filters import TIME_HELP, milliseconds_in
from twophase.core.audit_chain import CHAIN_ROWS_MAX, Broken, ChainCheck, ShownAuditLog, ShownChain
from twophase.core.audit_log import AuditRow

app = typer.Typer(
    name="log",
    help="The audit log: what operators did, and whether a row was changed since.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_HEAD: Final = re.compile(r"(\d{1,18}):([0-9a-f]{64})")
_PROGRESS_ROWS: Final = 10_000
_LIMIT_MAX: Final = 10_000


class Verified(msgspec.Struct):
    """The outcome of `verify` for programs.

    `head` is `SEQ:HASH`; without `broken` the chain is unbroken.
    """

    rows: int
    head: str
    broken: Broken | None = None


_LIST_EXAMPLES: Final = """\b
Examples:
  twophase log list
  twophase log list --gid order-17 --json
  twophase log list --act refused --since 7d
  twophase log list --who desk --limit 1000

The server asks for a token with the scope admin, where it has tokens."""


@app.command("list", epilog=_LIST_EXAMPLES)
def list_rows(
    server: ServerOption = DEFAULT_SERVER,
    gid: Annotated[str, typer.Option(help="Only acts on this gid, topic, route or token.")] = "",
    who: Annotated[str, typer.Option(help="Only acts with this token or certificate.")] = "",
    act: Annotated[str, typer.Option(help="Only this act, such as stop, redirect, subscribe or refused.")] = "",
    since: Annotated[str, typer.Option(metavar="WHEN", help=TIME_HELP)] = "",
    limit: Annotated[int, typer.Option(min=1, max=_LIMIT_MAX, help="Most rows to show.")] = 100,
    *,
    json: JsonOption = False,
) -> None:
    """List acts, the newest first: when, who, what, and the states before and after."""
    api, rows, position = Api(server), list[AuditRow](), 0
    filters = {"gid": gid, "who": who, "act": act, "since": milliseconds_in("--since", since)}
    while True:
        query = {name: value for name, value in filters.items() if value}
        query |= {"position": str(position), "limit": str(min(limit - len(rows), CHAIN_ROWS_MAX))}
        found = api.get(path_of("log"), ShownAuditLog, query=query)
        rows += found.rows
        position = found.position
        if not position or len(rows) >= limit:
            break
    if json:
        print_json(ShownAuditLog(rows, position))
    elif not rows:
        echo("No act was found.")
    else:
        now_ms = time.time_ns() // 1_000_000
        echo("\n".join(line for row in rows for line in lines_of(row, now_ms)))
        if position:
            echo(f"There are more: --limit N shows up to {_LIMIT_MAX}.", err=True)


_VERIFY_EXAMPLES: Final = """\b
Examples:
  twophase log verify
  twophase log verify --since 1204:2f6c...   the head that an earlier verify printed
  twophase log verify --json

A user of the database can rewrite the whole chain, and it stays unbroken. So keep the printed head elsewhere,
and give it to --since later.
Exit codes: 0 the chain is unbroken, 1 it is broken, or the server refuses, 3 no server answers."""


@app.command(epilog=_VERIFY_EXAMPLES)
def verify(
    server: ServerOption = DEFAULT_SERVER,
    since: Annotated[str, typer.Option(metavar="SEQ:HASH", help="A head that was printed before.")] = "",
    *,
    json: JsonOption = False,
) -> None:
    """Compute the hash of each row anew, and name the first row that does not fit."""
    api, check = Api(server), ChainCheck(_head(since))
    broken, shown = None, _PROGRESS_ROWS
    while broken is None and not check.ended:
        query = {"after": str(max(check.seq, 0)), "limit": str(CHAIN_ROWS_MAX)}
        found = api.get(path_of("log", "chain"), ShownChain, query=query)
        broken = check.page(found.rows, found.head)
        if check.rows >= shown:
            echo(f"{check.rows} rows …", err=True)
            shown = check.rows + _PROGRESS_ROWS
    seq, row_hash = check.head
    if json:
        print_json(Verified(check.rows, f"{seq}:{row_hash}", broken))
    elif broken is not None:
        echo(f"The audit log is broken at row {broken.seq}: {broken.why}. {check.rows} rows before it are unbroken.")
    else:
        echo(f"{check.rows} rows are unbroken. Keep the head elsewhere, for --since:\n{seq}:{row_hash}")
    if broken is not None:
        raise typer.Exit(EXIT_REFUSED)


def lines_of(row: AuditRow, now_ms: int) -> Iterable[str]:
    """Yield an act as lines for a terminal.

    >>> row = AuditRow(3, 0, 1, "desk", "::1", "stop", "order-17", "eve: fraud", "prepared", "failed", "", "")
    >>> for line in lines_of(row, 60_000): print(line)
    3  1970-01-01 00:00:00 UTC (1 min ago)  stop order-17, by desk from ::1
       prepared -> failed
       eve: fraud
    """
    margin = " " * (len(str(row.seq)) + 2)
    who = f"by {row.who}" if row.who else "without a token"
    peer = f" from {row.peer}" if row.peer else ""
    yield f"{row.seq}  {clock(row.at_ms, now_ms)}  {row.act} {row.target}, {who}{peer}"
    if row.before or row.after:
        yield f"{margin}{row.before or 'nothing'} -> {row.after or 'nothing'}"
    if row.reason:
        yield f"{margin}{row.reason}"


def _head(since: str) -> tuple[int, str] | None:
    """Return the row and the hash of a head.

    >>> _head("3:" + "0" * 64)[0], _head("")
    (3, None)
    """
    if not since:
        return None
    found = _HEAD.fullmatch(since.strip())
    if found is None:
        echo(f"--since: {since!r} is not SEQ:HASH as verify prints it.", err=True)
        raise typer.Exit(2)
    return int(found[1]), found[2]
