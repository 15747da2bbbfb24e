"""`python -m benchmarks`: measure and print one table."""

from __future__ import annotations

import sys

from benchmarks import core, http, pair, store
from benchmarks.measure import heading

PARTS = {"core": core.results, "store": store.results, "http": http.results, "pair": pair.results}


def main(names: list[str]) -> None:
    """Print the measurements of the named parts, of all by default."""
    print(heading())
    for name in names or PARTS:
        for result in PARTS[name]():
            print(result.line(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
