"""The errors that name the fate of a transaction which did not end cleanly.

The barrier has answered; the error that was seen decides nothing, and becomes their cause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twophase.client.draft import Progress
from twophase.core.errors import (
    BranchesLost,
    CommittedDespiteError,
    RolledBack,
    TransactionLost,
    TwophaseError,
    Undecided,
)

if TYPE_CHECKING:
    from twophase.client.draft import Draft


def own_loss(seen: Exception, gid: str, *, of_block: bool) -> TransactionLost | None:
    """Return `seen` if it says that this message's transaction was lost.

    The application may raise the same about another message, or about a branch.
    """
    if isinstance(seen, TransactionLost) and not of_block and seen.gid in (None, gid):
        return seen
    return None


def rolled_back(lost: TransactionLost, gid: str) -> RolledBack:
    """Return the error of a lost transaction that is rolled back.

    Alone, `lost` could not name the cause; and it may not have been caught elsewhere.
    """
    return RolledBack(
        f"the local transaction is rolled back: {lost.message}", gid=gid, remedy=f"{RolledBack.remedy} {lost.remedy}"
    )


def committed_despite(seen: Exception, draft: Draft, lost: TransactionLost | None) -> CommittedDespiteError:
    """Return the error of a transaction that is committed although `seen` was raised."""
    return CommittedDespiteError(
        f"{_named(seen)} was raised, but the local transaction is committed; its branches "
        f"{'are' if draft.progress is Progress.SUBMITTED else 'will be'} called.",
        gid=draft.gid,
        remedy=None if lost is None else f"Do not repeat the operation. {lost.remedy}",
    )


def branches_lost(seen: Exception, draft: Draft) -> BranchesLost:
    """Return the error of a committed transaction whose row lacks the branches added."""
    known = tuple(branch.url for branch in draft.branches)
    return BranchesLost(
        f"{_named(seen)} was raised: the block ended its transaction, which is committed, before the "
        f"branches added in it were written. None is called: {', '.join(known) or 'not known here'}. The message "
        "stays prepared, and every check-back answers 'unknown'.",
        gid=draft.gid,
        branches=known,
    )


def undecided(seen: Exception, gid: str, evidence: str) -> Undecided:
    """Return the error of a transaction about which the barrier gave no verdict."""
    return Undecided(
        f"the local transaction ended with {_named(seen)}, and the barrier cannot tell yet whether it "
        f"committed ({evidence}).",
        gid=gid,
    )


def _named(error: Exception) -> str:
    """Return an error's name, with the reason if the error is this library's.

    A log may show only the last error of a chain.
    """
    name = type(error).__name__
    return f"{name} ({error.code}: {error.message})" if isinstance(error, TwophaseError) else name
