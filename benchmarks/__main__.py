"""`python -m benchmarks`: the standard set, written to docs/benchmarks.md; `python -m benchmarks micro`: the parts."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import core, http, page, standard, store
from benchmarks.measure import heading

PARTS = {"core": core.results, "store": store.results, "http": http.results}
DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("what", nargs="?", choices=["standard", "micro"], default="standard")
    parser.add_argument(
        "parts", nargs="*", help=f"of micro: {', '.join(PARTS)}; of standard: {', '.join(standard.PARTS)}"
    )
    parser.add_argument("--quick", action="store_true", help="one short run of each, in a few minutes")
    parser.add_argument("--long", action="store_true", help="as long as the bars say: 5 minutes stalled, 30 saturated")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where benchmarks.md is written")
    options = parser.parse_args()
    if options.what == "micro":
        micro(options.parts)
        return
    effort = standard.QUICK if options.quick else standard.LONG if options.long else standard.FULL
    results = standard.measure_parts(effort, options.parts)
    page.write(options.docs, results)
    if results.failures:
        sys.exit(f"not measured: {', '.join(results.failures)}")


def micro(names: list[str]) -> None:
    """Print the measurements of the named parts, of all by default."""
    print(heading())
    for name in names or PARTS:
        for result in PARTS[name]():
            print(result.line(), flush=True)


if __name__ == "__main__":
    main()
