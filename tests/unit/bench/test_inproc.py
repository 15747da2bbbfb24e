"""The cost of a whole message in one process.

It is delivered, and costs no more instructions than before.
"""

from __future__ import annotations

import sys

from benchmarks import inproc

INSTRUCTIONS_MAX = {(3, 11): 4_290}
"""By version of Python.

It is 1 % above what a test run measures.
"""

CHECKS = (
    "server/browsers.py",
    "server/identity/",
    "http_client/byte_budget.py",
    "http_client/guard.py",
    "destinations/allow_list.py",
    "destinations/signing.py",
)
"""Functions that only refuse, by file."""


def test_a_message_costs_no_more_instructions() -> None:
    figures = inproc.measure(waves=4, rounds=1)
    spent = sum(figures.instructions.values())
    assert 1_000 < spent <= INSTRUCTIONS_MAX.get(sys.version_info[:2], 10_000)
    assert figures.calls > 20
    assert set(figures.micros) == set(figures.instructions) == set(inproc.PHASES)


def test_the_checks_of_a_server_without_tokens_cost_next_to_nothing() -> None:
    """A head that was judged before is not judged again; an address that was, neither."""
    figures = inproc.measure(waves=4, rounds=1)
    spent = sum(count for name, count in figures.functions if name.startswith(CHECKS))
    assert spent <= 0.01 * sum(figures.instructions.values())


def test_tokens_quotas_and_signatures_cost_no_more_than_a_fifth_of_a_message() -> None:
    plain, guarded = (
        sum(inproc.measure(waves=4, rounds=1, signed=guarded, quotas=guarded).instructions.values())
        for guarded in (False, True)
    )
    assert plain < guarded <= plain * 1.2


def test_the_table_names_the_phases_and_the_functions() -> None:
    figures = inproc.Figures(
        {"prepare in": 10.0, "finish": 5.0},
        2.0,
        {"prepare in": [3.0, 1.0], "finish": [1.0, 4.0]},
        [("a.py:1 f", 9.0), ("b.py:2 g", 1.0)],
    )
    assert figures.lines()[-2].split() == ["whole", "15", "4.00", "4.50", "5.00"]
    assert figures.by_function() == ["         9.0  a.py:1 f"]
