"""A coordinator as a process, a counting branch, a check-back server, the ledger.

The branch counts the calls that reach it.
"""

from __future__ import annotations

import contextlib
import http.server
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from sqlalchemy import text

from benchmarks.servers.ports import KeptPort
from tests.crash.checker import rows
from tests.support.http_server import QuietHandler
from twophase_spark.sink.checkback_server import CheckBackServer
from twophase_spark.sink.database import engine_of, install_ledger
from twophase_spark.sink.ledger import Ledger

PATIENCE_S = 120
QUICK = {
    "TWOPHASE_CHECK_BACK_FIRST_MS": "200",
    "TWOPHASE_CHECK_BACK_CAP_MS": "1000",
    "TWOPHASE_RETRY_FIRST_MS": "100",
    "TWOPHASE_RETRY_CAP_MS": "500",
    # A branch here keeps each call; a call given up because the machine is slow would arrive a second time.
    "TWOPHASE_REQUEST_TIMEOUT_MS": "60000",
}


class Receiver(http.server.ThreadingHTTPServer):
    """A branch that keeps each call's gid and body."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        self.calls: list[tuple[str, bytes, dict[str, str]]] = []
        super().__init__(("127.0.0.1", 0), _Branch)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/in"

    @property
    def counted(self) -> Counter[str]:
        """Return how often each message arrived."""
        return Counter(gid for gid, _, _ in self.calls)

    def bodies(self) -> list[Any]:
        """Return the payloads, decoded, in the order of their text."""
        return [msgspec.json.decode(body) for body in sorted(body for _, body, _ in self.calls)]


class _Branch(QuietHandler):
    protocol_version = "HTTP/1.1"
    server: Receiver  # pyright: ignore[reportIncompatibleVariableOverride] -- the library types it widely

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        gid = parse_qs(urlsplit(self.path).query)["gid"][0]
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.calls.append((gid, body, {**headers, "path": urlsplit(self.path).path}))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()


class Harness:
    """The whole harness.

    `store` is the coordinator's URL as it takes it; `ledger` a reference as the sink takes it.
    """

    def __init__(self, folder: Path, store: str, ledger: str) -> None:
        self.folder = folder
        self.store = store
        self.ledger = ledger
        self.receiver = Receiver()
        self.engine = engine = engine_of(ledger)
        install_ledger(engine)
        self.book = Ledger(engine)
        self.checkback = CheckBackServer(engine, "127.0.0.1", 0)
        self._port = KeptPort()
        self.url = f"http://127.0.0.1:{self._port.number}"
        self._server: subprocess.Popen[str] | None = None
        for server in (self.receiver, self.checkback):
            server.daemon_threads = False  # so that `server_close` waits for them, and no connection is left behind
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def start(self) -> None:
        """Start the coordinator, on the port that is reserved for it."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TWOPHASE_")} | QUICK
        command = [sys.executable, "-m", "twophase", "server", "--store", self.store, "--http-port"]
        command.append(str(self._port.number))
        with (self.folder / "server.log").open("ab") as log:
            self._server = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, cwd=self.folder
            )
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        assert self.url in line, (self.folder / "server.log").read_text()[-2_000:]

    @property
    def pid(self) -> int:
        """Return the coordinator's process."""
        assert self._server is not None
        return self._server.pid

    def kill(self) -> None:
        """Kill the coordinator."""
        if self._server is not None:
            with self._server as server:
                server.send_signal(signal.SIGKILL)
            self._server = None

    def stop(self) -> None:
        self.kill()
        for server in (self.receiver, self.checkback):
            server.shutdown()
            server.server_close()
        self.engine.dispose()
        self._port.release()

    def options(self, **others: str) -> dict[str, str]:
        """Return the sink's options, with everything that must be there."""
        return {
            "coordinator": self.url,
            "ledger": self.ledger,
            "publisher": "orders",
            "keyColumns": "id",
            "checkUrl": self.checkback.url,
            "url": self.receiver.url,
            **others,
        }

    def until_delivered(self, count: int) -> None:
        """Wait until `count` messages have arrived, and none is left to deliver."""
        self.until(lambda: len(self.receiver.counted) >= count and not self.live(), f"{count} delivered")

    def live(self) -> dict[str, int]:
        """Return the number of messages in each state, final ones excepted."""
        return Counter(str(state) for (state,) in rows(self.store, "select state from message"))

    def until(self, holds: Any, what: str) -> None:
        ends = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < ends, f"{what}: {len(self.receiver.counted)} came, {self.live()} are left"
            time.sleep(0.05)

    def forget_history(self, horizon_ms: int = 0) -> None:
        """Delete history, as retention does after some weeks, and record how far it came."""
        with contextlib.closing(sqlite3.connect(self.store.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute("delete from history")
            connection.execute("update store_meta set value = ? where name = 'history_horizon_ms'", (horizon_ms,))

    def set_begun(self, group: str, begun_ms: int) -> None:
        """Let a batch have begun at another time."""
        with self.engine.begin() as connection:
            connection.execute(
                text("update twophase_spark_batch set begun_ms = :ms where group_id = :g"),
                {"ms": begun_ms, "g": group},
            )

    def undo_published(self, group: str) -> None:
        """Undo the note that all of a batch is submitted.

        The driver seems to have died before it wrote the note.
        """
        with self.engine.begin() as connection:
            connection.execute(
                text("update twophase_spark_batch set published_ms = null where group_id = :g"), {"g": group}
            )

    def stop_by_force(self, gid: str) -> None:
        """Stop a message as an operator.

        The producer of a prepared one is asked first, and answers "in progress".
        """
        request = urllib.request.Request(f"{self.url}/api/twophase/messages/{gid}/stop", b'{"override":true}')
        urllib.request.urlopen(request, timeout=60).close()

    def subscribe(self, topic: str, url: str) -> None:
        """Call `url` for every message to `topic`."""
        body = msgspec.json.encode({"topic": topic, "url": url})
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self.url}/api/twophase/topics/subscribe", body, headers)
        urllib.request.urlopen(request, timeout=60).close()

    def state(self, gid: str) -> str:
        """Return a message's state; empty for an unknown one."""
        with urllib.request.urlopen(f"{self.url}/api/dtmsvr/query?gid={gid}", timeout=60) as answer:
            found = msgspec.json.decode(answer.read())["transaction"]
        return "" if found is None else str(found["status"])


@contextlib.contextmanager
def running_harness(folder: Path, store: str, ledger: str) -> Iterator[Harness]:
    """Yield a harness that has begun."""
    harness = Harness(folder, store, ledger)
    try:
        harness.start()
        yield harness
    finally:
        harness.stop()
