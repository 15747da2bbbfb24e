"""A service with one bug planted: `python -m tests.crash.planted BUG MODULE …`.

The crash suite must catch it. Each bug breaks one line on which a promise depends; nothing of this is reachable from
the product.
"""

from __future__ import annotations

import asyncio
import runpy
import sys
from collections.abc import Callable
from typing import Any


def barrier_insert_missing() -> None:
    """Let the producer run its business without the barrier row."""
    from twophase.barrier import producer

    def nothing(*_: Any, **__: Any) -> Any:
        return None
        yield

    _replace_everywhere(producer.begin_producer, nothing)
    _replace_everywhere(producer.verify_producer, nothing)


def check_back_reads_only() -> None:
    """Let the check-back answer from what it reads, and bar nothing."""
    from twophase.barrier.asking import CheckBackAnswer, check_back
    from twophase.core.verdict import Verdict

    original = check_back

    def read_only(engine: Any, gid: str, **options: Any) -> Any:
        from sqlalchemy import text

        with engine.connect() as connection:
            row = connection.execute(
                text("select reason from barrier where gid = :gid and branch_id = '00'"), {"gid": gid}
            ).first()
        verdict = Verdict.COMMITTED if row is not None and row[0] == "msg" else Verdict.ROLLED_BACK
        return CheckBackAnswer(verdict, None, "read only")

    _replace_everywhere(original, read_only)


def acknowledged_before_flush() -> None:
    """Let the coordinator acknowledge a prepare or submit before it is durable.

    It flushes somewhat later.
    """
    from twophase.stores.postgres.store import PostgresStore
    from twophase.stores.sqlite.store import SqliteStore

    for engine in (SqliteStore, PostgresStore):
        engine.flush = _early(engine.flush)  # type: ignore[method-assign]


def _early(original: Callable[..., Any]) -> Callable[..., Any]:
    pending: set[asyncio.Task[Any]] = set()

    async def early(self: Any, batch: Any) -> Any:
        from twophase.stores.batch import FlushResult

        async def later() -> None:
            await asyncio.sleep(5.0)
            async with lock:
                await original(self, batch)

        task = asyncio.get_running_loop().create_task(later())
        pending.add(task)
        task.add_done_callback(pending.discard)
        return FlushResult(await self.now_ms(), {})

    lock = asyncio.Lock()
    return early


def effect_twice() -> None:
    """Let the branch barrier pass every call."""
    from twophase.barrier import branch

    original = branch.once

    def always(engine: Any, request: Any, function: Callable[[Any], Any], **_: Any) -> Any:
        with engine.begin() as connection:
            return function(connection)

    _replace_everywhere(original, always)


def appended_after_acknowledgement() -> None:
    """Let the SQLite store append some flushes after the flush that decides."""
    from twophase.stores.sqlite import queueing, statements

    original, late = queueing._put, []

    def put(connection: Any, statement: Any, shared: Any, rows: Any) -> None:
        if statement is not statements.QUEUE_APPEND:
            return original(connection, statement, shared, rows)
        late.append((shared, rows))
        if len(late) > 5:
            original(connection, statement, *late.pop(0))
        return None

    queueing._put = put  # type: ignore[assignment]


def consumed_before_flush() -> None:
    """Let the coordinator confirm a consumer's acknowledgement without a flush.

    It is flushed only where another caller waits for the cursor. Every kill finds some, however slow the machine and
    however long the peace before the kill.
    """
    from twophase.coordinator.queues.serving import Serving

    original = Serving._report

    async def finish(self: Any, cursor: Any, number: int) -> None:
        cursor.finish(number)

    def report(self: Any, cursor: Any, *, urgent: bool = False) -> None:
        if urgent:
            original(self, cursor, urgent=True)

    Serving.finish = finish  # type: ignore[method-assign]
    Serving._report = report  # type: ignore[method-assign]


BUGS: dict[str, Callable[[], None]] = {
    bug.__name__: bug
    for bug in (
        *(barrier_insert_missing, check_back_reads_only, acknowledged_before_flush, effect_twice),
        *(appended_after_acknowledgement, consumed_before_flush),
    )
}


def _replace_everywhere(original: object, replacement: object) -> None:
    """Put the replacement into every module that has imported the original.

    All of twophase is loaded by then.
    """

    replaced = 0
    for name, module in list(sys.modules.items()):
        if name.startswith("twophase"):
            for attribute, value in list(vars(module).items()):
                if value is original:
                    setattr(module, attribute, replacement)
                    replaced += 1
    assert replaced, "the planted bug must reach the code"


def main() -> None:
    """Plant the bug named first, then run the module named second.

    The rest are the module's arguments.
    """
    bug, module, *arguments = sys.argv[1:]
    BUGS[bug]()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
