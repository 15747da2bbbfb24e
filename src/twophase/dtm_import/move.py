"""The move: messages and topics are read, planned, handed over, and counted.

After a kill at any point it can be run again. Nothing is remembered between two runs and nothing is written to dtm's
store; the server copies a message once, because it knows its gid. A dtm that still delivers what was handed over must
not happen. So its rows are looked at twice before the first message goes, and once more after the last: any change
between is its work.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from twophase.core.errors import InvalidRequest, LimitExceeded
from twophase.core.takeover import Outcome
from twophase.dtm_import.found import Others, Source, Topic
from twophase.dtm_import.plan import ONLY_DTM, Planned, Skipped, plan
from twophase.dtm_import.target import Target

REMARKS_MAX: Final = 10_000
"""Messages named one by one; beyond, they are only counted."""
_NO_MESSAGE: Final = (
    "Let dtm finish them before you copy; after that, dtm would deliver again what was copied "
    "(docs/how-to/move-from-dtm.md)."
)
_OF_THE_MESSAGE: Final = frozenset({InvalidRequest.code, LimitExceeded.code})
"""The message itself can never be stored here."""
_CONFLICT: Final = "Compare both (twophase messages show GID); nothing here was changed."
_UNREADABLE_TOPIC: Final = "Subscribe its addresses manually: twophase topic subscribe."


class Remark(msgspec.Struct, frozen=True):
    """One message that needs a person's attention, or is different here."""

    gid: str
    kind: str
    what: str
    reason: str
    remedy: str = ""


class TopicDone(msgspec.Struct, frozen=True):
    """One topic: how many addresses were or would be subscribed, and what went wrong."""

    name: str
    added: int
    present: int
    wrong: str = ""


class Report(msgspec.Struct):
    """The changes that were made, or would be."""

    applied: bool
    still_running: bool = False
    counts: dict[str, int] = {}
    """By outcome and state, such as `copied submitted`."""
    remarks: list[Remark] = []
    remarks_more: int = 0
    others: list[Others] = []
    topics: list[TopicDone] = []

    @property
    def complete(self) -> bool:
        """True when all of dtm's unfinished messages and topics are here, or would be."""
        return not self.failed and not any(topic.wrong for topic in self.topics)

    @property
    def failed(self) -> int:
        """Messages that are not here."""
        good = (Outcome.COPIED, Outcome.PRESENT)
        return sum(count for what, count in self.counts.items() if not what.startswith(good))


def moves_on(source: Source, watch_s: float) -> bool:
    """Return True when dtm changes its rows within `watch_s` seconds."""
    before = source.mark()
    time.sleep(watch_s)
    return source.mark() != before


def move(
    source: Source,
    target: Target,
    *,
    apply: bool,
    now_ms: Callable[[], int],
    on_progress: Callable[[int], None] = lambda _: None,
) -> Report:
    """Copy, or with `apply` False only find out what would be copied.

    Arguments:
        on_progress: hears how many more have been looked at.

    Raises:
        CoordinatorUnreachable: the server went away; what was copied is safe, run it again.
        SourceError, or whatever the source's library raises: dtm's store went away, as above.
    """
    report = Report(apply)
    before = source.mark()
    topics = source.topics()
    report.topics = [_move_topic(topic, target, apply=apply) for topic in topics]
    counts: Counter[str] = Counter()
    others: Counter[tuple[str, str]] = Counter(
        {(other.trans_type, other.status): other.count for other in source.others()}
    )
    for page in source.pages():
        planned: list[Planned] = []
        for found in page:
            if found.trans_type != "msg":
                others[found.trans_type, found.status] += 1
                continue
            one = plan(found, topics, now_ms())
            if isinstance(one, Planned):
                planned.append(one)
            else:
                counts[f"skipped {one.kind}"] += 1
                _tell(report, _skipped(one))
        _hand_over(planned, target, report, counts, apply=apply)
        on_progress(len(page))
    if apply:
        target.finish()
    report.counts = dict(sorted(counts.items()))
    report.others = [Others(kind, status, count) for (kind, status), count in sorted(others.items())]
    report.still_running = source.mark() != before
    return report


def _hand_over(planned: list[Planned], target: Target, report: Report, counts: Counter[str], *, apply: bool) -> None:
    if not planned:
        return
    results = target.take([one.message for one in planned], dry_run=not apply)
    for one, result in zip(planned, results, strict=True):
        message = one.message
        kind = f"msg {message.state}"
        counts[f"{result.outcome} {message.state}"] += 1
        if result.outcome is Outcome.CONFLICT:
            _tell(report, Remark(message.gid, kind, result.outcome, result.message, result.remedy or _CONFLICT))
        elif result.outcome in {Outcome.REFUSED, Outcome.LATER}:
            # The error's own remedy is for a producer, who may send it again: some of it may have been delivered.
            remedy = ONLY_DTM if result.code in _OF_THE_MESSAGE else result.remedy
            _tell(report, Remark(message.gid, kind, result.outcome, result.message, remedy))
        elif result.outcome is Outcome.COPIED:
            for note in one.notes:
                _tell(report, Remark(message.gid, kind, "note", note))


def _move_topic(topic: Topic, target: Target, *, apply: bool) -> TopicDone:
    if topic.subscribers is None:
        return TopicDone(topic.name, 0, 0, f"dtm's row cannot be read. {_UNREADABLE_TOPIC}")
    if not topic.subscribers:
        return TopicDone(topic.name, 0, 0)
    missing = target.missing(topic)
    present = len(topic.subscribers) - len(missing)
    if not apply:
        return TopicDone(topic.name, len(missing), present)
    wrong = [f"{one.url}: {why}" for one in missing if (why := target.subscribe(topic.name, one))]
    return TopicDone(topic.name, len(missing) - len(wrong), present, "; ".join(wrong))


def _skipped(one: Skipped) -> Remark:
    return Remark(one.gid, one.kind, "skipped", one.reason, one.remedy)


def _tell(report: Report, remark: Remark) -> None:
    if len(report.remarks) < REMARKS_MAX:
        report.remarks.append(remark)
    else:
        report.remarks_more += 1


def remedy_of_others(others: Iterable[Others]) -> str:
    """Return the remedy for transactions that are no messages; empty for no such one."""
    return _NO_MESSAGE if any(True for _ in others) else ""
