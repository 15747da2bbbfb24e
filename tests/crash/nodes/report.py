"""The story of a message that did not become final.

It holds everything that is known of the message, and is for the person who must find the cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import connect
from psycopg.rows import dict_row

from tests.crash.nodes.cluster import Cluster, Node
from tests.crash.nodes.ledger import Ledger, Record

STORIES_MAX = 5
_LINES_MAX = 30
_LIVE = """
select gid, state, parked, done, attempts, version, node, epoch, decided_by, body_size, created_ms,
    now_ms - created_ms as age_ms, due_ms, due_ms - now_ms as due_in_ms
from (
    select message.*, octet_length(body) as body_size,
        floor(extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms
    from message order by due_ms limit %s
) as unfinished
"""
_PLACES = """
select id, epoch, fence, owner <> '' as held, flushes,
    floor(extract(epoch from clock_timestamp()) * 1000)::bigint - seen_ms as seen_ms_ago
from node order by id
"""
_OPEN = """
select usename, state, wait_event, now() - xact_start as open_for, left(query, 100) as query
from pg_stat_activity where usename like 'node\\_%%' and xact_start is not null
"""


def stories(cluster: Cluster, ledger: Ledger) -> list[str]:
    """Return a text for each of the first unfinished messages, and one of the nodes.

    It is empty when all are final. The nodes must run: their metrics and logs are part of it.
    """
    live = _rows(cluster, _LIVE, STORIES_MAX)
    if not live:
        return []
    nodes = [f"place {row}" for row in _rows(cluster, _PLACES)] + [f"open {row}" for row in _rows(cluster, _OPEN)]
    nodes += [line for node in cluster.nodes for line in _node(node)]
    return [*(_story(cluster, row, ledger.records.get(row["gid"])) for row in live), _text("the nodes", nodes)]


def _story(cluster: Cluster, row: dict[str, Any], record: Record | None) -> str:
    attempts = _rows(cluster, "select * from attempt where gid = %s order by id", row["gid"])
    shown = [f"row {row}", f"producer {_known(record)}", *(f"attempt {one}" for one in attempts[-_LINES_MAX:])]
    for node in cluster.nodes:
        lines = [line for line in node.service.log_lines() if row["gid"] in line]
        shown += [f"{node.service.name}: {line}" for line in lines[-_LINES_MAX:]]
    return _text(row["gid"], shown)


def _known(record: Record | None) -> str:
    return "none" if record is None else str({name: getattr(record, name) for name in Record.__slots__})


def _node(node: Node) -> list[str]:
    metrics = {name: value for name, value in node.metrics().items() if name.startswith("twophase_") and value}
    log = node.service.log_lines()[-_LINES_MAX:]
    return [f"{node.service.name} shows {metrics}", *(f"{node.service.name}: {line}" for line in log)]


def _text(title: str, lines: Sequence[str]) -> str:
    return "\n    ".join([title, *lines])


def _rows(cluster: Cluster, statement: str, *values: object) -> list[dict[str, Any]]:
    with connect(cluster.dsn, autocommit=True, row_factory=dict_row) as connection:
        return connection.execute(statement.encode(), values).fetchall()
