"""The report as JUnit XML, which CI systems show.

It has one case for each class and each comparison. A class that breaks a promise fails its case; a comparison that was
not made is skipped, with the reason; an audit that proves nothing is an error, and so is one that could not be made
(see `unmade`).
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from twophase_spark.reports.report import Report, Verdict
from twophase_spark.reports.unmade import as_xml_text
from twophase_spark.rules.samples import Finding
from twophase_spark.rules.taxonomy import MEANINGS

_SAMPLES_SHOWN = 10


def to_junit(report: Report) -> bytes:
    """Return the report as one test suite."""
    suite = ET.Element("testsuite", name="twophase audit", timestamp=report.as_of.removesuffix("Z"))
    for meaning in MEANINGS:
        if not meaning.violation:
            continue
        case = _case(suite, "promises", meaning.title)
        count = report.result.counts[meaning.flag.value]
        if count:
            samples = [sample for sample in report.result.samples if meaning.flag.value in sample.flags][
                :_SAMPLES_SHOWN
            ]
            failure = ET.SubElement(case, "failure", message=as_xml_text(f"{count} messages. {meaning.what}"))
            failure.text = as_xml_text("\n".join([meaning.remedy, *map(_described, samples)]))
    queues = _case(suite, "promises", "queues")
    if report.queues.broken:
        failure = ET.SubElement(queues, "failure", message=as_xml_text(f"{report.queues.broken} queues."))
        shown = (f"{one.topic} {one.queue}: {', '.join(one.faults)}" for one in report.queues.shown)
        failure.text = as_xml_text("\n".join(shown))
    for line in report.coverage:
        case = _case(suite, "coverage", line.what)
        if not line.checked:
            ET.SubElement(case, "skipped", message=as_xml_text(line.note))
    if report.verdict in {Verdict.NOTHING, Verdict.UNCHECKED, Verdict.INCOMPLETE}:
        ET.SubElement(_case(suite, "coverage", "verdict"), "error", message=as_xml_text(report.sentence))
    return _finished(suite, report.duration_s)


def _case(suite: ET.Element, group: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=f"twophase.{group}", name=as_xml_text(name))


def _finished(suite: ET.Element, seconds: float) -> bytes:
    for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(sum(1 for _ in suite.iter(tag))))
    suite.set("time", f"{seconds:g}")
    ET.indent(suite)
    text: str = ET.tostring(suite, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()


def _described(one: Finding) -> str:
    commands = "".join(f"\n  {step.why}: {step.command}" for step in one.repairs)
    return f"{one.gid}: {', '.join(one.flags)}{commands}"
