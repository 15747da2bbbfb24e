"""Three server processes on one PostgreSQL, and an operator's view of them.

Each has a network of its own to the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
from prometheus_client.parser import text_string_to_metric_families

from examples.banks import processes
from tests.crash.nodes import witness
from tests.servers.database import Database
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Proxy
from twophase.stores.postgres.store import PostgresStore

LEASE_MS = 2_000
NODES = 3
SETTINGS = {
    "TWOPHASE_CHECK_BACK_FIRST_MS": "100",
    "TWOPHASE_CHECK_BACK_CAP_MS": "500",
    "TWOPHASE_RETRY_FIRST_MS": "100",
    "TWOPHASE_RETRY_CAP_MS": "500",
    "TWOPHASE_GRPC_PORT": "off",
    # Below its horizon an audit cannot tell a lost message from a cleaned one, and gids here carry no birth.
    "TWOPHASE_RETENTION_MS": "0",
}
_PAUSE = threading.Event()


def pause(seconds: float) -> None:
    """Let a fault last."""
    _PAUSE.wait(seconds)


class Node:
    """One server process and its network to the database."""

    def __init__(self, number: int, service: processes.Service, proxy: Proxy) -> None:
        self.number = number
        self.service = service
        self.proxy = proxy

    @property
    def port(self) -> int:
        return self.service.port

    def start(self) -> None:
        """Start the process, again and again while the database is not there yet."""
        for _ in range(20):
            try:
                self.service.start()
            except RuntimeError as error:
                if "TP-4009" not in str(error):
                    raise
                pause(0.2)
            else:
                return
        raise AssertionError(f"node {self.number} does not start:\n{self.service.log_end()}")

    def freeze(self) -> None:
        os.kill(self.service.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.service.pid, signal.SIGCONT)

    def metrics(self) -> dict[str, float]:
        """Return unlabelled metrics by name; empty when it does not answer."""
        try:
            with urllib.request.urlopen(f"{self.service.url}/metrics", timeout=3) as answer:
                text = answer.read().decode()
        except (OSError, urllib.error.HTTPError):
            return {}
        return {
            sample.name: sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if not sample.labels
        }

    def shown(self, timeout_s: float = 60.0) -> dict[str, float]:
        """Return the metrics of a running node, however long its answer takes.

        It may be slow after what it went through before.
        """
        deadline = time.monotonic() + timeout_s
        while not (found := self.metrics()):
            assert time.monotonic() < deadline, f"node {self.number} does not answer:\n{self.service.log_end()}"
            pause(0.05)
        return found

    def wait_until(self, metric: str, value: float, timeout_s: float = 60.0) -> bool:
        """Wait for a metric; return True when it reaches the value in time."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.metrics().get(metric, -1.0) >= value:
                return True
            pause(0.1)
        return False


def place_in(shown: dict[str, float]) -> tuple[int, int]:
    """Return (slot, epoch) in a node's metrics.

    What is compared with its other metrics must be of the same moment: a node may lose its slot between two.
    """
    return int(shown["twophase_node"]), int(shown["twophase_node_epoch"])


class Cluster:
    """The nodes and their database."""

    def __init__(self, server: PostgresServer, database: Database, nodes: Sequence[Node]) -> None:
        self.server = server
        self.dsn = database.dsn
        self.nodes = list(nodes)

    @property
    def ports(self) -> list[int]:
        return [node.port for node in self.nodes]

    def start(self) -> None:
        """Start every node, side by side."""
        processes.start_those_down([node.service for node in self.nodes])

    def place_of(self, node: Node) -> tuple[int, int]:
        """Return (slot, epoch) of a running node."""
        return place_in(node.shown())

    def wait_taken(self, place: tuple[int, int], timeout_s: float = 30.0) -> bool:
        """Wait until the epoch of a slot is ended; return True when it is in time."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.ask("select epoch from node where id = %s", place[0])[0][0] != place[1]:
                return True
            pause(0.1)
        return False

    def ask(self, statement: str, *values: object) -> list[tuple[int, ...]]:
        """Return rows from the database itself."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(statement.encode(), values).fetchall()

    def ask_text(self, statement: str) -> str:
        """Return the one value of a query."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            row = connection.execute(statement.encode()).fetchone()
        assert row is not None, "there is an answer"
        return str(row[0])

    def unfinished(self) -> int:
        """Return the number of messages that are not final."""
        return self.ask("select count(*) from message")[0][0]

    def wait_left(self, timeout_s: float = 30.0) -> None:
        """Return when PostgreSQL has ended the statements of killed nodes."""
        deadline = time.monotonic() + timeout_s
        while self.ask("select count(*) from pg_stat_activity where usename like 'node\\_%%'")[0][0]:
            assert time.monotonic() < deadline, "it ends"
            pause(0.05)

    def wait_rest(self, timeout_s: float) -> None:
        """Return when nothing is unfinished, or when time is up.

        The checker then reports what is left.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self.unfinished():
            pause(0.1)


@contextlib.contextmanager
def cluster(
    folder: Path, server: PostgresServer, planted: str | None = None, *, lease_ms: int = LEASE_MS
) -> Iterator[Cluster]:
    """Yield a cluster on a fresh database with its witnesses; no node runs yet.

    Everything is killed at the end.

    Arguments:
        planted: a bug for every node (see `tests.crash.planted`).
        lease_ms: of every node; long where a busy machine must not look like a silent node.
    """
    database = server.create_database("twophase")
    asyncio.run(_make_schema(database.dsn))
    witness.install(database.dsn, lease_ms, NODES, database.password)
    with contextlib.ExitStack() as stack:
        nodes: list[Node] = []
        for number in range(NODES):
            proxy = stack.enter_context(Proxy(database.host, database.port))
            user = witness.user_of(number)
            through = f"postgresql://{user}:{database.password}@127.0.0.1:{proxy.port}/{database.name}"
            port = processes.keep_port()
            command = [sys.executable, "-m", "twophase", "server", "--http-port", str(port)]
            environment = {**SETTINGS, "TWOPHASE_STORE": through, "TWOPHASE_LEASE_MS": str(lease_ms)}
            service = processes.Service(f"node-{number}", command, environment, folder, port)
            if planted is not None:
                service.run_through([sys.executable, "-m", "tests.crash.planted", planted])
            stack.callback(service.kill)
            nodes.append(Node(number, service, proxy))
        yield Cluster(server, database, nodes)


async def _make_schema(dsn: str) -> None:
    store = PostgresStore(dsn)
    await store.start()
    await store.stop()
