"""The classes that an audit must find for a message at the end of a run.

They are those of docs/reference/audit.md, written a second time. No code of the audit's is used, and no Spark: the
checkers hand over what they read by plain SQL, or what the run's own ledger knows, and this module returns the classes
of a message. `agreement` holds the audit against it.
"""

from __future__ import annotations

from dataclasses import dataclass

PREPARED, SUBMITTED, SUCCEEDED, FAILED = 2, 3, 4, 5
DELIVERED = frozenset({SUBMITTED, SUCCEEDED})
BY_CHECK_BACK = "check-back"


@dataclass(frozen=True)
class Seen:
    """The views of all sides on one gid.

    Arguments:
        state: as its coordinator has it; None when it knows nothing of the message.
        decided_by: who decided, as the coordinator says.
        verdict: how the local transaction ended, as the producer's barrier says: "msg", "rollback", or None.
        asked: it has a local transaction to be asked about; a plain message has none.
        branches: those it has.
        barrier: branches with a row in the consumer's barrier.
        booked: a branch for every row in the consumer's ledger; None when it keeps none.
    """

    state: int | None
    decided_by: str
    verdict: str | None
    asked: bool
    branches: frozenset[str]
    barrier: frozenset[str]
    booked: tuple[str, ...] | None = None

    def classes(self) -> frozenset[str]:
        """Return its classes of broken promises; empty when all sides agree.

        >>> one = frozenset({"01"})
        >>> sorted(Seen(SUCCEEDED, "submit", "msg", True, one, one, ("01",)).classes())
        []
        >>> sorted(Seen(FAILED, "check-back", "msg", True, one, frozenset()).classes())
        ['contrary_verdict', 'lost']
        """
        return frozenset(name for name, broken in self._conditions().items() if broken)

    def _conditions(self) -> dict[str, bool]:
        booked = self.booked or ()
        effects = self.barrier | set(booked)
        known = self.state is not None
        committed, barred = self.verdict == "msg", self.verdict == "rollback"
        failed, delivered = self.state == FAILED, self.state in DELIVERED
        return {
            "lost": committed and (failed or not known),
            "ghost": not committed
            and ((known and self.asked and (delivered or bool(effects))) or (not known and barred and bool(effects))),
            "duplicate_effect": len(booked) > len(set(booked)),
            "missing_effect": (self.state == SUCCEEDED and not self.branches <= effects)
            or (self.booked is not None and not self.barrier <= set(booked)),
            "orphan": bool(effects) if not known else not self.barrier <= self.branches,
            "contrary_verdict": (committed and failed)
            or (self.asked and barred and delivered)
            or (self.asked and self.verdict is None and failed and self.decided_by == BY_CHECK_BACK),
            "unguarded_effect": not set(booked) <= self.barrier,
        }
