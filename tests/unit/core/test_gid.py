"""Gids: twophase's carry their birth time and sort by it.

Foreign gids are accepted as they are, within bounds.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.core.errors import InvalidRequest, LimitExceeded
from twophase.core.gid import GID_CHARACTERS, RANDOM_BYTES, born_ms, fresh_gid, lowest_gid, make_gid, validate_gid

_TIMES = st.integers(0, 2**48 - 1)
_RANDOM = st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES)
OURS = make_gid(1_700_000_000_000, bytes(range(10)))


def test_a_fresh_gid_is_like_no_other() -> None:
    gids = {fresh_gid(1_700_000_000_000) for _ in range(100)}

    assert len(gids) == 100
    assert {born_ms(gid) for gid in gids} == {1_700_000_000_000}


@given(_TIMES, _RANDOM)
def test_a_gid_tells_when_it_was_born(time_ms: int, randomness: bytes) -> None:
    gid = make_gid(time_ms, randomness)

    assert born_ms(gid) == time_ms
    assert len(gid) == GID_CHARACTERS
    assert validate_gid(gid) == gid


@given(_TIMES, _TIMES, _RANDOM)
def test_a_gid_is_older_than_a_moment_when_it_sorts_before_its_lowest(
    born: int, moment: int, randomness: bytes
) -> None:
    assert (make_gid(born, randomness) < lowest_gid(moment)) == (born < moment)


@given(_TIMES, _TIMES, _RANDOM, _RANDOM)
def test_gids_sort_by_birth(one_ms: int, other_ms: int, one: bytes, other: bytes) -> None:
    if one_ms < other_ms:
        assert make_gid(one_ms, one) < make_gid(other_ms, other)


@given(_TIMES, _RANDOM, _RANDOM)
def test_all_the_randomness_is_in_the_gid(time_ms: int, one: bytes, other: bytes) -> None:
    assert (make_gid(time_ms, one) == make_gid(time_ms, other)) == (one == other)


@pytest.mark.parametrize("time_ms", [-1, 2**48])
def test_a_birth_outside_48_bits_is_refused(time_ms: int) -> None:
    with pytest.raises(AssertionError, match="48 bits"):
        make_gid(time_ms, bytes(RANDOM_BYTES))


@pytest.mark.parametrize("size", [0, 9, 11])
def test_randomness_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(AssertionError, match="ten bytes"):
        make_gid(0, bytes(size))


@pytest.mark.parametrize(
    "foreign",
    [
        "order-17",
        "",
        OURS[:-1],
        OURS + "0",
        "xx" + OURS[2:],
        "tp" + "u" + OURS[3:],
        OURS[:-1] + "-",
        OURS[:-1] + "L",
        "tp" + "8" + OURS[3:],
        "tp" + "z" * (GID_CHARACTERS - 2),
    ],
    ids=[
        "other form",
        "empty",
        "too short",
        "too long",
        "other prefix",
        "no digit in the time",
        "no digit behind the time",
        "upper case",
        "time above 48 bits",
        "time far above",
    ],
)
def test_a_foreign_gid_has_no_birth_time(foreign: str) -> None:
    assert born_ms(foreign) is None


@pytest.mark.parametrize("gid", ["a", "order 17", "Überweisung-7", "x" * 128, "ä" * 64, OURS])
def test_foreign_gids_are_taken_as_they_are(gid: str) -> None:
    assert validate_gid(gid) == gid


@pytest.mark.parametrize(
    ("gid", "why"),
    [
        ("", "empty"),
        ("a\nb", "control"),
        ("a\x00", "control"),
        ("a\x7f", "control"),
        ("ä\r", "control"),
        ("a\u200bb", "unprintable"),
        ("a\u00a0b", "unprintable"),
        (" a", "space"),
        ("a ", "space"),
        ("\ud800", "UTF-8"),
    ],
    ids=repr,
)
def test_a_gid_that_may_not_name_a_message_is_refused(gid: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        validate_gid(gid)


@pytest.mark.parametrize("gid", ["x" * 129, "ä" * 65], ids=["ascii", "utf-8"])
def test_a_gid_is_measured_in_bytes(gid: str) -> None:
    with pytest.raises(LimitExceeded, match="128"):
        validate_gid(gid)
