"""The reports of an audit that follows: every finding by name, and nothing twice."""

from __future__ import annotations

import msgspec
import pytest

from tests.spark.test_report import LOST, RESULT, SOURCES
from twophase_spark.auditing.reporter import Reporter
from twophase_spark.coverage import Coverage
from twophase_spark.reports.report import Report, Terms, make_report
from twophase_spark.rules.comparison import AuditResult
from twophase_spark.rules.samples import Finding


def found(*samples: Finding, messages: int = 9, remarks: tuple[Coverage, ...] = (), duration_s: float = 1) -> Report:
    """Return the report of a round with these findings, each a class of its own kind."""
    primary = {flags[0]: 1 for flags in (sample.flags for sample in samples)}
    result: AuditResult = msgspec.structs.replace(
        RESULT, messages=messages, violations=len(samples), primary=primary, samples=samples
    )
    return make_report(result, SOURCES, Terms(since_ms=1, remarks=remarks), duration_s=duration_s)


def named(gid: str, *flags: str) -> Finding:
    return msgspec.structs.replace(LOST, gid=gid, flags=flags)


BEFORE = found(named("a", "lost"))
GAP = Coverage("coordinator bank: 7 messages of node 1", checked=False, note="cleaned")


@pytest.mark.parametrize(
    ("after", "is_shown"),
    [
        pytest.param(found(named("b", "lost")), True, id="one healed and another broke: the same numbers"),
        pytest.param(found(named("a", "lost", "orphan")), True, id="the same message broke another promise too"),
        pytest.param(found(named("a", "ghost")), True, id="another class"),
        pytest.param(found(), True, id="healed"),
        pytest.param(found(named("a", "lost"), remarks=(GAP,)), True, id="something could not be checked"),
        pytest.param(found(named("a", "lost"), messages=12, duration_s=3), False, id="more messages, the same finding"),
    ],
)
def test_a_report_is_shown_when_it_says_something_else(after: Report, is_shown: bool) -> None:
    shown: list[Report] = []
    said: list[str] = []
    teller = Reporter(shown.append, said.append)

    for report in (BEFORE, after, after):
        teller.tell(report)

    assert shown == ([BEFORE, after] if is_shown else [BEFORE])
    assert said == [after.sentence] * (1 if is_shown else 2)


def test_a_round_without_messages_and_news_says_nothing() -> None:
    shown: list[Report] = []
    said: list[str] = []
    teller = Reporter(shown.append, said.append)

    for _ in range(3):
        teller.tell(found(messages=0))

    assert (len(shown), said) == (1, [])
