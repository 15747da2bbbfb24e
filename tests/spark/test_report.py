"""The report: what it says first, that both forms are whole, that nothing in it can break out."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import msgspec

from twophase.spark.audit import AuditResult, Finding, RowCount
from twophase.spark.locations import Role, parse_coordinator, parse_named
from twophase.spark.readers.probe import Source
from twophase.spark.report import Report, make_report, to_html, to_json
from twophase.spark.taxonomy import Flag

VOID = {"meta", "br", "link", "img", "hr", "input"}
SOURCES = [
    Source(parse_coordinator("sqlite:///tp.db"), None, 0, has_prepared_at=False, slices=()),
    Source(parse_named(Role.PRODUCER, "bank-a=postgresql://u:pw@h/a"), "id", 0, has_prepared_at=True, slices=()),
]
RESULT = AuditResult(
    as_of_ms=1_800_000_000_000,
    messages=9,
    clean=8,
    violations=0,
    counts={flag.value: 0 for flag in Flag},
    primary={},
    unknown={},
    suspects=0,
    settled=0,
    waited=False,
    rows=(RowCount("coordinator", "coordinator", 9), RowCount("producer", "bank-a", 8)),
    samples=(),
)
LOST = Finding("<script>gid</script>", ("lost",), None, ({"source": "bank-a", "reason": "msg"},), (), ())


class WellFormed(HTMLParser):
    """Fails on an element that is not closed where it must be; collects the names of all."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.links += [value or "" for name, value in attrs if name in {"src", "href"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def report_of(result: AuditResult) -> Report:
    return make_report(result, SOURCES, grace_s=5, late_s=60, duration_s=1.26)


def broken() -> AuditResult:
    counts = RESULT.counts | {"lost": 1, "late": 2}
    return msgspec.structs.replace(RESULT, violations=1, counts=counts, samples=(LOST,), unknown={"history cleaned": 3})


def test_json_holds_verdict_counts_and_coverage() -> None:
    plain = json.loads(to_json(report_of(broken())))

    assert (plain["format"], plain["verdict"], plain["as_of"]) == (1, "violations", "2027-01-15T08:00:00.000Z")
    assert plain["result"]["counts"]["lost"] == 1
    assert plain["result"]["samples"][0]["producers"] == [{"source": "bank-a", "reason": "msg"}]
    assert {line["what"]: line["checked"] for line in plain["coverage"]} == {
        "coordinator against producers: lost, ghost, contrary": True,
        "coordinator against consumers: missing, orphan": False,
        "barrier against ledger: duplicate, missing, unguarded": False,
        "history cleaned": False,
    }


def test_no_password_stands_in_a_report() -> None:
    assert b"pw" not in to_json(report_of(RESULT))


def test_html_is_well_formed_and_stands_alone() -> None:
    for result in (RESULT, broken()):
        page = WellFormed()
        page.feed(to_html(report_of(result)))
        page.close()

        assert page.open == []
        assert page.links == []
        assert "script" not in page.seen


def test_html_says_the_verdict_first() -> None:
    for result, verdict in ((RESULT, "Clean"), (broken(), "Promises are broken")):
        headings = re.findall(r"<h\d[^>]*>([^<]*)<", to_html(report_of(result)))

        assert headings[0] == verdict


def test_an_audit_of_nothing_proves_nothing() -> None:
    assert "nothing is proven" in report_of(msgspec.structs.replace(RESULT, messages=0, clean=0)).sentence
