"""The verified point of a run, the reading of the next one, and its blind spots."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.spark.cases import IN_ORDER, Case
from tests.spark.plant import System, make_system, one_service, plant
from tests.spark.truth import nowadays
from twophase.core.errors import CannotRead, ConfigurationError
from twophase.core.lifecycle import State
from twophase_spark.auditing.run import look_into, run
from twophase_spark.cli.audit import perform, read_plan
from twophase_spark.inputs.found_again import find_again
from twophase_spark.inputs.increment import (
    CARRIED_MAX,
    Increment,
    Run,
    VerifiedPoint,
    advanced,
    increment_of,
    read_state,
    write_state,
)
from twophase_spark.inputs.plan import Plan
from twophase_spark.locations import Location, Role, parse_coordinator, parse_named
from twophase_spark.readers.probe import Bound, Slice, Source, probe
from twophase_spark.reports.report import Report, Verdict
from twophase_spark.reports.unmade import ReportFiles

GOOD = [case for case in IN_ORDER if one_service(case)]
RUN = Run(as_of_ms=1_000, messages=1, clean=1, violations=0, unchecked=0, carried=0)
NONE: tuple[tuple[str, str], ...] = ()


def store(*bounds: Bound) -> Source:
    slices = (Slice("message"), Slice("history", "seq", node=1))
    return Source(parse_coordinator("sqlite:///tp.db"), None, 0, has_prepared_at=False, slices=slices, bounds=bounds)


def bank(*bounds: Bound, identity: str | None = None) -> Source:
    location = parse_named(Role.CONSUMER, "b=sqlite:///b.db")
    return Source(location, identity, 0, has_prepared_at=True, slices=(Slice("barrier", "id"),), bounds=bounds)


def test_only_what_came_since_is_read() -> None:
    seen = [store(Bound(1, 100, "seq", 1)), bank(Bound(1, 70, "id"))]
    state = advanced(None, seen, as_of_ms=1_000, overlap_ms=0, carried=["g"], run=RUN)

    now = [store(Bound(1, 130, "seq", 1), Bound(1, 5, "seq", 2)), bank(Bound(1, 90, "id"))]
    increment = increment_of(now, state, overlap_ms=0, slices_max=2)

    assert [source.slices for source in increment.sources] == [
        (
            Slice("message"),
            Slice("history", "seq", 101, None, node=1, rows=30),
            Slice("history", "seq", 1, None, node=2, rows=5),
        ),
        (Slice("barrier", "id", 71, None, rows=20),),
    ]
    assert increment.remarks == ()
    assert state.carried == ("g",)


def test_entries_of_queues_are_read_again_as_far_back_as_a_commit_may_take() -> None:
    with_queues = msgspec.structs.replace(store(Bound(1, 100, "seq", 1)), has_queues=True)
    state = advanced(None, [with_queues], as_of_ms=10_000, overlap_ms=4_000, carried=[], run=RUN)

    increment = increment_of([with_queues], state, overlap_ms=4_000, slices_max=2)

    assert increment.sources[0].slices == (Slice("message"), Slice("queue_entry", "stored_ms", 6_000))


def test_keys_are_read_again_as_far_back_as_a_transaction_may_stay_open() -> None:
    first = advanced(None, [bank(Bound(1, 70, "id"))], as_of_ms=10_000, overlap_ms=5_000, carried=[], run=RUN)
    second = advanced(first, [bank(Bound(1, 80, "id"))], as_of_ms=14_000, overlap_ms=5_000, carried=[], run=RUN)
    third = advanced(second, [bank(Bound(1, 90, "id"))], as_of_ms=16_000, overlap_ms=5_000, carried=[], run=RUN)

    def begins_at(state: VerifiedPoint) -> int | None:
        return increment_of([bank(Bound(1, 99, "id"))], state, 5_000, 1).sources[0].slices[0].first

    assert [begins_at(state) for state in (first, second, third)] == [1, 1, 71]
    assert [mark.as_of_ms for mark in third.marks] == [10_000, 14_000, 16_000]


def test_history_that_was_cleaned_in_between_is_reported() -> None:
    state = advanced(None, [store(Bound(1, 100, "seq", 1))], 1_000, 0, [], RUN)

    increment = increment_of([store(Bound(151, 160, "seq", 1))], state, 0, 2)

    [gap] = increment.remarks
    assert not gap.checked
    assert gap.what == "coordinator coordinator: 50 messages of node 1"
    assert "101 to 150 was cleaned before" in gap.note


def test_history_that_was_cleaned_altogether_is_reported() -> None:
    state = advanced(None, [store(Bound(1, 100, "seq", 1))], 1_000, 0, [], RUN)

    [gap] = increment_of([store(Bound(161, 160, "seq", 1))], state, 0, 2).remarks

    assert "101 to 160" in gap.note


@pytest.mark.parametrize("bounds", [(Bound(1, 99, "seq", 1),), (Bound(1, 200, "seq", 2),)])
def test_a_store_that_lacks_what_was_verified_is_refused(bounds: tuple[Bound, ...]) -> None:
    state = advanced(None, [store(Bound(1, 100, "seq", 1))], 1_000, 0, [], RUN)

    with pytest.raises(CannotRead, match="verified"):
        increment_of([store(*bounds)], state, 0, 2)


def test_another_database_under_an_old_name_is_refused() -> None:
    state = advanced(None, [bank(Bound(1, 1, "id"))], 1_000, 0, [], RUN)
    other = msgspec.structs.replace(bank(), location=parse_named(Role.CONSUMER, "b=sqlite:///other.db"))

    with pytest.raises(CannotRead, match="another"):
        increment_of([other], state, 0, 2)


def test_a_new_coordinator_is_read_from_its_beginning_and_a_missing_service_is_reported() -> None:
    state = advanced(None, [bank(Bound(1, 1, "id"))], 1_000, 0, [], RUN)

    increment = increment_of([store(Bound(1, 9, "seq", 1))], state, 0, 2)

    assert {remark.what: remark.checked for remark in increment.remarks} == {
        "coordinator coordinator is new": True,
        "consumer b": False,
    }
    assert not increment.whole


def test_a_service_that_is_new_or_back_again_makes_the_run_a_whole_one() -> None:
    """An effect that is missing in that service has no row there.

    So an increment would not notice it.
    """
    both = [store(Bound(1, 100, "seq", 1)), bank(Bound(1, 70, "id"))]
    first = advanced(None, both, 1_000, 0, [], RUN)
    without = advanced(first, both[:1], 2_000, 0, [], RUN)

    assert not increment_of(both, first, 0, 2).whole
    back = increment_of(both, without, 0, 2)
    assert (back.whole, back.sources) == (True, tuple(both))
    assert [remark.what for remark in back.remarks] == ["consumer b is new"]


def test_a_service_from_a_backup_makes_the_run_a_whole_one_and_is_followed_from_there() -> None:
    first = advanced(None, [bank(Bound(1, 70, "id"))], 1_000, 500, [], RUN)
    second = advanced(first, [bank(Bound(1, 90, "id"))], 2_000, 500, [], RUN)
    restored = [bank(Bound(1, 80, "id"))]

    increment = increment_of(restored, second, 500, 1)
    after = advanced(second, restored, 3_000, 500, [], RUN)

    assert (increment.whole, increment.sources) == (True, tuple(restored))
    [remark] = increment.remarks
    assert (remark.what, remark.note.startswith("it ends at id 80, and 90 was seen")) == (
        "consumer b is older than it was",
        True,
    )
    assert not increment_of([bank(Bound(1, 85, "id"))], after, 500, 1).whole
    assert increment_of([bank(Bound(1, 85, "id"))], after, 500, 1).sources[0].slices[0].first == 81


def test_another_database_at_an_old_address_makes_the_run_a_whole_one() -> None:
    first = advanced(None, [bank(Bound(1, 70, "id"), identity="a1")], 1_000, 0, [], RUN)
    other = [bank(Bound(1, 90, "id"), identity="b2")]

    increment = increment_of(other, first, 0, 1)
    after = advanced(first, other, 2_000, 500, [], RUN, None, increment.others)

    assert (increment.whole, increment.sources) == (True, tuple(other))
    assert [remark.what for remark in increment.remarks] == ["consumer b is another database than it was"]
    assert [mark.keys for mark in after.marks] == [{}, {"consumer b": 90}], "keys of the other one mean nothing"
    assert not increment_of(other, after, 0, 1).whole
    assert not increment_of([bank(Bound(1, 90, "id"))], first, 0, 1).whole, (
        "of a table without identity that is unknown"
    )


def test_an_earlier_since_makes_the_run_a_whole_one() -> None:
    """Older messages were not expected to be known, and no row of them is new."""
    both = [store(Bound(1, 100, "seq", 1)), bank(Bound(1, 70, "id"))]
    first = advanced(None, both, 1_000, 0, [], RUN, since_ms=900)

    assert not increment_of(both, first, 0, 1, since_ms=950).whole
    for since_ms in (0, 800):
        increment = increment_of(both, first, 0, 1, since_ms=since_ms)
        assert (increment.whole, increment.sources) == (True, tuple(both))
        assert [remark.what for remark in increment.remarks] == ["--since is earlier than it was"]


def found_by(system: System, state: VerifiedPoint) -> Increment:
    sources = [probe(location, 1) for location in locations(system)]
    return increment_of(sources, state, 0, 1, None, find_again(sources, state.ends, state.verified))


def state_of(system: System) -> VerifiedPoint:
    return advanced(None, [probe(location, 1) for location in locations(system)], 1_000, 0, [], RUN)


def test_a_service_from_a_backup_that_has_grown_beyond_its_end_makes_the_run_a_whole_one(tmp_path: Path) -> None:
    """The lost rows were compared before."""
    system = make_system(tmp_path)
    plant(system, nowadays([msgspec.structs.replace(GOOD[0], gid=f"g{number}") for number in range(5)]))
    state = state_of(system)
    plant(system, nowadays([msgspec.structs.replace(GOOD[0], gid="new")]))
    assert not found_by(system, state).whole

    system.execute(system.bank_b, "update barrier set gid = 'other' where id = 5")
    system.execute(system.bank_b, "delete from ledger where id = 5")
    increment = found_by(system, state)

    assert (increment.whole, increment.others) == (True, frozenset({"consumer bank-b"}))
    [remark] = increment.remarks
    assert remark.what == "consumer bank-b has other rows than it had"
    assert remark.note.startswith("another row stands at id 5")


def test_a_store_from_a_backup_that_has_grown_beyond_its_end_is_refused(tmp_path: Path) -> None:
    system = make_system(tmp_path)
    plant(system, nowadays([msgspec.structs.replace(GOOD[0], gid=f"g{number}") for number in range(5)]))
    state = state_of(system)
    plant(system, nowadays([msgspec.structs.replace(GOOD[0], gid="new")]))
    system.execute(system.coordinator, "update history set gid = 'other' where seq = 5")

    with pytest.raises(CannotRead, match="another message at seq 5 of node 1 than was verified"):
        found_by(system, state)


def test_history_that_was_cleaned_around_what_stays_is_reported(tmp_path: Path) -> None:
    """A message of a queue stays with its entry.

    So it may be older than the rows that were cleaned.
    """
    system = make_system(tmp_path)
    plant(system, nowadays([msgspec.structs.replace(GOOD[0], gid=f"g{number}") for number in range(5)]))
    state = state_of(system)
    plant(system, nowadays([msgspec.structs.replace(GOOD[0], gid=f"new{number}") for number in range(5)]))
    system.execute(system.coordinator, "delete from history where seq between 2 and 9 and seq <> 7")
    system.execute(system.coordinator, "update store_meta set value = 5 where name = 'history_horizon_ms'")

    [gap] = found_by(system, state).remarks

    assert (gap.what, gap.checked) == ("coordinator coordinator: 3 messages of node 1", False)
    assert gap.note == "cleaned from history 6 to 10 before this audit read them"


def test_history_of_a_node_that_came_and_was_cleaned_is_reported() -> None:
    state = advanced(None, [store(Bound(1, 100, "seq", 1))], 1_000, 0, [], RUN)

    [gap] = increment_of([store(Bound(1, 100, "seq", 1), Bound(21, 30, "seq", 2))], state, 0, 2).remarks

    assert (gap.what, gap.checked) == ("coordinator coordinator: 20 messages of node 2", False)


LEDGER = "b=sqlite:///b.db#booking"
OPTIONS = {
    "b=sqlite:///b.db#barrier?urls=http://b/": "b=sqlite:///b.db",
    f"{LEDGER}?where=voided+is+null": LEDGER,
    f"{LEDGER}?where=voided+is+not+null": f"{LEDGER}?where=voided+is+null",
    f"{LEDGER}?agrees=true": LEDGER,
    f"{LEDGER}?rows_per_effect=2": LEDGER,
    f"{LEDGER}?gid=tx": LEDGER,
    f"{LEDGER}?branch=step": LEDGER,
    f"{LEDGER}?key=number": f"{LEDGER}?key=id",
    LEDGER: f"{LEDGER}?where=1",
}


def of(text: str, bound: Bound) -> Source:
    location = parse_named(Role.LEDGER if "booking" in text else Role.CONSUMER, text)
    return msgspec.structs.replace(bank(bound), location=location)


@pytest.mark.parametrize(("now", "before"), OPTIONS.items())
def test_other_options_of_a_service_make_the_run_a_whole_one(now: str, before: str) -> None:
    """No row is new by another option.

    So an increment would not notice it.
    """
    first = advanced(None, [of(before, Bound(1, 70, "id"))], 1_000, 0, [], RUN)
    changed = [of(now, Bound(1, 60, "number"))]

    increment = increment_of(changed, first, 0, 2)
    after = advanced(first, changed, 2_000, 0, [], RUN)

    assert (increment.whole, increment.sources) == (True, tuple(changed))
    [remark] = increment.remarks
    assert remark.what.endswith("b: its options changed")
    assert "everything was compared from its beginning" in remark.note
    later = increment_of(changed, after, 0, 2)
    assert (later.whole, later.remarks) == (False, ())
    assert all("number" not in mark.keys for mark in after.marks[:-1])


def test_of_other_options_the_key_may_be_another_one() -> None:
    """A mark of the old column says nothing about the new one.

    So the table is read whole until a mark of the new one is old enough.
    """
    first = advanced(None, [of(f"{LEDGER}?key=at", Bound(1, 9_000, "at"))], 1_000, 500, [], RUN)
    changed = f"{LEDGER}?key=id"
    second = advanced(first, [of(changed, Bound(1, 70, "id"))], 2_000, 500, [], RUN)
    third = advanced(second, [of(changed, Bound(1, 80, "id"))], 3_000, 500, [], RUN)

    def begins_at(state: VerifiedPoint) -> int | None:
        return increment_of([of(changed, Bound(1, 99, "id"))], state, 500, 1).sources[0].slices[0].first

    assert [begins_at(state) for state in (second, third)] == [1, 71]


def test_a_state_of_an_older_version_makes_the_next_run_a_whole_one_once() -> None:
    """It does not name the options by which its runs read."""
    both = [store(Bound(1, 100, "seq", 1)), bank(Bound(1, 70, "id"))]
    older = msgspec.structs.replace(advanced(None, both, 1_000, 0, [], RUN), options={})

    increment = increment_of(both, older, 0, 2)

    assert (increment.whole, increment.sources) == (True, tuple(both))
    [remark] = increment.remarks
    assert remark.what == "consumer b: its options"
    assert not increment_of(both, advanced(older, both, 2_000, 0, [], RUN), 0, 2).whole


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_condition_that_is_new_is_asked_of_older_effects_too(spark: SparkSession, tmp_path: Path) -> None:
    system = make_system(tmp_path)
    plant(system, nowadays([Case("older", "")]))
    state = tmp_path / "state"

    def audited(options: str) -> Report:
        ledger = parse_named(Role.LEDGER, f"bank-b=sqlite:///{system.bank_b}#ledger?{options}")
        plan = Plan((*locations(system)[:3], ledger), grace_s=0, cores=1, state=state, overlap_s=0)
        return run(spark, plan, look_into(plan))

    assert audited("gid=gid").verdict is Verdict.CLEAN
    report = audited("gid=gid&agrees=ledger.amount%3D31")
    assert (report.result.counts["differing_effect"], report.since) == (1, None)
    assert "ledger bank-b: its options changed" in [line.what for line in report.coverage]


def test_where_all_rows_were_cleaned_the_keys_may_begin_anew() -> None:
    first = advanced(None, [bank(Bound(1, 90, "id"))], 1_000, 500, [], RUN)

    empty = bank(Bound(1, 0, "id"))
    increment = increment_of([msgspec.structs.replace(empty, horizon_ms=700)], first, 500, 1)
    after = advanced(first, [empty], 2_000, 500, [], RUN)

    assert increment_of([empty], first, 500, 1).whole, "nothing was ever cleaned there: it is lost"
    [remark] = increment.remarks
    assert (increment.whole, remark.what, remark.checked) == (False, "consumer b: its rows", False)
    later = increment_of([bank(Bound(1, 3, "id"))], after, 500, 1)
    assert (later.remarks, later.sources[0].slices[0].first) == ((), 1)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_run_that_proves_nothing_is_not_made_clean_by_the_next(spark: SparkSession, tmp_path: Path) -> None:
    system = make_system(tmp_path)
    plan = Plan(locations(system), grace_s=0, cores=1, state=tmp_path / "state")

    assert [run(spark, plan, look_into(plan)).verdict for _ in range(2)] == [Verdict.NOTHING] * 2
    plant(system, nowadays(GOOD))
    assert [run(spark, plan, look_into(plan)).verdict for _ in range(2)] == [Verdict.CLEAN] * 2


def test_with_too_much_open_the_point_stays() -> None:
    before = advanced(None, [store(Bound(1, 100, "seq", 1))], 1_000, 0, [], RUN)
    many = [str(number) for number in range(CARRIED_MAX + 1)]

    after = advanced(before, [store(Bound(1, 900, "seq", 1))], 2_000, 0, many, RUN)

    assert (after.verified, after.carried, len(after.runs)) == (before.verified, (), 2)


def test_the_state_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    write_state(path, VerifiedPoint(as_of_ms=1))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("twophase_spark.inputs.increment.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_state(path, VerifiedPoint(as_of_ms=2))

    assert read_state(path) == VerifiedPoint(as_of_ms=1)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "content", ["", "{", '{"format": 2}', '{"format": 1, "carried": 3}', '{"format": 1, "acknowledged": {}}']
)
def test_a_file_that_is_no_state_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "state").write_text(content)

    with pytest.raises(ConfigurationError):
        read_state(tmp_path / "state")


def test_a_state_that_names_a_stream_and_its_batch_is_read(tmp_path: Path) -> None:
    """An earlier version wrote both; neither means anything now."""
    state = VerifiedPoint(as_of_ms=1, verified={"coordinator": {1: 7}}, carried=("g",))
    older = msgspec.to_builtins(state, str_keys=True) | {"stream": "0123456789abcdef", "batch": 3}
    (tmp_path / "state").write_bytes(msgspec.json.encode(older))

    assert read_state(tmp_path / "state") == state


def test_no_state_yet_is_none(tmp_path: Path) -> None:
    assert read_state(tmp_path / "state") is None


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_runs_extend_each_other_and_carry_over_what_is_open(spark: SparkSession, tmp_path: Path) -> None:
    system = make_system(tmp_path)
    plan = Plan(locations(system), grace_s=0, late_s=1e9, overlap_s=0, state=tmp_path / "state")
    lost = Case("lost-at-first", "lost", None, "msg", NONE, ())
    waiting = Case("waiting", "in_flight", State.SUBMITTED, "msg", NONE, ())

    def audited() -> Report:
        return run(spark, plan, look_into(plan))

    plant(system, nowadays([*GOOD, lost, waiting]))
    first = audited()
    assert (first.verdict, first.result.messages, first.since) == (Verdict.VIOLATIONS, len(GOOD) + 2, None)

    second = audited()
    assert second.result.messages == 2, "the lost one is carried over, the waiting one is live"
    assert (second.verdict, second.result.counts["lost"]) == (Verdict.VIOLATIONS, 1)

    plant(system, nowadays([msgspec.structs.replace(GOOD[0], gid="new"), Case("lost-at-first", "", producer=None)]))
    third = audited()
    assert (third.verdict, third.result.messages) == (Verdict.CLEAN, 3)

    system.execute(system.coordinator, "delete from message")
    fourth = audited()
    assert (fourth.verdict, fourth.result.messages) == (Verdict.VIOLATIONS, 1)
    assert [one.gid for one in fourth.result.samples] == ["waiting"]
    assert [line.violations for line in fourth.runs] == [1, 1, 0, 1]
    assert [one.result.waited for one in (first, second, third, fourth)] == [True, False, False, True]


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_service_that_comes_later_is_compared_with_all_there_was(spark: SparkSession, tmp_path: Path) -> None:
    system = make_system(tmp_path)
    all_of_them = locations(system)
    plan = Plan(all_of_them[:2], grace_s=0, late_s=1e9, overlap_s=0, state=tmp_path / "state")
    unheard_of = Case("no-row-in-bank-b", "", barriers=NONE, ledger=())
    plain = Case("plain", "", State.SUBMITTED, None, NONE, (), checked=False, identity=None)
    plant(system, nowadays([*GOOD, unheard_of, plain]))

    first = run(spark, plan, look_into(plan))
    assert (first.verdict, first.result.counts["in_flight"]) == (Verdict.CLEAN, 1)

    system.execute(system.coordinator, "delete from message")
    plan = msgspec.structs.replace(plan, locations=all_of_them)
    second = run(spark, plan, look_into(plan))
    assert (second.verdict, second.result.counts["missing_effect"], second.since) == (Verdict.VIOLATIONS, 1, None)
    assert second.result.unknown == {"cleaned meanwhile": 1}, "what was in flight is nowhere now"


def locations(system: System) -> tuple[Location, ...]:
    return (
        parse_coordinator(f"sqlite:///{system.coordinator}"),
        parse_named(Role.PRODUCER, f"bank-a=sqlite:///{system.bank_a}"),
        parse_named(Role.CONSUMER, f"bank-b=sqlite:///{system.bank_b}"),
        parse_named(Role.LEDGER, f"bank-b=sqlite:///{system.bank_b}#ledger"),
    )


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_rounds_find_what_comes_and_stop_when_asked(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twophase_spark.session.open_session", lambda settings: contextlib.nullcontext(spark))
    system = make_system(tmp_path)
    plant(system, nowadays(GOOD))
    bank_a_is_away = tmp_path / "away.db"
    asked = {"grace": 0, "late": 1e12, "overlap": 0, "every": 0.001, "cores": 1, "state": tmp_path / "state"}
    plan = read_plan(asked, {Role.COORDINATOR: [], Role.PRODUCER: []}, _config(tmp_path, system))
    reports: list[Report] = []
    said: list[str] = []
    before = signal.getsignal(signal.SIGTERM)

    def show(report: Report, _: Path | None) -> None:
        reports.append(report)
        if len(reports) == 1:
            system.bank_a.rename(bank_a_is_away)
        else:
            os.kill(os.getpid(), signal.SIGTERM)

    def say(text: str) -> None:
        said.append(text)
        if text.startswith("could not check in this round") and bank_a_is_away.exists():
            bank_a_is_away.rename(system.bank_a)
            plant(system, nowadays([Case("lost", "lost", None, "msg", NONE, ())]))

    assert perform(plan, ReportFiles(), say, show) == 1

    assert [report.verdict for report in reports] == [Verdict.CLEAN, Verdict.VIOLATIONS]
    assert reports[1].result.messages == 1
    assert any("bank-a: there is no file" in text for text in said), said
    assert said[-1] == "stopped"
    assert signal.getsignal(signal.SIGTERM) is before


def _config(folder: Path, system: System) -> Path:
    path = folder / "audit.toml"
    path.write_text(
        f"""
        [[coordinator]]
        url = "sqlite:///{system.coordinator}"
        [[service]]
        name = "bank-a"
        url = "sqlite:///{system.bank_a}"
        producer = true
        [[service]]
        name = "bank-b"
        url = "sqlite:///{system.bank_b}"
        consumer = true
        ledger = {{ table = "ledger" }}
        """
    )
    return path
