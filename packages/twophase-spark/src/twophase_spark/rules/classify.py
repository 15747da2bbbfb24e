"""The conditions of every class, as columns over the facts of one gid.

`docs/reference/audit.md` states them in words. Each is of the form "this was seen, and what must have come before it
was not", never "this came too late": so the second pass can resolve what the first saw in the middle of a change. A
fact that a horizon or a missing database makes unknowable is never a violation; it is named in `unknown` instead.
"""

from __future__ import annotations

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- PySpark's own documentation calls it so

from twophase.core.address import TOPIC_PREFIX
from twophase.core.gid import RANDOM_BYTES, make_gid
from twophase.core.lifecycle import State
from twophase_spark.rules.addresses import belongs, branches_of, is_named, is_served, of_calls, served_branches
from twophase_spark.rules.facts import IN_PART
from twophase_spark.rules.scope import Scope
from twophase_spark.rules.taxonomy import VIOLATIONS, Flag
from twophase_spark.schemas import BRANCHES_UNKNOWN

COMMITTED, ROLLED_BACK = "msg", "rollback"
BY_CHECK_BACK, BY_OPERATOR = "check-back", "operator"
UNKNOWN = (
    "older than history",
    "producer not given",
    "producer's barrier cleaned",
    "consumer's barrier cleaned",
    "branch of a service not given",
    "unreadable message",
    "born in the future",
    "branches unknown",
    "queue's entry cleaned",
    "cleaned meanwhile",
)
"""Facts of a message that may be impossible to know, as they stand in `unknown`."""
_OUR_GID = "^tp[0-9a-hjkmnp-tv-z]{26}$"
_LATE_ID = "^([0-9]{2})-[0-9a-f]{16}$"
"""The id of a late subscriber's call; it begins with the branch's (`late_id`)."""
_BIRTH_CHARACTERS = 12
_SEEN = ("barriers", "ledger")
"""The sides with the rows that count."""
STAGED = "staged_"
EFFECTS_TYPE = "array<struct<source:string,branch_id:string>>"
_PLACES_TYPE = "array<int>"
FUTURE_MS = 3_600_000
"""Bound on a birth after the audit's beginning; a later one has a wrong clock.

An audit may last, and messages continue to be made.
"""


class Columns(msgspec.Struct, frozen=True):
    """The parts of the conditions; each is true or false, or a list, never null.

    `effects`: ids of branches; `repeated`: one has several rows in a ledger; `shared`: one has rows in several
    consumers' barriers; `missing`: branches of the message; `strange`, `unbooked`, `unguarded`, `left_out`: effects;
    `entries`, `unappended`, `strange_entries`: places of branches in the message, those with an entry in a queue, those
    that must have one and have none, and those that must have none.
    """

    known: Column
    checked: Column
    state: Column
    decided_by: Column
    committed: Column
    branches_unknown: Column
    rolled_back: Column
    producer_given: Column
    producer_cleaned: Column
    consumer_cleaned: Column
    forgotten: Column
    effects: Column
    repeated: Column
    shared: Column
    missing: Column
    strange: Column
    unbooked: Column
    unguarded: Column
    left_out: Column
    branches_elsewhere: Column
    entries: Column
    unappended: Column
    strange_entries: Column
    entries_cleaned: Column

    @property
    def absent(self) -> Column:
        """True without a producer row, which must exist if there was ever a verdict."""
        return ~self.committed & ~self.rolled_back & self.producer_given & ~self.producer_cleaned

    def in_state(self, *states: State) -> Column:
        """Return True for a message that is known and in one of these states."""
        return _sure(self.state.isin(*[int(state) for state in states]))


def classify(facts: DataFrame, scope: Scope) -> DataFrame:
    """Add `flags`, `violation` and `unknown`.

    `flags` are values of `Flag`, in the order of precedence; `unknown` are values of `UNKNOWN`.
    """
    made = msgspec.structs.asdict(columns_of(scope))
    # Columns of their own first: else every condition would carry a copy of its parts, and Spark would spend more time
    # on planning than on a small audit.
    staged = facts.withColumns({STAGED + name: column for name, column in made.items()})
    columns = Columns(**{name: F.col(STAGED + name) for name in made})
    unknown = staged.withColumn("unknown", _names_where(_unknown(columns, scope)))
    conditions = _conditions(columns, scope) | {Flag.UNCHECKED: F.size("unknown") > 0}
    flagged = unknown.withColumn("flags", _names_where({flag.value: conditions[flag] for flag in Flag}))
    violations = F.array(*[F.lit(flag.value) for flag in VIOLATIONS])
    judged = flagged.withColumn("violation", F.arrays_overlap("flags", violations))
    return judged.drop(*[STAGED + name for name in made])


def _conditions(c: Columns, scope: Scope) -> dict[Flag, Column]:
    has_effect = F.size(c.effects) > 0
    delivered = c.in_state(State.SUBMITTED, State.SUCCEEDED)
    failed, by_operator = c.in_state(State.FAILED), c.decided_by == BY_OPERATOR
    not_committed = (c.rolled_back & ~c.committed) | c.absent
    late_before = scope.as_of_ms - scope.late_ms
    return {
        Flag.LOST: (c.committed & ((~c.known & ~c.forgotten) | (failed & ~by_operator)))
        | ((F.size(c.unappended) > 0) & ~c.entries_cleaned),
        Flag.GHOST: (c.known & c.checked & not_committed & (delivered | has_effect))
        | (~c.known & c.rolled_back & ~c.committed & has_effect)
        | (failed & ~by_operator & ~c.committed & has_effect)  # only an operator may fail a message that was called
        | ((F.size(c.entries) > 0) & (~c.known | c.in_state(State.PREPARED) | (failed & ~by_operator))),
        Flag.DUPLICATE_EFFECT: c.repeated | (F.size(c.entries) > F.size(F.array_distinct(c.entries))) | c.shared,
        Flag.MISSING_EFFECT: (c.in_state(State.SUCCEEDED) & (F.size(c.missing) > 0) & ~c.consumer_cleaned)
        | (F.size(c.unbooked) > 0),
        Flag.DIFFERING_EFFECT: F.size("differing") > 0,
        Flag.ORPHAN: (~c.known & ~c.forgotten & has_effect)
        | (c.known & ((F.size(c.strange) > 0) | (F.size(c.strange_entries) > 0))),
        Flag.CONTRARY_VERDICT: (c.committed & failed & ~by_operator)
        | (c.rolled_back & ~c.committed & c.checked & delivered)
        | (c.absent & c.checked & failed & (c.decided_by == BY_CHECK_BACK)),
        Flag.UNGUARDED_EFFECT: (F.size(c.unguarded) > 0) & ~c.consumer_cleaned,
        Flag.STOPPED: c.committed & failed & by_operator,
        Flag.PARKED: F.exists("live", lambda one: one["parked"]),
        Flag.LATE: F.exists("live", lambda one: ~one["parked"] & (one["due_ms"] < late_before)),
        Flag.IN_FLIGHT: F.exists("live", lambda one: ~one["parked"] & (one["due_ms"] >= late_before)),
        Flag.LEFT_OUT: F.size(c.left_out) > 0,
    }


def _unknown(c: Columns, scope: Scope) -> dict[str, Column]:
    verdict_due = c.checked & c.in_state(State.SUBMITTED, State.SUCCEEDED, State.FAILED) & ~c.committed & ~c.rolled_back
    succeeded, lacking = c.in_state(State.SUCCEEDED), F.size(c.missing) > 0
    conditions = (
        ~c.known & c.forgotten & (c.committed | (F.size(c.effects) > 0)),
        verdict_due & ~c.producer_given,
        verdict_due & c.producer_given & c.producer_cleaned,
        succeeded & lacking & c.consumer_cleaned,
        succeeded & c.branches_elsewhere,
        c.known & F.col("message")["checked"].isNull(),
        c.known & _sure(born_too_late(F.col("message")["created_ms"], scope)),
        c.branches_unknown & c.in_state(State.PREPARED, State.SUBMITTED, State.SUCCEEDED),
        (F.size(c.unappended) > 0) & c.entries_cleaned,
        F.lit(False),
    )
    return dict(zip(UNKNOWN, conditions, strict=True))


def columns_of(scope: Scope) -> Columns:
    """Return the parts of the conditions, as columns over the facts of one gid."""
    message = F.col("message")
    known = _sure(message["state"] > int(State.ABSENT))
    reasons = F.transform("producers", lambda row: row["reason"])
    branches = branches_of(message["branches"])
    expected = served_branches(branches, scope)
    effects = F.array_distinct(F.concat(_branch_ids("barriers"), _branch_ids("ledger")))
    called = of_calls(F.col("barriers"), branches)
    booked = of_calls(F.col("ledger"), branches)
    return Columns(
        known=known,
        checked=_sure(message["checked"]),
        state=message["state"],
        decided_by=F.coalesce(message["decided_by"], F.lit("")),
        committed=_sure(F.arrays_overlap(reasons, F.array(F.lit(COMMITTED), F.lit(BRANCHES_UNKNOWN)))),
        branches_unknown=_sure(F.array_contains(reasons, BRANCHES_UNKNOWN)),
        rolled_back=_sure(F.array_contains(reasons, ROLLED_BACK)),
        producer_given=_producer_given(scope),
        producer_cleaned=_born_before(scope.producer_horizon_ms),
        consumer_cleaned=_born_before(scope.consumer_horizon_ms),
        forgotten=_born_before(scope.history_horizon_ms),
        effects=effects,
        repeated=F.size(booked) > F.size(F.array_distinct(booked)),
        shared=F.size(called) > F.size(F.array_distinct(_ids(called))),
        missing=_missing(expected, scope, *_SEEN, "left_out"),
        strange=_strange(message["branches"], scope),
        unbooked=_unbooked(branches, scope, "ledger", "left_out"),
        unguarded=_unguarded(branches),
        left_out=_left_out(expected, branches, scope),
        branches_elsewhere=F.size(expected) < F.size(branches) if scope.consumers else F.lit(False),
        entries=_places(message["entries"]),
        unappended=_unappended(message),
        strange_entries=_strange_entries(message),
        entries_cleaned=_sure(message["entries_cleaned"]),
    )


def _unappended(message: Column) -> Column:
    """Return the branches that the deciding flush must have appended, and did not.

    A message with nothing but queues is submitted only as long as it waits for its time, and is appended when that has
    come.
    """
    waits = (message["state"] == int(State.SUBMITTED)) & (F.size("message.queued") == F.size("message.branches"))
    decided = message["state"].isin(int(State.SUBMITTED), int(State.SUCCEEDED))
    missing = F.array_except(_places(message["queued"]), _places(message["entries"]))
    return F.when(_sure(decided & ~waits), missing).otherwise(F.array().cast(_PLACES_TYPE))


def _strange_entries(message: Column) -> Column:
    entries = _places(message["entries"])
    return F.array_except(entries, F.coalesce(message["queued"], entries))


def _places(places: Column) -> Column:
    return F.coalesce(places, F.array().cast(_PLACES_TYPE))


def lacking(scope: Scope) -> dict[str, Column]:
    """Return the parts of a finding that need a repair.

    `missing`: branches of a message that succeeded; `unbooked`, `unguarded`: (source, branch_id) of effects that only
    the barrier or only the ledger has. A branch whose barrier may have been cleaned is not missing: nothing would turn
    a second call away.
    """
    made = columns_of(scope)
    of_class = {flag: F.array_contains("flags", flag.value) for flag in (Flag.MISSING_EFFECT, Flag.UNGUARDED_EFFECT)}
    to_call = of_class[Flag.MISSING_EFFECT] & made.in_state(State.SUCCEEDED) & ~made.consumer_cleaned
    return {
        "missing": F.when(to_call, F.array_distinct(_ids(made.missing))),
        "unbooked": F.when(of_class[Flag.MISSING_EFFECT], made.unbooked),
        "unguarded": F.when(of_class[Flag.UNGUARDED_EFFECT], made.unguarded),
    }


def _missing(expected: Column, scope: Scope, *sides: str) -> Column:
    """Return the branches without an effect on these sides.

    Where consumers have urls, an effect counts in a service that serves the branch.
    """
    rows = F.concat(*sides)
    if not scope.has_urls:
        effects = _ids(rows)
        return F.filter(expected, lambda branch: ~_sure(F.array_contains(effects, branch["branch_id"])))
    return F.filter(expected, lambda branch: ~F.exists(rows, lambda row: belongs(row, branch, scope)))


def _strange(branches: Column, scope: Scope) -> Column:
    """Return barrier rows of branches that the message does not have.

    Where consumers have urls, it must have them for the row's service, or for a service that was not given, and that
    holds for rows of ledgers, too. It is empty where not all of its calls can be named. A late subscriber's row stays
    when an operator redirects the topic's branch before the others have succeeded; no other call has such an id.
    """
    known = branches_of(branches)
    named = branches.isNotNull() & ~F.exists(known, lambda branch: branch["url"].startswith(TOPIC_PREFIX))
    none = F.array().cast(EFFECTS_TYPE)

    def is_late(row: Column) -> Column:
        return _sure(F.array_contains(_ids(known), F.regexp_extract(row["branch_id"], _LATE_ID, 1)))

    if scope.has_urls:
        rows = F.array_union("barriers", _booked())
        strange = F.filter(rows, lambda row: ~F.exists(known, lambda branch: _may_belong(row, branch, scope)))
    else:
        strange = F.filter("barriers", lambda row: ~_sure(F.array_contains(_ids(known), row["branch_id"])))
    return F.when(named, F.filter(strange, lambda row: ~is_late(row))).otherwise(none)


def _may_belong(row: Column, branch: Column, scope: Scope) -> Column:
    """Return True for an effect of this branch that may be the row's service's.

    A branch that no given service serves may have taken effect anywhere, also before an operator redirected it.
    """
    elsewhere = (row["branch_id"] == branch["branch_id"]) & ~is_served(branch["url"], scope)
    return belongs(row, branch, scope) | elsewhere


def _unbooked(branches: Column, scope: Scope, *sides: str) -> Column:
    """Return barrier rows of calls for which a given ledger has no row on these sides.

    Services may share a barrier table: a row of a branch that no given service serves has no row in a given ledger.
    """
    if not scope.ledgers:
        return F.array().cast(EFFECTS_TYPE)
    booked = F.filter("barriers", lambda row: row["source"].isin(*scope.ledgers))
    unbooked = of_calls(F.array_except(booked, F.array_distinct(F.concat(*sides))), branches)
    if not scope.has_urls:
        return unbooked
    elsewhere = _ids(F.filter(branches, lambda branch: ~is_served(branch["url"], scope)))
    return F.filter(unbooked, lambda row: ~_sure(F.array_contains(elsewhere, row["branch_id"])))


def _left_out(expected: Column, branches: Column, scope: Scope) -> Column:
    """Return effects that only have rows that a ledger's condition leaves out."""
    if not scope.ledgers:
        return F.array().cast(EFFECTS_TYPE)
    succeeded = _sure(F.col("message")["state"] == int(State.SUCCEEDED))
    missing, unbooked = _missing(expected, scope, *_SEEN), _unbooked(branches, scope, "ledger")

    def is_lacking(row: Column) -> Column:
        return succeeded & _sure(F.exists(missing, lambda branch: belongs(row, branch, scope)))

    return F.filter("left_out", lambda row: _sure(F.array_contains(unbooked, row)) | is_lacking(row))


def _unguarded(branches: Column) -> Column:
    """Return effects of calls in ledgers, whole or in part, that have no barrier row."""
    return of_calls(F.array_except(F.array_distinct(_booked()), F.col("barriers")), branches)


def _booked() -> Column:
    """Return the effects of ledgers, whole or in part."""
    end = f"{IN_PART}$"
    return F.transform(
        "ledger",
        lambda row: F.struct(
            row["source"].alias("source"), F.regexp_replace(row["branch_id"], end, "").alias("branch_id")
        ),
    )


def born_too_late(created_ms: Column, scope: Scope) -> Column:
    """Return True for an impossible birth time.

    A clock of the coordinators' is wrong, and ages and horizons mean nothing.
    """
    return created_ms > scope.as_of_ms + FUTURE_MS


def _producer_given(scope: Scope) -> Column:
    """Return True when the producer of this message is among the given ones.

    The proof is its row, or its check address: the identity that stands there, or its beginning. Without a proof a
    message may be anyone's, and no row of it can be missing here.
    """
    message = F.col("message")
    given = F.size("producers") > 0
    for producer in scope.producers:
        given |= is_named(message, producer)
    return given


def _born_before(horizon_ms: int) -> Column:
    """Return True when rows of this gid may have been cleaned.

    For a gid without any known birth that is always possible.
    """
    if horizon_ms <= 0:
        return F.lit(False)
    bound = make_gid(horizon_ms, bytes(RANDOM_BYTES))[:_BIRTH_CHARACTERS]
    born_ms = F.coalesce(F.col("message")["created_ms"], F.col("prepared_ms"))
    return (
        F.when(born_ms.isNotNull(), born_ms < horizon_ms)
        .when(F.col("gid").rlike(_OUR_GID), F.substring("gid", 1, _BIRTH_CHARACTERS) < bound)
        .otherwise(F.lit(True))
    )


def _branch_ids(column: str) -> Column:
    return _ids(F.col(column))


def _ids(rows: Column) -> Column:
    return F.transform(rows, lambda row: row["branch_id"])


def _sure(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))


def _names_where(conditions: dict[str, Column]) -> Column:
    return F.array_compact(F.array(*[F.when(condition, F.lit(name)) for name, condition in conditions.items()]))
