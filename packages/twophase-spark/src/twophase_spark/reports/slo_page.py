"""The report of `slo`, for machines and for people.

Machines read JSON of a stable form, people one page with trend charts.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from twophase_spark.reports.charts import Lines, lines_of, number
from twophase_spark.reports.page import render
from twophase_spark.reports.report import when
from twophase_spark.slo import (
    DESTINATION,
    FORMAT,
    HOUR,
    PRODUCER,
    Alert,
    Group,
    Latency,
    LeftOut,
    Measured,
    Thresholds,
    unjudged,
)

ROWS_SHOWN = 50


class SloReport(msgspec.Struct, frozen=True):
    """A report of `slo`.

    `verdict`: kept, exceeded, nothing, when there was no message to measure, or incomplete. Incomplete: nothing that
    was measured exceeds a bound, and something was left out that may.
    """

    format: int
    verdict: str
    as_of: str
    since: str | None
    thresholds: Thresholds
    alerts: tuple[Alert, ...]
    measured: Measured

    @property
    def exit_code(self) -> int:
        """The exit code: 0 kept, 1 exceeded, 2 nothing measured, or not everything."""
        return {"kept": 0, "exceeded": 1}.get(self.verdict, 2)


def make_slo_report(measured: Measured, thresholds: Thresholds, alerts: tuple[Alert, ...]) -> SloReport:
    """Judge the measured groups."""
    if alerts:
        verdict = "exceeded"
    elif measured.whole is None:
        verdict = "nothing"
    else:
        verdict = "incomplete" if unjudged(measured, thresholds) else "kept"
    return SloReport(
        format=FORMAT,
        verdict=verdict,
        as_of=when(measured.as_of_ms) or "",
        since=when(measured.since_ms),
        thresholds=thresholds,
        alerts=alerts,
        measured=measured,
    )


def said_left_out(left_out: LeftOut) -> str:
    """Return a text for people about groups left out."""
    if left_out.dimension == HOUR:
        return f"hours left out: {left_out.groups}, the oldest"
    return f"{left_out.dimension}s left out, and without alerts: {left_out.groups}, those with the fewest messages"


def to_slo_json(report: SloReport) -> bytes:
    """Return the report as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def to_slo_html(report: SloReport) -> str:
    """Return the report as one page."""
    measured = report.measured
    return render(
        "slo.html",
        report=report,
        measured=measured,
        whole=measured.whole,
        left_out=[said_left_out(one) for one in measured.left_out],
        charts_drawn=_trends(measured.of(HOUR)),
        tables=[
            (title, measured.of(name)[:ROWS_SHOWN], max(len(measured.of(name)) - ROWS_SHOWN, 0))
            for title, name in (("By producer", PRODUCER), ("By destination", DESTINATION))
        ],
        number=number,
    )


def _trends(hours: Sequence[Group]) -> list[Lines]:
    if not hours:
        return []
    ordered = sorted(hours, key=lambda group: int(group.key))
    times = [int(group.key) for group in ordered]
    return [
        _percentiles("Decision, by hour", times, [group.decision for group in ordered]),
        _percentiles("Delivery, by hour", times, [group.delivery for group in ordered]),
        lines_of("Messages, by hour", "messages", times, [("final", "cool", [group.messages for group in ordered])]),
        lines_of(
            "Decided by check-back, and failed, by hour",
            "percent",
            times,
            [
                ("decided by check-back", "wait", [100 * group.check_back_rate for group in ordered]),
                ("failed", "bad", [100 * group.failed_rate for group in ordered]),
            ],
        ),
    ]


def _percentiles(title: str, times: list[int], latencies: Sequence[Latency]) -> Lines:
    half = [one.p50_s for one in latencies]
    most, nearly_all = [one.p95_s for one in latencies], [one.p99_s for one in latencies]
    return lines_of(
        title, "seconds", times, [("half", "good", half), ("95 %", "wait", most), ("99 %", "bad", nearly_all)]
    )
