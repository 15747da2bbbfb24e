"""The result for people and for machines: what was asked, what was found, what was not checked.

JSON has a stable form (`format`), the HTML page stands alone (no script, nothing loaded), and both say first whether
the promises held.
"""

from __future__ import annotations

import importlib.resources
from datetime import UTC, datetime

import jinja2
import msgspec

from twophase.core.lifecycle import State
from twophase.spark.audit import AuditResult
from twophase.spark.locations import Role
from twophase.spark.readers.probe import Source
from twophase.spark.taxonomy import MEANINGS, Meaning

FORMAT = 1


class Coverage(msgspec.Struct, frozen=True):
    """One comparison, and whether it could be made."""

    what: str
    checked: bool
    note: str


class SourceLine(msgspec.Struct, frozen=True):
    """One database of the audit. `rows`: read in the first pass; coordinators are counted together, on their first."""

    role: str
    name: str
    url: str
    rows: int | None
    horizon: str


class Report(msgspec.Struct, frozen=True):
    """Everything a reader gets. Times are ISO 8601 in UTC, durations in seconds."""

    format: int
    verdict: str
    sentence: str
    as_of: str
    grace_s: float
    late_s: float
    duration_s: float
    result: AuditResult
    coverage: tuple[Coverage, ...]
    sources: tuple[SourceLine, ...]


def make_report(
    result: AuditResult, sources: list[Source], *, grace_s: float, late_s: float, duration_s: float
) -> Report:
    """Put the result beside what it was made of."""
    return Report(
        format=FORMAT,
        verdict="violations" if result.violations else "clean",
        sentence=_sentence(result),
        as_of=when(result.as_of_ms) or "",
        grace_s=grace_s,
        late_s=late_s,
        duration_s=round(duration_s, 1),
        result=result,
        coverage=_coverage(result, sources),
        sources=_lines(result, sources),
    )


def to_json(report: Report) -> bytes:
    """The report as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def to_html(report: Report) -> str:
    """The report as one HTML page."""
    page = importlib.resources.files("twophase.spark") / "templates" / "report.html"
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["when"] = when
    environment.filters["state"] = lambda number: State(number).name.lower()
    return environment.from_string(page.read_text("utf-8")).render(
        report=report, result=report.result, meanings=MEANINGS, rank=rank
    )


def when(ms: int | None) -> str | None:
    """Milliseconds since 1970 as a time a person can read; None stays None, and 0 was never.

    >>> when(1_700_000_000_123), when(None)
    ('2023-11-14T22:13:20.123Z', None)
    """
    if not ms:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def rank(meaning: Meaning, count: int) -> str:
    """How a count is to be seen: `bad`, `wait` or `good`.

    >>> rank(MEANINGS[0], 1), rank(MEANINGS[0], 0), rank(MEANINGS[-1], 3)
    ('bad', 'good', 'wait')
    """
    if not count:
        return "good"
    return "bad" if meaning.violation else "wait"


def _sentence(result: AuditResult) -> str:
    if result.violations:
        one = result.violations == 1
        return f"{result.violations} of {result.messages} messages {'breaks' if one else 'break'} a promise."
    if not result.messages:
        return "There are no messages yet, so nothing is wrong and nothing is proven."
    return f"Every promise held for {result.messages} messages, as far as they could be checked."


def _coverage(result: AuditResult, sources: list[Source]) -> tuple[Coverage, ...]:
    given = {role: [source.location.name for source in sources if source.location.role is role] for role in Role}

    def line(what: str, role: Role, without: str) -> Coverage:
        names = given[role]
        return Coverage(what, bool(names), f"with {', '.join(names)}" if names else without)

    lines = [
        line("coordinator against producers: lost, ghost, contrary", Role.PRODUCER, "no --producer was given"),
        line("coordinator against consumers: missing, orphan", Role.CONSUMER, "no --consumer was given"),
        line("barrier against ledger: duplicate, missing, unguarded", Role.LEDGER, "no --ledger was given"),
    ]
    without = sorted(set(given[Role.CONSUMER]) - set(given[Role.LEDGER]))
    if given[Role.LEDGER] and without:
        lines.append(Coverage("ledgers of all consumers", checked=False, note=f"none for {', '.join(without)}"))
    lines += [
        Coverage(name, checked=False, note=f"{count} messages, for this reason not fully checked")
        for name, count in result.unknown.items()
    ]
    return tuple(lines)


def _lines(result: AuditResult, sources: list[Source]) -> tuple[SourceLine, ...]:
    rows: dict[tuple[str, str], int] = {(row.role, row.source): row.rows for row in result.rows}
    lines: list[SourceLine] = []
    for source in sources:
        location = source.location
        name = "coordinator" if location.role is Role.COORDINATOR else location.name
        horizon = when(source.horizon_ms) or "nothing cleaned"
        count = rows.pop((location.role.value, name), None)
        lines.append(SourceLine(location.role.value, location.name, location.shown, count, horizon))
    return tuple(lines)
