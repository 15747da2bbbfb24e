"""The result of an audit for people and for machines.

It has what was asked, what was found, what was not checked. JSON has a stable form (`format`; a change that could break
a reader raises it), the HTML page is complete by itself (no script, nothing loaded), and both begin with whether the
promises held. Where too little was compared to decide that, they begin with that fact.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from twophase_spark.coverage import Coverage
from twophase_spark.inputs.increment import Run
from twophase_spark.inputs.queues import Queues
from twophase_spark.inputs.source import reference_skew_ms, skew_against
from twophase_spark.locations import Role
from twophase_spark.readers.ids import Kind
from twophase_spark.readers.probe import Source
from twophase_spark.rules.comparison import AuditResult

FORMAT = 2
_NO_QUEUES = Queues()
_REMEDIES = {"older than history": "; or nothing tells their birth: audit before history is cleaned"}
"""Remedies for messages that were not fully checked, by the reason."""


class Verdict(enum.StrEnum):
    """The end of an audit; the exit code follows from it."""

    CLEAN = "clean"
    VIOLATIONS = "violations"
    NOTHING = "nothing"
    """There was no message at all: right for a new system, wrong for a mistyped one."""
    UNCHECKED = "unchecked"
    """There were messages, and none of them could be checked completely."""
    INCOMPLETE = "incomplete"
    """Something could not be checked, and the audit was asked to be complete."""

    @property
    def exit_code(self) -> int:
        """The exit code: 0 clean, 1 a promise is broken, 2 could not check."""
        return {Verdict.CLEAN: 0, Verdict.VIOLATIONS: 1}.get(self, 2)


class Terms(msgspec.Struct, frozen=True):
    """The terms of an audit.

    `since_ms`: the verified point that it extends, None for a whole audit; `before_ms`: messages born before it need
    not be known, 0 for none; `run_id`: as in the report.
    """

    grace_s: float = 5.0
    late_s: float = 3600.0
    complete: bool = False
    allow_empty: bool = False
    since_ms: int | None = None
    remarks: tuple[Coverage, ...] = ()
    runs: tuple[Run, ...] = ()
    before_ms: int = 0
    run_id: str = ""


class SourceLine(msgspec.Struct, frozen=True):
    """One database of the audit.

    `rows`: read in the first pass; coordinators are counted together, on their first.
    """

    role: str
    name: str
    url: str
    rows: int | None
    horizon: str


class Report(msgspec.Struct, frozen=True):
    """Everything a reader gets. Times are ISO 8601 in UTC, durations in seconds.

    `run_id` is this run's in the table of findings.
    """

    format: int
    verdict: Verdict
    sentence: str
    as_of: str
    since: str | None
    grace_s: float
    late_s: float
    duration_s: float
    result: AuditResult
    coverage: tuple[Coverage, ...]
    sources: tuple[SourceLine, ...]
    runs: tuple[Run, ...]
    run_id: str = ""
    queues: Queues = Queues()


def make_report(
    result: AuditResult, sources: Sequence[Source], terms: Terms, queues: Queues = _NO_QUEUES, *, duration_s: float
) -> Report:
    """Combine the result with its sources, terms and queues."""
    coverage = _coverage(result, sources, terms, queues)
    verdict = Verdict.VIOLATIONS if queues.broken else _verdict(result, terms, coverage)
    return Report(
        format=FORMAT,
        verdict=verdict,
        sentence=_sentence(verdict, result, terms, queues),
        as_of=when(result.as_of_ms) or "",
        since=when(terms.since_ms),
        grace_s=terms.grace_s,
        late_s=terms.late_s,
        duration_s=round(duration_s, 1),
        result=result,
        coverage=coverage,
        sources=_lines(result, sources),
        runs=terms.runs,
        run_id=terms.run_id,
        queues=queues,
    )


def to_json(report: Report) -> bytes:
    """Return the report as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def when(ms: int | None) -> str | None:
    """Return milliseconds since 1970 as a time a person can read; None for None and 0.

    0 means never.

    >>> when(1_700_000_000_123), when(None)
    ('2023-11-14T22:13:20.123Z', None)
    """
    if not ms:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _verdict(result: AuditResult, terms: Terms, coverage: tuple[Coverage, ...]) -> Verdict:
    if result.violations:
        return Verdict.VIOLATIONS
    if not result.messages and terms.since_ms is None and not terms.allow_empty:
        return Verdict.NOTHING
    if result.proves_nothing:
        return Verdict.UNCHECKED
    if terms.complete and not all(line.checked for line in coverage):
        return Verdict.INCOMPLETE
    return Verdict.CLEAN


def _sentence(verdict: Verdict, result: AuditResult, terms: Terms, queues: Queues) -> str:
    if queues.broken:
        many = "queue breaks" if queues.broken == 1 else "queues break"
        return f"{queues.broken} {many} a promise, and {result.violations} of {result.messages} messages."
    if verdict is Verdict.VIOLATIONS:
        one = result.violations == 1
        return f"{result.violations} of {result.messages} messages {'breaks' if one else 'break'} a promise."
    if verdict is Verdict.NOTHING:
        return "There are no messages in any of these databases, so nothing is proven. Are they the right ones?"
    if verdict is Verdict.UNCHECKED:
        none = f"None of the {result.unchecked} messages could be checked completely, so nothing is proven."
        return f"{none}{_acknowledged(result)}"
    if verdict is Verdict.INCOMPLETE:
        return "Nothing is broken as far as it was checked, and not everything was."
    if not result.messages:
        return "There are no messages yet." if terms.since_ms is None else "There is no new message since the last run."
    held = result.messages - result.acknowledged
    return f"Every promise held for {held} messages, as far as they could be checked.{_acknowledged(result)}"


def _acknowledged(result: AuditResult) -> str:
    many = "1 more is" if result.acknowledged == 1 else f"{result.acknowledged} more are"
    return f" {many} broken and acknowledged." if result.acknowledged else ""


def _coverage(result: AuditResult, sources: Sequence[Source], terms: Terms, queues: Queues) -> tuple[Coverage, ...]:
    return (
        *_compared_sides(sources),
        *_ledger_conditions(result, sources),
        *_queues(queues),
        *_services_without_ledger(sources),
        *_not_fully_checked(result),
        *_perhaps_swapped(result, sources),
        *_set_aside(result, terms),
        *_spellings(sources),
        *_clocks(sources),
        *terms.remarks,
    )


def _names(sources: Sequence[Source], role: Role) -> list[str]:
    return [source.location.name for source in sources if source.location.role is role]


def _compared_sides(sources: Sequence[Source]) -> Iterator[Coverage]:
    for what, role, without in (
        ("coordinator against producers: lost, ghost, contrary", Role.PRODUCER, "no --producer was given"),
        ("coordinator against consumers: missing, orphan", Role.CONSUMER, "no --consumer was given"),
        ("barrier against ledger: duplicate, missing, unguarded", Role.LEDGER, "no --ledger was given"),
    ):
        names = _names(sources, role)
        yield Coverage(what, bool(names), f"with {', '.join(names)}" if names else without)


def _ledger_conditions(result: AuditResult, sources: Sequence[Source]) -> Iterator[Coverage]:
    for source in sources:
        location = source.location
        if location.where:
            note = f"{location.where}; an effect that has other rows only is left out, and not missing"
            yield Coverage(f"ledger of {location.name}: rows that count", checked=True, note=note)
        if location.agrees:
            note = f"effects with their payloads, by {location.agrees}"
            yield Coverage(f"ledger of {location.name} against payloads: differing", checked=True, note=note)
            count = result.incomparable.get(location.name)
            if count:
                note = f"{count} effects for which `agrees` is neither true nor false; they are in no class"
                yield Coverage(f"some payloads of the ledger of {location.name}", checked=False, note=note)


def _queues(queues: Queues) -> Iterator[Coverage]:
    if queues.queues:
        note = f"{queues.entries} entries in {queues.queues} queues, {queues.dead_letters} of them dead letters"
        yield Coverage("coordinator against its queues: lost, ghost, duplicate", checked=True, note=note)


def _services_without_ledger(sources: Sequence[Source]) -> Iterator[Coverage]:
    with_ledger = set(_names(sources, Role.LEDGER))
    without = sorted(set(_names(sources, Role.CONSUMER)) - with_ledger)
    if with_ledger and without:
        yield Coverage("ledgers of all consumers", checked=False, note=f"none for {', '.join(without)}")


def _not_fully_checked(result: AuditResult) -> Iterator[Coverage]:
    for name, count in sorted(result.unknown.items()):
        note = f"{count} messages, for this reason not fully checked{_REMEDIES.get(name, '')}"
        yield Coverage(name, checked=False, note=note)


def _perhaps_swapped(result: AuditResult, sources: Sequence[Source]) -> Iterator[Coverage]:
    """Yield remarks about databases that may be the wrong ones."""
    if result.swapped and any(source.location.urls for source in sources if source.location.role is Role.CONSUMER):
        note = f"{result.swapped} messages lack an effect in one service and have one too many in another"
        yield Coverage("databases or urls of services, perhaps swapped", checked=False, note=note)
    yield from _other_databases(result, sources)
    if result.unmatched:
        note = f"{result.unmatched} messages lack a row of a branch there and have one of a branch without an effect"
        yield Coverage("ledgers, perhaps swapped, or with branch ids of another form", checked=False, note=note)


def _set_aside(result: AuditResult, terms: Terms) -> Iterator[Coverage]:
    """Yield remarks about messages that count otherwise than usual."""
    if result.acknowledged:
        note = f"{result.acknowledged} messages are broken as the baseline has them"
        yield Coverage("acknowledged by the baseline", checked=True, note=note)
    if terms.before_ms:
        note = "no coordinator need know them (--since)"
        yield Coverage(f"messages born before {when(terms.before_ms)}", checked=False, note=note)
    if result.doubled:
        note = f"{result.doubled} messages; each was looked at in its last state, and is open while either has it open"
        yield Coverage("one gid at two coordinators", checked=False, note=note)


def _spellings(sources: Sequence[Source]) -> Iterator[Coverage]:
    unspelled = [source.location.name for source in sources if source.unspells and source.gids is Kind.UUID]
    if unspelled:
        note = f"as the ledger of {', '.join(unspelled)} keeps them"
        yield Coverage("gids that are UUIDs, in one spelling", checked=True, note=note)


def _clocks(sources: Sequence[Source]) -> Iterator[Coverage]:
    reference_ms = reference_skew_ms(sources)
    for source in sources:
        skew_ms = skew_against(source, reference_ms)
        if skew_ms:
            how = f"{abs(skew_ms) / 1000:.1f} s {'ahead of' if skew_ms > 0 else 'behind'} the coordinators'"
            name = f"clock of {source.location.role} {source.location.name}"
            yield Coverage(name, checked=False, note=f"{how}; horizons are taken with that margin")


def _other_databases(result: AuditResult, sources: Sequence[Source]) -> Iterator[Coverage]:
    """Yield remarks about databases that may be the wrong ones, or be given twice."""
    for one in result.services:
        if one.violations == one.messages > 1:
            note = f"each of its {one.messages} messages is broken there; is it the one that these coordinators know?"
            yield Coverage(f"database of {one.role} {one.service}, perhaps another", checked=False, note=note)
    names: dict[tuple[str, str], list[str]] = {}
    for source in sources:
        if source.identity is not None:
            names.setdefault((source.location.role.value, source.identity), []).append(source.location.name)
    for (role, _), several in names.items():
        if len(several) > 1:
            note = "their barrier tables have one identity: one database given twice, or a copy"
            yield Coverage(f"{role} {', '.join(several)}, perhaps the same", checked=False, note=note)


def _lines(result: AuditResult, sources: Sequence[Source]) -> tuple[SourceLine, ...]:
    rows: dict[tuple[str, str], int] = {(row.role, row.source): row.rows for row in result.rows}
    lines: list[SourceLine] = []
    for source in sources:
        location = source.location
        name = "coordinator" if location.role is Role.COORDINATOR else location.name
        horizon = when(source.horizon_ms) or "nothing cleaned"
        count = rows.pop((location.role.value, name), None)
        lines.append(SourceLine(location.role.value, location.name, location.shown, count, horizon))
    return tuple(lines)
