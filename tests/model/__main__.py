"""`python -m tests.model`: explore every world and tell the story of every planted mistake."""

from __future__ import annotations

import sys
import time

from .explore import explore
from .mutations import RULE_MUTATIONS, TABLE_MUTATIONS
from .rules import Rules
from .worlds import WORLDS


def main() -> int:
    """Print the number of states of each world, then each mistake with its shortest counterexample."""
    broken = 0
    for name, size in WORLDS.items():
        began_s = time.perf_counter()
        found = explore(Rules(), size)
        took_s = time.perf_counter() - began_s
        print(f"{name}: {found.states} states, {found.steps} steps, {took_s:.1f} s", found.breach or "", flush=True)
        broken += found.breach is not None
    for mutation in (*TABLE_MUTATIONS, *RULE_MUTATIONS):
        found = explore(mutation.rules, mutation.size)
        print(f"\n{mutation.name} ({found.states} states)\n{found.breach or 'NOT CAUGHT'}", flush=True)
        broken += found.breach is None
    return min(broken, 1)


if __name__ == "__main__":
    sys.exit(main())
