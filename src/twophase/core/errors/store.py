"""Faults of the coordinator's own database: codes TP-4000 to TP-4011."""

from __future__ import annotations

from typing import ClassVar

from twophase.core.errors.base import Fate, TwophaseError


class StoreError(TwophaseError):
    """The coordinator's store failed."""

    code = "TP-4000"
    fate = Fate.UNDECIDED
    remedy = "Nothing acknowledged is lost. See the cause; unfinished messages continue at the next start."
    remedy_at_start: ClassVar[str] = ""
    """Remedy for a program that meets the error at its start.

    Empty means the usual one.
    """

    @property
    def remedy_now(self) -> str:
        """Remedy for a command, or for a program as it starts."""
        return self.remedy if "remedy" in vars(self) else self.remedy_at_start or self.remedy

    def at_start(self) -> str:
        """Return the reason why a program did not start.

        It decides about no message, and nothing recovers by itself.
        """
        return f"{self.code}: {self.message} {self.remedy_now}"


class StoreLocked(StoreError):
    """Another server owns this store."""

    code = "TP-4001"
    fate = Fate.UNCHANGED
    remedy = "Stop the other server, or give this one another --store."


class StoreCorrupt(StoreError):
    """The store file is damaged."""

    code = "TP-4002"
    remedy = "Keep the file as it is, and restore from a backup or recover it with `sqlite3 FILE .recover`."


class NotAStore(StoreCorrupt):
    """The file is not a twophase store, and was not changed."""

    code = "TP-4008"
    fate = Fate.UNCHANGED
    remedy = "Give another file as --store; if this one used to be the store, restore it from a backup."


class StoreReadOnly(StoreError):
    """The store cannot be written."""

    code = "TP-4003"
    remedy = "Give the server's user write permission for the file and its folder."


class StoreFull(StoreError):
    """There is no space left for the store."""

    code = "TP-4004"
    remedy = "Free space on the store's disk. The request that failed was not acknowledged."
    remedy_at_start = "Free space on the store's disk, then start again."


class SchemaTooNew(StoreError):
    """The store was written by a newer twophase."""

    code = "TP-4005"
    fate = Fate.UNCHANGED
    remedy = "Upgrade twophase to the version that wrote it; schemas only migrate forward."


class StoreFenced(StoreError):
    """Another process has taken this node's slot, so this process may no longer write."""

    code = "TP-4006"
    remedy = (
        "Send again, to any node; repeating is safe. On a shared database this node takes a new slot by itself; with a "
        "SQLite file the process stops. The node that took over finishes its messages."
    )


class UnsafeDurability(StoreError):
    """The database would acknowledge a commit before it is durable."""

    code = "TP-4007"
    fate = Fate.UNCHANGED
    remedy = "Set the store's database to flush on commit, as the message says, then start the server again."


class StoreUnavailable(StoreError):
    """The store's database cannot be reached, or does not answer in time."""

    code = "TP-4009"
    remedy = "Make sure that the database runs and accepts connections. The server then recovers by itself; retry."
    remedy_at_start = "Make sure that the database runs and accepts connections, then start again."


class SchemaMissing(StoreError):
    """The store's schema is missing, older than this twophase, or half migrated."""

    code = "TP-4010"
    fate = Fate.UNCHANGED
    remedy = "Run `twophase migrate --store URL` as a user who may create tables, then start the server again."


class StoreDenied(StoreError):
    """The database refuses this user: the password is wrong, or a privilege is missing."""

    code = "TP-4011"
    fate = Fate.UNCHANGED
    remedy = "Correct the user and password in --store, or grant the privilege that the message names."
