"""dtm's store as dtm leaves it.

Its tables or keys are made from dtm's documentation and from recorded answers.
"""

from __future__ import annotations

import abc
import json
import threading
import time
from collections.abc import Sequence
from typing import Any, Literal

import psycopg
import pymysql
import redis

from tests.servers.database import Database

Branch = tuple[str, str, str, bytes | None]
"""branch id, status, address, payload."""

DAY_S = 86_400


class DtmStore(abc.ABC):
    """One empty store of dtm; times are seconds from now."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @property
    @abc.abstractmethod
    def url(self) -> str:
        """Return the URL that the command takes."""

    @property
    def options(self) -> tuple[str, ...]:
        """Return the command's other options."""
        return ()

    @abc.abstractmethod
    def put(
        self,
        gid: str,
        status: str,
        branches: Sequence[Branch] = (),
        *,
        trans_type: str = "msg",
        query_prepared: str | None = "",
        protocol: str | None = "http",
        options: str | None = '{"concurrent":false}',
        custom_data: str | None = None,
        ext_data: str | None = None,
        created_s: float = -3600,
        due_s: float | None = -1800,
        interval: int = 10,
    ) -> None:
        """Insert one transaction."""

    @abc.abstractmethod
    def put_topic(self, name: str, subscribers: str) -> None:
        """Insert one topic; `subscribers` is the text that dtm writes."""

    @abc.abstractmethod
    def touch(self, gid: str) -> None:
        """Change the row as dtm's cron does when it takes a transaction up."""

    @abc.abstractmethod
    def everything(self) -> object:
        """Return the whole content, for comparison."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the connection."""


class SqlStore(DtmStore):
    """MySQL or PostgreSQL."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._alone = threading.Lock()
        self._connection: Any = self.connect()
        for statement in self.schema.split(";"):
            if statement.strip():
                self.execute(statement)

    schema: str
    at: str

    @abc.abstractmethod
    def connect(self) -> Any: ...

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._alone, self._connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall()) if cursor.description else []

    def close(self) -> None:
        self._connection.close()

    def put(
        self,
        gid: str,
        status: str,
        branches: Sequence[Branch] = (),
        *,
        trans_type: str = "msg",
        query_prepared: str | None = "",
        protocol: str | None = "http",
        options: str | None = '{"concurrent":false}',
        custom_data: str | None = None,
        ext_data: str | None = None,
        created_s: float = -3600,
        due_s: float | None = -1800,
        interval: int = 10,
    ) -> None:
        now = time.time()
        created, due = now + created_s, None if due_s is None else now + due_s
        self.execute(
            "insert into trans_global (gid, trans_type, status, query_prepared, protocol, options, custom_data, "
            "ext_data, next_cron_interval, create_time, update_time, next_cron_time, owner) "
            f"values (%s, %s, %s, %s, %s, %s, %s, %s, %s, {self.at}, {self.at}, {self.at}, '')",
            *(gid, trans_type, status, query_prepared or "", protocol or "", options, custom_data, ext_data, interval),
            *(created, created, due),
        )
        for branch_id, branch_status, url, payload in branches:
            self.execute(
                "insert into trans_branch_op (gid, url, bin_data, branch_id, op, status, create_time, update_time) "
                f"values (%s, %s, %s, %s, 'action', %s, {self.at}, {self.at})",
                *(gid, url, payload, branch_id, branch_status, created, created),
            )

    def put_topic(self, name: str, subscribers: str) -> None:
        self.execute("insert into kv (cat, k, v, version) values ('topics', %s, %s, 1)", name, subscribers)

    def touch(self, gid: str) -> None:
        self.execute(
            f"update trans_global set next_cron_time = {self.at}, owner = %s where gid = %s",
            *(time.time() + 10, str(time.monotonic_ns()), gid),
        )

    def everything(self) -> object:
        return [
            self.execute(f"select * from {table} order by id") for table in ("trans_global", "trans_branch_op", "kv")
        ]


class MysqlStore(SqlStore):
    at = "from_unixtime(%s)"
    schema = """
        create table trans_global (
            id bigint not null auto_increment primary key, gid varchar(128) not null, trans_type varchar(45) not null,
            status varchar(12) not null, query_prepared varchar(1024) not null, protocol varchar(45) not null,
            create_time datetime, update_time datetime, finish_time datetime, rollback_time datetime,
            options varchar(1024), custom_data varchar(1024), next_cron_interval int, next_cron_time datetime,
            owner varchar(128) not null, ext_data text, result varchar(1024), rollback_reason varchar(1024),
            unique key gid (gid), key owner (owner), key status_next_cron_time (status, next_cron_time)
        ) engine = innodb default charset = utf8mb4;
        create table trans_branch_op (
            id bigint not null auto_increment primary key, gid varchar(128) not null, url varchar(1024) not null,
            data text, bin_data blob, branch_id varchar(128) not null, op varchar(45) not null,
            status varchar(45) not null, finish_time datetime, rollback_time datetime, create_time datetime,
            update_time datetime, unique key gid_uniq (gid, branch_id, op)
        ) engine = innodb default charset = utf8mb4;
        create table kv (
            id bigint not null auto_increment primary key, cat varchar(45) not null, k varchar(128) not null, v text,
            version bigint default 1, create_time datetime, update_time datetime, unique key uniq_k (cat, k)
        ) engine = innodb default charset = utf8mb4
    """

    @property
    def url(self) -> str:
        return self.database.dsn

    def connect(self) -> Any:
        address = self.database
        return pymysql.connect(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password,
            database=address.name,
            autocommit=True,
            ssl_disabled=True,  # otherwise it reads this machine's certificates for every connection
        )


class PostgresStore(SqlStore):
    at = "to_timestamp(%s)"
    schema = """
        create table trans_global (
            id bigserial primary key, gid varchar(128) not null unique, trans_type varchar(45) not null,
            status varchar(45) not null, query_prepared varchar(1024) not null, protocol varchar(45) not null,
            create_time timestamp(0) with time zone, update_time timestamp(0) with time zone,
            finish_time timestamp(0) with time zone, rollback_time timestamp(0) with time zone,
            options varchar(1024), custom_data varchar(1024), next_cron_interval int,
            next_cron_time timestamp(0) with time zone, owner varchar(128) not null, ext_data text,
            result varchar(1024), rollback_reason varchar(1024)
        );
        create index on trans_global (status, next_cron_time);
        create table trans_branch_op (
            id bigserial primary key, gid varchar(128) not null, url varchar(1024) not null, data text, bin_data bytea,
            branch_id varchar(128) not null, op varchar(45) not null, status varchar(45) not null,
            finish_time timestamp(0) with time zone, rollback_time timestamp(0) with time zone,
            create_time timestamp(0) with time zone, update_time timestamp(0) with time zone,
            constraint gid_branch_uniq unique (gid, branch_id, op)
        );
        create table kv (
            id bigserial primary key, cat varchar(45) not null, k varchar(128) not null, v text,
            version bigint default 1, create_time timestamp(0) with time zone,
            update_time timestamp(0) with time zone, unique (cat, k)
        )
    """

    @property
    def url(self) -> str:
        return self.database.dsn

    def connect(self) -> Any:
        return psycopg.connect(self.database.dsn, autocommit=True)


class RedisStore(DtmStore):
    @property
    def url(self) -> str:
        return f"redis://:{self.database.password}@{self.database.host}:{self.database.port}/0"

    @property
    def options(self) -> tuple[str, ...]:
        return ("--prefix", self.database.name)

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._redis: Any = redis.Redis.from_url(self.url, decode_responses=True)

    def run(self, *words: str) -> Any:
        return self._redis.execute_command(*words)

    def close(self) -> None:
        self._redis.close()

    def put(
        self,
        gid: str,
        status: str,
        branches: Sequence[Branch] = (),
        *,
        trans_type: str = "msg",
        query_prepared: str | None = "",
        protocol: str | None = "http",
        options: str | None = '{"concurrent":false}',
        custom_data: str | None = None,
        ext_data: str | None = None,
        created_s: float = -3600,
        due_s: float | None = -1800,
        interval: int = 10,
        steps: Sequence[str] = (),
    ) -> None:
        now = time.time()
        known: dict[str, Any] = {
            "id": 0, "create_time": _rfc3339(now + created_s), "update_time": _rfc3339(now + created_s), "gid": gid,
            "trans_type": trans_type, "status": status, "query_prepared": query_prepared, "protocol": protocol,
            "options": options, "custom_data": custom_data, "ext_data": ext_data, "next_cron_interval": interval,
            "concurrent": False,
            "next_cron_time": None if due_s is None else _rfc3339(now + due_s),
            "steps": [{"action": url} for url in steps],
        }  # fmt: skip
        body = json.dumps({name: value for name, value in known.items() if value not in (None, "", [])})
        prefix = self.database.name
        self.run("SET", f"{prefix}_g_{gid}", body, "EX", str(7 * DAY_S))
        self.run("SET", f"{prefix}_s_{gid}", status, "EX", str(7 * DAY_S))
        self.run("ZADD", f"{prefix}_u", str(int(now + (due_s or 0))), gid)
        for branch_id, branch_status, url, payload in branches:
            row = {
                "id": 0, "create_time": _rfc3339(now), "update_time": _rfc3339(now), "gid": gid, "url": url,
                "bin_data": _base64(payload), "branch_id": branch_id, "op": "action", "status": branch_status,
            }  # fmt: skip
            rest = {name: value for name, value in row.items() if value not in (None, "")}
            self.run("RPUSH", f"{prefix}_b_{gid}", json.dumps(rest))

    def put_topic(self, name: str, subscribers: str) -> None:
        known = {"id": 0, "cat": "topics", "k": name, "v": subscribers, "version": 1}
        self.run("SET", f"{self.database.name}_kv_topics_{name}", json.dumps(known))

    def touch(self, gid: str) -> None:
        self.run("ZADD", f"{self.database.name}_u", str(time.monotonic()), gid)

    def everything(self) -> object:
        found: dict[str, Any] = {}
        for key in self.run("KEYS", f"{self.database.name}*"):
            kind = self.run("TYPE", key)
            if kind == "string":
                found[key] = self.run("GET", key)
            elif kind == "list":
                found[key] = self.run("LRANGE", key, "0", "-1")
            else:
                found[key] = self.run("ZRANGE", key, "0", "-1", "WITHSCORES")
        return found


Kind = Literal["mysql", "postgresql", "redis"]


def _rfc3339(at_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_s)) + "Z"


def _base64(payload: bytes | None) -> str | None:
    import base64

    return base64.b64encode(payload).decode() if payload else None
