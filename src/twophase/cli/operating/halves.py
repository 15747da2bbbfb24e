"""`twophase halves …`: half messages, and why they wait."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from twophase.cli.console import echo
from twophase.cli.operating.explanation import span
from twophase.cli.operating.http_api import DEFAULT_SERVER, Api, JsonOption, ServerOption, path_of, print_json
from twophase.cli.operating.plain_table import print_table
from twophase.core.queue_operating import ManyHalves, ShownHalf

app = typer.Typer(
    name="halves",
    help="Half messages: which ones wait for their producer, and why.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback()
def _group() -> None:
    """Half messages: which ones wait for their producer, and why."""


_EXAMPLES: Final = """\b
Examples:
  twophase halves list
  twophase halves list --situation away
  twophase halves list --json | jq -r '.halves[] | select(.situation == "parked") | .gid'
  twophase explain GID

Situations: waits (it is not due), asked (a producer has the question), busy (all producers have enough questions),
away (no producer is connected), parked (answered 'unknown' too often, or parked by an operator: twophase messages
redrive). With several nodes, each knows only the producers that are connected to it."""


@app.command("list", epilog=_EXAMPLES)
def list_halves(
    server: ServerOption = DEFAULT_SERVER,
    situation: Annotated[str, typer.Option("--situation", help="Only these: waits, asked, busy, away or parked.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Most half messages to show.")] = 100,
    *,
    json: JsonOption = False,
) -> None:
    """List half messages, how long they wait, and why."""
    halves: list[ShownHalf] = []
    position, now_ms = "", 0
    for page in Api(server).pages(path_of("halves"), ManyHalves):
        halves += [half for half in page.halves if situation in {"", half.situation}]
        position, now_ms = page.position, page.now_ms
        if len(halves) >= limit:
            break
    found = ManyHalves(halves[:limit], position, now_ms)
    if json:
        print_json(found)
        return
    if not found.halves:
        echo("No half message waits.")
        return
    rows: list[tuple[str, ...]] = [("GID", "TOPIC", "PRODUCERS", "AGE", "NEXT CHECK", "ANSWERED", "LAST ANSWER", "WHY")]
    rows += [_row(half, now_ms) for half in found.halves]
    print_table(rows)
    if len(halves) > limit or position:
        echo(f"There are more: raise --limit {limit}.")


def _row(half: ShownHalf, now_ms: int) -> tuple[str, ...]:
    """Return a line of the table.

    >>> half = ShownHalf("g", "orders", "shop", "c1", 0, 90_000, 2, 15, 30_000, "away", "no producer is connected")
    >>> _row(half, 60_000)
    ('g', 'orders', 'shop', '1 min', 'in 30 s', '2 of 15', 'unknown, 30 s ago', 'no producer is connected')
    """
    due = "-" if not half.due_ms else f"in {span(half.due_ms - now_ms)}" if half.due_ms > now_ms else "now"
    limit = f" of {half.answers_max}" if half.answers_max else ""
    answered = f"unknown, {span(now_ms - half.answered_ms)} ago" if half.answered_ms else "none"
    age = span(now_ms - half.created_ms)
    return half.gid, half.topic or "-", half.producers, age, due, f"{half.answers}{limit}", answered, half.why
