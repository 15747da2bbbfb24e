"""`python -m benchmarks`: the standard set, or named parts of it.

The results are written to docs/benchmarks.md, where the other parts stay as they are. `python -m benchmarks micro`
measures the hot path piece by piece, `python -m benchmarks inproc` a whole message in one process.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import core, grpc, http, inproc, page, record, sdk, standard, store
from benchmarks.measure import heading, machine
from twophase.core.errors import TwophaseError

PARTS = {"core": core.results, "store": store.results, "http": http.results, "grpc": grpc.results, "sdk": sdk.results}
DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("what", nargs="?", choices=["standard", "micro", "inproc"], default="standard")
    parser.add_argument(
        "parts", nargs="*", help=f"of micro: {', '.join(PARTS)}; of standard: {', '.join(standard.PARTS)}"
    )
    parser.add_argument("--quick", action="store_true", help="one short run of each, in a few minutes")
    parser.add_argument("--long", action="store_true", help="as long as the bars say: 5 minutes stalled, 30 saturated")
    parser.add_argument("--signed", action="store_true", help="of inproc: the branch's calls are signed")
    parser.add_argument("--tokens", action="store_true", help="of inproc: clients give a token")
    parser.add_argument("--quotas", action="store_true", help="of inproc: clients give a token that has quotas")
    parser.add_argument("--functions", action="store_true", help="of inproc: the instructions of each function, too")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where benchmarks.md is written")
    options = parser.parse_args()
    if options.what == "micro":
        micro(options.parts)
        return
    if options.what == "inproc":
        whole_message(functions=options.functions, signed=options.signed, tokens=options.tokens, quotas=options.quotas)
        return
    effort = standard.QUICK if options.quick else standard.LONG if options.long else standard.FULL
    try:
        failed = measure(options.docs, effort, options.parts)
    except TwophaseError as error:
        sys.exit(str(error))
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


def measure(docs: Path, effort: standard.Effort, names: list[str]) -> list[str]:
    """Measure, and write the page after each part.

    It returns the names of the parts that could not be measured.

    Raises:
        ConfigurationError: no such part, or a record that cannot be continued; it is raised before any measurement.
    """
    record.load(page.record_file(docs))
    failed = []
    for measured in standard.measure_parts(effort, names):
        page.put(docs, measured.name, measured.part, measured.drawn)
        failed += [measured.name] if measured.part.failure else []
    print(f"written: {docs / 'benchmarks.md'}")
    return failed


def micro(names: list[str]) -> None:
    """Print the measurements of the named parts, of all by default."""
    print(heading())
    for name in names or PARTS:
        for result in PARTS[name]():
            print(result.line(), flush=True)


def whole_message(*, functions: bool, signed: bool, tokens: bool, quotas: bool) -> None:
    """Print what a whole message costs in one process."""
    figures = inproc.measure(signed=signed, tokens=tokens, quotas=quotas)
    print(machine())
    print("\n".join([*(figures.by_function() if functions else ()), *figures.lines()]))


if __name__ == "__main__":
    main()
