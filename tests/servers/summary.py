"""The end of a run: the parts that were not tested and why, and a closing line.

The closing line has the counts.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.servers.missing import PREFIX, REQUIRE_VARIABLE

_CLOSING = pytest.StashKey[str]()


def _reasons(reports: list[Any]) -> Counter[str]:
    """Count the tests that each missing part has cost."""
    texts = [report.longrepr[2] for report in reports if isinstance(report.longrepr, tuple)]
    plain = [text.removeprefix("Skipped: ") for text in texts]
    return Counter(text.removeprefix(PREFIX) for text in plain if text.startswith(PREFIX))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the section of what was not tested; keep the counts for the closing line."""
    stats = terminalreporter.stats
    reasons = _reasons(stats.get("skipped", []))
    if reasons:
        terminalreporter.section("NOT TESTED ON THIS MACHINE", sep="!", red=True, bold=True)
        for reason, tests in sorted(reasons.items()):
            terminalreporter.line(f"{tests} tests not run. {reason}", red=True)
        terminalreporter.line(f"({REQUIRE_VARIABLE}=all turns what can be had into failures.)")
    passed = len(stats.get("passed", [])) + len(stats.get("xfailed", []))
    failed = len(stats.get("failed", [])) + len(stats.get("error", [])) + len(stats.get("xpassed", []))
    skipped = len(stats.get("skipped", []))
    config.stash[_CLOSING] = f"{passed} passed, {failed} failed, {skipped} skipped"


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print the closing line, alone, after everything else."""
    closing = config.stash.get(_CLOSING, None)
    if closing is not None and not hasattr(config, "workerinput"):
        print(closing)
