"""The embedded store: one SQLite file, one process, one connection that writes, one durable commit a flush.

A flush's statements run in the event loop's thread, its COMMIT in the writer's (ADR 0013).
"""

from twophase.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
