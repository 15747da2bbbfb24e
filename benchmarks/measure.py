"""The way of a measurement: several rounds and their spread, never one number."""

from __future__ import annotations

import os
import platform
import statistics
import time
import timeit
from collections.abc import Callable

import msgspec

ROUNDS = 5


class Result(msgspec.Struct, frozen=True):
    """Microseconds an operation, one figure a round."""

    name: str
    micros: tuple[float, ...]

    def line(self) -> str:
        """Return one line of the table."""
        low, middle, high = min(self.micros), statistics.median(self.micros), max(self.micros)
        return f"{self.name:<58} {low:>10.2f} {middle:>10.2f} {high:>10.2f}"


def measure(name: str, operation: Callable[[], object], *, operations: int, rounds: int = ROUNDS) -> Result:
    """Call `operation` `operations` times in each round.

    The first round does not count.
    """
    micros = []
    for number in range(rounds + 1):
        started = time.perf_counter()
        for _ in range(operations):
            operation()
        if number:
            micros.append((time.perf_counter() - started) / operations * 1e6)
    return Result(name, tuple(micros))


def machine() -> str:
    """Return the machine and the interpreter of the figures."""
    system = f"{platform.system()} {platform.release()}"
    return f"{os.cpu_count()} CPUs, {platform.machine()}, Python {interpreter()}, {system}"


def interpreter() -> str:
    """Return version and speed of this interpreter.

    One built with profile-guided optimization is up to 40 % faster, and not every build says how it was made.
    """
    loop_us = min(timeit.repeat("for turn in range(1000): found = turn * 2 + 1", number=100, repeat=7)) / 100 * 1e6
    return f"{platform.python_version()} (a loop of 1,000 turns: {loop_us:.0f} µs)"


def heading() -> str:
    """Return the machine of the figures, and the head of the table."""
    columns = f"{'':<58} {'min':>10} {'median':>10} {'max':>10}"
    return f"{machine()}; µs an operation, {ROUNDS} rounds\n\n{columns}"
