"""The error tree: stable codes, a fate and a remedy in every message.

The tree in the docstring is the tree of the classes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import pytest

from twophase.core import errors
from twophase.core.errors import (
    Fate,
    InvalidRequest,
    RolledBack,
    StateConflict,
    StoreLocked,
    StoreUnavailable,
    TwophaseError,
)

CODES = """
TP-0000 TwophaseError
TP-1000 InvalidRequest
TP-1001 LimitExceeded
TP-1002 UnsupportedType
TP-1003 TopicNotFound
TP-2000 Refused
TP-2001 StateConflict
TP-2002 ContentConflict
TP-2003 ContraryDecision
TP-2004 UnknownMessage
TP-2005 ForgottenMessage
TP-2006 NotYetDelivered
TP-3000 Unavailable
TP-3001 Overloaded
TP-3002 ShuttingDown
TP-3003 CoordinatorUnreachable
TP-3004 NotPrepared
TP-3005 ServerFault
TP-4000 StoreError
TP-4001 StoreLocked
TP-4002 StoreCorrupt
TP-4003 StoreReadOnly
TP-4004 StoreFull
TP-4005 SchemaTooNew
TP-4006 StoreFenced
TP-4007 UnsafeDurability
TP-4008 NotAStore
TP-5000 TransactionError
TP-5001 RolledBack
TP-5002 CheckBackCameFirst
TP-5003 Undecided
TP-5004 CommittedDespiteError
TP-5005 OpenTransaction
TP-5006 AutocommitRefused
TP-5007 BeginDeadlinePassed
TP-5008 MessageUsedTwice
TP-5009 TransactionLost
TP-5010 FunctionRefused
TP-5011 BranchSpoilt
TP-6000 BarrierError
TP-6001 BarrierTableMissing
TP-6002 WrongDatabase
TP-6003 UnsafeDatabase
TP-6004 UnsupportedEngine
TP-6005 BarrierRowRefused
TP-6006 BarrierTableUnusable
TP-6007 DatabaseSwitched
TP-6008 DatabaseIsReplica
TP-7000 ConfigurationError
"""
"""Codes are public: this list only grows."""


def classes() -> Iterator[type[TwophaseError]]:
    """Return every error of the module."""
    for one in vars(errors).values():
        if inspect.isclass(one) and issubclass(one, TwophaseError):
            yield one


ALL = tuple(classes())


def test_no_code_changes_its_meaning() -> None:
    published = dict(line.split() for line in CODES.split("\n") if line)

    assert published.items() <= {one.code: one.__name__ for one in ALL}.items()


def test_no_code_is_used_twice() -> None:
    assert len(ALL) == len({one.code for one in ALL})


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    drawn: dict[str, tuple[str, str]] = {}
    above: list[str] = ["TwophaseError"]
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"    ([│ ]*)[├└]── (\w+) +(TP-\d+)", line)
        if found:
            depth = len(found[1]) // 4
            del above[depth + 1 :]
            drawn[found[2]] = (found[3], above[depth])
            above.append(found[2])

    assert drawn == {one.__name__: (one.code, one.__mro__[1].__name__) for one in ALL if one is not TwophaseError}


@pytest.mark.parametrize("cls", ALL, ids=lambda one: one.__name__)
def test_each_error_says_what_became_of_the_message_and_what_to_do(cls: type[TwophaseError]) -> None:
    said = str(cls())

    assert said.startswith(f"{cls.code}: {cls.__doc__ or ''}".split("\n", 1)[0])
    assert (f"Fate: {cls.fate.value}." in said) == cls.concerns_a_message == ("Fate" in said)
    assert said.endswith(cls.remedy)
    assert cls.remedy.endswith(".")


def test_a_store_that_stops_a_start_decides_about_no_message_and_recovers_by_itself_in_nothing() -> None:
    assert StoreUnavailable("db: refused.").at_start() == (
        "TP-4009: db: refused. Make sure that the database runs and accepts connections, then start again."
    )
    assert StoreUnavailable("db: locked.", remedy="End the other.").at_start() == "TP-4009: db: locked. End the other."
    assert StoreLocked("it is taken.").at_start() == f"TP-4001: it is taken. {StoreLocked.remedy}"


def test_the_facts_replace_the_default_text_and_the_gid_is_named() -> None:
    error = StateConflict("The message is failed.", gid="order-17")

    assert (error.message, error.gid) == ("The message is failed.", "order-17")
    assert str(error).startswith("TP-2001: The message is failed. gid='order-17'. Fate: unchanged. ")


def test_an_error_without_a_gid_names_none() -> None:
    assert "gid=" not in str(StateConflict())


def test_a_remedy_for_this_very_case_replaces_the_general_one() -> None:
    assert str(StateConflict(remedy="Wait.")).endswith(" Fate: unchanged. Wait.")
    assert StateConflict().remedy == StateConflict.remedy


def test_an_undocumented_subclass_falls_back_to_its_name() -> None:
    class Surprise(TwophaseError):
        pass

    Surprise.__doc__ = None

    assert Surprise().message == "Surprise"


def test_catching_rolled_back_catches_every_certain_rollback() -> None:
    certain = {one for one in ALL if one.fate is Fate.ROLLED_BACK}

    assert certain
    assert all(issubclass(one, RolledBack) for one in certain)


def test_a_text_that_repeats_a_long_value_of_a_request_is_cut() -> None:
    error = InvalidRequest(f"gid: {'g' * 5_000} is not a gid.", gid="g")

    assert len(error.message) == 1_001
    assert error.message.startswith("gid: gggg")
    assert error.message.endswith("g…")
    assert InvalidRequest("gid: short.").message == "gid: short."
