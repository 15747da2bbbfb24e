"""The embedded store: one SQLite file, one process, one writer thread, one durable commit a flush."""

from twophase.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
