"""The coordinator's events, counted for Prometheus.

`log_observer` logs those that a person must see. Events arrive on the hot path, so they only add plain numbers;
everything else happens at a scrape. The number of series is bounded whatever clients do: labels are values of
twophase's own enums, and of destinations those that the operator lists and 100 more have a name, the others share
`other`. A destination that is not listed and did not answer for 5 minutes loses its name to the next one that answers.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from twophase.coordinator.gauges import Gauges, KeptGauge
from twophase.core.lifecycle import State
from twophase.stores.base import Overview, Purged

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ITEMS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)
_AGES: Final = ("1m", "10m", "1h", "1d", "older")
"""Names of the bounds `producers.AGES_MS`, and of what is beyond."""
_DESTINATIONS_MAX: Final = 100
_SILENT_S: Final = 300.0
_OTHER: Final = "other"
_ERROR: Final = "error"
"""The result of a call without an answer of meaning."""


class Histogram:
    """Counts of values by upper bound."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add_to(self, family: HistogramMetricFamily, labels: list[str]) -> None:
        """Show what was counted, cumulatively as Prometheus wants it."""
        buckets: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        family.add_metric(labels, buckets, self._sum)


class Snapshot(msgspec.Struct, frozen=True):
    """Values that only a query can give, as of one scrape.

    `overview`: None when the store does not answer.
    """

    overview: Overview | None
    gauges: Gauges
    connections: int
    now_ms: int
    ready: bool


class Metrics(Collector):
    """Counters of the events of `coordinator.observer.Observer`.

    It is Prometheus' collector of them, too.

    Arguments:
        now_s: the clock, in seconds.
        listed: destinations that always have a name.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic, *, listed: Iterable[str] = ()) -> None:
        self._flush_items = Histogram(ITEMS)
        self._flush_seconds = Histogram(SECONDS)
        self._flush_failed: Counter[str] = Counter()
        self._check_backs: Counter[str] = Counter()
        self._probes: Counter[str] = Counter()
        self._check_back_seconds = Histogram(SECONDS)
        self._branches: Counter[tuple[str, str]] = Counter()
        self._branch_seconds: dict[str, Histogram] = {}
        self._now_s = now_s
        self._named: dict[str, float] = {}
        """Destinations with a name, and the time of the last answer of each.

        The times are kept while all names are taken.
        """
        self._all_answered_until_s = 0.0
        self.always_name(listed)
        self._refused: Counter[str] = Counter()
        self._finished: Counter[tuple[State, str]] = Counter()
        self._incidents = 0
        self._parked = 0
        self._alerts: Counter[str] = Counter()
        self._fenced = 0
        self._joined = 0
        self._adopted = 0
        self._moved = 0
        self._overdue = 0
        self._heartbeat_failed: Counter[str] = Counter()
        self._topics_failed: Counter[str] = Counter()
        self._burial_failed: Counter[str] = Counter()
        self._removed = {"history": 0, "attempt": 0}
        self._last_purge: Purged | None = None
        self._snapshot: Snapshot | None = None
        self.anonymous = False
        """True when clients of other machines may do everything without a name."""
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def always_name(self, destinations: Iterable[str]) -> None:
        """Give these destinations names that they keep, instead of those listed before."""
        self._listed = frozenset(destinations)
        self._named_max = _DESTINATIONS_MAX + len(self._listed)
        self._named = dict.fromkeys((*self._named, *self._listed), self._now_s())

    def flushed(self, items: int, seconds: float) -> None:
        """A flush made changes durable."""
        self._flush_items.add(items)
        self._flush_seconds.add(seconds)

    def flush_failed(self, code: str) -> None:
        """A flush failed."""
        self._flush_failed[code] += 1

    def check_back_answered(self, verdict: str, seconds: float) -> None:
        """A producer was asked."""
        self._check_backs[verdict] += 1
        self._check_back_seconds.add(seconds)

    def probed(self, result: str) -> None:
        """A check address was probed."""
        self._probes[result] += 1

    def branch_answered(self, result: str, destination: str, seconds: float) -> None:
        """A branch was called."""
        if destination not in self._named:
            if not self._name(destination, result):
                destination = _OTHER
        elif len(self._named) >= self._named_max and result != _ERROR:
            self._named[destination] = self._now_s()
        self._branches[result, destination] += 1
        latencies = self._branch_seconds.get(result)
        if latencies is None:
            latencies = self._branch_seconds[result] = Histogram(SECONDS)
        latencies.add(seconds)

    def _name(self, destination: str, result: str) -> bool:
        """Give a destination a name of its own; False when all names are in use."""
        named, now_s = self._named, self._now_s()
        if len(named) < self._named_max:
            named[destination] = now_s
            if len(named) == self._named_max:
                self._named = dict.fromkeys(named, now_s)  # from here on the times are kept
            return True
        if result == _ERROR or now_s < self._all_answered_until_s:
            return False
        others = [(name, answered_s) for name, answered_s in named.items() if name not in self._listed]
        silent, answered_s = min(others, key=itemgetter(1))
        self._all_answered_until_s = answered_s + _SILENT_S
        if now_s < self._all_answered_until_s:
            return False
        del named[silent]
        for key in [key for key in self._branches if key[1] == silent]:
            del self._branches[key]  # added to `other`, they would look like calls of this moment
        named[destination] = now_s
        return True

    def refused(self, code: str) -> None:
        """A request was refused, here or by the port in front of the coordinator."""
        self._refused[code] += 1

    def finished(self, state: State, decided_by: str) -> None:
        """A message became final."""
        self._finished[state, decided_by] += 1

    def parked(self) -> None:
        """A message waits for an operator."""
        self._parked += 1

    def alerted(self, result: str) -> None:
        """An alert had this outcome."""
        self._alerts[result] += 1

    def incident(self) -> None:
        """A contrary decision."""
        self._incidents += 1

    def purged(self, step: Purged) -> None:
        """One step of cleaning."""
        self._removed["history"] += step.history
        self._removed["attempt"] += step.attempts
        self._last_purge = step

    def joined(self) -> None:
        """This node has taken a node slot of a shared store."""
        self._joined += 1

    def fenced(self) -> None:
        """This node was fenced: by another node, or as the store lost what it wrote."""
        self._fenced += 1

    def adopted(self, messages: int) -> None:
        """This node has adopted messages of nodes that are gone."""
        self._adopted += messages

    def moved(self, messages: int) -> None:
        """Prepared messages are owned by another node now."""
        self._moved += messages

    def overdue(self, messages: int) -> None:
        """Messages were due for long, and are tried now."""
        self._overdue += messages

    def heartbeat_failed(self, code: str) -> None:
        """The lease was not renewed."""
        self._heartbeat_failed[code] += 1

    def topics_failed(self, code: str) -> None:
        """The store's topics could not be read."""
        self._topics_failed[code] += 1

    def burial_failed(self, code: str) -> None:
        """A message did not get into the dead letters."""
        self._burial_failed[code] += 1

    def render(self, snapshot: Snapshot) -> bytes:
        """Return the text of a scrape."""
        self._snapshot = snapshot
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric; the registry calls this at a scrape."""
        yield from self._counted()
        yield from self._measured()
        if self._snapshot is not None:
            yield from _asked(self._snapshot)
            text = "1 when clients of other machines need no token and no certificate."
            yield GaugeMetricFamily("twophase_anonymous", text, value=float(self.anonymous))
            yield from self._kept(self._snapshot.now_ms)

    def _counted(self) -> Iterator[Metric]:
        finished = CounterMetricFamily(
            "twophase_messages_finished", "Messages that became final.", labels=["state", "decided_by"]
        )
        for (state, decided_by), count in self._finished.items():
            finished.add_metric([state.name.lower(), decided_by], count)
        yield finished
        branches = CounterMetricFamily("twophase_branch_calls", "Branch calls.", labels=["result", "destination"])
        for (result, destination), count in self._branches.items():
            branches.add_metric([result, destination], count)
        yield branches
        for name, text, label, counts in (
            ("twophase_check_backs", "Check-backs by verdict.", "verdict", self._check_backs),
            ("twophase_probes", "Probes of check addresses by result.", "result", self._probes),
            ("twophase_refused", "Requests refused, by error code.", "code", self._refused),
            ("twophase_alerts", "Alerts to the webhook, by result.", "result", self._alerts),
            ("twophase_flush_failed", "Flushes that failed, by error code.", "code", self._flush_failed),
            ("twophase_heartbeat_failed", "Heartbeats that failed, by error code.", "code", self._heartbeat_failed),
            ("twophase_topics_failed", "Looks for changed topics that failed, by code.", "code", self._topics_failed),
            ("twophase_burial_failed", "Moves into dead letters that failed, by code.", "code", self._burial_failed),
        ):
            family = CounterMetricFamily(name, text, labels=[label])
            for value, count in counts.items():
                family.add_metric([value], count)
            yield family
        removed = CounterMetricFamily("twophase_rows_removed", "Old rows removed, by table.", labels=["table"])
        for table, count in self._removed.items():
            removed.add_metric([table], count)
        yield removed
        yield CounterMetricFamily(
            "twophase_incidents", "Contrary decisions refused: a person should look.", value=self._incidents
        )
        for name, text, number in (
            ("parked", "Messages parked: not retried until they are redriven.", self._parked),
            ("joined", "Node slots taken on a shared store, the first included.", self._joined),
            ("fenced", "Epochs of this node that another node has ended, or a failover.", self._fenced),
            ("adopted", "Messages taken over from nodes that are gone.", self._adopted),
            ("moved", "Due prepared messages that had gone to another node.", self._moved),
            ("overdue", "Messages due for long that nothing would have tried.", self._overdue),
        ):
            yield CounterMetricFamily(f"twophase_{name}", text, value=number)

    def _kept(self, now_ms: int) -> Iterator[Metric]:
        """Yield the reach of history after the last step of cleaning; 0 before the first."""
        last = self._last_purge
        age_s = 0.0 if last is None or last.oldest_ms is None else max(0, now_ms - last.oldest_ms) / 1000
        horizon_s = 0.0 if last is None else last.horizon_ms / 1000
        for name, text, value in (
            ("history_horizon_seconds", "Gids born before this time may be forgotten.", horizon_s),
            ("oldest_history_seconds", "Age of the oldest history row.", age_s),
        ):
            yield GaugeMetricFamily(f"twophase_{name}", text, value=value)

    def _measured(self) -> Iterator[Metric]:
        latency = HistogramMetricFamily("twophase_branch_seconds", "Time a branch call took.", labels=["result"])
        for result, seconds in self._branch_seconds.items():
            seconds.add_to(latency, [result])
        yield latency
        for name, text, histogram in (
            ("twophase_check_back_seconds", "Time a check-back took.", self._check_back_seconds),
            ("twophase_flush_seconds", "Time a flush took.", self._flush_seconds),
            ("twophase_flush_items", "Changes in one flush.", self._flush_items),
        ):
            family = HistogramMetricFamily(name, text, labels=[])
            histogram.add_to(family, [])
            yield family


def _asked(snapshot: Snapshot) -> Iterator[Metric]:
    overview, gauges = snapshot.overview, snapshot.gauges
    if overview is not None:
        messages = GaugeMetricFamily("twophase_messages", "Unfinished messages in the store.", labels=["state"])
        for state, count in (
            ("prepared", overview.prepared),
            ("submitted", overview.submitted),
            ("parked", overview.parked),
        ):
            messages.add_metric([state], count)
        yield messages
        for name, text, since_ms in (
            ("prepared", "prepared, undecided", overview.oldest_prepared_ms),
            ("undelivered", "submitted, undelivered", overview.oldest_submitted_ms),
        ):
            age_s = 0.0 if since_ms is None else max(0, snapshot.now_ms - since_ms) / 1000
            yield GaugeMetricFamily(
                f"twophase_oldest_{name}_seconds", f"Age of the oldest {text} message.", value=age_s
            )
    values: tuple[tuple[str, str, float], ...] = (
        ("store_up", "1 when the store answered this scrape.", float(overview is not None)),
        ("ready", "1 when requests are accepted.", float(snapshot.ready)),
        ("node", "The node slot that this process holds.", gauges.node),
        ("node_epoch", "The epoch of that slot.", gauges.epoch),
        ("workers", "Processes in these figures.", 1),
        ("connections", "Clients connected.", snapshot.connections),
        ("active", "Messages held in memory.", gauges.active),
        ("active_bytes", "Bytes of messages held in memory.", gauges.active_bytes),
        ("waiting_for_store", "Changes that wait for the store.", gauges.waiting_for_store),
        ("branch_calls_in_flight", "Branch calls under way.", gauges.branch_calls),
        ("branch_calls_waiting", "Branch calls that wait for a permit.", gauges.branch_calls_waiting),
        ("check_backs_in_flight", "Check-backs under way.", gauges.check_backs),
        ("check_backs_waiting", "Check-backs that wait for a permit.", gauges.check_backs_waiting),
        ("check_addresses", "Check addresses that are probed.", gauges.check_addresses),
        ("check_addresses_failing", "Check addresses that cannot answer.", gauges.check_addresses_failing),
        ("questions", "Check-backs that are with producers over their own connections.", gauges.questions),
    )
    for name, text, value in values:
        yield GaugeMetricFamily(f"twophase_{name}", text, value=value)
    text = "Messages of queues that were delivered again."
    yield CounterMetricFamily("twophase_queue_redelivered", text, value=gauges.redelivered)
    lag = GaugeMetricFamily("twophase_queue_lag", "Messages that a group has not done.", labels=["group", "topic"])
    taken = GaugeMetricFamily("twophase_queue_in_flight", "Messages that consumers have.", labels=["group", "topic"])
    text = "Messages that wait behind others of their message group."
    behind = GaugeMetricFamily("twophase_queue_behind", text, labels=["group", "topic"])
    for queue in gauges.queues:
        lag.add_metric([queue.group, queue.topic], queue.lag)
        taken.add_metric([queue.group, queue.topic], queue.in_flight)
        behind.add_metric([queue.group, queue.topic], queue.behind)
    yield from (lag, taken, behind, *_kept_by_topics(gauges.kept))
    text = "Half messages that are due and have no answer, by their age."
    halves = GaugeMetricFamily("twophase_halves_unanswered", text, labels=["age"])
    for age, count in zip(_AGES, gauges.halves or (0,) * len(_AGES), strict=True):
        halves.add_metric([age], count)
    yield halves


def _kept_by_topics(topics: Iterable[KeptGauge]) -> Iterator[Metric]:
    """Yield what topics with a bound had after this node's last cleaning."""
    text = "Messages that a topic with a bound of bytes keeps."
    messages = GaugeMetricFamily("twophase_queue_kept_messages", text, labels=["topic"])
    size = GaugeMetricFamily("twophase_queue_kept_bytes", "Bytes of these messages, estimated.", labels=["topic"])
    bound = GaugeMetricFamily("twophase_queue_bytes_max", "The bound of a topic's bytes.", labels=["topic"])
    text = "Bytes of messages beyond the bound, by what holds them."
    over = GaugeMetricFamily("twophase_queue_over_bytes", text, labels=["topic", "held_by"])
    for one in topics:
        messages.add_metric([one.topic], one.messages)
        size.add_metric([one.topic], one.bytes)
        bound.add_metric([one.topic], one.bytes_max)
        for hold, held in one.held.items():
            over.add_metric([one.topic, hold], held)
    yield from (messages, size, bound, over)
