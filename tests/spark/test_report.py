"""The report: its beginning, both of its forms, and its escaping.

Both forms are complete, and nothing in the report can break out.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from twophase.cli.app import COMMANDS
from twophase.cli.operating.messages import app as messages
from twophase_spark.inputs.increment import Run
from twophase_spark.inputs.queues import BrokenQueue, Queues
from twophase_spark.inputs.source import scope_of
from twophase_spark.locations import Role, parse_coordinator, parse_named
from twophase_spark.readers.probe import Source
from twophase_spark.reports.junit import to_junit
from twophase_spark.reports.page import to_html
from twophase_spark.reports.report import Report, Terms, Verdict, make_report, to_json
from twophase_spark.rules.comparison import AuditResult, RowCount
from twophase_spark.rules.repairs import Evidence, Repair, repairs_of
from twophase_spark.rules.samples import Finding
from twophase_spark.rules.scope import ServiceScope, Table
from twophase_spark.rules.services import ServiceCount
from twophase_spark.rules.taxonomy import MEANINGS, Flag

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
LOST = Finding("<script>gid</script>", ("lost",), (), None, ({"source": "bank-a", "reason": "msg"},), (), (), ())


class WellFormed(HTMLParser):
    """A parser that fails on an element that is not closed where it must be.

    It collects the names of all elements.
    """

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
    return make_report(result, SOURCES, Terms(grace_s=5, late_s=60), duration_s=1.26)


def broken() -> AuditResult:
    counts = RESULT.counts | {"lost": 1, "late": 2}
    return msgspec.structs.replace(
        RESULT, violations=1, counts=counts, samples=(LOST,), unknown={"older than history": 3}
    )


def test_json_holds_verdict_counts_and_coverage() -> None:
    plain = json.loads(to_json(report_of(broken())))

    assert (plain["format"], plain["verdict"], plain["as_of"]) == (2, "violations", "2027-01-15T08:00:00.000Z")
    assert plain["result"]["counts"]["lost"] == 1
    assert plain["result"]["samples"][0]["producers"] == [{"source": "bank-a", "reason": "msg"}]
    assert {line["what"]: line["checked"] for line in plain["coverage"]} == {
        "coordinator against producers: lost, ghost, contrary": True,
        "coordinator against consumers: missing, orphan": False,
        "barrier against ledger: duplicate, missing, unguarded": False,
        "older than history": False,
    }


def test_what_history_has_forgotten_has_its_number_and_a_remedy() -> None:
    [line] = [line for line in report_of(broken()).coverage if line.what == "older than history"]

    assert line.note == (
        "3 messages, for this reason not fully checked; or nothing tells their birth: audit before history is cleaned"
    )


def test_a_condition_on_a_ledgers_rows_says_what_it_leaves_out() -> None:
    location = parse_named(Role.LEDGER, "bank-b=sqlite:///b.db#booking?where=voided_at+is+null")
    sources = [*SOURCES, Source(location, None, 0, has_prepared_at=False, slices=())]

    report = make_report(RESULT, sources, Terms(grace_s=5, late_s=60), duration_s=1.26)

    [line] = [line for line in report.coverage if line.what == "ledger of bank-b: rows that count"]
    assert (line.checked, line.note) == (
        True,
        "voided_at is null; an effect that has other rows only is left out, and not missing",
    )


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


def test_no_text_of_a_database_is_markup_in_any_report() -> None:
    """A text stands in every cell that one of a foreign database reaches."""
    evil = "<img src=x onerror=alert(1)>\"'&"
    message: dict[str, object] = {"state": 3, "decided_by": evil, "reason": evil, "created_ms": 1, "finished_ms": 2}
    message["branches"] = [{"branch_id": evil, "url": f"http://{evil}"}]
    message["entries"] = [0]
    rows = ({"source": evil, "reason": evil, "branch_id": evil},)
    found = Finding(evil, ("lost",), (evil,), message, rows, rows, rows, (Repair("lost", evil, evil),))
    queues = Queues(queues=1, broken=1, shown=(BrokenQueue(evil, evil, 0, (evil,)),))
    result = msgspec.structs.replace(broken(), samples=(found,))
    report = make_report(result, SOURCES, Terms(grace_s=5, late_s=60), queues, duration_s=1.26)

    page = WellFormed()
    page.feed(to_html(report))
    page.close()

    assert page.open == []
    assert page.links == []
    assert not {"img", "script"} & page.seen
    assert json.loads(to_json(report))["result"]["samples"][0]["gid"] == evil
    assert evil in "".join(ET.fromstring(to_junit(report)).itertext())


def test_html_says_the_verdict_first() -> None:
    for result, verdict in ((RESULT, "Clean"), (broken(), "Promises are broken")):
        headings = re.findall(r"<h\d[^>]*>([^<]*)<", to_html(report_of(result)))

        assert headings[0] == verdict


def test_a_broken_queue_breaks_a_promise_in_every_report() -> None:
    queues = Queues(queues=2, entries=7, dead_letters=3, broken=1, shown=(BrokenQueue("c", "orders", 4, ("1 lost",)),))

    report = make_report(RESULT, SOURCES, Terms(), queues, duration_s=1)

    assert (report.verdict, report.verdict.exit_code) == (Verdict.VIOLATIONS, 1)
    assert report.sentence == "1 queue breaks a promise, and 0 of 9 messages."
    assert "7 entries in 2 queues, 3 of them dead letters" in {line.note for line in report.coverage}
    assert "<td>orders 4</td><td>c</td>" in to_html(report)
    [failure] = ET.fromstring(to_junit(report)).iter("failure")
    assert failure.text == "orders 4: 1 lost"


def test_an_audit_of_nothing_proves_nothing() -> None:
    assert "nothing is proven" in report_of(msgspec.structs.replace(RESULT, messages=0, clean=0)).sentence


def test_no_message_since_the_last_run_is_clean() -> None:
    empty = msgspec.structs.replace(RESULT, messages=0, clean=0)

    report = make_report(empty, SOURCES, Terms(since_ms=1_700_000_000_000), duration_s=1)

    assert (report.verdict, report.verdict.exit_code) == (Verdict.CLEAN, 0)
    assert report.sentence == "There is no new message since the last run."


def test_where_nothing_could_be_determined_nothing_is_clean() -> None:
    unchecked = msgspec.structs.replace(RESULT, clean=0, counts=RESULT.counts | {"unchecked": 9})

    assert report_of(unchecked).verdict.exit_code == 2
    at_work = msgspec.structs.replace(unchecked, counts=RESULT.counts | {"unchecked": 6, "in_flight": 3})
    assert report_of(at_work).verdict is Verdict.UNCHECKED
    stopped = msgspec.structs.replace(unchecked, counts=RESULT.counts | {"unchecked": 6, "stopped": 3})
    assert report_of(stopped).verdict is Verdict.CLEAN
    left_out = msgspec.structs.replace(unchecked, counts=RESULT.counts | {"unchecked": 6, "left_out": 3})
    assert report_of(left_out).verdict is Verdict.CLEAN


def test_a_baseline_makes_no_proof_of_what_could_not_be_compared() -> None:
    counts = RESULT.counts | {"unchecked": 8}
    known = msgspec.structs.replace(RESULT, clean=0, acknowledged=1, counts=counts)
    all_known = msgspec.structs.replace(RESULT, clean=0, acknowledged=9)

    assert report_of(known).verdict is Verdict.UNCHECKED
    assert report_of(known).sentence.startswith("None of the 8 messages could be checked completely")
    assert report_of(known).sentence.endswith("1 more is broken and acknowledged.")
    assert report_of(all_known).verdict is Verdict.CLEAN
    assert "broken and acknowledged: 9 (100 %)" in to_html(report_of(all_known))
    assert "not done, left out, or not checkable:" not in to_html(report_of(all_known))


def test_who_asks_for_completeness_gets_no_clean_without_it() -> None:
    partly = make_report(RESULT, SOURCES, Terms(), duration_s=1)
    wholly = make_report(RESULT, SOURCES, Terms(complete=True), duration_s=1)

    assert [partly.verdict.exit_code, wholly.verdict.exit_code] == [0, 2]


def test_clocks_that_differ_are_reported_and_widen_the_horizon() -> None:
    store, bank = SOURCES
    late_bank = msgspec.structs.replace(bank, skew_ms=-42_000, horizon_ms=1_000_000)

    report = make_report(RESULT, [store, late_bank], Terms(), duration_s=1)

    [line] = [line for line in report.coverage if line.what.startswith("clock")]
    assert (line.what, line.checked) == ("clock of producer bank-a", False)
    assert line.note.startswith("42.0 s behind the coordinators'")
    assert scope_of([store, late_bank], 0, 0).producer_horizon_ms == 1_042_000
    assert scope_of([store, msgspec.structs.replace(late_bank, skew_ms=900)], 0, 0).producer_horizon_ms == 1_000_000


def test_the_form_of_the_json_is_stable() -> None:
    """A change of this form must raise FORMAT when a reader could break."""
    plain = json.loads(to_json(report_of(broken())))

    assert sorted(plain) == [
        *("as_of", "coverage", "duration_s", "format", "grace_s", "late_s", "queues", "result", "run_id", "runs"),
        *("sentence", "since", "sources", "verdict"),
    ]
    assert sorted(plain["queues"]) == ["broken", "dead_letters", "entries", "queues", "shown"]
    assert sorted(plain["result"]) == [
        *(
            "acknowledged",
            "as_of_ms",
            "clean",
            "counts",
            "doubled",
            "incomparable",
            "messages",
            "primary",
            "rows",
            "samples",
            "services",
            "settled",
        ),
        *("suspects", "swapped", "unknown", "unmatched", "violations", "waited"),
    ]
    assert sorted(plain["result"]["samples"][0]) == [
        *("barriers", "differing", "flags", "gid", "ledger", "message", "producers", "repairs", "unknown"),
    ]
    assert set(plain["result"]["counts"]) == {flag.value for flag in Flag}


def test_each_service_has_a_line_with_its_numbers() -> None:
    none = {flag.value: 0 for flag in Flag}
    services = (
        ServiceCount("producer", "bank-a", 9, None, 1, none | {"lost": 1, "unchecked": 4}),
        ServiceCount("consumer", "<bank-b>", 8, 11, 0, none | {"late": 2, "in_flight": 3}),
    )
    report = report_of(msgspec.structs.replace(broken(), services=services))

    assert [one["counts"]["lost"] for one in json.loads(to_json(report))["result"]["services"]] == [1, 0]
    table = to_html(report).partition("<h2>By service</h2>")[2].partition("</table>")[0]
    rows = [re.findall(r"<t[hd][^>]*>([^<]*)<", row) for row in table.split("<tr>")[1:]]
    assert [dict(zip(rows[0], row, strict=True)) for row in rows[1:]] == [
        dict.fromkeys(rows[0], "0")
        | {"role": "producer", "service": "bank-a", "messages": "9", "branches": "–", "broken": "1", "lost": "1"}
        | {"not checkable": "4"},
        dict.fromkeys(rows[0], "0")
        | {"role": "consumer", "service": "&lt;bank-b&gt;", "messages": "8", "branches": "11", "open": "5"},
    ]


def test_a_database_that_is_perhaps_another_or_given_twice_is_named() -> None:
    none = {flag.value: 0 for flag in Flag}
    services = (
        ServiceCount("producer", "bank-a", 9, None, 1, none | {"lost": 1}),
        ServiceCount("consumer", "bank-b", 9, 0, 9, none | {"missing_effect": 9}),
        ServiceCount("consumer", "bank-c", 1, 0, 1, none | {"missing_effect": 1}),
    )
    result = msgspec.structs.replace(broken(), services=services)
    twice = [parse_named(Role.CONSUMER, f"{name}=sqlite:///{name}.db") for name in ("b", "c")]
    sources = [Source(location, "id", 0, has_prepared_at=True, slices=()) for location in twice]

    report = make_report(result, [*SOURCES, *sources], Terms(), duration_s=1)

    assert [line.what for line in report.coverage if "perhaps" in line.what] == [
        "database of consumer bank-b, perhaps another",
        "consumer b, c, perhaps the same",
    ]


def test_services_that_are_perhaps_swapped_are_named() -> None:
    swapped = msgspec.structs.replace(RESULT, swapped=2)
    bank = parse_named(Role.CONSUMER, "bank-b=sqlite:///b.db#barrier?urls=http://bank-b/")
    consumer = Source(bank, "id", 0, has_prepared_at=True, slices=())
    report = make_report(swapped, [*SOURCES, consumer], Terms(), duration_s=1)

    assert [line.note for line in report.coverage if "swapped" in line.what] == [
        "2 messages lack an effect in one service and have one too many in another"
    ]


def test_junit_has_a_case_for_every_promise_and_survives_any_gid() -> None:
    strange = msgspec.structs.replace(LOST, gid="a\x00b<&>\ud800")
    suite = ET.fromstring(to_junit(report_of(msgspec.structs.replace(broken(), samples=(strange,)))))

    cases = {case.get("name"): case for case in suite}
    assert (suite.get("failures"), suite.get("errors")) == ("1", "0")
    assert {meaning.title for meaning in MEANINGS if meaning.violation} <= set(cases)
    failure = cases["lost"].find("failure")
    assert failure is not None
    assert failure.text is not None
    assert "a\ufffdb<&>" in failure.text
    assert cases["older than history"].find("skipped") is not None


def test_junit_of_an_empty_audit_is_an_error() -> None:
    suite = ET.fromstring(to_junit(report_of(msgspec.structs.replace(RESULT, messages=0, clean=0))))

    assert suite.get("errors") == "1"


@pytest.mark.parametrize("flag", [flag for flag in Flag if flag not in {Flag.IN_FLIGHT, Flag.UNCHECKED}])
def test_every_class_has_a_command(flag: Flag) -> None:
    message = {"branches": [{"branch_id": "01", "url": "http://b/in?x=1"}]}

    rows = (("bank-b", "01"),)
    evidence = Evidence(missing=("01",), unbooked=rows, unguarded=rows, effects=("bank-b",))

    steps = repairs_of("it's; rm -rf /", [flag.value], message, evidence)

    assert steps
    for step in steps:
        assert shlex.split(step.command) if not step.command.startswith("--") else "'it''s; rm -rf /'" in step.command


BRANCHES = {"branches": [{"branch_id": name, "url": f"http://b/{name}?x=1"} for name in ("01", "02")]}
SERVICES = (
    ServiceScope("bank-b", barrier=Table("b.barrier"), ledger=Table("booking", "mysql", gid="tx", branch="step")),
    ServiceScope("bank-c"),
)


def test_the_call_that_repairs_a_missing_effect_goes_through_the_barrier() -> None:
    [step] = repairs_of("g 1", ["missing_effect"], BRANCHES, Evidence(missing=("02",)))

    assert shlex.split(step.command)[:4] == [
        *("curl", "-X", "POST", "http://b/02?x=1&gid=g+1&trans_type=msg&branch_id=02&op=action"),
    ]


def test_a_call_that_its_barrier_would_turn_away_is_let_through_first() -> None:
    evidence = Evidence(unbooked=(("bank-b", "01"),), services=SERVICES)

    row, call = repairs_of("g", ["missing_effect"], BRANCHES, evidence)

    where = "trans_type = 'msg' and gid = 'g' and branch_id = '01' and op = 'action'"
    assert row.command == f"-- in the database of bank-b: delete from b.barrier where {where};"
    assert "branch_id=01" in call.command


def test_only_the_branches_without_a_guard_are_given_one() -> None:
    evidence = Evidence(unguarded=(("bank-b", "02"), ("bank-b", "a\nb")), services=SERVICES)

    [step] = repairs_of("g", ["unguarded_effect"], BRANCHES, evidence)

    columns = "(trans_type, gid, branch_id, op, barrier_id, reason)"
    values = "('msg', 'g', '02', 'action', '01', 'action')"
    assert step.command == f"-- in the database of bank-b: insert into b.barrier {columns} values {values};"
    assert "'unfinished' (TP-5011)" in step.why


def test_no_branch_is_called_again_for_an_effect_that_was_cancelled() -> None:
    [step] = repairs_of("g", ["left_out"], BRANCHES, Evidence(effects=("bank-b",), services=SERVICES))

    assert step.command == "-- in the database of bank-b: select * from booking where tx = 'g' order by step;"


def test_rows_are_looked_at_where_they_are() -> None:
    """MySQL reads a backslash as the beginning of another character."""
    steps = repairs_of("g\\'", ["duplicate_effect"], None, Evidence(effects=("bank-b", "bank-c"), services=SERVICES))

    assert [step.command for step in steps] == [
        "-- in the database of bank-b: select * from booking where tx = 'g\\\\''' order by step;",
        "-- in the database of bank-c: select * from barrier where gid = 'g\\''' order by branch_id;",
    ]


def test_every_command_that_is_recommended_exists() -> None:
    commands = {
        tuple(shlex.split(step.command)[1:-1])
        for flag in Flag
        for step in repairs_of("g", [flag.value], None)
        if step.command.startswith("twophase ")
    }

    shown = ("messages", "show", "--payload")
    assert commands == {("explain",), ("messages", "redrive"), ("messages", "retry-now"), shown}
    assert {name for name, *_ in commands} <= {command.name for command in COMMANDS}
    known = {command.name or command.callback.__name__ for command in messages.registered_commands if command.callback}
    assert {"redrive", "retry-now", "show"} <= known


@pytest.mark.parametrize("gid", ["g\nrm -rf /", "g\x1b[2J", "g\u202e", "g\t"])
def test_a_gid_that_would_break_out_of_a_command_gets_none(gid: str) -> None:
    assert repairs_of(gid, ["orphan"], None) == ()


@pytest.mark.parametrize("flag", [flag for flag in Flag if flag is not Flag.IN_FLIGHT])
@pytest.mark.parametrize(
    "gid", ["--server=http://evil", "-h", "it's; touch run #", "`touch run` $(touch run)", "\\'\""]
)
def test_a_command_is_safe_to_paste(gid: str, flag: Flag, tmp_path: Path) -> None:
    """A shell runs nothing of a text that it is given, and no option comes from it.

    SQL that is pasted into a shell by mistake runs nothing either.
    """
    rows = (("bank-b", "01"), ("bank-b", gid))
    branches = [{"branch_id": "01", "url": f"http://b/{gid}"}, {"branch_id": gid, "url": "http://b/x"}]
    evidence = Evidence(("01", gid), rows, rows, ("bank-b",), SERVICES)

    for step in repairs_of(gid, [flag.value], {"branches": branches}, evidence):
        for program in ("twophase", "curl", "--", "select", "delete", "insert"):
            (tmp_path / program).write_text('#!/bin/sh\nprintf "%s\\0" "$@" > arguments\n')
            (tmp_path / program).chmod(0o755)
        (tmp_path / "arguments").write_text("")
        environment = {"PATH": f"{tmp_path}:/bin"}
        subprocess.run(["/bin/bash"], input=step.command.encode(), cwd=tmp_path, env=environment, check=False)
        assert not (tmp_path / "run").exists(), step.command
        arguments = (tmp_path / "arguments").read_text().split("\0")[:-1]
        if step.command.startswith("twophase "):
            assert arguments[-1] == gid
            assert not gid.startswith("-") or arguments[-2] == "--", step.command


def test_what_a_terminal_would_obey_stands_in_no_command() -> None:
    """An address is of the message, and a foreign coordinator checks none."""
    evil = {"branches": [{"branch_id": name, "url": f"http://b/{name}"} for name in ("a\x1b[2J", "b\nrm -rf /", "03")]}

    steps = repairs_of("g", ["lost", "orphan"], evil, Evidence(effects=("bank-b",), services=SERVICES))

    assert "branch_id=03" in "".join(step.command for step in steps)
    assert [step for step in steps if not (step.command + step.why).isprintable()] == []


def test_charts_are_drawn_of_what_there_is() -> None:
    runs = tuple(Run(1_800_000_000_000 + 60_000 * number, 9, 9 - number, number, 0, number) for number in range(3))
    report = make_report(broken(), SOURCES, Terms(since_ms=1, runs=runs), duration_s=1)
    page = to_html(report)

    assert page.count("<polyline") == 2
    assert "broken: 1 (11 %)" in page
    parsed = WellFormed()
    parsed.feed(page)
    parsed.close()
    assert (parsed.open, parsed.links) == ([], [])
