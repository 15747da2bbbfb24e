"""Whole transfers by the SDK, and the same business transaction alone.

A transfer is the work of an application: prepare, one UPDATE and the barrier row in a PostgreSQL transaction on
asyncpg, submit, and the call of the branch. The application, its SDK and the branch service are this process. Alone,
the same UPDATE and the same barrier row commit without the SDK and without a message, by the fewest statements that
asyncpg allows. The difference is the cost of the promise.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal

from benchmarks.failure import BenchmarkFailed
from benchmarks.load.ledger import Ledger
from benchmarks.load.measurement import Measurement
from benchmarks.load.sink import Sink
from benchmarks.load.window import OnProgress, Watch, drained, silent
from benchmarks.load.workload import FIRST_NUMBER, PAYLOAD_BYTES_MIN, Gids, Workload
from benchmarks.servers.processes import Meter, Process
from twophase import AsyncClient, AsyncMessage
from twophase.barrier.installing import ainstall
from twophase.core.errors import ConfigurationError, TwophaseError

Pool = Any
"""The pool of asyncpg, which is an extra and has no types."""
ACCOUNTS: Final = 10_000
_AFTER_FAILURE_S: Final = 0.02
_UPDATE: Final = "update account set balance = balance - 1 where id = $1"
_ROW: Final = (
    "insert into barrier (trans_type, gid, branch_id, op, barrier_id, reason) "
    "values ('msg', $1, '00', 'msg', '01', 'msg')"
)
_TABLE: Final = "create table if not exists account (id int primary key, balance bigint not null)"
_FILL: Final = "insert into account select n, 1000000 from generate_series(1, $1::int) n on conflict do nothing"

Transfer = Callable[[int], Awaitable[None]]


class Transfers:
    """The runner of transfers, `workload.connections` at a time.

    Each has a database connection of its own.

    Arguments:
        workload: the number at a time, and the duration.
        database_url: the business database; table and accounts are made there.
        processes: those whose CPU and memory are accounted.
        on_progress: called with the progress.
    """

    def __init__(
        self,
        workload: Workload,
        database_url: str,
        processes: Sequence[Process] = (),
        on_progress: OnProgress = silent,
    ) -> None:
        self.workload = workload.check()
        self._database_url = database_url
        self._meter = Meter(processes, "application + branch")
        self._on_progress = on_progress
        self._ledger = Ledger(opened=True)
        self._working = False
        self._under_way = 0

    async def with_messages(self, server_url: str) -> Measurement:
        """Run transfers as applications write them.

        They count when their branch is called.

        Raises:
            ConfigurationError: no asyncpg, or no such database.
            BenchmarkFailed: no transfer succeeds.
        """
        sink = Sink(self._ledger, PAYLOAD_BYTES_MIN)
        branch_url = f"{await sink.start()}/01"
        check_url = f"{sink.url}/check"
        pool = await self._pool()
        try:
            async with AsyncClient(server_url) as coordinator:

                async def transfer(number: int) -> None:
                    message = AsyncMessage(coordinator, acknowledge=_acknowledge(self.workload))
                    message.add(branch_url, {"message": FIRST_NUMBER + number})
                    async with message.transaction(pool, check=check_url) as connection:
                        await connection.execute(_UPDATE, random.randint(1, ACCOUNTS))
                        # From here on the branch may be called: the commit comes next.
                        self._ledger.submitting(number, time.perf_counter())
                    if message.submitted:
                        self._ledger.acknowledge(number)
                    else:
                        self._ledger.fail("committed, but the submit did not get through")

                return await self._measure(transfer, lambda: self._ledger.delivered)
        finally:
            sink.stop()
            pool.terminate()

    async def alone(self) -> Measurement:
        """Run the business transaction with its barrier row, and nothing else.

        It counts when it has committed.
        """
        pool = await self._pool()
        gids = Gids()

        async def transfer(_number: int) -> None:
            async with pool.acquire() as connection, connection.transaction():
                await connection.execute(_ROW, gids.new().decode())
                await connection.execute(_UPDATE, random.randint(1, ACCOUNTS))
            self._ledger.prepared += 1

        try:
            return await self._measure(transfer, lambda: self._ledger.prepared)
        finally:
            pool.terminate()

    async def _measure(self, transfer: Transfer, done: Callable[[], int]) -> Measurement:
        self._working = True
        workers = [asyncio.ensure_future(self._work(transfer)) for _ in range(self.workload.connections)]
        try:
            window = await Watch(self.workload, self._ledger, done, self._meter, self._on_progress).measure()
            self._working = False
            drained_s = await drained(self._ledger, lambda: self._under_way, self.workload.drain_s)
        finally:
            self._working = False
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return window.measurement(self.workload, self._ledger, drained_s)

    async def _work(self, transfer: Transfer) -> None:
        """Run one transfer after the other."""
        ledger = self._ledger
        while self._working:
            started_s = time.perf_counter()
            number = ledger.begin(started_s)
            self._under_way += 1
            try:
                await transfer(number)
            except (TwophaseError, OSError, _postgres_error()) as error:
                ledger.fail(f"transfer: {type(error).__name__}: {error}"[:160])
                await asyncio.sleep(_AFTER_FAILURE_S)
            else:
                if number >= ledger.measured_from:
                    ledger.transfer.add(time.perf_counter() - started_s)
            finally:
                self._under_way -= 1

    async def _pool(self) -> Pool:
        asyncpg = _asyncpg()
        size = self.workload.connections
        try:
            pool: Pool = await asyncpg.create_pool(self._database_url, min_size=size, max_size=size)
            await pool.execute(_TABLE)
            await pool.execute(_FILL, ACCOUNTS)
            await ainstall(pool)
        except (OSError, asyncpg.PostgresError) as error:
            raise BenchmarkFailed(
                f"the business database cannot be used: {error}", remedy="Correct --database."
            ) from error
        return pool


def _acknowledge(workload: Workload) -> Literal["durable", "early"]:
    return "early" if workload.durability == "check-back" else "durable"


def _asyncpg() -> Any:
    try:
        import asyncpg  # noqa: PLC0415 -- an extra, needed for this mode alone
    except ImportError as error:
        raise ConfigurationError(
            "--mode app: asyncpg is not installed.", remedy="Run: pip install 'twophase[postgres]'"
        ) from error
    return asyncpg


def _postgres_error() -> type[Exception]:
    error: type[Exception] = _asyncpg().PostgresError
    return error
