"""Many messages in few requests, prepared or submitted manually; sans-IO.

Invariant: each message has the outcome that it would have alone. No message changes another's: not one that is
refused, not one that must be sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from twophase.client import manual
from twophase.client.draft import Draft, Progress
from twophase.client.flow import Command, FlowContext
from twophase.client.transport.exchange import exchange_many
from twophase.client.transport.wire import Operation
from twophase.core.errors import CoordinatorUnreachable, Fate, InvalidRequest, TwophaseError
from twophase.core.many import MESSAGES_MAX

if TYPE_CHECKING:
    from twophase.client.message import BaseMessage

M = TypeVar("M", bound="BaseMessage[Any]")
BYTES_MAX: Final = 2 * 1024 * 1024
"""The sum of the messages in one request; a longer message goes alone."""
Errors = dict[str, TwophaseError | None]
ManyFlow = Generator[Command, Any, Errors]
"""Returns the error of each gid; None when it is done."""


class Outcome(msgspec.Struct, Generic[M], frozen=True):
    """The outcome of one message of `prepare_many` or `submit_many`.

    A message that is done, now or before, has no `error`; every other has the one that it would have raised alone.
    """

    message: M
    error: TwophaseError | None


def prepare(contexts: Sequence[FlowContext], check_url: str, *, explicit_verdict: bool) -> ManyFlow:
    """Prepare messages manually, each as `manual.prepare` does."""

    def begin(draft: Draft) -> None:
        manual.require_preparable(draft, check_url, explicit_verdict=explicit_verdict)

    return _many(contexts, Operation.PREPARE, begin, manual.prepared)


def submit(contexts: Sequence[FlowContext]) -> ManyFlow:
    """Submit messages manually, each as `manual.submit` does."""

    def begin(draft: Draft) -> None:
        manual.require_submittable(draft)
        if draft.options.wait_result:
            raise InvalidRequest("wait_result waits for branch calls; submit this message alone.", gid=draft.gid)

    def end(draft: Draft) -> None:
        draft.progress = Progress.SUBMITTED

    return _many(contexts, Operation.SUBMIT, begin, end)


def require_distinct(drafts: Sequence[Draft]) -> None:
    """Refuse one message twice.

    Raises:
        InvalidRequest: two have one gid, so there would be two outcomes of one name.
    """
    seen: set[str] = set()
    for draft in drafts:
        if draft.gid in seen:
            raise InvalidRequest("the message is there twice.", gid=draft.gid)
        seen.add(draft.gid)


def _many(
    contexts: Sequence[FlowContext],
    operation: Operation,
    begin: Callable[[Draft], None],
    end: Callable[[Draft], None],
) -> ManyFlow:
    drafts = {context.draft.gid: context.draft for context in contexts}
    errors: Errors = {}
    away: CoordinatorUnreachable | None = None
    for portion in _portions(contexts, operation, begin, errors):
        if away is None:
            first = contexts[0]
            errors |= yield from exchange_many(operation, portion, first.bounds, first.runtime)
            away = next((error for gid in portion if isinstance(error := errors[gid], CoordinatorUnreachable)), None)
        else:
            errors |= {gid: _not_sent(gid, away) for gid in portion}
        for gid in portion:
            if errors[gid] is None:
                end(drafts[gid])
    return errors


def _not_sent(gid: str, away: CoordinatorUnreachable) -> CoordinatorUnreachable:
    error = CoordinatorUnreachable(f"it was not sent, because an earlier request failed: {away.message}", gid=gid)
    error.fate = Fate.UNCHANGED
    return error


def _portions(
    contexts: Sequence[FlowContext], operation: Operation, begin: Callable[[Draft], None], errors: Errors
) -> Iterator[dict[str, bytes]]:
    """Yield the bodies of one request after the other.

    The error of a message that cannot be sent goes to `errors`.
    """
    portion: dict[str, bytes] = {}
    size_bytes = 0
    for context in contexts:
        gid = context.draft.gid
        try:
            begin(context.draft)
            body = context.body(operation)
        except TwophaseError as error:
            errors[gid] = error.with_traceback(None)
            continue
        if portion and (len(portion) == MESSAGES_MAX or size_bytes + len(body) > BYTES_MAX):
            yield portion
            portion, size_bytes = {}, 0
        portion[gid] = body
        size_bytes += len(body)
    if portion:
        yield portion
