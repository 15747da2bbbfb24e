"""The recognition of engines."""

from __future__ import annotations

import sqlite3

import asyncpg
import pytest

from twophase.barrier.open import is_async, open_transaction
from twophase.core.errors import UnsupportedEngine


class StandsFor:
    """An object that passes for another.

    Web frameworks hand out such objects for what belongs to a request.
    """

    def __init__(self, kind: type) -> None:
        self._kind = kind

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self._kind


def test_what_passes_for_an_engine_is_taken_for_one() -> None:
    assert is_async(StandsFor(asyncpg.Pool))
    assert not is_async(StandsFor(sqlite3.Connection))


def test_one_class_that_is_no_engine_says_nothing_of_another() -> None:
    for nothing in (object(), 7, StandsFor(dict)):
        with pytest.raises(UnsupportedEngine):
            open_transaction(nothing)
    bank = sqlite3.connect(":memory:")
    open_transaction(bank).rollback()
    bank.close()


def test_a_url_instead_of_an_engine_is_answered_with_how_to_make_one() -> None:
    import django.db  # noqa: F401 -- where Django is loaded, a text is an alias

    with pytest.raises(UnsupportedEngine) as raised:
        open_transaction("postgresql://orders:hush@bank/orders")
    assert "create_engine(url)" in raised.value.message
    assert "hush" not in str(raised.value)
