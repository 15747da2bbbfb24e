"""A straightforward coordinator: one statement and one durable commit a call.

Group commit is measured against it. It speaks the same gRPC, by grpc.aio, calls branches by the same HTTP client,
and keeps a message in one row: inserted by Prepare, changed by Submit, changed when the branches have answered.
Three commits a message, nothing else: no check-back, no retry, no lease, so a real one would be slower. Each commit is
on disk before the answer, as with ours. Run it for nothing but measuring.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

import grpc
import grpc.aio
import msgspec
import uvloop

from twophase.grpc_wire.messages import SERVICE, parse_request
from twophase.http_client.client import HttpClient

_CONNECTIONS: Final = 32
_TIMEOUT_MS: Final = 3_000
_HEADERS: Final = (("Content-Type", "application/json"),)
_TABLE: Final = "CREATE TABLE plain_message (gid varchar(128) PRIMARY KEY, status varchar(12), body {bytes})"
_INSERT: Final = "INSERT INTO plain_message (gid, status, body) VALUES ($1, 'prepared', $2)"
_SUBMIT: Final = "UPDATE plain_message SET status = 'submitted' WHERE gid = $1 AND status = 'prepared' RETURNING body"
_FINISH: Final = "UPDATE plain_message SET status = 'succeed' WHERE gid = $1 RETURNING body"


class Step(msgspec.Struct):
    """One branch."""

    action: str


class Rows(Protocol):
    """The table of the messages."""

    async def execute(self, statement: str, *values: Any) -> bytes | None: ...

    async def close(self) -> None: ...


class SqliteRows:
    """A file with one writer, in a thread of its own.

    Its write-ahead log is synchronized at every commit.
    """

    def __init__(self, file: str) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute(_TABLE.format(bytes="blob"))

    async def execute(self, statement: str, *values: Any) -> bytes | None:
        """One statement, committed."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._execute, statement, values)

    def _execute(self, statement: str, values: Sequence[Any]) -> bytes | None:
        row = self._connection.execute(statement.replace("$", "?"), values).fetchone()
        return None if row is None else bytes(row[0])

    async def close(self) -> None:
        """Close the file."""
        self._thread.shutdown()
        self._connection.close()


class PostgresRows:
    """A pool of connections; each statement is committed on its own."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    @classmethod
    async def connect(cls, url: str) -> PostgresRows:
        """Connect, and make the table."""
        import asyncpg  # noqa: PLC0415 -- an extra

        connect: Any = asyncpg.create_pool
        pool = await connect(url, min_size=_CONNECTIONS, max_size=_CONNECTIONS)
        await pool.execute(_TABLE.format(bytes="bytea"))
        return cls(pool)

    async def execute(self, statement: str, *values: Any) -> bytes | None:
        """One statement, committed."""
        found: bytes | None = await self._pool.fetchval(statement, *values)
        return found

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.close()


class Plain:
    """The service."""

    def __init__(self, rows: Rows, client: HttpClient) -> None:
        self._rows = rows
        self._client = client
        self._steps = msgspec.json.Decoder(list[Step])
        self._under_way: set[asyncio.Task[None]] = set()

    def handler(self) -> grpc.GenericRpcHandler:
        """Prepare and Submit."""
        methods: dict[str, Callable[[bytes, Any], Awaitable[bytes]]] = {
            "Prepare": self._prepare,
            "Submit": self._submit,
        }
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def _prepare(self, raw: bytes, _context: Any) -> bytes:
        await self._rows.execute(_INSERT, parse_request(raw).gid, raw)
        return b""

    async def _submit(self, raw: bytes, context: Any) -> bytes:
        body = await self._rows.execute(_SUBMIT, parse_request(raw).gid)
        if body is None:
            await context.abort(grpc.StatusCode.ABORTED, "not prepared FAILURE")
            raise AssertionError("abort raises")
        task = asyncio.get_running_loop().create_task(self._deliver(body))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return b""

    async def _deliver(self, body: bytes) -> None:
        message = parse_request(body)
        branches = zip(self._steps.decode(message.steps), message.payloads, strict=True)
        for number, (step, payload) in enumerate(branches, 1):
            url = f"{step.action}?branch_id={number:02}&gid={message.gid}&op=action&trans_type=msg"
            await self._client.fetch("POST", url, _HEADERS, payload, timeout_ms=_TIMEOUT_MS)
        await self._rows.execute(_FINISH, message.gid)


async def serve(store: str) -> None:
    """Serve until a signal arrives."""
    is_file = store.startswith("sqlite:///")
    rows: Rows = SqliteRows(store.removeprefix("sqlite:///")) if is_file else await PostgresRows.connect(store)
    client = HttpClient(connections_per_host=256, connections_max=4096, queue_per_host=1 << 20)
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((Plain(rows, client).handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await server.start()
    print(f"plain server ready: grpc://127.0.0.1:{port} (one commit a call)", flush=True)
    await stop.wait()
    await server.stop(1.0)
    await client.close()
    await rows.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """`python -m benchmarks.servers.plain --store URL`."""
    parser = argparse.ArgumentParser(description="One commit a call: what group commit is measured against.")
    parser.add_argument("--store", required=True, help="sqlite:///FILE, or a PostgreSQL URL")
    uvloop.run(serve(parser.parse_args(arguments).store))


if __name__ == "__main__":
    main()
