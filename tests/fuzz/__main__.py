"""`python -m tests.fuzz --seconds 600`: play every target in turn.

The findings are written to docs/fuzz-report.md.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tests.fuzz import doors, rules
from tests.fuzz.play import ROUND, Tally, play, play_for
from tests.fuzz.process import MEMORY_BYTES_MAX, Fuzzed
from tests.fuzz.targets import all_targets

_REPORT: Final = Path(__file__).parents[2] / "docs" / "fuzz-report.md"
_HEAD: Final = """\
# Fuzz report

Written by `make fuzz`, which sends a real server what nobody should send, and its parsers too. A case fails when it is
answered by a 5xx that is ours, by anything the [published document](reference/http-api.md) does not name, or not at
all; when a parser raises what is not its own error; and a round of cases fails when the server then does not answer a
ping, has logged a fault, or holds more than {memory} MB.

Then the ports of two servers, a service's routes and the parsers are played in one process with changed bytes: right
requests with bits, pieces, numbers and words changed. One server knows its clients, by tokens and certificates. A case
fails when it is answered by a 5xx that is ours, by an internal error of HTTP/2 or by a trace, when a parser raises what
is not its own error, when a call is accepted that no key has signed or a certificate that names no client, or when
anything logs a fault.
"""


def main() -> None:
    """Read the command line, play, write."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--only", action="append", default=[], help="a target's name, or a part of it")
    parser.add_argument("--changed", type=int, default=2_000_000, help="cases of changed bytes, at all doors together")
    parser.add_argument("--seed", type=int, help="play one round again, and make what fails as small as it gets")
    parser.add_argument("--report", type=Path, default=_REPORT)
    options = parser.parse_args()
    os.nice(19)
    logging.getLogger("twophase.barrier.signing.refused").setLevel(logging.ERROR)  # most of the calls are refused
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))  # the server ends too
    began = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    with all_targets() as (server, targets):
        chosen = [one for one in targets if _is_named(one.name, options.only)]
        if options.seed is not None:
            for target in chosen:
                play(target, ROUND, seed=options.seed)
            return
        first = server.memory_bytes()
        tallies = play_for(chosen, options.seconds, server.check, _tell)
        tallies.append(_at_the_end(server))
        memory = (first, server.memory_bytes())
    changed = asyncio.run(
        doors.play_all(options.changed, int(time.time()), _tell, lambda name: _is_named(name, options.only))
    )
    only = "".join(f" --only '{part}'" for part in options.only)
    command = f'make fuzz ARGS="--seconds {options.seconds:g} --changed {options.changed}{only}"'
    options.report.write_text(_page(command, began, tallies, changed, memory))
    _tell(f"written: {options.report}")
    if any(tally.failures for tally in tallies + changed):
        sys.exit(1)


def _at_the_end(server: Fuzzed) -> Tally:
    """Check the server after everything, and the rest of its log.

    A failed round may have left faults there.
    """
    tally = Tally("the server, at the end", cases=1)
    try:
        server.check()
    except Exception as error:  # noqa: BLE001 -- whatever it is, it belongs into the report
        tally.failures, tally.texts = 1, [f"{type(error).__name__}: {str(error)[:3000]}"]
    return tally


def _is_named(name: str, only: Sequence[str]) -> bool:
    return not only or any(part.lower() in name.lower() for part in only)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _page(command: str, began: str, tallies: Sequence[Tally], changed: Sequence[Tally], memory: tuple[int, int]) -> str:
    tools = ", ".join(f"{name} {version(name)}" for name in ("twophase", "schemathesis", "hypothesis", "grpcio"))
    lines = [
        _HEAD.format(memory=MEMORY_BYTES_MAX // 2**20),
        f"`{command}`, begun {began}, {sum(tally.seconds for tally in (*tallies, *changed)):,.0f} s; {tools}.",
        f"Memory of the server: {memory[0] / 1e6:.0f} MB before, {memory[1] / 1e6:.0f} MB after.",
        "",
        *_table("Target", tallies),
        "",
        *_table("Changed bytes", changed),
        "",
        "Answers with status 500 that are right, because dtm answers so and its clients look for it:",
        "",
        *(f"* `{code}`: {text}" for code, text in rules.ALLOWED_500.items()),
    ]
    for tally in (*tallies, *changed):
        lines += [f"\n**{tally.name}**\n\n```\n{text}\n```" for text in tally.texts]
    return "\n".join(lines) + "\n"


def _table(head: str, tallies: Sequence[Tally]) -> list[str]:
    return [
        f"| {head} | cases | seconds | failures |",
        "|---|---|---|---|",
        *(f"| {one.name} | {one.cases:,} | {one.seconds:,.0f} | {one.failures} |" for one in tallies),
        f"| **all** | **{sum(one.cases for one in tallies):,}** | | **{sum(one.failures for one in tallies)}** |",
    ]


if __name__ == "__main__":
    main()
