"""The finished rows that are deleted, and the horizon over them.

The horizon stands for all of them and for nothing else (correctness 15).
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twophase.core.gid import RANDOM_BYTES, born_ms, make_gid
from twophase.stores.forgetting import Bound, Fate, horizon_behind

TIMES = st.integers(0, 40)
GIDS = st.one_of(TIMES.map(lambda at_ms: make_gid(at_ms, bytes(RANDOM_BYTES))), st.sampled_from(["order", "tp", "zz"]))
ROWS = st.lists(st.tuples(GIDS, TIMES))


@given(ROWS, TIMES, TIMES)
def test_the_horizon_is_the_least_behind_every_birth_and_end_of_what_goes(
    rows: list[tuple[str, int]], before_ms: int, now_ms: int
) -> None:
    bound = Bound(before_ms, now_ms)
    gone = [row for row in rows if bound.fate(*row) is Fate.GOES]

    horizon_ms = horizon_behind(gone)

    assert horizon_ms == max([1 + max(born_ms(gid) or 0, finished_ms) for gid, finished_ms in gone], default=0)
    assert horizon_ms <= before_ms, "so what an archive needs, and what is younger, stays known"


@given(ROWS, TIMES, TIMES)
def test_only_a_young_row_of_the_clocks_own_past_ends_a_pass(
    rows: list[tuple[str, int]], before_ms: int, now_ms: int
) -> None:
    bound = Bound(before_ms, now_ms)

    for gid, finished_ms in rows:
        assert (bound.fate(gid, finished_ms) is Fate.ENDS_PASS) == (before_ms <= finished_ms <= now_ms)
