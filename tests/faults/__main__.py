"""`python -m tests.faults`: plant every fault in a copy; the tests must notice.

Exit status: 0 when every chosen fault was caught, 1 when one was not, 2 when a fault no longer applies or the tests
fail without any.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import msgspec

from tests.faults import table
from tests.faults.report import page, summary
from tests.faults.running import Outcome, Result, last_line, run, try_fault
from tests.faults.state import Results
from tests.faults.table import Fault
from tests.faults.tree import Tree

ROOT: Final = Path(__file__).parents[2]
_REPORT: Final = ROOT / "docs" / "faults-report.md"
_KEPT: Final = ROOT / ".faults.json"
_GREEN_SECONDS_MAX: Final = 3600.0
_CAUGHT, _NOT_CAUGHT, _CANNOT = 0, 1, 2


def main(words: Sequence[str] | None = None, root: Path = ROOT, folder: Path = table.FOLDER) -> int:
    """Read the command line, plant, report; returns the exit status."""
    options = _options(words)
    faults = table.load(folder)
    chosen = [fault for fault in faults if _is_chosen(fault, options)]
    if options.list:
        print(*(f"{fault.rule!s:>5}  {fault.name}: {fault.breaks}" for fault in chosen), sep="\n")
        return _CAUGHT
    misfits = table.misfits(chosen, root)
    for misfit in misfits:
        _tell(f"no longer applies: {misfit.name}: {misfit.why}")
    if misfits or not chosen:
        _tell(f"{len({misfit.name for misfit in misfits})} of {len(chosen)} faults cannot be planted")
        return _CANNOT
    if options.check:
        _tell(f"{len(chosen)} faults apply")
        return _CAUGHT
    return _play(options, root, faults, chosen)


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this fault; may be repeated")
    parser.add_argument("--rule", action="append", default=[], metavar="N", help=f"a rule's faults; or {table.EDGES}")
    parser.add_argument("--list", action="store_true", help="only say which faults there are")
    parser.add_argument("--check", action="store_true", help="only see that every fault still applies")
    parser.add_argument("--resume", action="store_true", help="keep results of runs before that still hold")
    parser.add_argument("--seconds", type=float, default=240, help="for the tests of one fault")
    parser.add_argument("--jobs", type=int, default=1, help="faults at a time, each in a copy of its own")
    parser.add_argument("--json", action="store_true", help="print the results as JSON, and no table")
    parser.add_argument("--report", type=Path, default=_REPORT, help="written when all faults were planted")
    parser.add_argument("--kept", type=Path, default=_KEPT, help="where results are kept for --resume")
    return parser.parse_args(words)


def _is_chosen(fault: Fault, options: argparse.Namespace) -> bool:
    named = not options.only or fault.name in options.only
    return named and (not options.rule or str(fault.rule) in options.rule)


def _play(options: argparse.Namespace, root: Path, faults: Sequence[Fault], chosen: Sequence[Fault]) -> int:
    results = Results(options.kept, root, chosen, resume=options.resume)
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    commit = _commit(root)
    left = [fault for fault in chosen if results.get(fault) is None]
    with tempfile.TemporaryDirectory(prefix="twophase-faults-") as scratch:
        trees = [Tree(root, Path(scratch) / f"copy-{number}") for number in range(min(options.jobs, len(left)))]
        if trees and not _is_green(trees[0], left, options.jobs):
            return _CANNOT
        _plant(trees, left, results, options.seconds)
    found = [result for fault in chosen if (result := results.get(fault)) is not None]
    assert len(found) == len(chosen), "every fault has a result"
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        print(*summary(found), sep="\n")
    if len(chosen) == len(faults):
        before = options.report.read_text() if options.report.exists() else ""
        options.report.write_text(page(before, date, commit, faults, found, len(found) - len(left)))
        _tell(f"written: {options.report}")
    return _CAUGHT if all(result.outcome is Outcome.CAUGHT for result in found) else _NOT_CAUGHT


def _is_green(tree: Tree, faults: Sequence[Fault], jobs: int) -> bool:
    """Run everything that is asked to notice a fault, without one."""
    tests = sorted({test for fault in faults for test in fault.tests})
    _tell(f"without a fault: the tests of {len(faults)} faults")
    workers = ("-n", str(jobs), "--dist", "worksteal") if jobs > 1 else ()
    ended = run(tree, tests, _GREEN_SECONDS_MAX, *workers)
    if ended.status == 0:
        _tell(f"without a fault: {last_line(ended.output)} ({ended.seconds:.0f} s)")
        return True
    _tell(ended.output[-6000:])
    _tell(f"the tests fail without any fault (status {ended.status}); nothing was planted")
    return False


def _plant(trees: Sequence[Tree], faults: Sequence[Fault], results: Results, seconds_max: float) -> None:
    """Try the faults, as many at a time as there are copies."""
    free: SimpleQueue[Tree] = SimpleQueue()
    for tree in trees:
        free.put(tree)

    def attempt(fault: Fault) -> tuple[Fault, Result]:
        tree = free.get()
        try:
            return fault, try_fault(tree, fault, seconds_max)
        finally:
            free.put(tree)

    pool = ThreadPoolExecutor(max(1, len(trees)))
    try:
        attempts = [pool.submit(attempt, fault) for fault in faults]
        for number, done in enumerate(as_completed(attempts), 1):
            fault, result = done.result()
            results.keep(fault, result)
            by = result.by or result.reason
            _tell(
                f"[{number}/{len(faults)}] {result.outcome.value:9} rule {result.rule!s:5} {result.name} "
                f"({result.seconds} s){f'  {by}' if by else ''}"
            )
    except BaseException:
        for tree in trees:
            tree.abandon()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _commit(root: Path) -> str:
    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=root, stdout=subprocess.PIPE, text=True, check=False)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--", "src", "tests")
    return f"{git('rev-parse', '--short', 'HEAD') or 'unknown'}{' and changes' if changed else ''}"


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    os.nice(5)
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))  # the copies go, too
    sys.exit(main())
