"""Log lines for the coordinator's events that a person must see.

They are incidents, outages, and messages that wait for an operator. Together with `metrics` this is the coordinator's
observer: events are counted there, and some of them logged here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

import structlog

from twophase.coordinator.dispatch.alerts import AlertResult
from twophase.coordinator.dispatch.evidence import tellable
from twophase.core.credentials import without_credentials
from twophase.core.verdict import BranchResult, Verdict
from twophase.server.codecs.query import timestamp
from twophase.server.metrics import Metrics
from twophase.stores.base import Purged
from twophase.stores.rows import Attempt, AttemptKind

_BURIALS_S: Final = 600.0
"""Time between two lines about burials of one group that fail."""
_GROUPS_MAX: Final = 1_000
_log = structlog.get_logger("twophase.coordinator")


class LogObserver:
    """The log lines, by their event of `coordinator.observer.Observer`."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._horizon_ms = 0
        self._now_s = now_s
        self._burials_s: dict[str, float] = {}
        """The time of the last line about each group whose burials fail."""

    def flush_failed(self, code: str, what: str = "") -> None:
        """A flush failed; its requests were answered with it."""
        _log.error("the store failed; nothing acknowledged is lost", code=code, what=what)

    def not_done(self, attempt: Attempt) -> None:
        """Write one line for the person who looks at the terminal.

        The answer's text stays in the store (`query`).
        """
        waits = attempt.result in {Verdict.IN_PROGRESS.value, BranchResult.ONGOING.value}
        what = "check-back without a verdict" if attempt.kind is AttemptKind.CHECK_BACK else "branch not done"
        _log.log(
            logging.INFO if waits else logging.WARNING,
            f"{what}; it is repeated",
            target=attempt.target,
            gid=attempt.gid,
            result=attempt.result,
            status=attempt.status,
            error=tellable(attempt),
        )

    def check_address_failing(self, target: str, state: str, what: str, remedy: str) -> None:
        """Report an address that would leave messages undecided after a crash.

        They would stay so until the address is mended.
        """
        _log.warning(
            "this check address cannot answer check-backs; its messages are delivered as long as nothing crashes",
            target=target,
            state=state,
            what=without_credentials(what),
            remedy=remedy,
        )

    def check_address_well(self, target: str) -> None:
        """Log that a reported trouble is over."""
        _log.info("this check address can answer check-backs again", target=target)

    def parked(self, gid: str, why: str) -> None:
        """A message waits for an operator."""
        _log.warning("parked: this message is not retried until it is redriven", gid=gid, why=why)

    def alerted(self, result: str, host: str, what: str = "") -> None:
        """Report an alert that did not arrive."""
        if result != AlertResult.SENT:
            _log.warning("an alert did not reach the webhook", target=host, result=result, what=what)

    def incident(self, gid: str, what: str) -> None:
        """A contrary decision: a promise is broken, a person should look."""
        _log.error("incident: a contrary decision was refused", gid=gid, what=what)

    def purged(self, step: Purged) -> None:
        """One step of cleaning."""
        self._horizon_ms = step.horizon_ms

    def cleaned(self, history: int, attempts: int, seconds: float) -> None:
        """A cleaning has ended; one that removed nothing is not worth a line."""
        if history or attempts:
            before = timestamp(self._horizon_ms)
            _log.info("old history removed", rows=history, attempts=attempts, seconds=round(seconds, 1), before=before)

    def cleaning_failed(self, code: str, what: str = "") -> None:
        """A cleaning has failed."""
        _log.warning("old history could not be removed; the next cleaning continues", code=code, what=what)

    def joined(self, node: int, epoch: int) -> None:
        """This node has taken a node slot of a shared store."""
        _log.info("this node has a slot on the shared store", node=node, epoch=epoch)

    def fenced(self, node: int, epoch: int, what: str) -> None:
        """This node was fenced: by another node, or as the store lost what it wrote."""
        _log.error("fenced: this node forgets everything and rejoins", node=node, epoch=epoch, what=what)

    def adopted(self, messages: int) -> None:
        """This node has adopted messages of nodes that are gone."""
        _log.warning("took over the messages of a node that is gone", messages=messages)

    def overdue(self, messages: int) -> None:
        """Messages were due for long, and are tried now."""
        _log.error("overdue messages that nothing would have tried are tried now", messages=messages)

    def heartbeat_failed(self, code: str, what: str = "") -> None:
        """The lease was not renewed."""
        _log.warning("the store did not answer this node's heartbeat; it is tried again", code=code, what=what)

    def topic_over(self, topic: str, why: str, remedy: str) -> None:
        """Report a topic of queues that grows beyond its bound."""
        _log.warning("this topic keeps more messages than its bound of bytes", topic=topic, why=why, remedy=remedy)

    def topic_within(self, topic: str) -> None:
        """Log that a reported topic is back within its bound."""
        _log.info("this topic keeps no more messages than its bound of bytes again", topic=topic)

    def burial_failed(self, group: str, code: str, what: str) -> None:
        """Report a group whose dead letters get no more messages, once in a while."""
        now_s = self._now_s()
        if now_s - self._burials_s.get(group, -_BURIALS_S) < _BURIALS_S:
            return
        if len(self._burials_s) >= _GROUPS_MAX:
            self._burials_s.clear()
        self._burials_s[group] = now_s
        _log.error(
            "messages that were given out too often do not get into the dead letters; it is tried again",
            group=group,
            code=code,
            what=what,
        )

    def topics_failed(self, code: str, what: str = "") -> None:
        """The store's topics could not be read."""
        _log.warning("the store did not say whether topics have changed; it is asked again", code=code, what=what)


class CountedAndLogged:
    """The coordinator's observer: counts events, and logs some.

    Events of the hot path go straight to where they are counted.
    """

    def __init__(self, metrics: Metrics, log: LogObserver) -> None:
        self._metrics = metrics
        self._log = log
        self.flushed = metrics.flushed
        self.check_back_answered = metrics.check_back_answered
        self.branch_answered = metrics.branch_answered
        self.refused = metrics.refused
        self.finished = metrics.finished
        self.moved = metrics.moved
        self.probed = metrics.probed
        self.not_done = log.not_done
        self.check_address_failing = log.check_address_failing
        self.check_address_well = log.check_address_well
        self.cleaned = log.cleaned
        self.cleaning_failed = log.cleaning_failed
        self.topic_over = log.topic_over
        self.topic_within = log.topic_within

    def flush_failed(self, code: str, what: str = "") -> None:
        """See `coordinator.observer.Observer`, as for all of these."""
        self._metrics.flush_failed(code)
        self._log.flush_failed(code, what)

    def parked(self, gid: str, why: str) -> None:
        """A message waits for an operator."""
        self._metrics.parked()
        self._log.parked(gid, why)

    def alerted(self, result: str, host: str, what: str = "") -> None:
        """Count an alert by its outcome, and log it if it did not arrive."""
        self._metrics.alerted(result)
        self._log.alerted(result, host, what)

    def incident(self, gid: str, what: str) -> None:
        """A contrary decision."""
        self._metrics.incident()
        self._log.incident(gid, what)

    def purged(self, step: Purged) -> None:
        """One step of cleaning."""
        self._metrics.purged(step)
        self._log.purged(step)

    def joined(self, node: int, epoch: int) -> None:
        """This node has taken a node slot of a shared store."""
        self._metrics.joined()
        self._log.joined(node, epoch)

    def fenced(self, node: int, epoch: int, what: str) -> None:
        """This node was fenced: by another node, or as the store lost what it wrote."""
        self._metrics.fenced()
        self._log.fenced(node, epoch, what)

    def adopted(self, messages: int) -> None:
        """This node has adopted messages of nodes that are gone."""
        self._metrics.adopted(messages)
        self._log.adopted(messages)

    def overdue(self, messages: int) -> None:
        """Messages were due for long, and are tried now."""
        self._metrics.overdue(messages)
        self._log.overdue(messages)

    def heartbeat_failed(self, code: str, what: str = "") -> None:
        """The lease was not renewed."""
        self._metrics.heartbeat_failed(code)
        self._log.heartbeat_failed(code, what)

    def burial_failed(self, group: str, code: str, what: str) -> None:
        """A message did not get into the dead letters."""
        self._metrics.burial_failed(code)
        self._log.burial_failed(group, code, what)

    def topics_failed(self, code: str, what: str = "") -> None:
        """The store's topics could not be read."""
        self._metrics.topics_failed(code)
        self._log.topics_failed(code, what)
