"""The verified point: what earlier audits have seen.

By it the next one reads only newer rows. Of a coordinator that is exact: history is numbered in the order of commits
(node, seq), and live messages are few. Of a barrier or ledger the key grows in the order of *inserts*, and a
transaction with a smaller key may commit later; so rows are read again from a point that lay `overlap` back, and a
transaction that stays open for longer than that may be missed where its coordinator has forgotten it too. Messages that
were broken or still moving are carried over, gid by gid, until they are in order.

The file is replaced as a whole, after the report is written: a run that is killed leaves the old point, and the next
run does its work again.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from twophase.core.errors import CannotRead, ConfigurationError
from twophase_spark.coverage import Coverage
from twophase_spark.inputs.found_again import End, FoundAgain, ends_of, name_of
from twophase_spark.inputs.tally import Tally
from twophase_spark.locations import PARAMETERS, Role
from twophase_spark.readers.probe import ENTRIES, Bound, Slice, Source, cut, history_slices

FORMAT = 1
CARRIED_MAX = 500_000
"""Bound on open messages; beyond it the verified point stays.

Then the next run reads the same rows again.
"""
SEEN_MAX = 10_000
"""Bound on broken messages; beyond it none is remembered.

Then each run waits for its grace time.
"""
RUNS_KEPT = 200
_ANEW = "so everything was compared from its beginning"
_NOTHING_AGAIN = FoundAgain()


class Mark(msgspec.Struct, frozen=True):
    """The highest keys of the barriers and ledgers at a time, by `role name`."""

    as_of_ms: int
    keys: dict[str, int]


class Run(msgspec.Struct, frozen=True):
    """One run in short, for the trend."""

    as_of_ms: int
    messages: int
    clean: int
    violations: int
    unchecked: int
    carried: int


class Seen(msgspec.Struct, frozen=True):
    """The digest of a broken message's rows (`rules.remembered`).

    `since_ms`: the time since when they are equal to those of the last run.
    """

    since_ms: int
    digest: int


class VerifiedPoint(msgspec.Struct, frozen=True):
    """The verified point.

    `sources`: by `role name`, the database it was; `options`: the digest of its options, which an older version did
    not write; `verified`: by coordinator and node, seq. `carried`: messages that were broken or open; `seen`: those
    that were broken, by gid; `proven`: a run has proved something; `tallies`: of barriers and ledgers (`inputs.tally`),
    until there is a mark that is old enough; `ends`: the last rows of tables, and `identities` of barrier tables, by
    which they are known again; `since_ms`: of the run, before which coordinators need know no message.
    """

    format: int = FORMAT
    as_of_ms: int = 0
    sources: dict[str, str] = {}
    verified: dict[str, dict[int, int]] = {}
    marks: tuple[Mark, ...] = ()
    carried: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()
    seen: dict[str, Seen] = {}
    proven: bool = True
    tallies: dict[str, Tally] = {}
    options: dict[str, str] = {}
    ends: dict[str, dict[int, End]] = {}
    identities: dict[str, str] = {}
    since_ms: int = 0


class _Known(msgspec.Struct):
    """The field that each state has.

    A run would replace another file, such as a baseline.
    """

    verified: msgspec.Raw


class Increment(msgspec.Struct, frozen=True):
    """The rows that are new since the verified point.

    `sources` with slices of them; `remarks`: facts that a reader must know; `whole`: everything is to be read;
    `others`: names of sources whose rows are others, so that no earlier key means anything.
    """

    sources: tuple[Source, ...]
    remarks: tuple[Coverage, ...]
    whole: bool = False
    others: frozenset[str] = frozenset()


def read_state(path: Path) -> VerifiedPoint | None:
    """Return the verified point; None before the first one.

    Raises:
        ConfigurationError: the file is no such state.
    """
    try:
        content = path.read_bytes()
        msgspec.json.decode(content, type=_Known)
        state = msgspec.json.decode(content, type=VerifiedPoint)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ConfigurationError(f"{path} is not a state of an audit: {error}. Name another file.") from None
    if state.format != FORMAT:
        raise ConfigurationError(f"{path} has format {state.format}; this twophase knows {FORMAT}.")
    return state


def write_state(path: Path, state: VerifiedPoint) -> None:
    """Replace the file, which afterwards holds the old state or the new one.

    That holds also when the machine fails meanwhile.
    """
    folder = path.absolute().parent
    descriptor, name = tempfile.mkstemp(prefix=path.name, suffix=".new", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def settled_mark(state: VerifiedPoint, overlap_ms: int) -> Mark | None:
    """Return the newest mark before which no transaction is open any more.

    None when every mark is too young.
    """
    return max((mark for mark in state.marks if mark.as_of_ms <= state.as_of_ms - overlap_ms), default=None, key=_age)


def increment_of(
    sources: Sequence[Source],
    state: VerifiedPoint,
    overlap_ms: int,
    slices_max: int,
    standing: Mapping[str, int] | None = None,
    again: FoundAgain = _NOTHING_AGAIN,
    since_ms: int = 0,
) -> Increment:
    """Return the rows to read beyond the verified point.

    A producer, consumer or ledger that no run has seen yet makes the run a whole one: what is missing in it has no row
    there that could be new. So does one whose options are others, or not known: messages were compared by other rules.
    So does one whose keys end before where they ended, or that has other rows than it had: it was restored from a
    backup, and what it lost was compared before. Of a coordinator only its own rows are there to compare. So does an
    earlier `since_ms`, because what was born behind it need not have been known before.

    Arguments:
        sources: as they were found just now.
        state: the verified point.
        overlap_ms: how long a transaction may stay open.
        slices_max: parts of a table.
        standing: by `role name`, keys up to which the last run is known to have seen every row.
        again: what was found again of the last run's rows.
        since_ms: before it, coordinators need know no message.

    Raises:
        CannotRead: a history ends before the verified point, or has another message there: another store, or one from
            a backup.
    """
    mark = settled_mark(state, overlap_ms)
    whole = since_ms < state.since_ms
    remarks = [Coverage("--since is earlier than it was", checked=True, note=_ANEW)] if whole else []
    parts: list[_Part] = []
    for source in sources:
        name = name_of(source)
        known = state.sources.get(name)
        if known is None:
            parts.append(_new(source))
        elif known != source.location.shown:
            raise CannotRead(
                f"{name} was {known} when it was verified, and is {source.location.shown} now. Give it "
                "another name, or begin anew with another state file."
            )
        elif source.location.role is Role.COORDINATOR:
            parts.append(_of_coordinator(source, state, overlap_ms, slices_max, again))
        else:
            seen = max(0 if mark is None else mark.keys.get(name, 0), (standing or {}).get(name, 0))
            parts.append(_of_service(source, state, seen, slices_max, again))
    whole |= any(part.whole for part in parts)
    remarks += [remark for part in parts for remark in part.remarks]
    gone = sorted(state.sources.keys() - {name_of(source) for source in sources})
    remarks += [Coverage(name, checked=False, note="not given any more; it was in earlier runs") for name in gone]
    chosen = sources if whole else [part.source for part in parts]
    others = frozenset(name_of(part.source) for part in parts if part.is_other)
    return Increment(tuple(chosen), tuple(remarks), whole, others)


class _Part(NamedTuple):
    """One source of an increment; the names are those of `Increment`."""

    source: Source
    remarks: Sequence[Coverage]
    whole: bool = False
    is_other: bool = False


def _new(source: Source) -> _Part:
    whole = source.location.role is not Role.COORDINATOR
    note = _ANEW if whole else "read from its beginning"
    return _Part(source, [Coverage(f"{name_of(source)} is new", checked=True, note=note)], whole)


def _of_coordinator(source: Source, state: VerifiedPoint, overlap_ms: int, slices_max: int, again: FoundAgain) -> _Part:
    slices, gaps = _history_since(source, state.verified.get(source.location.name, {}), slices_max, again)
    if source.has_queues:  # an entry may be committed some time after its own
        slices = (*slices, Slice(ENTRIES, "stored_ms", max(0, state.as_of_ms - overlap_ms)))
    return _Part(msgspec.structs.replace(source, slices=slices), gaps)


def _of_service(source: Source, state: VerifiedPoint, seen: int, slices_max: int, again: FoundAgain) -> _Part:
    other = _other(source, state, again)
    differs = _reread(source, state) or other or _fallen_back(source, state)
    remarks = [] if differs is None else [differs]
    chosen = _since(source, seen, slices_max, remarks)
    return _Part(chosen, remarks, differs is not None and differs.checked, other is not None)


def advanced(
    state: VerifiedPoint | None,
    sources: Sequence[Source],
    as_of_ms: int,
    overlap_ms: int,
    carried: Sequence[str],
    run: Run,
    tallies: Mapping[str, Tally] | None = None,
    others: Collection[str] = (),
    since_ms: int = 0,
) -> VerifiedPoint:
    """Return the point after a run over `sources`.

    They are as they were found before anything was read. `others` and `since_ms`: see `Increment`.
    """
    before = state or VerifiedPoint()
    runs = (*before.runs, run)[-RUNS_KEPT:]
    if len(carried) > CARRIED_MAX:
        return msgspec.structs.replace(before, runs=runs)
    keys = {
        name_of(source): source.bounds[0].last
        for source in sources
        if source.location.role is not Role.COORDINATOR and source.bounds
    }
    # Keys that a database gives again, after a restored backup or a cleaning of all rows, reach no further than it does
    # now. By other options the key may be another column.
    options = {name_of(source): _options_of(source) for source in sources}
    changed = {name for name, digest in options.items() if before.options.get(name, digest) != digest} | {*others}
    older = [
        Mark(
            mark.as_of_ms,
            {name: min(key, keys.get(name, key)) for name, key in mark.keys.items() if name not in changed},
        )
        for mark in before.marks
    ]
    marks = [*older, Mark(as_of_ms, keys)]
    old_enough = [mark for mark in marks if mark.as_of_ms <= as_of_ms - overlap_ms]
    return VerifiedPoint(
        as_of_ms=as_of_ms,
        sources={name_of(source): source.location.shown for source in sources},
        verified={
            source.location.name: {bound.node or 0: bound.last for bound in source.bounds}
            for source in sources
            if source.location.role is Role.COORDINATOR
        },
        marks=tuple(marks[max(len(old_enough) - 1, 0) :]),
        carried=tuple(sorted(carried)),
        runs=runs,
        tallies=dict(tallies or {}),
        options=options,
        ends=ends_of(sources),
        identities={name_of(source): source.identity for source in sources if source.identity is not None},
        since_ms=since_ms,
    )


def _options_of(source: Source) -> str:
    """Return a digest of the options that change the comparison.

    Without any it is an empty text.
    """
    values = {option.name: getattr(source.location, option.field) for option in PARAMETERS}
    given = {option.name: values[option.name] for option in PARAMETERS if values[option.name] != option.default}
    return hashlib.sha256(msgspec.json.encode(given)).hexdigest()[:32] if given else ""


def _reread(source: Source, state: VerifiedPoint) -> Coverage | None:
    """Return the remark about a source that earlier runs read by other options.

    None if they did not.
    """
    before = state.options.get(name_of(source))
    if before == _options_of(source):
        return None
    if before is None:
        return Coverage(f"{name_of(source)}: its options", checked=True, note=f"an older version kept none, {_ANEW}")
    return Coverage(f"{name_of(source)}: its options changed", checked=True, note=_ANEW)


def _other(source: Source, state: VerifiedPoint, again: FoundAgain) -> Coverage | None:
    """Return the remark about a source that is another database, or has other rows.

    None when it is not known to be.
    """
    name = name_of(source)
    identity = state.identities.get(name, source.identity)
    if source.identity is not None and source.identity != identity:
        return Coverage(f"{name} is another database than it was", checked=True, note=_ANEW)
    if name in again.others:
        note = f"another row stands at {again.others[name]}: it was restored from a backup, {_ANEW}"
        return Coverage(f"{name} has other rows than it had", checked=True, note=note)
    return None


def _age(mark: Mark) -> int:
    return mark.as_of_ms


def _history_since(
    source: Source, verified: dict[int, int], slices_max: int, again: FoundAgain
) -> tuple[tuple[Slice, ...], list[Coverage]]:
    slices: list[Slice] = [Slice("message")]
    gaps: list[Coverage] = []
    missing = sorted(verified.keys() - {bound.node for bound in source.bounds})
    if missing:
        raise CannotRead(f"{name_of(source)}: node {missing[0]} has been verified, and the store does not know it.")
    if name_of(source) in again.others:
        raise CannotRead(
            f"{name_of(source)}: history has another message at {again.others[name_of(source)]} than was verified: "
            "another store, or one from a backup. Begin anew with another state file."
        )
    rows = again.rows.get(source.location.name, {})
    for bound in source.bounds:
        seen = verified.get(bound.node or 0, 0)
        if bound.last < seen:
            raise CannotRead(
                f"{name_of(source)}: history of node {bound.node} ends at {bound.last}, and {seen} was verified: "
                "another store, or one from a backup. Begin anew with another state file."
            )
        at_the_end = max(min(bound.first, bound.last + 1) - 1 - seen, 0)
        cleaned = bound.last - seen - rows[bound.node or 0] if (bound.node or 0) in rows else at_the_end
        if cleaned > 0:
            last = seen + cleaned if cleaned == at_the_end else bound.last
            note = f"history {seen + 1} to {last} was cleaned before this audit read it"
            if cleaned != at_the_end:
                note = f"cleaned from history {seen + 1} to {last} before this audit read them"
            name = f"{name_of(source)}: {cleaned} messages of node {bound.node}"
            gaps.append(Coverage(name, checked=False, note=note))
        slices += history_slices(
            Bound(max(bound.first, seen + 1), bound.last, "seq", bound.node), slices_max, after=True
        )
    return tuple(slices), gaps


def _fallen_back(source: Source, state: VerifiedPoint) -> Coverage | None:
    """Return the remark about a source whose keys end before those of a run.

    None when they do not.
    """
    seen = state.marks[-1].keys.get(name_of(source), 0) if state.marks else 0
    if not source.bounds or source.bounds[0].last >= seen:
        return None
    [bound] = source.bounds
    if bound.first > bound.last and source.horizon_ms:
        note = (
            f"none stands any more, and {bound.key} {seen} was seen: cleaned, or lost with a backup that was put back"
        )
        return Coverage(f"{name_of(source)}: its rows", checked=False, note=note)
    note = f"it ends at {bound.key} {bound.last}, and {seen} was seen; {_ANEW}"
    return Coverage(f"{name_of(source)} is older than it was", checked=True, note=note)


def _since(source: Source, seen: int, slices_max: int, remarks: list[Coverage]) -> Source:
    if not source.bounds:
        why = "read whole: its table has no key to follow; name one with key="
        remarks.append(Coverage(name_of(source), checked=True, note=why))
        return source
    [bound] = source.bounds
    first = max(bound.first, seen + 1)
    if first > bound.last:
        slices: tuple[Slice, ...] = (Slice(source.location.table, bound.key, first, None),)
    else:
        slices = cut(source.location.table, bound.key, first, bound.last, slices_max)
        slices = (msgspec.structs.replace(slices[0], first=first), *slices[1:])
    return msgspec.structs.replace(source, slices=slices)
