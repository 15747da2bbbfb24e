"""A program that audits as history grows, and stops where a test kills it.

    python -m tests.spark.auditor FOLDER COORDINATOR

`test_audit_follows.py` kills it where it stops for ever: when a batch stands in the state and Spark has not noted it
yet. COORDINATOR is its store's URL; the other databases are those of `plant.make_system` in FOLDER.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from tests.spark.plant import System
from tests.spark.truth import LATE_S
from twophase_spark.auditing.following import Follower, Following, references_of
from twophase_spark.inputs.plan import Plan
from twophase_spark.locations import Role, parse_coordinator, parse_named
from twophase_spark.reports.report import Report
from twophase_spark.session import SessionSettings, open_session

POINT, SECONDS_WAITED_MAX = "verified", 60
GO_ON = "go-on"
"""The file that lets it continue after its first report.

It is created when all that the next round is to find stands there.
"""


def plan_of(system: System, coordinator: str = "") -> Plan:
    """Return the audit of a system.

    Where another coordinator's store is named, the audit reads that one.
    """
    locations = (
        parse_coordinator(coordinator or f"sqlite:///{system.coordinator}"),
        parse_named(Role.PRODUCER, f"bank-a=sqlite:///{system.bank_a}"),
        parse_named(Role.CONSUMER, f"bank-b=sqlite:///{system.bank_b}"),
        parse_named(Role.LEDGER, f"bank-b=sqlite:///{system.bank_b}#ledger"),
    )
    state = system.folder / "audit.state"
    return Plan(locations, grace_s=0.1, late_s=LATE_S, overlap_s=0, cores=1, state=state)


def main(folder: Path, coordinator: str) -> int:
    """Follow until it is killed."""
    plan = plan_of(System(folder), coordinator)
    references = references_of(plan.locations)

    def reached(name: str) -> None:
        if name == POINT:
            (folder / "at-point").touch()
            time.sleep(SECONDS_WAITED_MAX)

    def show(report: Report) -> None:
        print(f"shown: {report.result.messages} {report.verdict} {sorted(report.result.primary)}", flush=True)
        ends = time.monotonic() + SECONDS_WAITED_MAX
        while not (folder / GO_ON).exists():
            assert time.monotonic() < ends, "nobody lets it go on"
            time.sleep(0.05)

    with open_session(SessionSettings(cores=1, memory_mb=512, name="auditor", short=True)) as spark:
        following = Following(
            references=references,
            stop=threading.Event(),
            say=lambda text: print(text, flush=True),
            show=show,
            failed=lambda error: print(f"failed: {error}", flush=True),
            every_s=0.5,
            reached=reached,
        )
        return Follower(spark, plan, following).run()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
