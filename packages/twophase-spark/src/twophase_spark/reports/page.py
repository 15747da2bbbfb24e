"""The report as one HTML page.

It is self-contained, without script, readable in the light and in the dark.
"""

from __future__ import annotations

import jinja2

from twophase.core.lifecycle import State
from twophase_spark.reports.charts import Bar, Lines, Share, bars, lines_of, shares
from twophase_spark.reports.report import Report, Verdict, when
from twophase_spark.rules.comparison import AuditResult
from twophase_spark.rules.samples import Finding
from twophase_spark.rules.taxonomy import MEANINGS, VIOLATIONS, Flag, Meaning, meaning_of

HEADLINES = {
    Verdict.CLEAN: "Clean",
    Verdict.VIOLATIONS: "Promises are broken",
    Verdict.NOTHING: "Nothing to check",
    Verdict.UNCHECKED: "Could not check",
    Verdict.INCOMPLETE: "Not everything was checked",
}
SHOWN_OF_EACH = 10


def to_html(report: Report) -> str:
    """Return the report as one HTML page."""
    return render(
        "report.html",
        report=report,
        result=report.result,
        headline=HEADLINES[report.verdict],
        meanings=MEANINGS,
        rank=rank,
        whole=_whole(report.result),
        primary=_primary(report.result),
        rows=_rows(report.result),
        trend=_trend(report),
        sampled=_sampled(report.result),
    )


def render(template: str, **values: object) -> str:
    """Return a page of `templates/`, with everything that comes from outside escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("twophase_spark.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["when"] = when
    environment.filters["state"] = _state_name
    return environment.get_template(template).render(**values)


def rank(meaning: Meaning, count: int) -> str:
    """Return the rank of a count: `bad`, `wait` or `good`.

    >>> rank(MEANINGS[0], 1), rank(MEANINGS[0], 0), rank(MEANINGS[-1], 3)
    ('bad', 'good', 'wait')
    """
    if not count:
        return "good"
    return "bad" if meaning.violation else "wait"


def _state_name(number: int) -> str:
    return State(number).name.lower() if number in list(State) else f"state {number}"


def _whole(result: AuditResult) -> tuple[Share, ...]:
    rest = result.messages - result.clean - result.violations - result.acknowledged
    return shares(
        (
            ("in order", result.clean, "good"),
            ("not done, left out, or not checkable", rest, "wait"),
            ("broken and acknowledged", result.acknowledged, "wait"),
            ("broken", result.violations, "bad"),
        )
    )


def _primary(result: AuditResult) -> tuple[Bar, ...]:
    return bars([(meaning_of(Flag(name)).title, count, str(count), "bad") for name, count in result.primary.items()])


def _rows(result: AuditResult) -> tuple[Bar, ...]:
    return bars([(f"{row.role} {row.source}", row.rows, str(row.rows), "cool") for row in result.rows])


def _trend(report: Report) -> Lines | None:
    if len(report.runs) < 2:
        return None
    runs = report.runs
    return lines_of(
        "Broken and carried over, by run",
        "messages",
        [run.as_of_ms for run in runs],
        [("broken", "bad", [run.violations for run in runs]), ("carried over", "wait", [run.carried for run in runs])],
    )


def _sampled(result: AuditResult) -> dict[str, list[Finding]]:
    return {
        flag.value: [sample for sample in result.samples if flag.value in sample.flags][
            : None if flag in VIOLATIONS else SHOWN_OF_EACH
        ]
        for flag in Flag
    }
