"""The embedded store: one SQLite file and one process.

One connection writes, and a flush is one durable commit.

A flush's statements run in the event loop's thread, its COMMIT in the writer's (ADR 0013).
"""

from twophase.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
