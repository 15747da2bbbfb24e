"""The ledger of a run as databases, for the audit to read.

Producers and consumers would have left them so.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from tests.crash.nodes.ledger import Ledger
from twophase.barrier.installing import install

if TYPE_CHECKING:
    from twophase_spark.locations import Location

_ROW = "insert into barrier (trans_type, gid, branch_id, op, barrier_id, reason) values "


def written(folder: Path, dsn: str, ledger: Ledger) -> list[Location]:
    """Write the producers' decisions and the branches' effects.

    Returns the databases in which an audit finds all sides.

    Arguments:
        folder: for the two files.
        dsn: of the nodes' store.
    """
    from twophase_spark.locations import Role, parse_coordinator, parse_named

    producers, branches = (f"sqlite:///{folder / f'{name}.db'}" for name in ("producers", "branches"))
    records = ledger.records.copy()
    decided = [(gid, record.verdict) for gid, record in records.items() if record.verdict is not None]
    _write(producers, _ROW + "('msg', ?, '00', 'msg', '01', ?)", decided)
    done = [(gid, branch) for gid, record in records.items() for branch in record.done]
    _write(branches, _ROW + "('msg', ?, ?, 'action', '01', 'action')", done)
    return [
        parse_coordinator(dsn),
        parse_named(Role.PRODUCER, f"producers={producers}"),
        parse_named(Role.CONSUMER, f"branches={branches}"),
    ]


def _write(url: str, statement: str, values: list[tuple[str, str]]) -> None:
    install(url)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        connection.executemany(statement, values)
