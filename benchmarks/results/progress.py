"""Progress of a benchmark.

A terminal that can draw a bar shows one; any other output gets a line for each run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.compare import OnStep

_REDRAW_S: Final = 0.5


@contextlib.contextmanager
def shown(console: Console, steps: int, seconds_each: float) -> Iterator[OnStep]:
    """Show the progress of all runs; yield the function to which they report it."""
    if console.is_terminal and not console.is_dumb_terminal:
        with _bar(console, steps, seconds_each) as on_step:
            yield on_step
    else:
        yield _lines(console, steps, seconds_each)


def _lines(console: Console, steps: int, seconds_each: float) -> OnStep:
    """Write a line for each run when it ends."""
    step, ended = 0, False

    def on_step(name: str, passed_s: float, done: int) -> None:
        nonlocal step, ended
        if passed_s < seconds_each:
            ended = False
        elif not ended:
            step, ended = step + 1, True
            console.print(f"… {step} of {steps}: {name}, {done:,} messages", style="dim", markup=False)

    return on_step


@contextlib.contextmanager
def _bar(console: Console, steps: int, seconds_each: float) -> Iterator[OnStep]:
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        TextColumn("{task.fields[rate]:>8} msg/s"),
        TimeRemainingColumn(),
    )
    # The runs redraw the bar themselves: a thread of its own would take the interpreter from the generator.
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as bar:
        task = bar.add_task("", total=steps * seconds_each, rate="–")
        base, last, last_done = 0.0, 0.0, 0

        def on_step(name: str, passed_s: float, done: int) -> None:
            nonlocal base, last, last_done
            if passed_s < last:
                base, last, last_done = base + seconds_each, 0.0, 0
            if passed_s - last < _REDRAW_S and passed_s < seconds_each:
                return
            rate = (done - last_done) / max(passed_s - last, 1e-6)
            last, last_done = passed_s, done
            completed = base + min(passed_s, seconds_each)
            bar.update(task, completed=completed, description=name, rate=f"{rate:,.0f}")
            bar.refresh()

        yield on_step
