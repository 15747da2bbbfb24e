"""The output for the audience: progress while it runs, one table, both ledgers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo.stage import TOTAL, Stage
from demo.story import Scene


class Show:
    """Writes to one console."""

    def __init__(self, console: Console) -> None:
        self.console = console

    @contextmanager
    def progress(self, what: str, total: int | None) -> Iterator[tuple[Progress, TaskID]]:
        """Show a progress bar, or a spinner when the total is not known."""
        with Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
        ) as progress:
            yield progress, progress.add_task(what, total=total, note="")

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show a spinner while something starts, and a line with the time it took."""
        started_s = time.monotonic()
        with self.console.status(f"{what} …"):
            yield
        self.say(f"{what}: {time.monotonic() - started_s:.1f} s")

    def say(self, text: str) -> None:
        """Print one or more lines; never broken, so that the output can be pasted."""
        self.console.print(text, soft_wrap=True)

    def story(self, scenes: list[Scene]) -> None:
        """Print the table of cases."""
        table = Table(title="What was killed, and what became of the message", title_justify="left")
        for heading in ("case", "killed", "the check-back said", "outcome", "resolved after", ""):
            table.add_column(heading, overflow="fold", justify="right" if heading == "resolved after" else "left")
        for scene in scenes:
            table.add_row(
                scene.case,
                scene.killed,
                scene.check_back,
                scene.outcome,
                f"{scene.resolved_s:.1f} s",
                "[green]as promised[/]" if scene.as_expected else "[red]BROKEN[/]",
            )
        self.console.print(table)

    def ledgers(self, stage: Stage) -> bool:
        """Print both banks' ledgers side by side; True when no money was lost or made."""
        a, b = stage.balances()
        [[out, out_sum]] = stage.rows(stage.bank_a_db, "select count(*), coalesce(sum(amount), 0) from transfer_out")
        [[came, came_sum]] = stage.rows(stage.bank_b_db, "select count(*), coalesce(sum(amount), 0) from ledger")
        table = Table(title="The ledgers of both banks", title_justify="left")
        for heading in ("", "transfers", "moved", "balance"):
            table.add_column(heading, justify="left" if not heading else "right")
        table.add_row("bank A (out)", f"{out:,}", f"{out_sum:,}", f"{a:,}")
        table.add_row("bank B (in)", f"{came:,}", f"{came_sum:,}", f"{b:,}")
        self.console.print(table)
        balanced: bool = a + b == TOTAL and out == came and out_sum == came_sum
        verdict = "[green]nothing lost, nothing made[/]" if balanced else "[red]MONEY IS NOT CONSERVED[/]"
        self.console.print(f"Money in both banks: {a + b:,} of {TOTAL:,}: {verdict}")
        return balanced


def crowd_note(told: Counter[str]) -> str:
    """Return the other outcomes in words; these customers ask again."""
    others = [
        f"{count} {outcome.replace('_', ' ')}" for outcome, count in sorted(told.items()) if outcome != "committed"
    ]
    return ", ".join(others)
