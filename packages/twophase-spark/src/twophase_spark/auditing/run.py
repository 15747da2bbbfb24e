"""One audit from databases to reports, and the same again and again.

The command and a notebook both call it. Order matters. The databases are probed before Spark starts, so that a wrong
URL costs a second. The reports are written before the verified point moves, so that no message counts as audited before
its report.
"""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so

from twophase_spark.coverage import Coverage
from twophase_spark.inputs.agreement import agreements_of, checked, differences_of
from twophase_spark.inputs.ahead import Ahead, Kept, read_ahead
from twophase_spark.inputs.baseline import baseline_frame, read_baseline, write_baseline
from twophase_spark.inputs.found_again import find_again
from twophase_spark.inputs.increment import (
    CARRIED_MAX,
    SEEN_MAX,
    Increment,
    Run,
    Seen,
    VerifiedPoint,
    advanced,
    increment_of,
    read_state,
    settled_mark,
    write_state,
)
from twophase_spark.inputs.plan import Plan
from twophase_spark.inputs.queues import queues_of
from twophase_spark.inputs.source import (
    GIDS_BY_KEY_MAX,
    again_from,
    few_gids,
    inputs_of,
    local_gids,
    read_again,
    read_all,
    reference_skew_ms,
    rows_of,
    scope_of,
)
from twophase_spark.inputs.tally import standing_keys, tallies_of
from twophase_spark.readers import probe as probing
from twophase_spark.readers.probe import Source
from twophase_spark.reports.findings import append_findings
from twophase_spark.reports.junit import to_junit
from twophase_spark.reports.page import to_html
from twophase_spark.reports.report import Report, Terms, Verdict, make_report, to_json
from twophase_spark.rules.comparison import Audited, AuditResult, compare
from twophase_spark.rules.facts import Inputs
from twophase_spark.rules.remembered import SEEN_SCHEMA, digest
from twophase_spark.rules.taxonomy import OPEN, VIOLATIONS

_CARRIED = [flag.value for flag in (*VIOLATIONS, *OPEN)]


def look_into(plan: Plan) -> list[Source]:
    """Probe every database of the plan, and return them as sources.

    Raises:
        CannotRead: one of them is not, or is no such database.
        ConfigurationError: a ledger's condition names a column that it does not have.
    """
    sources = probing.probe_all(plan.locations, slices_max=plan.cores * 2)
    agreements_of(sources)
    return sources


def begin(plan: Plan, sources: list[Source]) -> Ahead | None:
    """Begin to read what a run compares.

    None with a state, because its sums are taken before anything is read.
    """
    return read_ahead(sources) if plan.state is None else None


def run(
    spark: SparkSession,
    plan: Plan,
    sources: list[Source],
    say: Callable[[str], None] = lambda _: None,
    pause: Callable[[float], None] = time.sleep,
    run_id: str | None = None,
    ahead: Ahead | None = None,
) -> Report:
    """Audit once, write the reports, and move the verified point.

    Arguments:
        spark: any session whose executors reach the databases.
        plan: what to audit.
        sources: as `look_into` found them, just now.
        say: called with texts about the progress.
        pause: lets the grace time pass; what it raises ends the audit before anything is written.
        run_id: the run's in reports and findings, 32 hexadecimal digits; a new one by default.
        ahead: the rows of `sources`, as `begin` began to read them.

    Raises:
        CannotRead: a database cannot be read, or is not the one that was verified.
        ConfigurationError: the state file is no state, or Spark refuses a ledger's condition.
    """
    report, audited, after = examine(spark, plan, sources, say, pause, run_id, ahead)
    try:
        write(report, audited, plan)
    finally:
        audited.release()
    if plan.state is not None and after is not None:
        write_state(plan.state, after)
    return report


def examine(
    spark: SparkSession,
    plan: Plan,
    sources: list[Source],
    say: Callable[[str], None] = lambda _: None,
    pause: Callable[[float], None] = time.sleep,
    run_id: str | None = None,
    ahead: Ahead | None = None,
) -> tuple[Report, Audited, VerifiedPoint | None]:
    """Audit as `run` does, without writing anything.

    Returns the report, the findings, and the new verified point.
    """
    started = time.monotonic()
    agreements = [checked(spark, one) for one in agreements_of(sources)]
    ahead = ahead or begin(plan, sources)
    as_of_ms = (time.time_ns() // 1_000_000 if ahead is None else ahead.as_of_ms) + reference_skew_ms(sources)
    scope = scope_of(sources, as_of_ms, int(plan.late_s * 1000), plan.since_ms)
    state = read_state(plan.state) if plan.state else None
    say(f"comparing {len(sources)} sources")
    overlap_ms = int(plan.overlap_s * 1000)
    is_settled = plan.state is None or (state is not None and settled_mark(state, overlap_ms) is not None)
    tallies = {} if is_settled else tallies_of(sources)  # before anything is read
    kept = None if ahead is None else ahead.kept()
    chosen = _chosen(spark, plan, sources, state, kept)

    grace_ms = int(plan.grace_s * 1000)
    again = again_from(spark, sources, scope, plan.since_ms, agreements, kept)
    seen = None if state is None else _seen_by(spark, state, as_of_ms - grace_ms)
    baseline = None if plan.baseline is None else baseline_frame(spark, read_baseline(plan.baseline))
    differences = differences_of(spark, sources, agreements, chosen.gids, by_key=chosen.is_by_key)
    inputs = chosen.inputs._replace(differences=differences)
    wait = functools.partial(_wait, plan.grace_s, say, pause)
    audited = compare(inputs, scope, again, wait, chosen.expected, grace_ms, seen, baseline)
    if chosen.held is not None:
        chosen.held.unpersist()
    after: VerifiedPoint | None = None
    if plan.state is not None:
        carried, broken = _left_over(audited, {} if state is None else state.seen, as_of_ms)
        if len(carried) > CARRIED_MAX:
            why = f"stays where it was: more than {CARRIED_MAX} messages are to be carried over"
            chosen.remarks.append(Coverage("the verified point", checked=True, note=why))
        line = _line(audited.result, len(carried))
        others, since_ms = chosen.others, int(plan.since_ms)
        after = advanced(state, sources, as_of_ms, overlap_ms, carried, line, tallies, others, since_ms)
        after = msgspec.structs.replace(after, seen=broken)
    terms = Terms(
        grace_s=plan.grace_s,
        late_s=plan.late_s,
        complete=plan.complete,
        allow_empty=plan.allow_empty,
        since_ms=None if state is None or chosen.whole or not state.proven else state.as_of_ms,
        remarks=tuple(chosen.remarks),
        runs=() if after is None else after.runs,
        before_ms=plan.since_ms,
        run_id=run_id or uuid.uuid4().hex,
    )
    queues = queues_of(sources)
    report = make_report(audited.result, sources, terms, queues, duration_s=time.monotonic() - started)
    return report, audited, None if after is None else _held(state, after, report)


def _wait(grace_s: float, say: Callable[[str], None], pause: Callable[[float], None], read_s: float) -> None:
    """Let the grace time pass since a monotonic time."""
    left_s = max(0.0, read_s + grace_s - time.monotonic())
    waiting = f"waiting {left_s:.1f} s, as some rows may still arrive, then " if left_s else ""
    say(f"{waiting}looking at the suspects again")
    if left_s:
        pause(left_s)


def _line(result: AuditResult, carried: int) -> Run:
    """Return what a state file keeps of a run."""
    return Run(result.as_of_ms, result.messages, result.clean, result.violations, result.unchecked, carried)


def _held(state: VerifiedPoint | None, after: VerifiedPoint, report: Report) -> VerifiedPoint:
    """Return the point to keep.

    A run that could check nothing of some message, and so proves nothing of it, leaves the point unchanged, because the
    next one would find nothing new there and call that clean; messages that it found open are waited for all the same.
    A run that is incomplete for another reason is so in the next run, too.
    """
    verdict = report.verdict
    result = report.result
    broken_only = bool(report.queues.broken) and not result.violations  # of messages it may have proven nothing
    untold = verdict in {Verdict.NOTHING, Verdict.UNCHECKED} or (
        broken_only and (result.proves_nothing or not result.messages)
    )
    if not (untold or (verdict is Verdict.INCOMPLETE and result.unchecked)):
        return after
    # This run looked for the carried messages: those still open or broken are among the ones that it carries itself.
    return msgspec.structs.replace(state or VerifiedPoint(proven=False), runs=after.runs, carried=after.carried)


def write(report: Report, audited: Audited, plan: Plan) -> None:
    """Write what was asked for: reports, findings, and what is to be acknowledged."""
    write_reports(report, plan)
    if plan.findings is not None:
        append_findings(plan.findings, audited.findings, report)
    if plan.write_baseline is not None:
        write_baseline(plan.write_baseline, audited.findings)


def write_reports(report: Report, plan: Plan) -> None:
    """Write the files that were asked for."""
    if plan.html is not None:
        plan.html.write_text(to_html(report), "utf-8")
    if plan.json is not None:
        plan.json.write_bytes(to_json(report))
    if plan.junit is not None:
        plan.junit.write_bytes(to_junit(report))


def rows_to_read(plan: Plan, sources: list[Source]) -> int:
    """Return the number of rows that a run reads, as far as it is known.

    Raises:
        CannotRead, ConfigurationError: as the run would.
    """
    state = read_state(plan.state) if plan.state else None
    return probing.rows_in(sources if state is None else _increment(plan, sources, state).sources)


def _increment(plan: Plan, sources: list[Source], state: VerifiedPoint) -> Increment:
    overlap_ms = int(plan.overlap_s * 1000)
    standing = standing_keys(sources, state.tallies) if settled_mark(state, overlap_ms) is None else {}
    again = find_again(sources, state.ends, state.verified)
    return increment_of(sources, state, overlap_ms, plan.cores * 2, standing, again, plan.since_ms)


class _Chosen(NamedTuple):
    """The rows that this run compares.

    `expected`: gids that must be reported, with rows or without; `gids`: those of the rows, None for every one, and
    `is_by_key`: they are few enough to be looked up by key; `held`: to be unpersisted; `others`: see `Increment`.
    """

    inputs: Inputs
    whole: bool
    remarks: list[Coverage]
    expected: DataFrame | None = None
    held: DataFrame | None = None
    gids: DataFrame | None = None
    is_by_key: bool = False
    others: frozenset[str] = frozenset()


def _chosen(
    spark: SparkSession, plan: Plan, sources: list[Source], state: VerifiedPoint | None, kept: Kept | None
) -> _Chosen:
    """Return the rows to compare: all, or those of each new or carried gid.

    Arguments:
        kept: all of them, where they are read.
    """
    if state is None:
        inputs = read_all(spark, sources) if kept is None else inputs_of(spark, sources, kept.tables)
        return _Chosen(inputs, whole=True, remarks=[])
    increment = _increment(plan, sources, state)
    expected = local_gids(spark, state.carried)
    remarks = list(increment.remarks)
    if increment.whole:
        inputs, others = read_all(spark, increment.sources), increment.others
        return _Chosen(inputs, whole=True, remarks=remarks, expected=expected, others=others)
    few = few_gids(increment.sources, state.carried)
    if few is not None:
        inputs, gids = read_again(spark, sources, few), local_gids(spark, few)
        return _Chosen(inputs, whole=False, remarks=remarks, expected=expected, gids=gids, is_by_key=True)
    gids = expected
    for frame in read_all(spark, increment.sources).sides():
        gids = gids.unionByName(frame.select("gid"))
    held = gids.distinct().persist(StorageLevel.MEMORY_AND_DISK)
    count = held.count()
    inputs = rows_of(spark, sources, held, count)
    return _Chosen(inputs, False, remarks, expected, held, gids=held, is_by_key=count <= GIDS_BY_KEY_MAX)


def _seen_by(spark: SparkSession, state: VerifiedPoint, until_ms: int) -> DataFrame | None:
    """Return what earlier runs found broken by then; None when they found nothing."""
    old = {gid: one.digest for gid, one in state.seen.items() if one.since_ms <= until_ms}
    if not old:
        return None
    digests = pa.array(list(old.values()), pa.int64())
    return spark.createDataFrame(pa.Table.from_arrays([pa.array(list(old)), digests], SEEN_SCHEMA.names), SEEN_SCHEMA)


def _left_over(audited: Audited, before: Mapping[str, Seen], as_of_ms: int) -> tuple[list[str], dict[str, Seen]]:
    """Return the broken and open messages, and the first time of each broken one.

    The next run looks at them again, and reports it when no row of one is left by then. The time is the one since which
    a broken message's rows have been so.
    """
    if not any(audited.result.counts[name] for name in _CARRIED) and not audited.result.acknowledged:
        return [], {}
    expected = F.arrays_overlap("flags", F.array(*[F.lit(name) for name in _CARRIED]))
    broken_count = audited.result.violations + audited.result.acknowledged
    is_remembered = F.col("violation") & F.lit(broken_count <= SEEN_MAX)
    chosen = audited.findings.where(expected).select("gid", F.when(is_remembered, digest()).alias("digest"))
    rows = chosen.limit(CARRIED_MAX + 1).collect()
    now = {row["gid"]: Seen(as_of_ms, row["digest"]) for row in rows if row["digest"] is not None}
    same = {gid: before[gid] for gid, seen in now.items() if gid in before and before[gid].digest == seen.digest}
    return [row["gid"] for row in rows], now | same
