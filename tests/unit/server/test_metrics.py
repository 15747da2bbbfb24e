"""The metrics show what is counted, under bounded names."""

from __future__ import annotations

import pytest
import structlog

from twophase.coordinator.gauges import Gauges, KeptGauge
from twophase.coordinator.observer import Observer
from twophase.core.lifecycle import State
from twophase.server.log_observer import CountedAndLogged, LogObserver
from twophase.server.metrics import Metrics, Snapshot
from twophase.stores.base import Overview, Purged

NOW_MS = 1_700_000_010_000


def text(metrics: Metrics, overview: Overview | None = None) -> str:
    return metrics.render(Snapshot(overview, Gauges(1, 2, 3, 4, 5, 6, 7, 0, 0), 8, NOW_MS, ready=True)).decode()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def observer(metrics: Metrics) -> Observer:
    return CountedAndLogged(metrics, LogObserver())


def test_messages_are_shown_by_state_with_the_age_of_the_oldest(metrics: Metrics) -> None:
    shown = text(metrics, Overview(3, 4, 1, NOW_MS - 9_000, NOW_MS - 2_500))
    assert 'twophase_messages{state="prepared"} 3.0' in shown
    assert 'twophase_messages{state="submitted"} 4.0' in shown
    assert 'twophase_messages{state="parked"} 1.0' in shown
    assert "twophase_oldest_prepared_seconds 9.0" in shown
    assert "twophase_oldest_undelivered_seconds 2.5" in shown


def test_a_clock_that_went_back_makes_no_negative_age(metrics: Metrics) -> None:
    assert "twophase_oldest_prepared_seconds 0.0" in text(metrics, Overview(1, 0, 0, NOW_MS + 5_000, None))


def test_without_a_store_its_numbers_are_left_out(metrics: Metrics) -> None:
    shown = text(metrics)
    assert "twophase_store_up 0.0" in shown
    assert 'twophase_messages{state="prepared"}' not in shown


def test_gauges_are_shown(metrics: Metrics) -> None:
    shown = text(metrics)
    for line in (
        "twophase_active 1.0",
        "twophase_active_bytes 2.0",
        "twophase_waiting_for_store 3.0",
        "twophase_branch_calls_in_flight 4.0",
        "twophase_branch_calls_waiting 5.0",
        "twophase_check_backs_in_flight 6.0",
        "twophase_check_backs_waiting 7.0",
        "twophase_connections 8.0",
        "twophase_ready 1.0",
    ):
        assert line in shown


def test_events_are_counted(metrics: Metrics, observer: Observer) -> None:
    observer.flushed(3, 0.002)
    observer.flush_failed("TP-4004")
    observer.check_back_answered("rolled_back", 0.01)
    observer.branch_answered("error", "http://b:80", 0.3)
    observer.refused("TP-3001")
    observer.finished(State.FAILED, "check-back")
    observer.incident("g1", "contrary")
    shown = text(metrics)
    for line in (
        'twophase_flush_items_bucket{le="5.0"} 1.0',
        'twophase_flush_items_bucket{le="2.0"} 0.0',
        "twophase_flush_items_sum 3.0",
        'twophase_flush_seconds_bucket{le="0.0025"} 1.0',
        'twophase_flush_failed_total{code="TP-4004"} 1.0',
        'twophase_check_backs_total{verdict="rolled_back"} 1.0',
        "twophase_check_back_seconds_count 1.0",
        'twophase_branch_calls_total{destination="http://b:80",result="error"} 1.0',
        'twophase_branch_seconds_bucket{le="0.5",result="error"} 1.0',
        'twophase_branch_seconds_bucket{le="0.25",result="error"} 0.0',
        'twophase_refused_total{code="TP-3001"} 1.0',
        'twophase_messages_finished_total{decided_by="check-back",state="failed"} 1.0',
        "twophase_incidents_total 1.0",
    ):
        assert line in shown


def test_what_an_operator_must_see_is_counted_and_logged(metrics: Metrics, observer: Observer) -> None:
    with structlog.testing.capture_logs() as lines:
        observer.flush_failed("TP-4004", "full")
        observer.parked("g", "asked 3 times")
        observer.alerted("sent", "http://alerts")
        observer.alerted("failed", "http://alerts", "refused")
        observer.incident("g", "contrary")
        observer.joined(1, 2)
        observer.fenced(1, 2, "taken")
        observer.adopted(5)
        observer.heartbeat_failed("TP-4009", "gone")
        observer.topics_failed("TP-4009", "gone")
        observer.burial_failed("billing", "TP-1024", "full")
        observer.burial_failed("billing", "TP-1024", "full")
        observer.burial_failed("shipping", "TP-1024", "full")
        observer.purged(Purged(3, 2, more=False, horizon_ms=NOW_MS, oldest_ms=NOW_MS))
        observer.cleaned(3, 2, 0.1)
    assert [line["log_level"] for line in lines] == [
        *(
            "error",
            "warning",
            "warning",
            "error",
            "info",
            "error",
            "warning",
            "warning",
            "warning",
            "error",
            "error",
            "info",
        )
    ]
    assert (lines[0]["code"], lines[0]["what"]) == ("TP-4004", "full")
    assert lines[-1]["before"].startswith("2023-11-14T22:13:30")
    shown = text(metrics)
    for line in (
        'twophase_flush_failed_total{code="TP-4004"} 1.0',
        "twophase_parked_total 1.0",
        'twophase_alerts_total{result="failed"} 1.0',
        'twophase_alerts_total{result="sent"} 1.0',
        "twophase_incidents_total 1.0",
        "twophase_joined_total 1.0",
        "twophase_fenced_total 1.0",
        "twophase_adopted_total 5.0",
        'twophase_heartbeat_failed_total{code="TP-4009"} 1.0',
        'twophase_topics_failed_total{code="TP-4009"} 1.0',
        'twophase_burial_failed_total{code="TP-1024"} 3.0',
        'twophase_rows_removed_total{table="history"} 3.0',
    ):
        assert line in shown


def test_destinations_cannot_make_series_without_bound(metrics: Metrics) -> None:
    for number in range(1_000):
        metrics.branch_answered("succeeded", f"http://host-{number}", 0.001)
    lines = [line for line in text(metrics).splitlines() if line.startswith("twophase_branch_calls_total")]
    assert len(lines) == 101
    assert 'twophase_branch_calls_total{destination="other",result="succeeded"} 900.0' in lines


def _named(metrics: Metrics) -> set[str]:
    lines = [line for line in text(metrics).splitlines() if line.startswith("twophase_branch_calls_total")]
    return {line.split('"')[1] for line in lines}


def test_a_late_destination_is_named_in_place_of_one_that_does_not_answer() -> None:
    now_s = 0.0
    metrics = Metrics(lambda: now_s)
    for number in range(100):
        metrics.branch_answered("succeeded", f"http://host-{number}", 0.001)
    for now_s in range(0, 600, 20):
        for number in range(100):
            metrics.branch_answered("error" if number == 7 else "succeeded", f"http://host-{number}", 0.001)
        metrics.branch_answered("succeeded", "http://late", 0.001)
        assert ("http://late" in _named(metrics)) == (now_s >= 300)
    assert _named(metrics) == {f"http://host-{number}" for number in range(100) if number != 7} | {
        "http://late",
        "other",
    }
    metrics.branch_answered("succeeded", "http://host-7", 0.001)
    assert "http://host-7" not in _named(metrics)


def test_a_destination_that_does_not_answer_takes_no_name_from_another() -> None:
    now_s = 0.0
    metrics = Metrics(lambda: now_s)
    for number in range(100):
        metrics.branch_answered("succeeded", f"http://host-{number}", 0.001)
    now_s = 1_000.0
    for number in range(100):
        metrics.branch_answered("error", f"http://failing-{number}", 0.001)
    assert _named(metrics) == {f"http://host-{number}" for number in range(100)} | {"other"}


def test_a_listed_destination_has_a_name_whatever_others_are_called() -> None:
    now_s = 0.0
    metrics = Metrics(lambda: now_s, listed=["http://listed"])
    for now_s in (0.0, 1_000.0, 2_000.0):
        for number in range(200):
            metrics.branch_answered("succeeded", f"http://host-{number + now_s}", 0.001)
    metrics.branch_answered("error", "http://listed", 0.001)
    assert "http://listed" in _named(metrics)
    assert len(_named(metrics)) == 102
    metrics.always_name(["http://listed-now"])
    metrics.branch_answered("error", "http://listed-now", 0.001)
    assert {"http://listed", "http://listed-now"} < _named(metrics)


def test_a_destination_called_before_the_names_were_taken_keeps_its_name() -> None:
    now_s = 0.0
    metrics = Metrics(lambda: now_s)
    metrics.branch_answered("succeeded", "http://first", 0.001)
    now_s = 1_000.0
    metrics.branch_answered("succeeded", "http://first", 0.001)
    for number in range(200):
        metrics.branch_answered("succeeded", f"http://host-{number}", 0.001)
    assert "http://first" in _named(metrics)
    assert len(_named(metrics)) == 101


def test_a_topic_with_a_bound_shows_what_it_keeps_and_what_holds_the_rest(metrics: Metrics) -> None:
    kept = KeptGauge("orders", 12, 9_000, 5_000, {"history": 0, "group": 3_000, "archive": 0})
    gauges = Gauges(1, 2, 3, 4, 5, 6, 7, 0, 0, kept=(kept,))

    shown = metrics.render(Snapshot(None, gauges, 8, NOW_MS, ready=True)).decode()

    for line in (
        'twophase_queue_kept_messages{topic="orders"} 12.0',
        'twophase_queue_kept_bytes{topic="orders"} 9000.0',
        'twophase_queue_bytes_max{topic="orders"} 5000.0',
        'twophase_queue_over_bytes{held_by="group",topic="orders"} 3000.0',
        'twophase_queue_over_bytes{held_by="archive",topic="orders"} 0.0',
    ):
        assert line in shown, line


def test_a_topic_beyond_its_bound_is_logged_with_the_remedy(observer: Observer) -> None:
    with structlog.testing.capture_logs() as logs:
        observer.topic_over("orders", "group 'billing' has not done 7 bytes of them", "start its consumers")
        observer.topic_within("orders")

    assert [(one["log_level"], one["topic"], one.get("remedy")) for one in logs] == [
        ("warning", "orders", "start its consumers"),
        ("info", "orders", None),
    ]
