"""One scrape of several workers: sums, and what is not added up."""

from __future__ import annotations

import asyncio
from pathlib import Path

from twophase.server.workers.metrics import MetricsExchange, merged


def _scrape(*lines: str) -> str:
    """Return a scrape of gauges and counters, one a line."""
    names = dict.fromkeys(line.split("{")[0].split()[0] for line in lines)
    types = [f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}" for name in names]
    return "\n".join([*types, *lines, "# TYPE twophase_workers gauge", "twophase_workers 1", ""])


def _samples(text: bytes) -> set[str]:
    return {line for line in text.decode().splitlines() if not line.startswith("#")}


def test_a_counter_is_named_by_its_worker() -> None:
    text = merged(
        {
            1: _scrape('twophase_refused_total{code="TP-1000"} 2', 'twophase_refused_total{code="TP-3001"} 1'),
            2: _scrape('twophase_refused_total{code="TP-1000"} 5'),
        }
    )
    assert {
        'twophase_refused_total{code="TP-1000",worker="1"} 2.0',
        'twophase_refused_total{code="TP-1000",worker="2"} 5.0',
        'twophase_refused_total{code="TP-3001",worker="1"} 1.0',
        "twophase_workers 2.0",
    } <= _samples(text)


def test_no_counter_falls_because_a_worker_is_silent_or_began_anew() -> None:
    """Prometheus takes a fall for a restart, and the rise behind it for new events."""
    old = _scrape("twophase_incidents_total 2")
    both = _samples(merged({1: old, 2: _scrape("twophase_incidents_total 1")}))
    one_silent = _samples(merged({1: old}))
    one_new = _samples(merged({1: old, 2: _scrape("twophase_incidents_total 0")}))
    of_first = 'twophase_incidents_total{worker="1"} 2.0'
    assert {of_first, 'twophase_incidents_total{worker="2"} 1.0'} <= both
    assert {line for line in one_silent if "incidents" in line} == {of_first}
    assert {line for line in one_new if "incidents" in line} == {of_first, 'twophase_incidents_total{worker="2"} 0.0'}


def test_a_histogram_is_named_by_its_worker() -> None:
    histogram = (
        "# TYPE twophase_flush_items histogram\n"
        'twophase_flush_items_bucket{{le="1.0"}} {0}\ntwophase_flush_items_bucket{{le="+Inf"}} {1}\n'
        "twophase_flush_items_count {1}\ntwophase_flush_items_sum {2}\n"
    )
    samples = _samples(merged({1: histogram.format(1, 2, 3.5), 2: histogram.format(4, 6, 10)}))
    assert {
        'twophase_flush_items_bucket{le="1.0",worker="2"} 4.0',
        'twophase_flush_items_bucket{le="+Inf",worker="2"} 6.0',
        'twophase_flush_items_count{worker="1"} 2.0',
        'twophase_flush_items_sum{worker="1"} 3.5',
    } <= samples


def test_gauges_are_added() -> None:
    assert "twophase_active 6.0" in _samples(merged({1: _scrape("twophase_active 1"), 2: _scrape("twophase_active 5")}))


def test_what_describes_the_store_is_shown_once() -> None:
    scrape = _scrape('twophase_messages{state="prepared"} 9', "twophase_oldest_prepared_seconds 4")
    samples = _samples(merged({1: scrape, 2: scrape}))
    assert {'twophase_messages{state="prepared"} 9.0', "twophase_oldest_prepared_seconds 4.0"} <= samples


def test_all_are_ready_when_every_one_is() -> None:
    assert "twophase_ready 0.0" in _samples(merged({1: _scrape("twophase_ready 1"), 2: _scrape("twophase_ready 0")}))


def test_a_node_is_named_by_its_worker() -> None:
    samples = _samples(merged({1: _scrape("twophase_node 4"), 3: _scrape("twophase_node 7")}))
    assert {'twophase_node{worker="1"} 4.0', 'twophase_node{worker="3"} 7.0'} <= samples


async def test_a_worker_that_does_not_answer_is_left_out(tmp_path: Path) -> None:
    async def scrape() -> bytes:
        return _scrape("twophase_active 5").encode()

    first, second = MetricsExchange(str(tmp_path), 1), MetricsExchange(str(tmp_path), 2)
    await first.start(scrape)
    await second.start(scrape)
    own = _scrape("twophase_active 1").encode()
    assert {"twophase_active 6.0", "twophase_workers 2.0"} <= _samples(await first.of_all(own))
    await second.stop()
    asked: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_unix_server(lambda _reader, writer: asked.append(writer), tmp_path / "3")
    (tmp_path / "2").touch()  # of a worker that was killed
    assert {"twophase_active 1.0", "twophase_workers 1.0"} <= _samples(await first.of_all(own))
    asked[0].close()
    await asked[0].wait_closed()
    silent.close()
    await first.stop()


def test_what_a_topic_keeps_is_not_added_up_as_every_worker_weighs_it() -> None:
    line = 'twophase_queue_over_bytes{{held_by="group",topic="orders"}} {}'

    text = merged({number: _scrape(line.format(size)) for number, size in ((1, 3_000), (2, 3_100), (3, 0))})

    assert line.format(3100.0) in _samples(text)
