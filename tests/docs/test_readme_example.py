"""README's example, exactly as it stands there.

A real coordinator, two real services and SQLite run it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.docs.pages import ROOT, examples
from twophase.barrier.installing import install

_EXAMPLES = examples(ROOT / "README.md")
_DEADLINE_S = 60.0
_SERVICE = """
from fastapi import FastAPI, Request
from sqlalchemy import create_engine, text

engine = create_engine({url!r})
app = FastAPI()
"""
_PRODUCER = """
from sqlalchemy import create_engine, text

engine = create_engine({url!r})
"""


class Harness:
    """The folder, the ports and the names of one run of the example.

    `ports`: the ports of services that are ready, by README's names.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports: dict[str, int] = {}

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of a process that resolves all ready services by name."""
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(self.folder)]),
            "NAMED_HOSTS": json.dumps(self.ports),
            "PYTHONUNBUFFERED": "1",
        }

    def database(self, name: str) -> str:
        """Return the URL of a bank's database."""
        return f"sqlite:///{self.folder / name}.db"

    def balance(self, name: str) -> int:
        """Return the balance of a bank's only account."""
        with contextlib.closing(sqlite3.connect(self.folder / f"{name}.db")) as connection:
            balance: int = connection.execute("select balance from account").fetchone()[0]
            return balance

    def open_bank(self, name: str, account: str, balance: int) -> None:
        """Make tables, one account, and the barrier."""
        with contextlib.closing(sqlite3.connect(self.folder / f"{name}.db")) as connection, connection:
            connection.execute("create table account (id text primary key, balance integer not null)")
            connection.execute("insert into account values (?, ?)", (account, balance))
        install(self.database(name))

    @contextlib.contextmanager
    def running(self, place: str, *command: str) -> Iterator[None]:
        """Run a process that prints its address when it is ready.

        From then on the name `place` leads there.
        """
        with (
            (self.folder / "log").open("ab") as log,
            subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=self.folder,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=log,
            ) as process,
        ):
            try:
                assert process.stdout is not None
                with selectors.DefaultSelector() as selector:
                    selector.register(process.stdout, selectors.EVENT_READ)
                    assert selector.select(_DEADLINE_S), f"{command} did not get ready in time"
                line = process.stdout.readline()
                assert b"http://127.0.0.1:" in line, (self.folder / "log").read_text()
                self.ports[place] = int(line.split(b"http://127.0.0.1:")[1].split()[0])
                yield
            finally:
                process.terminate()


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    """Coordinator, bank A and bank B, under the names that README gives them."""
    harness = Harness(tmp_path)
    harness.open_bank("bank_a", "A", 100)
    harness.open_bank("bank_b", "B", 0)
    (tmp_path / "bank_a.py").write_text(_SERVICE.format(url=harness.database("bank_a")) + _EXAMPLES["check-back"])
    (tmp_path / "bank_b.py").write_text(_SERVICE.format(url=harness.database("bank_b")) + _EXAMPLES["consumer"])
    with (
        harness.running("bank-a:80", "examples.banks.serve", "bank_a:app", "0"),
        harness.running("bank-b:80", "examples.banks.serve", "bank_b:app", "0"),
        harness.running("localhost:36789", "tests.docs.named_hosts", "twophase", "server", "--http-port", "0"),
    ):
        yield harness


def _produce(harness: Harness) -> subprocess.CompletedProcess[str]:
    program = harness.folder / "producer.py"
    program.write_text(
        _PRODUCER.format(url=harness.database("bank_a")) + _EXAMPLES["producer"] + "\nprint(message.gid)\n"
    )
    command = [sys.executable, "-m", "tests.docs.named_hosts", "producer"]
    return subprocess.run(
        command, cwd=harness.folder, env=harness.environment, capture_output=True, text=True, check=False
    )


def _wait_for(harness: Harness, balance: int) -> None:
    pause, ends_s = threading.Event(), time.monotonic() + _DEADLINE_S
    while harness.balance("bank_b") != balance:
        assert time.monotonic() < ends_s, (
            f"bank B holds {harness.balance('bank_b')}\n{(harness.folder / 'log').read_text()}"
        )
        pause.wait(0.05)


def test_example_moves_money(harness: Harness) -> None:
    done = _produce(harness)
    assert done.returncode == 0, done.stderr
    _wait_for(harness, 30)
    query = f"http://127.0.0.1:{harness.ports['localhost:36789']}/api/dtmsvr/query"
    answer = httpx.get(query, params={"gid": done.stdout.strip()}).json()
    assert harness.balance("bank_a") == 70
    assert answer["transaction"]["status"] in {"submitted", "succeed"}


def test_check_back_route_of_the_example_bars_a_transaction_that_never_began(harness: Harness) -> None:
    url = f"http://127.0.0.1:{harness.ports['bank-a:80']}/twophase/check"
    with contextlib.closing(sqlite3.connect(harness.folder / "bank_a.db")) as connection:
        identity = connection.execute("select value from twophase_meta where name = 'identity'").fetchone()[0]
    question = {"gid": "never-began", "trans_type": "msg", "branch_id": "00", "op": "msg", "barrier": identity}
    answer = httpx.get(url, params=question)
    assert (answer.status_code, answer.headers["x-twophase-verdict"]) == (409, "rolled_back")


def test_example_is_five_lines() -> None:
    lines = [line for line in _EXAMPLES["producer"].splitlines() if line.strip()]
    assert len(lines) <= 5
    assert not re.search(r"#\s*type:|noqa", _EXAMPLES["producer"])
