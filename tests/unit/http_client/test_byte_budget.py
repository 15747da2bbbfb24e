"""The bytes of all accounts stay within the budget.

Those of a holder stay within its share.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from twophase.http_client.byte_budget import MEBIBYTE, SHARE_LEAST, ByteBudget

_HOLDERS = ("a", "b", "c", "d", "e")


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 70 * MEBIBYTE)), max_size=60))
def test_neither_the_budget_nor_a_share_is_passed_and_everything_comes_back(steps: list[tuple[int, int]]) -> None:
    budget = ByteBudget(100 * MEBIBYTE)
    accounts = [budget.account(_HOLDERS[number % 5], share_percent=40) for number in range(10)]
    kept = [0] * 10
    for number, size in steps:
        of_holder = sum(kept[number % 5 :: 5]) - kept[number]
        fits = size <= kept[number] or (
            sum(kept) - kept[number] + size <= budget.bytes_max and of_holder + size <= 40 * MEBIBYTE
        )
        assert accounts[number].keep(size) is fits
        if fits:
            kept[number] = size
        assert budget.used == sum(kept)
        assert [account.kept for account in accounts] == kept
    for account in accounts:
        account.release()
        account.release()
    assert budget.used == 0
    assert budget._of == Counter()


def test_a_holder_that_keeps_nothing_is_forgotten() -> None:
    budget = ByteBudget()
    for number in range(50):
        budget.account(f"host-{number}").keep(0)
    assert not budget._of


def test_the_longest_request_passes_however_small_the_share() -> None:
    account = ByteBudget(9 * MEBIBYTE).account("a", share_percent=1)
    assert account.keep(SHARE_LEAST)
    assert not account.keep(SHARE_LEAST + 1)
