"""`make soak`: the harness of `test_nodes`, for any number of messages.

    python -m tests.crash.nodes.soak [--messages 500000] [--seed N] [--report docs/soak-report.md]

It writes a report for people. Exit code 1 when a promise was broken; the report then names it, and the seed repeats the
faults. The audit on Spark must find the same, message by message; when it cannot be made, the report says so, and the
exit code is 2.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.crash.agreement import assert_agree
from tests.crash.nodes.audited import written
from tests.crash.nodes.cluster import LEASE_MS, NODES, Cluster, cluster
from tests.crash.nodes.load import Outcome, run
from tests.servers.postgres import PostgresServer
from tests.servers.server import ServerUnavailable
from twophase.core.errors import ConfigurationError
from twophase_spark._java import find_java
from twophase_spark.session import SessionSettings, open_session

MESSAGES = 500_000
AT_A_TIME = 64
PEACE_S = 4.0
REPORT = Path("docs/soak-report.md")


def main() -> int:
    """Run, write the report, and print the result in one line."""
    options = _options()
    console = Console()
    console.print(f"seed {options.seed}", highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="twophase-soak-"))
    server = PostgresServer()
    try:
        find_java(folder)
        server.start()
        with cluster(folder, server) as nodes:
            database = nodes.ask_text("select version()").split(" on ")[0]
            outcome = _run(nodes, options.messages, options.seed, console)
            audited, is_audited = _audit(nodes, outcome, folder, console)
    except ConfigurationError as error:
        console.print(f"[red]{error.message}[/red]")
        return 2
    except ServerUnavailable as error:
        console.print(f"[red]PostgreSQL is needed: {error}[/red]")
        return 2
    finally:
        server.stop()
    options.report.write_text(report(outcome, audited, database), encoding="utf-8")
    console.print(outcome.summary(), highlight=False)
    violations = outcome.findings.violations
    verdict = "[green]every promise was kept[/green]" if not violations else f"[red]broken: {violations}[/red]"
    console.print(f"{verdict}; the report is {options.report}, the nodes' logs are in {folder}")
    return 1 if violations else 0 if is_audited else 2


def _run(nodes: Cluster, messages: int, seed: int, console: Console) -> Outcome:
    columns = (
        TextColumn("messages"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[faults]} faults"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("messages", total=messages, faults=0)

        def show(done: int, faults: int) -> None:
            progress.update(task, completed=min(done, messages), faults=faults)
            if not console.is_terminal:
                print(f"{done} of {messages} messages, {faults} faults", flush=True)

        return run(nodes, messages=messages, rounds=2, seed=seed, at_a_time=AT_A_TIME, peace_s=PEACE_S, progress=show)


def _audit(nodes: Cluster, outcome: Outcome, folder: Path, console: Console) -> tuple[str, bool]:
    """Return the audit's result as words, and whether it could be made.

    A difference from the checker is a violation.
    """
    console.print("auditing the same databases")
    began_s = time.monotonic()
    locations = written(folder, nodes.dsn, outcome.ledger)
    try:
        with open_session(SessionSettings(cores=2, memory_mb=2048, name="soak")) as spark:
            result = assert_agree(spark, locations, outcome.findings)
    except AssertionError as difference:
        outcome.findings.violations.append(f"the audit and the checker do not agree: {difference}")
        return "does not agree with the checker", True
    except Exception as error:  # noqa: BLE001 -- any error: the checker's findings must not be lost with it
        console.print(f"[red]the audit could not be made: {error}[/red]")
        return f"could not be made: {type(error).__name__}", False
    agreed = f"{result.messages} messages, {result.violations} with a violation"
    return f"{agreed}, as the checker found; {time.monotonic() - began_s:.0f} s", True


def report(outcome: Outcome, audited: str, database: str) -> str:
    """Return the report as a page."""
    violations = outcome.findings.violations
    rate = outcome.messages / outcome.seconds
    ends = (
        f"{outcome.committed} committed and delivered, {outcome.rolled_back} rolled back and not called, "
        f"{outcome.unheard} unheard of"
    )
    verdict = "Every promise was kept." if not violations else "**Promises were broken:**"
    lines = [
        "# Soak report",
        "",
        "Written by `make soak`; how it works stands in [several nodes](how-to/run-several-nodes.md#how-it-is-tested).",
        "",
        verdict,
        *[f"* {sentence}" for sentence in violations],
        "",
        "| | |",
        "|---|---|",
        f"| when | {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())} |",
        f"| machine | {os.cpu_count()} cores, {platform.system()} {platform.release()}, {platform.machine()} |",
        f"| versions | twophase {version('twophase')}, Python {platform.python_version()}, {database} |",
        f"| set-up | {NODES} nodes, lease {LEASE_MS} ms, {AT_A_TIME} producers at a time; everything on this machine |",
        f"| seed | {outcome.seed} |",
        f"| messages | {outcome.messages} in {outcome.seconds:.0f} s ({rate:.0f}/s, faults included) |",
        f"| their ends | {ends} |",
        f"| at rest | {outcome.rest_seconds:.1f} s after the last message |",
        f"| audit | {audited} |",
        f"| history | {outcome.history_rows} rows followed while they were written, without a gap |",
        "",
        "*Unheard of*: no request of the message reached the store before its producer gave up, so nothing was",
        "acknowledged, no local transaction began, no branch was called, and no database knows its gid. All of this is",
        "checked; the audit and the history count the other messages.",
        "",
        "| Fault | Times |",
        "|---|---|",
        *[f"| {name.replace('_', ' ')} | {count} |" for name, count in sorted(outcome.faults.items())],
        "",
        "| Counted by producers and branches | Times |",
        "|---|---|",
        *[f"| {name} | {count} |" for name, count in sorted(outcome.counts.items())],
        "",
    ]
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak", description="Three nodes, one PostgreSQL, faults without end.")
    parser.add_argument("--messages", type=int, default=MESSAGES, help=f"how many to send (default {MESSAGES})")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="repeats the faults of a run")
    parser.add_argument("--report", type=Path, default=REPORT, help=f"where to write it (default {REPORT})")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
