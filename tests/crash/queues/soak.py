"""`make soak PARTS=queues`: any number of messages through RocketMQ's port.

    python -m tests.crash.queues.soak [--messages 500000] [--seed N] [--report docs/soak-queues-report.md]

Half of the messages go through one server on SQLite, half through two on one PostgreSQL. It writes a report for
people. Exit code 1 when a promise was broken; the report then names it, and the seed repeats the faults.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.crash.planted import BUGS
from tests.crash.queues.ledger import CONFIRMED_S
from tests.crash.queues.load import GROUPS, REST_S, TOPICS, Outcome, run
from tests.crash.queues.servers import LEASE_MS
from tests.servers.plugin import running
from tests.servers.postgres import PostgresServer
from tests.servers.server import ServerUnavailable

MESSAGES: Final = 500_000
REPORT: Final = Path("docs/soak-queues-report.md")
SETUPS: Final = {"sqlite": 1, "postgres": 2}
"""The number of servers on each store."""
_TITLES: Final = {"sqlite": "One server, SQLite", "postgres": "Two servers, PostgreSQL"}


def main() -> int:
    """Run, write the report, and print the result in one line."""
    options = _options()
    console = Console()
    console.print(f"seed {options.seed}", highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="twophase-soak-queues-"))
    chosen = options.store or list(SETUPS)
    outcomes: dict[str, Outcome] = {}
    try:
        for kind in chosen:
            outcomes[kind] = _run(kind, folder, options, options.messages // len(chosen), console)
    except ServerUnavailable as error:
        console.print(f"[red]PostgreSQL is needed: {error}[/red]")
        return 2
    options.report.write_text(report(outcomes, options.seed), encoding="utf-8")
    broken = [sentence for outcome in outcomes.values() for sentence in outcome.ledger.sentences()]
    verdict = "[green]every promise was kept[/green]" if not broken else f"[red]broken: {broken}[/red]"
    console.print(f"{verdict}; the report is {options.report}, the servers' logs are in {folder}")
    return 1 if broken else 0


def _run(kind: str, folder: Path, options: argparse.Namespace, messages: int, console: Console) -> Outcome:
    columns = (
        TextColumn(_TITLES[kind]),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[faults]} faults, {task.fields[broken]} broken promises"),
        TimeElapsedColumn(),
    )
    place = folder / kind
    place.mkdir()
    with _store(kind, place) as url, Progress(*columns, console=console) as progress:
        task = progress.add_task(kind, total=messages, faults=0, broken=0)

        def show(done: int, faults: int, broken: int) -> None:
            progress.update(task, completed=min(done, messages), faults=faults, broken=broken)
            if not console.is_terminal:
                print(f"{kind}: {done} of {messages} messages, {faults} faults, {broken} broken promises", flush=True)

        with asyncio.Runner() as runner:
            return runner.run(
                run(
                    place,
                    url,
                    SETUPS[kind],
                    messages=messages,
                    seed=options.seed,
                    planted=options.planted,
                    peace_s=options.peace,
                    rest_s=options.rest,
                    progress=show,
                )
            )


@contextmanager
def _store(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'store.db'}"
        return
    with running(PostgresServer()) as server:
        yield server.create_database("twophase").dsn


def report(outcomes: dict[str, Outcome], seed: int) -> str:
    """Return the report as a page."""
    broken = [sentence for outcome in outcomes.values() for sentence in outcome.ledger.sentences()]
    total = sum(len(outcome.ledger) for outcome in outcomes.values())
    lines = [
        "# Soak report of queues",
        "",
        "Written by `make soak PARTS=queues`. Clients of RocketMQ's port send plain, delayed and grouped messages,",
        "and halves that they commit, roll back or leave; two groups of consumers acknowledge, fail, extend and die.",
        "Servers are killed by SIGKILL at random and at failpoints, and frozen for longer than their lease.",
        "",
        "Every promise was kept." if not broken else "**Promises were broken:**",
        *[f"* {sentence}" for sentence in broken],
        "",
        f"{total} messages; the full run has {MESSAGES}.",
        "",
        "| | |",
        "|---|---|",
        f"| when | {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())} |",
        f"| machine | {os.cpu_count()} cores, {platform.system()} {platform.release()}, {platform.machine()} |",
        f"| versions | twophase {version('twophase')}, Python {platform.python_version()} |",
        f"| set-up | {len(TOPICS)} topics, {len(GROUPS)} groups, lease {LEASE_MS} ms; everything on this machine |",
        f"| seed | {seed} |",
        "",
        "*Lost*: promised, and not in its queue, or never given to a group. *Ghost*: given though never sent, rolled",
        "back or not due. *Duplicated*: given after its acknowledgement was confirmed, or while another consumer had",
        "it. *Out of order*: within a message group. A late acknowledgement is answered as a good one, so one counts",
        f"as confirmed only within {CONFIRMED_S} s of the call that brought it, by the same life of the server.",
    ]
    for kind, outcome in outcomes.items():
        lines += ["", f"## {_TITLES[kind]}", "", *_table(outcome)]
    return "\n".join(lines) + "\n"


def _table(outcome: Outcome) -> Sequence[str]:
    count = len(outcome.ledger)
    return [
        f"{count} messages in {outcome.seconds:.0f} s ({count / outcome.seconds:.0f}/s, faults included), at rest",
        f"{outcome.rest_s:.1f} s after the last.",
        "",
        "| Fault | Times |",
        "|---|---|",
        *[f"| {name} | {times} |" for name, times in sorted(outcome.faults.items())],
        "",
        "| Counted | Times |",
        "|---|---|",
        *[f"| {name} | {times} |" for name, times in sorted(outcome.ledger.counts.items())],
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak PARTS=queues", description="Queues through failing servers.")
    parser.add_argument("--messages", type=int, default=MESSAGES, help=f"how many to send (default {MESSAGES})")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="repeats the faults of a run")
    parser.add_argument("--report", type=Path, default=REPORT, help=f"where to write it (default {REPORT})")
    parser.add_argument("--store", action="append", choices=SETUPS, help="only this one")
    parser.add_argument("--peace", type=float, default=8.0, help="most seconds between two faults (default 8)")
    parser.add_argument("--rest", type=float, default=REST_S, help="most seconds until all is given, after the last")
    parser.add_argument("--planted", choices=BUGS, help="a bug in each server, which must be found")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
