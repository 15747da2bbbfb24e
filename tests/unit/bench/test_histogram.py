"""Percentiles are those of the samples, whatever their size and number."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.load.histogram import PERCENTILES, Histogram

latencies_s = st.lists(st.floats(min_value=0, max_value=60_000), min_size=1, max_size=300)


def _of(samples_s: list[float]) -> Histogram:
    histogram = Histogram()
    for sample_s in samples_s:
        histogram.add(sample_s)
    return histogram


@given(latencies_s, st.sampled_from([*PERCENTILES, 1.0, 100.0]))
def test_percentile_is_the_sample_that_this_share_does_not_exceed(samples_s: list[float], percent: float) -> None:
    exact_ms = sorted(samples_s)[max(1, math.ceil(len(samples_s) * percent / 100)) - 1] * 1000

    assert _of(samples_s).percentile_ms(percent) == pytest.approx(exact_ms, rel=0.002, abs=0.0011)


@given(latencies_s)
def test_every_sample_is_in_exactly_one_bucket_and_buckets_rise(samples_s: list[float]) -> None:
    buckets = list(_of(samples_s).buckets())

    assert sum(number for _, number in buckets) == len(samples_s)
    assert [micros for micros, _ in buckets] == sorted({micros for micros, _ in buckets})


@pytest.mark.parametrize("seconds", [0.0, 0.0000004, 0.002047, 0.002048, 0.004095, 0.004096, 3.0, 3600.0])
def test_one_sample_is_every_percentile(seconds: float) -> None:
    assert _of([seconds]).percentile_ms(99.9) == pytest.approx(seconds * 1000, rel=0.001, abs=0.001)


def test_a_negative_latency_counts_as_none_and_an_endless_one_is_bounded() -> None:
    histogram = _of([-1.0, 1e9])

    assert histogram.percentile_ms(50) == 0.0
    assert histogram.percentile_ms(100) >= 19 * 3600 * 1000


def test_without_samples_there_is_no_latency() -> None:
    assert Histogram().percentile_ms(99) == 0.0


def test_a_copy_keeps_what_was_measured_when_the_original_is_cleared() -> None:
    histogram = _of([0.001, 0.002])
    kept = histogram.copy()
    histogram.clear()

    assert (histogram.count, kept.count, kept.percentile_ms(100)) == (0, 2, 2.0)
