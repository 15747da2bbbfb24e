"""The bytes of all accounts stay within the budget.

Those of a holder stay within its share.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from twophase.http_client.byte_budget import FREE_BYTES, MEBIBYTE, SHARE_LEAST, ByteBudget

_HOLDERS = ("a", "b", "c", "d", "e")


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 70 * MEBIBYTE)), max_size=60))
def test_neither_the_budget_nor_a_share_is_passed_and_everything_comes_back(steps: list[tuple[int, int]]) -> None:
    budget = ByteBudget(100 * MEBIBYTE)
    accounts = [budget.account(_HOLDERS[number % 5], share_percent=40) for number in range(10)]
    kept = [0] * 10
    for number, size in steps:
        counted = [max(0, one - FREE_BYTES) for one in kept]
        more = max(0, size - FREE_BYTES) - counted[number]
        fits = more <= 0 or (
            sum(counted) + more <= budget.bytes_max and sum(counted[number % 5 :: 5]) + more <= 40 * MEBIBYTE
        )
        assert accounts[number].keep(size) is fits
        if fits:
            kept[number] = size
        assert budget.used == sum(max(0, one - FREE_BYTES) for one in kept)
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
    assert not account.keep(SHARE_LEAST + FREE_BYTES + 1)


def test_what_is_short_passes_a_budget_that_is_used_up() -> None:
    budget = ByteBudget(8 * MEBIBYTE)
    assert budget.account("a").keep(8 * MEBIBYTE + FREE_BYTES)
    assert budget.used == budget.bytes_max
    others = budget.account("b")
    assert others.keep(FREE_BYTES)
    assert not others.keep(FREE_BYTES + 1)


def test_calls_keep_their_part_and_requests_the_rest() -> None:
    budget = ByteBudget(64 * MEBIBYTE)
    calls = budget.of_calls()
    assert all(calls.account(f"host-{number}").keep(8 * MEBIBYTE + FREE_BYTES) for number in range(4))
    assert not calls.account("another").keep(MEBIBYTE)
    assert budget.used == calls.used == 32 * MEBIBYTE
    requests = [budget.account(f"peer-{number}") for number in range(4)]
    assert all(one.keep(8 * MEBIBYTE + FREE_BYTES) for one in requests)
    assert not budget.account("one more").keep(MEBIBYTE)
    for one in requests:
        one.release()
    assert budget.used == 32 * MEBIBYTE


def test_calls_are_refused_where_requests_have_used_up_the_whole() -> None:
    budget = ByteBudget(64 * MEBIBYTE)
    assert all(budget.account(f"peer-{number}").keep(16 * MEBIBYTE + FREE_BYTES) for number in range(4))
    calls = budget.of_calls()
    assert not calls.account("host").keep(MEBIBYTE)
    assert calls.used == 0
