"""The cleaning of barrier rows beside a service's own work.

This module decides when, how often and with which calls rows are cleaned. A cleaner never joins a business transaction
and never delays an answer: it gets a hint after one, and works in its own thread or task. It asks the coordinators
that it was given, because a header of a call could be forged or old. It cannot know other coordinators, so it is off
until the service names them.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from twophase.barrier.asking import LOCK_TIMEOUT_MS
from twophase.barrier.bounded_cleaning import Agree, Alone, CleanedSome, Rest, clean_some
from twophase.barrier.cleaning import KEEP_LEAST_MS, KEEP_MS
from twophase.barrier.dialect import DEFAULT_TABLE, validate_table
from twophase.barrier.open import aopen_transaction, is_async, open_transaction, refuse_no_engine
from twophase.barrier.transaction import aperform, perform
from twophase.client.horizons import Frozen, agree
from twophase.core.address import shown_address
from twophase.core.bearer import authorization_of
from twophase.core.errors import ConfigurationError, TwophaseError

_PAUSE_S: Final = 60.0
_IDLE_PAUSE_S: Final = 3600.0
_REST: Final = 4
"""Times the length of a transaction, before the next."""

_log = logging.getLogger("twophase.barrier")


class BarrierCleaner:
    """The cleaner of one database's barrier table.

    It cleans at most once a minute, and at most 500 rows a time.
    """

    def __init__(
        self,
        engine: Any,
        coordinators: Sequence[str],
        *,
        keep: timedelta = timedelta(milliseconds=KEEP_MS),
        table: str = DEFAULT_TABLE,
        authorization: str | None = None,
        ended: Callable[[], None] | None = None,
    ) -> None:
        """Nothing is cleaned before the first `hint`.

        Arguments:
            engine: an engine, pool or alias, which the service uses as well; blocking or async.
            coordinators: the HTTP address of *every* coordinator whose messages are prepared from this database or
                whose branches are called in it. One that is missing here may call a branch whose row is gone.
            keep: rows younger than this stay in any case; at least a day.
            table: the barrier's name in that database, `name` or `schema.name`.
            authorization: sent as the `Authorization` header of every question; by default the token in
                `TWOPHASE_TOKEN`.
            ended: called in the thread when it has ended its work.

        Raises:
            ConfigurationError: no coordinator, one that is no http address, too short a `keep`, or a wrong table.
            UnsupportedEngine: a URL, or plainly no engine.
        """
        refuse_no_engine(engine)
        if isinstance(coordinators, str) or not coordinators:
            raise ConfigurationError("coordinators: name every coordinator that uses this table, as a list.")
        wrong = next(
            (coordinator for coordinator in coordinators if not coordinator.startswith(("http://", "https://"))), None
        )
        if wrong is not None:
            raise ConfigurationError(f"coordinators: {shown_address(wrong)!r} is not an http:// or https:// address.")
        if any(hasattr(engine, name) for name in ("cursor", "in_transaction", "is_in_transaction")):
            raise ConfigurationError("engine: give an engine, a pool or an alias; a connection has work of its own.")
        keep_ms = keep // timedelta(milliseconds=1)
        if keep_ms < KEEP_LEAST_MS:
            raise ConfigurationError(f"keep: {keep} is too short; the least is a day.")
        self._engine = engine
        self._coordinators = tuple(coordinators)
        self._keep_ms = keep_ms
        self._table = validate_table(table)
        self._authorization = authorization_of(authorization=authorization)
        self._ended = ended
        self._after = -1
        self._running = threading.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        # Processes that start together do not clean together.
        self._next_s = time.monotonic() + random.uniform(0, _PAUSE_S)  # noqa: S311 -- no secret

    def hint(self) -> None:
        """Clean now, if it is time; return at once.

        With an async engine, call it where its event loop runs. A thread or task that cannot be started is logged: the
        request that gives the hint may be committed, and its answer must not become an error.
        """
        if time.monotonic() < self._next_s or not self._running.acquire(blocking=False):
            return
        self._next_s = time.monotonic() + _PAUSE_S
        try:
            if is_async(self._engine):
                task = asyncio.get_running_loop().create_task(self._aclean())
                self._tasks.add(task)  # a loop holds its tasks weakly
                task.add_done_callback(self._tasks.discard)
            else:
                threading.Thread(target=self._clean, name="twophase barrier cleaning", daemon=True).start()
        except Exception as error:  # noqa: BLE001 -- the log reports it; the answer stays
            self._running.release()
            self._postpone(f"no thread or task can be started: {error}")
        except BaseException:
            self._running.release()
            raise

    def _clean(self) -> None:
        try:
            self._report(self.clean_now())
        except Exception as error:  # noqa: BLE001 -- the log reports it; the service continues
            self._failed(error)
        finally:
            self._running.release()
            if self._ended is not None:
                self._ended()

    async def _aclean(self) -> None:
        try:
            self._report(await self.aclean_now())
        except Exception as error:  # noqa: BLE001 -- the same
            self._failed(error)
        finally:
            self._running.release()

    def _report(self, cleaned: CleanedSome) -> None:
        if cleaned.rows:
            _log.info("%d old barrier rows removed", cleaned.rows)
        elif cleaned.after < 0:
            # All rows are young; the next ones become old only in days.
            self._next_s = time.monotonic() + random.uniform(_IDLE_PAUSE_S / 2, _IDLE_PAUSE_S)  # noqa: S311 -- no secret

    def _failed(self, error: Exception) -> None:
        self._postpone(error if isinstance(error, Frozen | TwophaseError) else type(error).__name__)

    def _postpone(self, why: object) -> None:
        self._next_s = time.monotonic() + random.uniform(_IDLE_PAUSE_S / 8, _IDLE_PAUSE_S / 4)  # noqa: S311 -- no secret
        _log.warning("no barrier rows are removed now: %s", why)

    def clean_now(self) -> CleanedSome:
        """Clean once, in this thread.

        Raises:
            Frozen: a coordinator does not agree. BarrierTableMissing, and what the database raises.
        """
        run = clean_some(self._table, self._keep_ms, self._after)
        took_s = 0.0
        try:
            command = next(run)
            while True:
                began_s = time.monotonic()
                try:
                    result = self._perform(command, took_s)
                except Exception as error:  # noqa: BLE001 -- thrown into the run, which decides
                    command = run.throw(error)
                else:
                    command = run.send(result)
                took_s = time.monotonic() - began_s
        except StopIteration as stop:
            return self._stopped(stop)

    async def aclean_now(self) -> CleanedSome:
        """`clean_now` for an async engine."""
        run = clean_some(self._table, self._keep_ms, self._after)
        took_s = 0.0
        try:
            command = next(run)
            while True:
                began_s = time.monotonic()
                try:
                    result = await self._aperform(command, took_s)
                except Exception as error:  # noqa: BLE001 -- as above
                    command = run.throw(error)
                else:
                    command = run.send(result)
                took_s = time.monotonic() - began_s
        except StopIteration as stop:
            return self._stopped(stop)

    def _stopped(self, stop: StopIteration) -> CleanedSome:
        cleaned: CleanedSome = stop.value
        self._after = cleaned.after
        return cleaned

    def _agreed(self, asked: Agree) -> tuple[int, int]:
        agreed = agree(
            self._coordinators, identity=asked.identity, now_ms=asked.now_ms, authorization=self._authorization
        )
        return agreed.oldest_undecided_ms, agreed.oldest_unfinished_ms

    def _perform(self, command: Alone | Agree | Rest, took_s: float) -> Any:
        match command:
            case Agree():
                return self._agreed(command)
            case Rest():
                return time.sleep(took_s * _REST)
            case Alone(rule, commit):
                transaction = open_transaction(self._engine, lock_timeout_ms=LOCK_TIMEOUT_MS)
                try:
                    result = perform(rule(transaction.dialect), transaction)
                    if commit:
                        transaction.commit()
                finally:
                    transaction.rollback()
                    transaction.close()
                return result

    async def _aperform(self, command: Alone | Agree | Rest, took_s: float) -> Any:
        match command:
            case Agree():
                return await asyncio.to_thread(self._agreed, command)
            case Rest():
                return await asyncio.sleep(took_s * _REST)
            case Alone(rule, commit):
                transaction = await aopen_transaction(self._engine, lock_timeout_ms=LOCK_TIMEOUT_MS)
                try:
                    result = await aperform(rule(transaction.dialect), transaction)
                    if commit:
                        await transaction.commit()
                finally:
                    await transaction.rollback()
                    await transaction.close()
                return result
