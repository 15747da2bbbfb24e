"""`python -m tests.model`: explore every world, and show each planted mistake.

Each mistake is shown by its story. `python -m tests.model --every-cell` leads each cell of the table into each wrong
state instead (a minute or two) and names those that go unnoticed. One does: a submit "with other branches" of an
unknown gid, which cannot happen, as there is nothing from which the branches could differ.
"""

from __future__ import annotations

import sys
import time

from .explore import explore
from .mutations import RULE_MUTATIONS, TABLE_MUTATIONS, every_wrong_next_state
from .rules import Rules, Size
from .worlds import WORLDS

_HARSH = (
    Size(attempts=1, nodes=1, pauses=2, operator=True, history_is_purged=True),
    Size(attempts=1, nodes=1, contrary_words=True, operator=True, history_is_purged=True),
)
_HARMLESS = "SUBMIT_OTHER on ABSENT leads to PREPARED"


def every_cell() -> int:
    """Print the wrong cells that no world notices; 1 when one of them could do harm."""
    wrong = tuple(every_wrong_next_state())
    missed = [name for name, rules in wrong if all(explore(rules, size).breach is None for size in _HARSH)]
    print(f"{len(wrong)} wrong cells, {len(missed)} unnoticed: {', '.join(missed)}")
    return int(missed != [_HARMLESS])


def main() -> int:
    """Print the number of states of each world, then each mistake.

    A mistake is shown with its shortest counterexample.
    """
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
    sys.exit(every_cell() if "--every-cell" in sys.argv else main())
