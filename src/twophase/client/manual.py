"""Manual prepare, submit and abort.

They are for plain messages, and for local transactions that this library does not run. They keep the promise of
`flow` from the other side: a message of a transaction that this library runs cannot be decided manually while the
transaction is under way, or against its outcome.
"""

from __future__ import annotations

import msgspec

from twophase.client.draft import Draft, Progress, became, checked_url
from twophase.client.flow import Flow, FlowContext
from twophase.client.transport.wire import Operation
from twophase.core.errors import InvalidRequest, MessageUsedTwice, NotYetDelivered

_BEFORE_PREPARE = (Progress.NEW, Progress.PREPARED)
_BEFORE_SUBMIT = (Progress.NEW, Progress.PREPARED, Progress.COMMITTED, Progress.BRANCHES_LOST, Progress.SUBMITTED)
_BEFORE_ABORT = (Progress.NEW, Progress.PREPARED, Progress.ROLLED_BACK, Progress.SUBMITTED)


def prepare(context: FlowContext, check_url: str, *, explicit_verdict: bool) -> Flow:
    """Prepare manually, for a local transaction that this library does not run.

    Raises:
        MessageUsedTwice: this Message belongs to a transaction, or is decided.
        CoordinatorUnreachable, and what the coordinator refuses with.
    """
    require_preparable(context.draft, check_url, explicit_verdict=explicit_verdict)
    context.draft.prepared_at_ms = yield from context.request(Operation.PREPARE)
    prepared(context.draft)


def submit(context: FlowContext) -> Flow:
    """Submit manually.

    The message is plain, or was prepared manually; or its submit was lost after a commit; or its branches are in no
    row (`BranchesLost`).

    Raises:
        MessageUsedTwice: its local transaction is under way or did not commit, so this would be a ghost.
        CoordinatorUnreachable: not known whether it arrived; repeating is safe.
        NotYetDelivered, ContraryDecision, and what the coordinator refuses with.
    """
    draft = context.draft
    require_submittable(draft)
    try:
        yield from context.request(Operation.SUBMIT)
    except NotYetDelivered:
        draft.progress = Progress.SUBMITTED
        raise
    draft.progress = Progress.SUBMITTED


def abort(context: FlowContext) -> Flow:
    """Abort a manually prepared message.

    Raises:
        MessageUsedTwice: its local transaction is under way or committed, so this would lose it.
        ContraryDecision: submitted before. UnknownMessage: never prepared. CoordinatorUnreachable.
    """
    draft = context.draft
    _require(draft, "abort", _BEFORE_ABORT)
    yield from context.request(Operation.ABORT)
    draft.progress = Progress.ROLLED_BACK


def require_preparable(draft: Draft, check_url: str, *, explicit_verdict: bool) -> None:
    """Give a message its check address; raises as `prepare`."""
    _require(draft, "prepare", _BEFORE_PREPARE)
    draft.check_url = checked_url("check", check_url, identities_max=1)
    if draft.options.explicit_verdict is not explicit_verdict:
        draft.options = msgspec.structs.replace(draft.options, explicit_verdict=explicit_verdict)


def prepared(draft: Draft) -> None:
    """The coordinator has prepared the message: its branches are fixed."""
    draft.fixed = len(draft.branches)
    draft.progress = Progress.PREPARED


def require_submittable(draft: Draft) -> None:
    """Refuse what cannot be submitted; raises as `submit`."""
    _require(draft, "submit", _BEFORE_SUBMIT)
    if not draft.branches:
        raise InvalidRequest("the message has no branch; add one.", gid=draft.gid)


def _require(draft: Draft, request: str, allowed: tuple[Progress, ...]) -> None:
    if draft.progress not in allowed:
        raise MessageUsedTwice(
            f"{request} manually is refused for this Message: {became(draft.progress)}.", gid=draft.gid
        )
