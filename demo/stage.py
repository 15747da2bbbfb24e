"""The stage: a folder, three databases and three processes.

It also reads the databases.
"""

from __future__ import annotations

import json
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.banks import processes, schema
from twophase.barrier.installing import install

OPENING_BALANCE = 100_000
TOTAL = 2 * OPENING_BALANCE
STATES = {2: "prepared", 3: "submitted", 4: "succeeded", 5: "failed"}
_SETTINGS = {
    "TWOPHASE_CHECK_BACK_FIRST_MS": "300",
    "TWOPHASE_CHECK_BACK_CAP_MS": "1000",
    "TWOPHASE_RETRY_FIRST_MS": "200",
    "TWOPHASE_RETRY_CAP_MS": "1000",
}


class StageError(Exception):
    """An error: the demo itself could not continue."""


@dataclass(frozen=True)
class Told:
    """The answer to a customer of bank A; an empty outcome when no answer came."""

    gid: str
    outcome: str
    why: str


class Stage:
    """The processes and databases of the demo."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.coordinator_db = folder / "coordinator.db"
        self.bank_a_db = folder / "bank-a.db"
        self.bank_b_db = folder / "bank-b.db"
        for path, name in ((self.bank_a_db, "A"), (self.bank_b_db, "B")):
            engine = schema.open_engine(f"sqlite:///{path}")
            schema.open_bank(engine, name, OPENING_BALANCE)
            install(engine)
            engine.dispose()
        self.coordinator = processes.coordinator(folder, settings=_SETTINGS)
        self.bank_b = processes.bank(
            "bank-b", "examples.banks.bank_b:app", folder, {"BANK_DATABASE": f"sqlite:///{self.bank_b_db}"}
        )
        self.bank_a = processes.bank(
            "bank-a",
            "examples.banks.bank_a:app",
            folder,
            {
                "BANK_DATABASE": f"sqlite:///{self.bank_a_db}",
                "COORDINATOR": self.coordinator.url,
                "BANK_B": self.bank_b.url,
                "TIMEOUT_TO_FAIL_S": "1",
                "PATIENCE_S": "0.5",
            },
        )

    @property
    def services(self) -> tuple[processes.Service, ...]:
        """All three services, in the order in which they start."""
        return (self.coordinator, self.bank_b, self.bank_a)

    def start(self) -> None:
        """Start every process that does not run."""
        processes.start_those_down(self.services)

    def stop(self) -> None:
        """End every process."""
        for service in self.services:
            service.stop()

    def transfer(self, transfer_id: str, **hold_s: float) -> Told:
        """Ask bank A to move money, as a customer would."""
        body = json.dumps({"transfer_id": transfer_id, "amount": 1, **hold_s}).encode()
        request = urllib.request.Request(f"{self.bank_a.url}/transfer", body, {"Content-Type": "application/json"})
        try:
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    text = answer.read()
            except urllib.error.HTTPError as error:
                with error:
                    text = error.read()
            said = json.loads(text)
            return Told(said.get("gid", ""), said.get("outcome", ""), said.get("why", ""))
        except (OSError, ValueError):
            return Told("", "", "")

    def rows(self, database: Path, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Read one of the databases, beside its writer."""
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=5)) as connection:
            return connection.execute(statement, parameters).fetchall()

    def unfinished(self) -> set[str]:
        """Return the gids that the coordinator has not finished."""
        return {row[0] for row in self.rows(self.coordinator_db, "select gid from message")}

    def is_in_transaction(self) -> bool:
        """Return True while a transaction of bank A writes.

        SQLite has one writer at a time.
        """
        with closing(sqlite3.connect(self.bank_a_db, timeout=0, isolation_level=None)) as connection:
            try:
                connection.execute("begin immediate")
            except sqlite3.OperationalError:
                return True
            connection.execute("rollback")
        return False

    def final(self, gid: str) -> tuple[str, str, int] | None:
        """Return a final message's state, decider and time of its end; else None.

        The time is in ms since 1970.
        """
        found = self.rows(self.coordinator_db, "select state, decided_by, finished_ms from history where gid = ?", gid)
        return (STATES[found[0][0]], found[0][1], found[0][2]) if found else None

    def answers(self, gid: str) -> list[str]:
        """Return the results of check-backs without a verdict, in order."""
        return [
            row[0]
            for row in self.rows(
                self.coordinator_db, "select result from attempt where gid = ? and kind = 'check-back' order by id", gid
            )
        ]

    def balances(self) -> tuple[int, int]:
        """Return the balances of accounts A and B."""
        [[a]], [[b]] = (self.rows(path, "select balance from account") for path in (self.bank_a_db, self.bank_b_db))
        return a, b

    def wait(self, what: str, holds: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Poll until `holds()`.

        Raises:
            StageError: it did not within `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > deadline:
                raise StageError(f"waited {timeout_s:.0f} s in vain: {what}")
            time.sleep(0.05)
