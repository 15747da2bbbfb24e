"""The one connection that writes, and the fate of a flush when the disk fails.

Keeps I8 and correctness rules 19 and 20. A flush is one transaction, begun by the fence; COMMIT returns after the
fsync. A failure before COMMIT is rolled back and nothing has happened. A failure of COMMIT itself is ambiguous: the
frames may have reached the file before the fsync failed. Then the node's own epoch is bumped, which is a commit of its
own and so settles the outcome, and only then the file is read: `commit_count` shows whether it
happened. While that cannot be done either, no later flush is begun.

`seq` of history rows grows by exactly one a row, in commit order, and is never used twice.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from twophase.core.audit_log import AuditEntry, TokensSeen
from twophase.core.errors import StoreCorrupt, StoreError, StoreFenced, StoreReadOnly
from twophase.core.hooks import Clock
from twophase.stores.batch import Batch, Finish, FlushResult, Forgotten, NotApplied
from twophase.stores.rows import Subscriber
from twophase.stores.sqlite import auditing, queueing, reader, schema, statements
from twophase.stores.sqlite import connection as opening
from twophase.stores.sqlite.changes import Applying, CountShort, sort_by_kind
from twophase.stores.sqlite.failures import OPENING, is_busy, reported, store_error
from twophase.stores.sqlite.purge import Removable
from twophase.stores.sqlite.statements import NODE, ROWS_MAX
from twophase.stores.topic_rows import subscribers_text

_SLOW_S: Final = 0.05
"""The pages of a write that takes longer come from a slow disk."""
_SLOW_HERE_S: Final = 0.01
"""The same in the event loop's thread: meanwhile no client is served."""
_SLOW_FOR_S: Final = 1.0
"""Time behind such a write in which the event loop's thread writes nothing."""
_WAIT_AGAIN: Final = f"pragma busy_timeout = {opening.BUSY_TIMEOUT_MS}"
_Identity = tuple[int, int]


class Written(msgspec.Struct, frozen=True):
    """A flush before its COMMIT."""

    batch: Batch
    connection: sqlite3.Connection
    done: Applying
    commit_count: int


class Writer:
    """The writing side of one file.

    Every method runs in the writer's thread, or while that thread has nothing to do.

    Arguments:
        path: the database, without symbolic links.
        clock: the store's clock.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._owner = secrets.token_hex(8)
        self._epoch = 0
        self._connection: sqlite3.Connection | None = None
        self._files: dict[str, _Identity] = {}
        self._unsettled: int | None = None
        self._slow_until_s = 0.0

    @property
    def slot(self) -> tuple[int, int]:
        """The node and its epoch, (0, 0) until the slot is taken."""
        return (NODE, self._epoch) if self._epoch else (0, 0)

    def open(self) -> None:
        """Open, check, migrate, take the node's slot.

        Raises:
            StoreError: as `Store.start` says.
        """
        with reported(self._path, OPENING):
            connection = self._connection = opening.open_writer(self._path)
            version = schema.identify(connection, self._path)
            if version:
                opening.check_damage(connection, self._path)
            opening.make_durable(connection)
            schema.migrate(connection, version)
            connection.execute("begin immediate")
            connection.execute(statements.TAKE_SLOT, (NODE, self._owner, self._clock.now_ms()))
            connection.execute("commit")
            (self._epoch, *_) = connection.execute(statements.SLOT, (NODE,)).fetchone()
        self._remember_files()

    def close(self) -> None:
        """Close; it is safe to call twice.

        The last connection to close moves the log into the file.
        """
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    def flush(self, batch: Batch) -> FlushResult:
        """Make a batch durable, see `Store.flush`."""
        return self.commit(self.write(batch))

    def write(self, batch: Batch) -> Written:
        """Write a flush up to its COMMIT; `commit` must follow."""
        started_s = time.monotonic()
        self._check_files()
        try:
            connection = self._connection
            if connection is None or self._unsettled is not None:
                connection = self._ready()
            try:
                done, commit_count = self._transaction(connection, batch, sifting=False)
            except CountShort:
                try:
                    done, commit_count = self._transaction(connection, batch, sifting=True)
                except CountShort as error:
                    raise StoreCorrupt(f"{self._path}: a table and its index differ ({error}).") from error
        except sqlite3.Error as error:
            raise store_error(error, self._path, "writing") from error
        ended_s = time.monotonic()
        if ended_s - started_s > _SLOW_S:
            self._slow_until_s = ended_s + _SLOW_FOR_S
        return Written(batch, connection, done, commit_count)

    def write_at_once(self, batch: Batch) -> Written | None:
        """Write as `write` does, or do nothing and return None.

        It does nothing where the event loop's thread would have to wait.

        That is so when the file must be opened, when an earlier commit is unsettled, when a write of the last second
        was slow, and when another program holds a write transaction on the file.
        """
        connection = self._connection
        if connection is None or self._unsettled is not None or time.monotonic() < self._slow_until_s:
            return None
        try:
            connection.execute("pragma busy_timeout = 0")
        except sqlite3.Error as error:
            raise store_error(error, self._path, "writing") from error
        started_s = time.monotonic()
        try:
            written = self.write(batch)
        except StoreError as error:
            if is_busy(error.__cause__):
                return None
            raise
        else:
            ended_s = time.monotonic()
            if ended_s - started_s > _SLOW_HERE_S:
                self._slow_until_s = ended_s + _SLOW_FOR_S
            return written
        finally:
            if self._connection is connection:
                try:
                    connection.execute(_WAIT_AGAIN)
                except sqlite3.Error as error:
                    # A connection that would not wait is closed, with its open transaction; the next write opens one.
                    self._connection = None
                    connection.close()
                    raise store_error(error, self._path, "writing") from error

    def commit(self, written: Written) -> FlushResult:
        """Commit what was written, with its fsync; then read what was refused."""
        batch, done = written.batch, written.done
        try:
            self._commit(written.connection, written.commit_count)
        except sqlite3.Error as error:
            raise store_error(error, self._path, "writing") from error
        refused: dict[int, NotApplied] = {**done.rejected}
        if done.lost:
            with reported(self._path, "reading what was refused"):
                connection = self._ready_connection()
                for index in done.lost:
                    refused[index] = reader.get(connection, batch.items[index].gid)
        for index in done.forgotten:
            refused[index] = refused[index] or Forgotten(done.horizon_ms)
        return FlushResult(done.at_ms, refused, done.numbers)

    def forget(self, found: Removable) -> int:
        """Raise the history horizon, then remove the rows, in one commit.

        Returns the horizon after it.
        """
        self._check_files()
        with reported(self._path, "cleaning"):
            connection = self._ready()
            try:
                _, commit_count, _ = self._begin(connection, 0)
                connection.execute(statements.RAISE_HORIZON, (found.horizon_ms,))
                for statement, keys in (
                    (statements.FORGET_HISTORY, found.history),
                    (statements.FORGET_ATTEMPTS, found.attempts),
                ):
                    for start in range(0, len(keys), ROWS_MAX):
                        statement.run(connection, (NODE,), [(key,) for key in keys[start : start + ROWS_MAX]])
                if found.audit_until:
                    auditing.forget(connection, found.audit_until)
                horizon_ms = reader.horizon_ms(connection)
            except BaseException:
                self._roll_back(connection)
                raise
            self._commit(connection, commit_count)
        return horizon_ms

    def forget_entries(self, old: list[queueing.Old]) -> None:
        """Remove entries of queues in a commit of its own, see `QueueStore.purge_queues`."""
        self._alone("cleaning", lambda connection: queueing.forget(connection, old))

    def _alone(self, doing: str, write: Callable[[sqlite3.Connection], object]) -> None:
        self._check_files()
        with reported(self._path, doing):
            connection = self._ready()
            try:
                _, commit_count, _ = self._begin(connection, 0)
                write(connection)
            except BaseException:
                self._roll_back(connection)
                raise
            self._commit(connection, commit_count)

    def note_takeover(self, at_ms: int, *, again: bool) -> None:
        """Note a takeover in a commit of its own, see `Store.note_takeover`."""
        noted = (at_ms, int(again))
        self._alone("taking over", lambda connection: connection.execute(statements.NOTE_TAKEOVER, noted))

    def append_audit(self, entries: Sequence[AuditEntry]) -> None:
        """Write acts in a commit of their own, see `Store.append_audit`."""
        self.act("writing the audit log", lambda _, __: True, entries)

    def note_tokens(self, known: TokensSeen, now: dict[str, str], entries: Sequence[AuditEntry]) -> bool:
        """Note tokens in a commit of their own, see `Store.note_tokens`."""
        return self.act("noting tokens", lambda connection, _: auditing.put_tokens(connection, known, now), entries)

    def change_topic(
        self, revision: int, name: str, subscribers: Sequence[Subscriber] | None, entry: AuditEntry | None
    ) -> bool:
        """Change one topic in a commit of its own, see `Store.change_topic`."""

        def change(connection: sqlite3.Connection, at_ms: int) -> bool:
            if connection.execute(statements.BUMP_TOPICS, (revision,)).rowcount != 1:
                return False
            if subscribers is None:
                connection.execute(statements.REMOVE_TOPIC, (name,))
            else:
                row = (name, revision + 1, at_ms, subscribers_text(subscribers))
                connection.execute(statements.PUT_TOPIC, row)
            return True

        return self.act("changing a topic", change, () if entry is None else (entry,))

    def act(
        self, doing: str, change: Callable[[sqlite3.Connection, int], bool], entries: Sequence[AuditEntry] = ()
    ) -> bool:
        """Make a change with the rows of its acts, in a commit of its own.

        It passes the fence as a flush does.

        Arguments:
            doing: what this is, for errors.
            change: makes it; given the time of the commit. False takes it back, and so does an error.
            entries: the acts.
        """
        self._check_files()
        with reported(self._path, doing):
            connection = self._ready()
            try:
                begun, commit_count, _ = self._begin(connection, 0)
                if not change(connection, begun.at_ms):
                    self._roll_back(connection)
                    return False
                auditing.append(connection, begun.at_ms, NODE, entries)
            except BaseException:
                self._roll_back(connection)
                raise
            self._commit(connection, commit_count)
        return True

    def _transaction(self, connection: sqlite3.Connection, batch: Batch, *, sifting: bool) -> tuple[Applying, int]:
        try:
            applying, commit_count, seq = self._begin(connection, [*map(type, batch.items)].count(Finish))
            changes = sort_by_kind(batch.items)
            if applying.horizon_ms:
                changes = applying.without_forgotten(changes)
            applying.apply(applying.sift(changes) if sifting else changes)
            if batch.attempts:
                applying.record(batch.attempts)
            if batch.audited:
                not_applied = applying.lost | applying.rejected.keys()
                acts = [entry for index, entry in batch.audited.items() if index not in not_applied]
                auditing.append(connection, applying.at_ms, NODE, acts)
            if batch.appends:
                refused = applying.lost.union(applying.rejected)
                applying.numbers = queueing.append(connection, applying.at_ms, batch.items, batch.appends, refused)
            if batch.progress:
                queueing.report(connection, applying.at_ms, batch.progress)
            if applying.seq != seq:
                connection.execute(statements.CORRECT_SEQ, (NODE, applying.seq))
        except BaseException:
            self._roll_back(connection)
            raise
        return applying, commit_count

    def _begin(self, connection: sqlite3.Connection, finishes: int) -> tuple[Applying, int, int]:
        """Begin a transaction and pass the fence.

        Returns what it may do, its number, and the last history number it takes.
        """
        connection.execute("begin immediate")
        at_ms = self._clock.now_ms()
        if connection.execute(statements.FENCE, (NODE, self._epoch, finishes, at_ms)).rowcount != 1:
            raise StoreFenced(f"{self._path}: epoch {self._epoch} of this process has ended.")
        _, _, seq, commit_count, horizon_ms = connection.execute(statements.SLOT, (NODE,)).fetchone()
        return Applying(connection, NODE, self._epoch, at_ms, seq - finishes, horizon_ms), commit_count, seq

    def _commit(self, connection: sqlite3.Connection, commit_count: int) -> None:
        try:
            connection.execute("commit")
        except sqlite3.Error as error:
            self._unsettled = commit_count
            self._roll_back(connection)
            failure = store_error(error, self._path, "committing")
            try:
                happened = self._settle(self._ready_connection())
            except StoreFenced:
                raise
            except (sqlite3.Error, StoreError):
                raise failure from error
            if not happened:
                raise failure from error

    def _settle(self, connection: sqlite3.Connection) -> bool:
        """Return True when the commit whose outcome is unknown has happened.

        Nothing of it can happen afterwards.
        """
        assert self._unsettled is not None, "there is something to settle"
        try:
            connection.execute("begin immediate")
            if connection.execute(statements.BUMP_EPOCH, (NODE, self._owner)).rowcount != 1:
                raise StoreFenced(f"{self._path}: another process has taken over after a failed commit.")
            epoch, _, _, commit_count, _ = connection.execute(statements.SLOT, (NODE,)).fetchone()
            connection.execute("commit")
        except BaseException:
            self._roll_back(connection)
            raise
        self._epoch = epoch
        happened: bool = commit_count >= self._unsettled
        self._unsettled = None
        return happened

    def _ready(self) -> sqlite3.Connection:
        connection = self._ready_connection()
        if self._unsettled is not None:
            self._settle(connection)
        return connection

    def _ready_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            self._check_file(str(self._path))
            connection = opening.open_writer(self._path)
            try:
                opening.make_durable(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
            # Closing the one before may have removed its log, and this one has made another.
            self._remember_files()
        return self._connection

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("rollback")
        except sqlite3.Error:
            # A connection that cannot even roll back is thrown away; closing it undoes what was open.
            self._connection = None
            connection.close()

    def _remember_files(self) -> None:
        self._files = {path: _identity(path) for path in (str(self._path), f"{self._path}-wal")}

    def _check_files(self) -> None:
        """Refuse to write into files that a restart would not find.

        They were moved, replaced or removed meanwhile.
        """
        if self._connection is not None:
            path = ""
            try:
                for path, known in self._files.items():
                    status = os.stat(path)  # noqa: PTH116 -- on the way of every flush; pathlib costs twice as much
                    if (status.st_dev, status.st_ino) != known:
                        break
                else:
                    return
            except PermissionError as error:
                raise StoreReadOnly(f"{path}: the server's user may not look into its folder any more.") from error
            except OSError:
                pass
            raise StoreCorrupt(f"{path} was moved, replaced or removed while this server used it.")

    def _check_file(self, path: str) -> None:
        try:
            same = _identity(path) == self._files[path]
        except PermissionError as error:
            raise StoreReadOnly(f"{path}: the server's user may not look into its folder any more.") from error
        except OSError:
            same = False
        if not same:
            raise StoreCorrupt(f"{path} was moved, replaced or removed while this server used it.")


def _identity(path: str) -> _Identity:
    status = os.stat(path)  # noqa: PTH116 -- on the way of every flush, where pathlib costs twice as much
    return status.st_dev, status.st_ino
