"""Customers: a few hundred transfers, while a thread kills processes at random."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable

from demo.stage import Stage

_CUSTOMERS = 6


class Crowd:
    """Customers who transfer money until `wanted` transfers are committed.

    A transfer counts when its commit was acknowledged.
    """

    def __init__(self, stage: Stage, wanted: int, on_told: Callable[[Counter[str]], None]) -> None:
        self._stage = stage
        self._wanted = wanted
        self._on_told = on_told
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._enough = threading.Event()
        self.told: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()

    def run(self) -> None:
        """Return when enough have committed, and everything that was killed runs again."""
        customers = [threading.Thread(target=self._customer) for _ in range(_CUSTOMERS)]
        for customer in customers:
            customer.start()
        try:
            self._kill_now_and_then()
        finally:
            self._enough.set()
            for customer in customers:
                customer.join()
        self._stage.start()

    def _customer(self) -> None:
        while not self._enough.is_set():
            outcome = self._stage.transfer(f"crowd-{next(self._numbers)}").outcome or "no answer"
            with self._lock:
                self.told[outcome] += 1
                self._on_told(self.told)
                if self.told["committed"] >= self._wanted:
                    self._enough.set()
            if outcome != "committed":
                self._enough.wait(0.1)

    def _kill_now_and_then(self) -> None:
        chance = random.Random()
        # In turn, so that a short run meets every one of them.
        victims = itertools.cycle(chance.sample(self._stage.services, len(self._stage.services)))
        while not self._enough.wait(chance.uniform(1.0, 2.5)):
            victim = next(victims)
            victim.kill()
            self.kills[victim.name] += 1
            self._enough.wait(chance.uniform(0.1, 0.4))
            self._stage.start()
