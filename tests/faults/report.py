"""The summary that is printed, and the page docs/faults-report.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from tests.faults.running import Outcome, Result
from tests.faults.table import EDGES, RULES, Fault

_COLUMNS: Final = (Outcome.CAUGHT, Outcome.TIMED_OUT, Outcome.SURVIVED, Outcome.BROKEN)
_HEAD: Final = """\
# Faults report

Written by `make faults`. Each fault replaces one text in the product's code that keeps a rule of correctness; the
tests that are named with it run against the changed copy, and one of them must fail. A fault is *caught* by a test that
fails, *timed out* when the tests did not end in time, and *survived* when all of them passed. Rules have the numbers of
the rules of correctness (`docs/explanation/rules.md`); *edges* are the rules at the edges of
[the promises](explanation/promises.md#rules-at-the-edges). The faults are data: `tests/faults/table/`.

## Runs

The share is that of the faults caught.

| Date | Commit | Faults | Caught | Timed out | Survived | Broken | Share |
|---|---|---|---|---|---|---|---|
"""
_RUN: Final = re.compile(r"^\| \d{4}-\d\d-\d\d [^\n]*\|$", re.MULTILINE)


def summary(results: Sequence[Result]) -> list[str]:
    """A table by rule, for a terminal."""
    return _table(results, "rule", lambda result: result.rule)


def page(before: str, date: str, commit: str, faults: Sequence[Fault], results: Sequence[Result], kept: int = 0) -> str:
    """Write the report; the runs that `before` lists stay in it.

    Arguments:
        kept: the number of results that are of an earlier run.
    """
    runs = [*_RUN.findall(before.partition("## Results")[0]), _run(date, commit, results)]
    lines = [_HEAD + "\n".join(runs), "", "## Results", ""]
    if kept:
        lines += [f"{kept} of these results are of earlier runs: their fault, its file and its tests are the same.", ""]
    lines += [*_table(results, "Rule", lambda result: result.rule)]
    lines += ["", *_table(results, "Room", lambda result: result.room)]
    known = {fault.name: fault for fault in faults}
    lines += ["", "## Not caught", ""]
    left = [result for result in results if result.outcome is not Outcome.CAUGHT]
    lines += [_left(known[result.name], result) for result in left] or ["None."]
    lines += ["", "## Caught", "", "| Rule | Fault | What it breaks | First test that failed |", "|---|---|---|---|"]
    lines += [_caught(known[result.name], result) for result in results if result.outcome is Outcome.CAUGHT]
    return "\n".join(lines) + "\n"


def _run(date: str, commit: str, results: Sequence[Result]) -> str:
    counts = [sum(result.outcome is outcome for result in results) for outcome in _COLUMNS]
    share = f"{100 * counts[0] / len(results):.0f} %" if results else "-"
    return "| " + " | ".join(map(str, (date, commit, len(results), *counts, share))) + " |"


def _table(results: Sequence[Result], title: str, group: Callable[[Result], int | str]) -> list[str]:
    """Counts by group, as Markdown that reads well in a terminal, too."""
    keys = sorted({group(result) for result in results}, key=_rank)
    rows = [(title, "faults", *(outcome.value for outcome in _COLUMNS))]
    rows += [(str(key), *_counts([result for result in results if group(result) == key])) for key in keys]
    rows.append(("all", *_counts(results)))
    width = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width[at]) for at, cell in enumerate(row)) + " |" for row in rows]
    return [lines[0], "|" + "|".join("-" * (size + 2) for size in width) + "|", *lines[1:]]


def _counts(results: Sequence[Result]) -> list[str]:
    return [str(len(results)), *(str(sum(one.outcome is outcome for one in results)) for outcome in _COLUMNS)]


def _rank(key: int | str) -> tuple[int, str]:
    if isinstance(key, int):
        return key, ""
    return (RULES + 1 if key == EDGES else 0), key


def _left(fault: Fault, result: Result) -> str:
    why = f" ({result.reason})" if result.reason else ""
    return f"* **{fault.name}**, rule {fault.rule}, `{fault.file}`: {result.outcome.value}{why}. {fault.breaks}"


def _caught(fault: Fault, result: Result) -> str:
    return f"| {fault.rule} | {fault.name} | {fault.breaks} | `{result.by}` |"
