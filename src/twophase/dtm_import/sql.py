"""dtm's tables in MySQL, MariaDB or PostgreSQL.

They are only read: a user who may select is enough. Everything is read in one snapshot, so a message and its branches
belong together. Of finished transactions, which dtm never removes, none is touched: the unfinished ones are found by
the index that dtm's own cron uses.
"""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import sqlalchemy

from twophase.core.errors import SourceError
from twophase.dtm_import.found import Found, FoundBranch, Others, Topic, topic

PAGE_ROWS: Final = 100
DEFAULT_DATABASE: Final = "dtm"
_NEEDED: Final = {
    "trans_global": {
        "id", "gid", "trans_type", "status", "query_prepared", "protocol", "options", "custom_data", "ext_data",
        "owner", "next_cron_interval", "next_cron_time", "create_time",
    },
    "trans_branch_op": {"gid", "branch_id", "op", "status", "url", "bin_data", "data"},
    "kv": {"cat", "k", "v"},
}  # fmt: skip
_OPTIONAL_TABLES: Final = frozenset({"kv"})
"""Topics came late; an older dtm has none."""
_FOLDER = importlib.resources.files("twophase.dtm_import") / "sql"
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
_NO_TABLES: Final = "Name the database that dtm's Store.Db names (MySQL: dtm), for PostgreSQL also its Store.Schema."


class SqlSource:
    """One database of dtm.

    Arguments:
        url: where it is; without a database's name, dtm's usual one on MySQL.
        zone: the time zone of dtm's machine, where it is not the database's.
    """

    nothing_here = ""  # dtm's tables are here

    def __init__(self, url: sqlalchemy.URL, zone: ZoneInfo | None = None) -> None:
        self._engine_name = "postgresql" if url.get_backend_name() == "postgresql" else "mysql"
        if not url.database and self._engine_name == "mysql":
            url = url.set(database=DEFAULT_DATABASE)
        self._zone = zone
        self._engine = sqlalchemy.create_engine(
            url, hide_parameters=True, isolation_level="REPEATABLE READ", poolclass=sqlalchemy.NullPool
        )
        self._has_topics = True

    def check(self) -> None:
        """Look whether dtm's tables are here.

        Raises:
            SourceError: they are not, or are others than we know.
            SQLAlchemyError: the database refuses.
        """
        with self._engine.connect() as connection:
            looking = sqlalchemy.inspect(connection)
            for table, needed in _NEEDED.items():
                if not looking.has_table(table):
                    if table in _OPTIONAL_TABLES:
                        self._has_topics = False
                        continue
                    raise SourceError(f"there is no table {table} here.", remedy=_NO_TABLES)
                missing = needed - {str(column["name"]) for column in looking.get_columns(table)}
                if missing:
                    named = ", ".join(sorted(missing))
                    raise SourceError(
                        f"{table} has no column {named}: not a schema of dtm that this version knows.",
                        remedy="Known is the schema of dtm 1.10 to 1.19. Upgrade dtm's schema first, as its page says.",
                    )

    def mark(self) -> str:
        """See `Source`."""
        with self._engine.connect() as connection:
            return str(tuple(connection.execute(self._statement("mark")).one()))

    def count(self) -> int:
        """See `Source`."""
        with self._engine.connect() as connection:
            return len(connection.execute(self._statement("unfinished")).all())

    def pages(self) -> Iterator[Sequence[Found]]:
        """See `Source`."""
        with self._engine.connect() as connection:
            self._set_zone(connection)
            ids = [int(number) for (number,) in connection.execute(self._statement("unfinished"))]
            for start in range(0, len(ids), PAGE_ROWS):
                yield self._page(connection, ids[start : start + PAGE_ROWS])

    def others(self) -> Sequence[Others]:
        """See `Source`."""
        with self._engine.connect() as connection:
            rows = connection.execute(self._statement("others")).all()
        return [Others(str(kind), str(status), int(count)) for kind, status, count in rows]

    def topics(self) -> Sequence[Topic]:
        """See `Source`."""
        if not self._has_topics:
            return []
        with self._engine.connect() as connection:
            return [topic(_text(name), value) for name, value in connection.execute(self._statement("topics"))]

    def close(self) -> None:
        """See `Source`."""
        self._engine.dispose()

    def _page(self, connection: sqlalchemy.Connection, ids: list[int]) -> list[Found]:
        known: dict[str, Any] = {"ids": ids}
        if self._engine_name == "postgresql":
            known["zone"] = None if self._zone is None else self._zone.key
        rows = connection.execute(self._statement("messages", "ids"), known).all()
        gids = [_text(row[0]) for row in rows]
        branches: dict[str, list[FoundBranch]] = {gid: [] for gid in gids}
        for gid, *of_branch in connection.execute(self._statement("branches", "gids"), {"gids": gids}):
            # MySQL compares without regard to case and trailing blanks: another message's rows may be among them.
            if gid in branches:
                branches[gid].append(_branch(*of_branch))
        zone = self._zone if self._engine_name == "mysql" else None
        return [_found(row, branches[gid], zone) for gid, row in zip(gids, rows, strict=True)]

    def _set_zone(self, connection: sqlalchemy.Connection) -> None:
        """Have MySQL read a local time as if it were UTC; `_ms` makes the true time of it.

        MySQL knows zones by their names only where they were loaded, and an offset is right for half of the year.
        """
        if self._zone is not None and self._engine_name == "mysql":
            connection.execute(sqlalchemy.text("set time_zone = '+00:00'"))

    def _statement(self, name: str, *lists: str) -> sqlalchemy.TextClause:
        text = _COMMENT.sub("", (_FOLDER / self._engine_name / f"{name}.sql").read_text())
        return sqlalchemy.text(text).bindparams(*(sqlalchemy.bindparam(one, expanding=True) for one in lists))


def _found(row: Any, branches: list[FoundBranch], zone: ZoneInfo | None) -> Found:
    gid, trans_type, status, query_prepared, protocol, options, custom_data, ext_data, interval, created_s, due_s = row
    return Found(
        _text(gid),
        _text(trans_type),
        _text(status),
        tuple(branches),
        _text(query_prepared),
        _text(protocol),
        _text(options),
        _text(custom_data),
        _text(ext_data),
        _ms(created_s, zone),
        _ms(due_s, zone),
        int(interval or 0),
    )


def _branch(branch_id: Any, op: Any, status: Any, url: Any, payload: Any) -> FoundBranch:
    data = payload.encode() if isinstance(payload, str) else bytes(payload or b"")
    return FoundBranch(_text(branch_id), _text(op), _text(status), _text(url), data)


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _ms(seconds: Any, zone: ZoneInfo | None) -> int | None:
    """Return a time in milliseconds.

    With `zone` it is a local time there, which was read as UTC. Zero is what MySQL makes of the date "0000-00-00".
    """
    if not seconds:
        return None
    if zone is None:
        return int(seconds * 1000)
    local = datetime.fromtimestamp(float(seconds), UTC).replace(tzinfo=zone)
    return int(local.timestamp() * 1000)
