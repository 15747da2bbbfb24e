"""The events of one audit, as OpenLineage has them.

A run begins with START and ends with COMPLETE when the audit has a verdict, clean or not; with FAIL when it could
not check; with ABORT when it was stopped. The end carries the result: the promises as tests of the run with the number
of messages that break each, and as assertions on the table of the service where they are broken. No gid, no payload
and no login stands in an event.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.generated import data_quality_assertions_dataset as quality
from openlineage.client.generated.base import InputDatasetFacet, OutputDatasetFacet
from openlineage.client.generated.input_statistics_input_dataset import InputStatisticsInputDatasetFacet
from openlineage.client.generated.schema_dataset import SchemaDatasetFacet, SchemaDatasetFacetFields
from openlineage.client.generated.test_run import TestExecution, TestRunFacet

from twophase_spark.inputs.plan import Plan
from twophase_spark.lineage.facets import PRODUCER, facet, job_type, namespace_of, of_run, parent_named, rows_written
from twophase_spark.lineage.naming import name_of_place, names_of
from twophase_spark.locations import Location, Role
from twophase_spark.reports.finding_columns import FINDING_COLUMNS, RUN_COLUMNS
from twophase_spark.reports.report import Report
from twophase_spark.rules.services import ServiceCount
from twophase_spark.rules.taxonomy import MEANINGS, Flag, Meaning

JOB: Final = "twophase.audit"
_WARNINGS: Final = (Flag.PARKED, Flag.LATE, Flag.UNCHECKED)
"""Classes that break no promise, and that a catalogue should show all the same."""
_ASSERTED: Final = {
    Role.PRODUCER: (Flag.LOST, Flag.GHOST, Flag.CONTRARY_VERDICT),
    Role.CONSUMER: (
        Flag.DUPLICATE_EFFECT,
        Flag.MISSING_EFFECT,
        Flag.DIFFERING_EFFECT,
        Flag.ORPHAN,
        Flag.UNGUARDED_EFFECT,
    ),
}


class RunIdentity(msgspec.Struct, frozen=True):
    """The run that events are about: its id (32 hexadecimal digits), job and parent."""

    run_id: str
    namespace: str
    parent: str | None = None

    @classmethod
    def of(cls, run_id: str, environment: Mapping[str, str]) -> RunIdentity:
        """Return the identity of a run, with what OpenLineage's environment variables say."""
        return cls(run_id, namespace_of(environment), parent_named(environment))


def event_of(
    kind: RunState,
    identity: RunIdentity,
    plan: Plan,
    at: datetime,
    report: Report | None = None,
    error: BaseException | None = None,
) -> RunEvent:
    """Return one event of an audit.

    Arguments:
        kind: START, COMPLETE, FAIL or ABORT.
        identity: the run.
        plan: what is audited.
        at: when it happened.
        report: the result, of a run that has one.
        error: what ended a run that has none.
    """
    failure = report.sentence if report is not None and kind is RunState.FAIL else ""
    facets = of_run(identity.parent, error, failure)
    if report is not None:
        facets["test"] = facet(TestRunFacet, tests=_tests(report))
    return RunEvent(
        eventTime=at.astimezone(UTC).isoformat(),
        eventType=kind,
        run=Run(str(uuid.UUID(identity.run_id)), facets),
        job=Job(identity.namespace, JOB, {"jobType": job_type("BATCH", "AUDIT")}),
        inputs=[dataset for location in plan.locations for dataset in _inputs(location, report)],
        outputs=_outputs(plan, report),
        producer=PRODUCER,
    )


def _tests(report: Report) -> list[TestExecution]:
    """Return each promise as a test.

    Classes that break none, but wait for an operator, only warn. Where nothing was compared, nothing passed.
    """
    tests = []
    for meaning in MEANINGS:
        if meaning.violation or meaning.flag in _WARNINGS:
            count = report.result.counts[meaning.flag.value]
            status = "fail" if count else "pass" if report.result.messages else "skip"
            tests.append(
                TestExecution(
                    name=meaning.flag.value,
                    status=status,
                    severity="error" if meaning.violation else "warn",
                    type="twophase",
                    description=meaning.what,
                    expected="0",
                    actual=str(count),
                )
            )
    return tests


def _inputs(location: Location, report: Report | None) -> list[InputDataset]:
    facets: dict[str, InputDatasetFacet] = {}
    result = None if report is None else report.result
    if result is not None and location.role is not Role.COORDINATOR:  # whose rows are counted together
        for row in result.rows:
            if (row.role, row.source) == (location.role.value, location.name):
                facets["inputStatistics"] = facet(InputStatisticsInputDatasetFacet, rowCount=row.rows)
        for one in result.services:
            if (one.role, one.service) == (location.role.value, location.name):
                asserted = [
                    _assertion(meaning, one) for meaning in MEANINGS if meaning.flag in _ASSERTED[location.role]
                ]
                facets["dataQualityAssertions"] = facet(quality.DataQualityAssertionsDatasetFacet, assertions=asserted)
    return [InputDataset(name.namespace, name.name, inputFacets=dict(facets)) for name in names_of(location)]


def _assertion(meaning: Meaning, one: ServiceCount) -> quality.Assertion:
    count = one.counts[meaning.flag.value]
    return quality.Assertion(
        assertion=meaning.flag.value,
        success=not count,
        severity="error",
        description=meaning.what,
        expected="0",
        actual=str(count),
    )


def _outputs(plan: Plan, report: Report | None) -> list[OutputDataset]:
    if plan.findings is None:
        return []
    name = name_of_place(plan.findings)
    fields = [SchemaDatasetFacetFields(column, kind) for column, kind in (RUN_COLUMNS | FINDING_COLUMNS).items()]
    facets: dict[str, OutputDatasetFacet] = {}
    if report is not None:
        rows = report.result.messages - report.result.clean
        facets["outputStatistics"] = rows_written(rows)
    schema = facet(SchemaDatasetFacet, fields=fields)
    return [OutputDataset(name.namespace, name.name, facets={"schema": schema}, outputFacets=facets)]
