"""Random kill -9 of all three processes under load, for at least 2 000 transfers.

No promise breaks, by the independent checker and by the audit.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from tests.crash.agreement import assert_agree
from tests.crash.failpoints import databases
from tests.crash.harness import Harness, build
from tests.spark.plugin import SharedSpark

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

TRANSFERS = 2_000
KILLS = 10
CUSTOMERS = 8


def _kill_at_random(harness: Harness, done: threading.Event, enough: threading.Event, chance: random.Random) -> int:
    """Kill until the load is `done`, which continues until there were `enough` kills."""
    kills = 0
    while not done.wait(chance.uniform(0.8, 2.4)):
        victims = chance.sample(harness.services, chance.choice((1, 1, 1, 2, 3)))
        for victim in victims:
            victim.kill()
            kills += 1
        if kills >= KILLS:
            enough.set()
        done.wait(chance.uniform(0.0, 0.3))
        harness.start()
    return kills


@pytest.mark.long
def test_random_kills_under_load_keep_every_promise(tmp_path: Path, shared_spark: SharedSpark) -> None:
    harness = build(tmp_path, *databases(tmp_path))
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    done, enough, broken_off = threading.Event(), threading.Event(), threading.Event()

    def customers_come() -> None:
        try:
            _until_committed(harness, enough, broken_off)
        finally:
            done.set()

    try:
        harness.start()
        customers = threading.Thread(target=customers_come)
        customers.start()
        kills = _kill_at_random(harness, done, enough, chance)
        customers.join()
        harness.start()
        harness.wait_rest(60)
        findings = harness.check()
    finally:
        broken_off.set()  # otherwise the customers would continue for ever after a failure
        done.set()
        harness.stop()

    committed = sum(told.outcome == "committed" for told in harness.told)
    unanswered = sum(told.outcome == "" for told in harness.told)
    print(
        f"\nseed {seed}: {len(harness.told)} transfers, {committed} committed, {unanswered} unanswered, {kills} kills"
    )
    assert findings.violations == []
    assert committed >= TRANSFERS
    assert kills >= KILLS
    assert_agree(shared_spark.session(), harness.locations(), findings)


def _until_committed(harness: Harness, enough: threading.Event, broken_off: threading.Event) -> None:
    committed = 0
    while not broken_off.is_set() and (committed < TRANSFERS or not enough.is_set()):
        before = len(harness.told)
        harness.transfers(200, customers=CUSTOMERS)
        committed += sum(told.outcome == "committed" for told in harness.told[before:])
