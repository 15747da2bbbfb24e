"""The harness of this package: a server, the clients' banks, and their ledgers.

The server is a real `twophase server` process. A `Setup` is one client speaking one protocol with its barrier in one
database. `Harness.order` makes a transfer by it; check-backs and branches are answered by the same client's service, or
by another's.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import secrets
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tests.clients.ledgers import Ledger
from tests.clients.orders import AMOUNT, PAYEE, PAYER, Addresses, Order, Payload, Step, Told
from tests.clients.programs import PYTHON_BANKS, ROOT, Program

PATIENCE_S = 60.0
MOVED = {PAYER: -AMOUNT, PAYEE: AMOUNT}
NOTHING: dict[str, int] = {}
KILLED_IS_ASKED_AFTER_S = 2
"""The time until the check-back of a producer that is killed before its commit."""
COMMITS_WITHIN_S = 8
"""The same for one that is killed after its commit.

A slow machine reaches the commit before.
"""
# Check-backs leave time for producers that are still alive; a failed call is tried again soon.
_SETTINGS = {
    "TWOPHASE_CHECK_BACK_FIRST_MS": "100",
    "TWOPHASE_CHECK_BACK_CAP_MS": "500",
    "TWOPHASE_RETRY_FIRST_MS": "200",
    "TWOPHASE_RETRY_CAP_MS": "500",
    "TWOPHASE_REQUEST_TIMEOUT_MS": "60000",
}


class Setup(msgspec.Struct, frozen=True):
    """One client, one protocol, one database."""

    client: str
    protocol: str
    store: str

    @property
    def name(self) -> str:
        """Return the name for test ids."""
        return f"{self.client}-{self.protocol}-{self.store}"


class Coordinator(msgspec.Struct, frozen=True):
    """A running server."""

    http: str
    grpc: str
    """Host and port."""

    def address(self, setup: Setup) -> str:
        """Return the server's address for the combination's client."""
        if setup.client == "sdk":
            return f"grpc://{self.grpc}" if setup.protocol == "grpc" else self.http
        if setup.protocol == "grpc":
            return self.grpc
        return f"{self.http}/api/{'json-rpc' if setup.protocol == 'json-rpc' else 'dtmsvr'}"

    def get(self, path: str) -> tuple[int, Any]:
        """Return status and decoded body."""
        try:
            with urllib.request.urlopen(f"{self.http}{path}", timeout=20) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def subscribe(self, topic: str, url: str) -> int:
        """Add a subscriber to a topic; return the status of the answer."""
        return self.get(f"/api/dtmsvr/subscribe?{urllib.parse.urlencode({'topic': topic, 'url': url})}")[0]

    def state(self, gid: str) -> str | None:
        """Return the state that a query shows; None for an unknown gid."""
        _, found = self.get(f"/api/dtmsvr/query?gid={gid}")
        return None if found["transaction"] is None else str(found["transaction"]["status"])

    def until(self, gid: str, wanted: str) -> None:
        """Wait until a query shows this state."""
        deadline, pause = time.monotonic() + PATIENCE_S, threading.Event()
        while (state := self.state(gid)) != wanted:
            assert time.monotonic() < deadline, f"{gid} is {state} after {PATIENCE_S:g} s, not {wanted}"
            pause.wait(0.02)


@contextlib.contextmanager
def coordinating(
    folder: Path, tokens: str = "", token: str = "", also: Mapping[str, str] | None = None
) -> Iterator[Coordinator]:
    """Run a server process with its store in `folder`, for the block's time.

    Arguments:
        tokens: its file of tokens.
        token: stands in the base URL of every request over HTTP.
        also: variables of its environment.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TWOPHASE_")}
    command = [sys.executable, "-m", "twophase", "server", "--store", f"sqlite:///{folder / 'coordinator.db'}"]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--http-port", "0"],
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=ROOT,
            env={**inherited, **_SETTINGS, "TWOPHASE_GRPC_PORT": "0", "TWOPHASE_TOKENS": tokens, **(also or {})},
        )
    assert process.stdout is not None
    try:
        ready = process.stdout.readline().decode()
        found = re.search(r"(http://\S+) grpc://(\S+)", ready)
        assert found, f"{ready!r}: {(folder / 'server.log').read_text()[-2000:]}"
        yield Coordinator(f"{found[1]}/t/{token}" if token else found[1], found[2])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def program(client: str, ledgers: Mapping[str, Ledger], go_bank: Callable[[], str]) -> Program:
    """Return one client's bank on these databases; `go_bank` as for `Harness`."""
    environment = {name: value for ledger in ledgers.values() for name, value in ledger.environment().items()}
    if client in PYTHON_BANKS:
        return Program.python(client, environment)
    return Program(client, (go_bank(),), environment)


class Harness:
    """The services and databases that a test drives."""

    def __init__(
        self,
        coordinator: Coordinator,
        ledgers: Mapping[str, Ledger],
        go_bank: Callable[[], str],
        stack: contextlib.ExitStack,
        services: Mapping[str, Addresses] | None = None,
    ) -> None:
        """Put it together; programs are found and services started when they are needed.

        Arguments:
            go_bank: finds the bank in Go, or ends the test.
            stack: the services end with it.
            services: those that run already.
        """
        self.coordinator = coordinator
        self._ledgers = ledgers
        self._go_bank = go_bank
        self._stack = stack
        self._services = dict(services or {})
        self._numbers = itertools.count()

    def program(self, client: str) -> Program:
        """Return one client's bank."""
        return program(client, self._ledgers, self._go_bank)

    def service(self, client: str) -> Addresses:
        """Return the addresses of its service."""
        if client not in self._services:
            self._services[client] = self._stack.enter_context(self.program(client).serving())
        return self._services[client]

    def address(self, setup: Setup, what: str, service: str | None = None) -> str:
        """Return the address by which a service answers `in` or `check`.

        It is the service of the combination's own client, if not another is named.
        """
        found = self.service(service or setup.client)
        if setup.protocol == "grpc":
            scheme = "grpc://" if setup.client == "sdk" else ""
            return f"{scheme}{found.grpc}/{setup.store}.Bank/{what.capitalize()}"
        if setup.protocol == "json-rpc" and what == "in":
            return f"{found.http}/{setup.store}/rpc?method=in"
        return f"{found.http}/{setup.store}/{what}"

    def order(
        self, setup: Setup, *payloads: Payload, service: str | None = None, topic: str = "", **others: Any
    ) -> Order:
        """Return a transfer with one branch for each payload.

        Without payloads it has one branch with the usual payload.
        """
        action = "" if topic else self.address(setup, "in", service)
        order = Order(
            server=self.coordinator.address(setup),
            protocol=setup.protocol,
            store=setup.store,
            gid=f"{setup.name}-{next(self._numbers)}-{secrets.token_hex(4)}",
            check=self.address(setup, "check", service),
            steps=[Step(action=action, topic=topic, payload=payload) for payload in payloads or (Payload(),)],
        )
        order = msgspec.structs.replace(order, **others)
        self._ledgers[setup.store].open(order.gid)
        return order

    def transfer(self, setup: Setup, order: Order) -> Told:
        """Let the combination's client make the transfer."""
        return self.program(setup.client).transfer(order)

    def moved(self, order: Order) -> dict[str, int]:
        """Return the movements of a transfer so far."""
        return self._ledgers[order.store].moved(order.gid)

    def until(self, order: Order, state: str) -> None:
        """Wait until the server shows this state."""
        self.coordinator.until(order.gid, state)
