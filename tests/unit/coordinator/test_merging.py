"""The changes that a submit makes to a prepared message's options."""

from __future__ import annotations

from twophase.coordinator.state.merging import merge
from twophase.core.message import Branch, Message
from twophase.core.options import Options

BRANCHES = (Branch("http://b/in"),)
ONE, OTHER = (("traceparent", "00-1"),), (("traceparent", "00-2"),)


def options_after(prepared: Options, submitted: Options) -> Options:
    return merge(Message("g", BRANCHES, options=prepared), Message("g", BRANCHES, options=submitted)).options


def test_what_a_submit_says_counts_and_what_it_leaves_out_stays() -> None:
    prepared = Options(delay_ms=5, not_before_ms=7, attempts_max=3)
    assert options_after(prepared, Options(not_before_ms=9)) == Options(delay_ms=5, not_before_ms=9, attempts_max=3)


def test_the_trace_of_the_prepare_stays_and_costs_the_submit_no_change() -> None:
    known = Message("g", BRANCHES, options=Options(trace=ONE))
    assert merge(known, Message("g", BRANCHES, options=Options(trace=OTHER))) is known


def test_a_trace_that_only_the_submit_has_is_taken() -> None:
    assert options_after(Options(), Options(trace=ONE)).trace == ONE


def test_headers_and_trace_are_kept_apart() -> None:
    prepared = Options(headers=(("x-tenant", "blue"),), trace=ONE)
    assert options_after(prepared, Options(trace=OTHER)) == prepared
