"""`twophase status`: a server at a glance.

Is it up, how many messages wait and for how long, which nodes share the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import typer

from twophase.cli.console import echo
from twophase.cli.operating.explanation import span
from twophase.cli.operating.http_api import (
    DEFAULT_SERVER,
    EXIT_REFUSED,
    Api,
    JsonOption,
    ServerOption,
    path_of,
    print_json,
)
from twophase.cli.operating.watching import EveryOption, WatchOption, repeat
from twophase.core.operating import ServerStatus, ShownNode

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_EXAMPLES: Final = """\b
Examples:
  twophase status
  twophase status --server http://pay:36789 --watch
  twophase status --json | jq .parked

Exit codes: 0 it is up, 1 it is up and takes no requests, 3 no server answers."""


@app.command(name="status", epilog=_EXAMPLES)
def status(
    server: ServerOption = DEFAULT_SERVER,
    every: EveryOption = 2.0,
    *,
    watch: WatchOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show a server at a glance: version, nodes, unfinished messages, busiest calls.

    Unfinished messages are counted by state, with the age of the oldest ones.
    """
    api = Api(server)

    def print_once() -> None:
        found = api.get(path_of("status"), ServerStatus)
        if as_json:
            print_json(found, in_one_line=watch)
        else:
            echo("\n".join(lines_of(found, server)))
        if not found.ready and not watch:
            raise typer.Exit(EXIT_REFUSED)

    repeat(print_once, watch=watch, every_s=every, as_json=as_json)


def lines_of(found: ServerStatus, server: str) -> Iterable[str]:
    """Yield the lines of a status for a terminal.

    >>> idle = ServerStatus("1.0", True, 90_000, 0, 2, 0, 0, 30_000, None, [ShownNode(1, True, 0, True)], [])
    >>> for line in lines_of(idle, "http://localhost:36789"): print(line)
    http://localhost:36789 is up, twophase 1.0
    prepared   2, the oldest for 1 min
    submitted  0
    parked     0
    node 1     answers
    """
    yield f"{server} is {'up' if found.ready else 'up, but takes no requests'}, twophase {found.version}"
    for state, count, since_ms in (
        ("prepared", found.prepared, found.oldest_prepared_ms),
        ("submitted", found.submitted, found.oldest_submitted_ms),
        ("parked", found.parked, None),
    ):
        age = "" if since_ms is None else f", the oldest for {span(found.now_ms - since_ms)}"
        yield f"{state:<11}{count}{age}"
    for node in found.nodes:
        yield f"{f'node {node.node}':<11}{_doing(node, found)}"
    for destination in found.destinations:
        calls = f"{destination.in_progress} in progress, {destination.waiting} waiting"
        yield f"{'calls':<11}{destination.address}: {calls}"
    for one in found.queues:
        behind = f", {one.behind} behind their message group" if one.behind else ""
        yield f"{'queue':<11}{one.group} of {one.topic}: {one.lag} not done, {one.in_progress} in progress{behind}"
    if found.halves:
        yield f"{'halves':<11}{found.halves} are due and not answered: twophase halves list"


def _doing(node: ShownNode, found: ServerStatus) -> str:
    if node.answers:
        return "answers"
    silent_ms = found.now_ms - node.seen_ms
    if not node.held:
        return "is vacant: its process has stopped, or was silent for longer than its lease"
    if found.lease_ms and silent_ms > found.lease_ms:
        return f"is silent for {span(silent_ms)}: the others take over its messages"
    return f"runs, seen {span(silent_ms)} ago"
