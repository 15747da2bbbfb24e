"""The harness of every crash test: a coordinator and two banks as processes.

It also has customers, and waits for rest.
"""

from __future__ import annotations

import http.client
import itertools
import json
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from examples.banks import processes, schema
from tests.crash.checker import Acknowledged, Findings, check, live, rows
from twophase.barrier.installing import install

if TYPE_CHECKING:
    from twophase_spark.locations import Location

BALANCE = 1_000_000
TOTAL = 2 * BALANCE
FAST = {
    "TWOPHASE_CHECK_BACK_FIRST_MS": "100",
    "TWOPHASE_CHECK_BACK_CAP_MS": "500",
    "TWOPHASE_RETRY_FIRST_MS": "100",
    "TWOPHASE_RETRY_CAP_MS": "500",
}


def _request(url: str, body: object | None, timeout_s: float) -> tuple[int, bytes]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@dataclass
class Harness:
    """The three processes, their databases, and the answers to customers."""

    folder: Path
    database_a: str
    database_b: str
    coordinator: processes.Service
    bank_a: processes.Service
    bank_b: processes.Service
    told: list[Acknowledged] = field(default_factory=list)
    _patience: threading.Event = field(default_factory=threading.Event)
    """Never set: a customer without an answer waits a moment before the next transfer."""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def store(self) -> str:
        """Return the URL of the coordinator's store."""
        return f"sqlite:///{self.folder / 'coordinator.db'}"

    @property
    def has_run(self) -> bool:
        """Return True when the coordinator ever made its store."""
        return (self.folder / "coordinator.db").exists()

    @property
    def services(self) -> tuple[processes.Service, ...]:
        """Return all three services."""
        return (self.coordinator, self.bank_b, self.bank_a)

    @cached_property
    def _identity(self) -> str:
        """Return the name of bank A's database, which a check-back must give."""
        [[identity]] = rows(self.database_a, "select value from twophase_meta where name = 'identity'")
        return str(identity)

    def start(self) -> None:
        """Start every service that does not run."""
        processes.start_those_down(self.services)

    def stop(self) -> None:
        """Kill everything."""
        for service in self.services:
            service.kill()

    def transfer(self, amount: int = 1, **hold: float) -> Acknowledged:
        """Make one customer's transfer, and return the answer.

        Its outcome is empty when no answer came.
        """
        transfer_id = f"t{next(self._numbers):06d}"
        wish = {"transfer_id": transfer_id, "amount": amount, **hold}
        try:
            _, body = _request(f"{self.bank_a.url}/transfer", wish, timeout_s=20)
            answer = json.loads(body)
            told = Acknowledged(transfer_id, answer.get("gid", ""), answer.get("outcome", ""))
        except (OSError, ValueError, http.client.HTTPException):
            told = Acknowledged(transfer_id, "", "")
        self.told.append(told)
        return told

    def transfers(self, count: int, customers: int = 8) -> None:
        """Make many transfers, several at a time."""

        def wish(_: int) -> None:
            if not self.transfer().outcome:
                self._patience.wait(0.1)

        with ThreadPoolExecutor(customers) as pool:
            list(pool.map(wish, range(count)))

    def transfer_begun_late(self) -> Acknowledged:
        """Make a transfer whose local transaction begins only after the check-back."""
        return self.transfer(hold_before_begin_s=4.0)

    def orphan(self, number: int) -> bool:
        """Prepare a message whose producer never begins; return True when acknowledged."""
        body = {
            "gid": f"orphan-{time.time_ns()}-{number}",
            "trans_type": "msg",
            "steps": [{"action": f"{self.bank_b.url}/transfer-in"}],
            "payloads": ['{"transfer_id":"orphan","amount":1}'],
            "query_prepared": f"{self.bank_a.url}/twophase/check?barrier={self._identity}",
            "explicit_verdict": True,
            "timeout_to_fail": 1,
        }
        try:
            status, _ = _request(f"{self.coordinator.url}/api/dtmsvr/prepare", body, timeout_s=10)
        except OSError:
            return False
        return status == 200

    def wait_rest(self, timeout_s: float = 90.0) -> None:
        """Return when the coordinator has no unfinished message, or when time is up.

        The checker then reports it.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not live(self.store):
                return
            time.sleep(0.05)

    def locations(self) -> list[Location]:
        """Return the databases in which an audit finds all sides."""
        from twophase_spark.locations import Role, parse_coordinator, parse_named

        return [
            parse_coordinator(self.store),
            parse_named(Role.PRODUCER, f"bank-a={self.database_a}"),
            parse_named(Role.CONSUMER, f"bank-b={self.database_b}"),
            parse_named(Role.LEDGER, f"bank-b={self.database_b}#ledger"),
        ]

    def check(self) -> Findings:
        """Return the independent checker's findings."""
        return check(
            coordinator=self.store,
            bank_a=self.database_a,
            bank_b=self.database_b,
            total=TOTAL,
            acknowledged=self.told,
        )


def build(folder: Path, database_a: str, database_b: str, planted: dict[str, str] | None = None) -> Harness:
    """Make a harness with money in both banks; nothing runs yet.

    Arguments:
        folder: for files, logs and SQLite databases.
        database_a, database_b: SQLAlchemy URLs.
        planted: a bug to plant, by process name (see `tests.crash.planted`).
    """
    for url, name in ((database_a, "A"), (database_b, "B")):
        engine = schema.open_engine(url)
        schema.open_bank(engine, name, BALANCE)
        install(engine)
        engine.dispose()
    coordinator = processes.coordinator(folder, settings=FAST)
    bank_b = processes.bank("bank-b", "examples.banks.bank_b:app", folder, {"BANK_DATABASE": database_b})
    bank_a = processes.bank(
        "bank-a",
        "examples.banks.bank_a:app",
        folder,
        {
            "BANK_DATABASE": database_a,
            "COORDINATOR": coordinator.url,
            "BANK_B": bank_b.url,
            "TIMEOUT_TO_FAIL_S": "1",
            "PATIENCE_S": "0.5",
        },
    )
    for service in (coordinator, bank_a, bank_b):
        if planted and service.name in planted:
            service.run_through([sys.executable, "-m", "tests.crash.planted", planted[service.name]])
    return Harness(folder, database_a, database_b, coordinator, bank_a, bank_b)
