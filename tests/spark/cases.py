"""One message per case: each side's rows about it, and the audit's verdict."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from twophase.core.lifecycle import State
from twophase_spark.rules.facts import Inputs
from twophase_spark.rules.scope import ProducerScope, Scope, ServiceScope
from twophase_spark.schemas import BRANCHES_UNKNOWN, DIFFERENCE, EFFECT, JOURNAL, PRODUCER, spark_schema

NOW_MS = 1_800_000_000_000
IDENTITY = "a1"
BRANCH = ("01", "http://bank-b/in")
QUEUED = ("01", "queue://orders?id=7")

AGREES = "cast(get_json_object(payload, '$.amount') as bigint) = ledger.amount"

SCOPE = Scope(
    as_of_ms=NOW_MS,
    late_ms=60_000,
    producers=(ProducerScope("bank-a", IDENTITY),),
    consumers=(ServiceScope("bank-b"), ServiceScope("bank-c")),
    ledgers=("bank-b",),
)


class Case(msgspec.Struct, frozen=True):
    """A gid with the rows of each side.

    `producer`: the reason of its row; `barriers`: (service, branch); `ledger`: branches booked in bank-b; `left_out`:
    branches of rows there that the ledger's condition leaves out;
    `entries`: the branches that stand in queues, by their places in the message; `agrees`: the answer of the ledger's
    condition about each of its rows, None for no answer; `sent_to`: the address of its first branch before an operator
    redirected it; `by_dtm`: dtm had called that branch before the move.
    """

    gid: str
    expected: str
    state: State | None = State.SUCCEEDED
    producer: str | None = "msg"
    barriers: tuple[tuple[str, str], ...] = (("bank-b", "01"),)
    ledger: tuple[str | None, ...] = ("01",)
    decided_by: str = "submit"
    created_ms: int = NOW_MS - 5_000
    prepared_ms: int | None = None
    checked: bool | None = True
    identity: str | None = IDENTITY
    parked: bool = False
    delay_ms: int = 0
    branches: tuple[tuple[str, str], ...] = (BRANCH,)
    entries: tuple[int, ...] = ()
    entries_cleaned: bool = False
    agrees: bool | None = True
    sent_to: str = ""
    by_dtm: bool = False
    left_out: tuple[str, ...] = ()

    @property
    def flags(self) -> list[str]:
        """Return the expected flags as a list."""
        return self.expected.split()


def inputs_of(spark: SparkSession, cases: list[Case]) -> Inputs:
    """Return the inputs that hold these cases."""
    return Inputs(
        *(spark.createDataFrame(table, schema=spark_schema(table.schema)) for table in tables_of(cases).values())
    )


def tables_of(cases: list[Case]) -> dict[str, pa.Table]:
    """Return the same as Arrow tables, by the names of the inputs."""
    journal = [_message(case, case.state or State.ABSENT) for case in cases if case.state is not None or case.entries]
    producers = [
        {"source": "bank-a", "gid": case.gid, "reason": case.producer, "prepared_ms": case.prepared_ms}
        for case in cases
        if case.producer is not None
    ]
    barriers = [
        {"source": source, "gid": case.gid, "branch_id": branch} for case in cases for source, branch in case.barriers
    ]
    ledger = [{"source": "bank-b", "gid": case.gid, "branch_id": branch} for case in cases for branch in case.ledger]
    differences = [
        {
            "source": "bank-b",
            "gid": case.gid,
            "branch_id": branch,
            "agrees": AGREES,
            "differs": case.agrees is False or None,
        }
        for case in cases
        for branch in case.ledger
        if case.agrees is not True
    ]
    left_out = [
        {"source": "bank-b", "gid": case.gid, "branch_id": branch} for case in cases for branch in case.left_out
    ]
    tables = (
        (journal, JOURNAL),
        (producers, PRODUCER),
        (barriers, EFFECT),
        (ledger, EFFECT),
        (differences, DIFFERENCE),
        (left_out, EFFECT),
    )
    return {
        name: pa.Table.from_pylist(rows, schema=schema)
        for name, (rows, schema) in zip(Inputs._fields, tables, strict=True)
    }


def _message(case: Case, state: State) -> dict[str, Any]:
    final = state in {State.SUCCEEDED, State.FAILED}
    return {
        "source": "coordinator",
        "gid": case.gid,
        "state": int(state),
        "created_ms": case.created_ms,
        "decided_ms": case.created_ms + 10,
        "finished_ms": case.created_ms + 20 if final else None,
        "decided_by": "" if state is State.PREPARED else case.decided_by,
        "reason": "",
        "attempts": 0,
        "parked": case.parked,
        "delay_ms": case.delay_ms,
        "checked": case.checked if state else None,
        "producer": "bank-a" if case.checked else "",
        "identity": case.identity,
        "check_url": "http://bank-a/check" if case.checked else "",
        "branches": [{"branch_id": branch_id, "url": url} for branch_id, url in case.branches],
        "queued": [place for place, (_, url) in enumerate(case.branches) if url.startswith("queue://")],
        "entries": list(case.entries),
        "entries_cleaned": case.entries_cleaned,
    }


_PREPARED, _SUBMITTED, _FAILED = State.PREPARED, State.SUBMITTED, State.FAILED
_NOTHING: tuple[tuple[str, str], ...] = ()

IN_ORDER = [
    Case("transfer_delivered", ""),
    Case("transfer_rolled_back", "", _FAILED, "rollback", _NOTHING, (), decided_by="check-back"),
    Case("transfer_aborted_by_a_foreign_sdk_without_a_row", "", _FAILED, None, _NOTHING, (), decided_by="abort"),
    Case("transfer_barred_before_any_message_was_kept", "", None, "rollback", _NOTHING, ()),
    Case("plain_message_delivered", "", producer=None, checked=False, identity=None),
    Case("producer_books_its_own_side_in_the_same_ledger", "", ledger=("01", "00", "", None)),
    Case(
        "two_branches_in_two_services",
        "",
        barriers=(("bank-b", "01"), ("bank-c", "02")),
        branches=(BRANCH, ("02", "http://bank-c/in")),
    ),
    Case("foreign_producer_without_identity", "", identity=None),
    Case("redirected_to_bank_b_and_delivered", "", sent_to="http://old-bank/in"),
    Case("called_by_dtm_before_the_move", "", by_dtm=True),
]
MOVING = [
    Case("prepared_transaction_running", "in_flight", _PREPARED, None, _NOTHING, ()),
    Case("prepared_transaction_committed", "in_flight", _PREPARED, "msg", _NOTHING, ()),
    Case("prepared_transaction_rolled_back", "in_flight", _PREPARED, "rollback", _NOTHING, ()),
    Case("submitted_not_yet_called", "in_flight", _SUBMITTED, "msg", _NOTHING, ()),
    Case("submitted_effect_done_not_finished", "in_flight", _SUBMITTED),
    Case("called_before_a_submit_was_flushed", "in_flight", _PREPARED),
    Case("submitted_long_ago", "late", _SUBMITTED, "msg", _NOTHING, (), created_ms=NOW_MS - 60_001),
    Case("submitted_at_the_bound", "in_flight", _SUBMITTED, "msg", _NOTHING, (), created_ms=NOW_MS - 60_000),
    Case("delayed_message", "in_flight", _SUBMITTED, "msg", _NOTHING, (), created_ms=NOW_MS - 90_000, delay_ms=60_000),
    Case("parked_long_ago", "parked", _SUBMITTED, "msg", _NOTHING, (), created_ms=0, parked=True),
    Case("stopped_by_force", "stopped", _FAILED, "msg", _NOTHING, (), decided_by="operator"),
    Case(
        "queued_message_waits_for_its_time",
        "in_flight",
        _SUBMITTED,
        "msg",
        _NOTHING,
        (),
        delay_ms=1,
        branches=(QUEUED,),
    ),
    Case(
        "queued_message_stopped_by_force",
        "stopped",
        _FAILED,
        "msg",
        _NOTHING,
        (),
        decided_by="operator",
        branches=(QUEUED,),
        entries=(0,),
    ),
    Case("stopped_without_its_branches", "stopped", _FAILED, BRANCHES_UNKNOWN, _NOTHING, (), decided_by="operator"),
]
BROKEN = [
    Case("committed_and_no_message", "lost", None, "msg", _NOTHING, ()),
    Case("committed_without_its_branches_and_no_message", "lost", None, BRANCHES_UNKNOWN, _NOTHING, ()),
    Case("committed_and_aborted", "lost contrary_verdict", _FAILED, "msg", _NOTHING, (), decided_by="abort"),
    Case(
        "committed_and_denied_by_check_back",
        "lost contrary_verdict",
        _FAILED,
        "msg",
        _NOTHING,
        (),
        decided_by="check-back",
    ),
    Case("committed_and_never_appended", "lost unchecked", barriers=_NOTHING, ledger=(), branches=(QUEUED,)),
    Case(
        "submitted_and_never_appended",
        "lost in_flight",
        _SUBMITTED,
        branches=(BRANCH, ("02", QUEUED[1])),
    ),
    Case(
        "entry_of_a_failed_message",
        "ghost",
        _FAILED,
        "rollback",
        _NOTHING,
        (),
        decided_by="check-back",
        branches=(QUEUED,),
        entries=(0,),
    ),
    Case(
        "entry_of_a_running_transaction",
        "ghost in_flight",
        _PREPARED,
        None,
        _NOTHING,
        (),
        branches=(QUEUED,),
        entries=(0,),
    ),
    Case("entry_without_a_message", "ghost", None, None, _NOTHING, (), branches=(QUEUED,), entries=(0,)),
    Case(
        "appended_twice",
        "duplicate_effect unchecked",
        barriers=_NOTHING,
        ledger=(),
        branches=(QUEUED,),
        entries=(0, 0),
    ),
    Case("entry_of_a_branch_too_many", "orphan", entries=(0,)),
    Case("submitted_and_rolled_back", "ghost contrary_verdict in_flight", _SUBMITTED, "rollback", _NOTHING, ()),
    Case("delivered_and_rolled_back", "ghost contrary_verdict", producer="rollback"),
    Case("delivered_without_producer_row", "ghost", producer=None),
    Case("effect_of_a_failed_message", "ghost", _FAILED, "rollback", decided_by="check-back"),
    Case(
        "effect_of_a_failed_message_of_another_bank",
        "ghost unchecked",
        _FAILED,
        None,
        decided_by="check-back",
        identity="other",
    ),
    Case(
        "effect_of_a_message_aborted_without_a_check_address",
        "ghost",
        _FAILED,
        None,
        decided_by="abort",
        checked=False,
        identity=None,
    ),
    Case("effect_of_a_running_transaction", "ghost in_flight", _PREPARED, None),
    Case("effect_of_a_barred_transaction_without_message", "ghost orphan", None, "rollback"),
    Case("booked_twice", "duplicate_effect", ledger=("01", "01")),
    Case("booked_twice_and_still_called", "duplicate_effect in_flight", _SUBMITTED, ledger=("01", "01")),
    Case("effect_in_two_services", "duplicate_effect", barriers=(("bank-b", "01"), ("bank-c", "01"))),
    Case("succeeded_without_any_effect", "missing_effect", barriers=_NOTHING, ledger=()),
    Case("succeeded_without_the_second_branch", "missing_effect", branches=(BRANCH, ("02", "http://bank-c/in"))),
    Case("barrier_without_ledger", "missing_effect", ledger=()),
    Case("barrier_without_ledger_and_still_called", "missing_effect in_flight", _SUBMITTED, ledger=()),
    Case("effect_of_another_branch", "missing_effect orphan", barriers=(("bank-b", "02"),), ledger=("02",)),
    Case("booked_under_another_branch", "missing_effect unguarded_effect", ledger=("02",)),
    Case("ledger_without_barrier", "unguarded_effect", barriers=_NOTHING),
    Case("effect_without_a_message", "orphan", None, None),
    Case("effect_of_a_branch_too_many", "orphan", barriers=(("bank-b", "01"), ("bank-b", "02")), ledger=("01", "02")),
    Case("committed_delivered_and_forgotten", "lost orphan", None),
    Case(
        "denied_by_check_back_without_a_row", "contrary_verdict", _FAILED, None, _NOTHING, (), decided_by="check-back"
    ),
    Case(
        "lost_twice_booked", "lost duplicate_effect contrary_verdict", _FAILED, ledger=("01", "01"), decided_by="abort"
    ),
]
UNKNOWABLE = [
    Case("producer_of_another_bank", "unchecked", producer=None, identity="other"),
    Case("submitted_by_another_bank", "in_flight unchecked", _SUBMITTED, None, _NOTHING, (), identity="other"),
    Case("prepared_by_another_bank", "in_flight", _PREPARED, None, _NOTHING, (), identity="other"),
    Case("producer_without_identity_and_without_row", "unchecked", producer=None, identity=None),
    Case("topic_branch", "unchecked", barriers=_NOTHING, ledger=(), branches=(("01", "topic://rates"),)),
    Case("queue_branch", "unchecked", barriers=_NOTHING, ledger=(), branches=(QUEUED,), entries=(0,)),
    Case(
        "queue_branch_done_by_groups_of_two_services",
        "unchecked",
        barriers=(("bank-b", "01"), ("bank-c", "01")),
        branches=(QUEUED,),
        entries=(0,),
    ),
    Case("queue_branch_booked_without_a_barrier", "unchecked", barriers=_NOTHING, branches=(QUEUED,), entries=(0,)),
    Case(
        "queue_branch_booked_by_two_groups_of_a_service",
        "unchecked",
        barriers=_NOTHING,
        ledger=("01", "01"),
        branches=(QUEUED,),
        entries=(0,),
    ),
    Case("queue_branch_done_by_a_group_that_books_nothing", "unchecked", ledger=(), branches=(QUEUED,), entries=(0,)),
    Case(
        "entry_cleaned",
        "unchecked",
        barriers=_NOTHING,
        ledger=(),
        created_ms=NOW_MS - 10_000,
        branches=(QUEUED,),
        entries_cleaned=True,
    ),
    Case("unreadable_message", "unchecked", checked=None, identity=None, producer="msg"),
    Case("committed_without_its_branches", "in_flight unchecked", _PREPARED, BRANCHES_UNKNOWN, _NOTHING, ()),
    Case("delivered_though_its_row_lacks_its_branches", "unchecked", producer=BRANCHES_UNKNOWN),
]
ALL = IN_ORDER + MOVING + BROKEN + UNKNOWABLE
RECONCILED = [
    Case("booked_with_another_amount", "differing_effect", agrees=False),
    Case("booked_with_another_amount_and_still_called", "differing_effect in_flight", _SUBMITTED, agrees=False),
    Case("booked_with_another_amount_of_a_failed_message", "ghost differing_effect", _FAILED, "rollback", agrees=False),
    Case("booked_without_an_amount", "", agrees=None),
]
"""Messages whose ledger has a condition on payload and row."""
CANCELLED = [
    Case("booked_and_cancelled", "left_out", ledger=(), left_out=("01",)),
    Case("booked_and_cancelled_and_still_called", "in_flight left_out", _SUBMITTED, ledger=(), left_out=("01",)),
    Case("booked_without_a_barrier_and_cancelled", "left_out", barriers=_NOTHING, ledger=(), left_out=("01",)),
    Case("booked_again_after_it_was_cancelled", "", left_out=("01",)),
    Case("booked_twice_though_cancelled_once", "duplicate_effect", ledger=("01", "01"), left_out=("01",)),
    Case(
        "cancelled_in_one_branch_and_missing_in_another",
        "missing_effect left_out",
        barriers=(("bank-b", "01"), ("bank-b", "02")),
        ledger=(),
        left_out=("01",),
        branches=(BRANCH, ("02", "http://bank-b/in")),
    ),
    Case("another_branch_cancelled", "missing_effect", ledger=(), left_out=("02",)),
    Case("effect_of_a_failed_message_cancelled", "ghost left_out", _FAILED, "rollback", ledger=(), left_out=("01",)),
    Case("cancelled_effect_without_a_message", "orphan left_out", None, None, ledger=(), left_out=("01",)),
]
"""Messages whose ledger has a condition on the rows that count."""
