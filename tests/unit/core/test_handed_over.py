"""Requests and answers in bulk are the same on both sides."""

from __future__ import annotations

import msgspec
import pytest

from twophase.core.errors import (
    ContentConflict,
    CoordinatorUnreachable,
    Overloaded,
    StoreLocked,
    TwophaseError,
    UnknownMessage,
)
from twophase.core.many import ManyReply, OneResult, SubmitMany, is_later
from twophase.core.takeover import (
    Outcome,
    TakenBranch,
    TakenMessage,
    TakenResult,
    TakenState,
    TakeoverReply,
    TakeoverRequest,
)

VALUES = [
    SubmitMany(("g1", "g2")),
    ManyReply((OneResult(), OneResult("TP-2004", "", "no message"))),
    TakeoverRequest(
        (TakenMessage("g", TakenState.SUBMITTED, (TakenBranch("http://b/in", b"\x00\xff", calls=("",)),)),),
        dry_run=True,
    ),
    TakeoverReply((TakenResult("g", Outcome.PRESENT, state="succeed"),)),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_is_sent_is_what_arrives(value: msgspec.Struct) -> None:
    assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"gids":[1]}'])
def test_a_list_of_gids_is_one_of_texts(body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=SubmitMany)


def test_an_unknown_state_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"gid":"g","state":"succeed"}', type=TakenMessage)


@pytest.mark.parametrize(
    ("error", "later"),
    [
        (Overloaded, True),
        (StoreLocked, True),
        (CoordinatorUnreachable, False),
        (ContentConflict, False),
        (UnknownMessage, False),
    ],
)
def test_only_a_coordinator_or_store_that_is_busy_is_asked_again(error: type[TwophaseError], *, later: bool) -> None:
    assert is_later(error.code) is later
