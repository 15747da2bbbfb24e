"""The witnesses of a run: triggers in the database, and a reader of history.

The reader follows history as it grows.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import psycopg
from psycopg import sql

_PERIOD_S = 0.2


def user_of(number: int) -> str:
    """Return the database user of a node."""
    return f"node_{number}"


def install(dsn: str, lease_ms: int, nodes: int, password: str) -> None:
    """Put the triggers on a store that is not used yet, and make the nodes' users.

    The store's schema must exist.
    """
    text = (Path(__file__).parent / "witness.sql").read_text().replace("{lease_ms}", str(lease_ms))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(text.encode())
        for number in range(nodes):
            create = sql.SQL("create role {} login superuser password {}")
            connection.execute(create.format(sql.Identifier(user_of(number)), sql.Literal(password)))


class Follower:
    """A reader of history after the last number of each node, again and again.

    It reads as a streaming reader does. New rows must continue exactly where it stopped: a gap means that numbers are
    not given in commit order.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="follower", daemon=True)
        self.last: dict[int, int] = {}
        self.gaps: list[str] = []
        self.rows = 0

    def __enter__(self) -> Follower:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(20)

    def _follow(self) -> None:
        while not self._done.is_set():
            with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self._dsn, autocommit=True) as database:
                while not self._done.wait(_PERIOD_S):
                    self._look(database)
            self._done.wait(_PERIOD_S)
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self._dsn, autocommit=True) as database:
            self._look(database)

    def _look(self, database: psycopg.Connection[tuple[int, ...]]) -> None:
        for (node,) in database.execute("select id from node").fetchall():
            last = self.last.get(node, 0)
            found = database.execute(
                "select seq from history where node = %s and seq > %s order by seq", (node, last)
            ).fetchall()
            for (seq,) in found:
                if seq != last + 1:
                    self.gaps.append(f"node {node}: {seq} came after {last}")
                last = seq
            self.last[node] = last
            self.rows += len(found)
